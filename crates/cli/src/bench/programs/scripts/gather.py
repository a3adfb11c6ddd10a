# An array of N doubles, a random permutation of it gathered, sorted and summed by parts.
import sys
import numpy

n = int(sys.argv[1])
random = numpy.random.RandomState(1)
values = random.rand(n)
order = random.permutation(n)
gathered = values[order]
values[order[: n // 4]] += 1.0
gathered.sort()
print(n, gathered[:: max(n // 16, 1)].sum().hex(), float(values[::97].sum()).hex())
