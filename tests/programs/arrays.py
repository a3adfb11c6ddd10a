"""numpy: "matrix N" multiplies two N x N matrices, "sort N" sorts N numbers; prints digests."""

import hashlib
import sys

import numpy


def digest(array):
    return hashlib.sha256(memoryview(array).cast("B")).hexdigest()


def matrix(n):
    random = numpy.random.default_rng(1)
    a = random.random((n, n))
    b = random.random((n, n))
    # Rounded: the last bits depend on how many threads share the work.
    product = numpy.rint((a @ b) * 1024)
    print(digest(product), product[0, 0], product[-1, -1])


def sort(n):
    numbers = numpy.random.default_rng(2).random(n)
    numbers.sort()
    print(digest(numbers), bool((numbers[:-1] <= numbers[1:]).all()))


{"matrix": matrix, "sort": sort}[sys.argv[1]](int(sys.argv[2]))
