"""Fills N MiB, then forks a pool whose workers read and change their copies of it."""

import hashlib
import multiprocessing
import random
import sys

MIB = 1 << 20
PIECES = 16
blocks = []
words = []


def fill(mib):
    """Three quarters in large blocks, the rest in small objects."""
    generator = random.Random(3)
    blocks.extend(bytearray(generator.randbytes(MIB)) for _ in range(mib * 3 // 4))
    words.extend(f"word {generator.random()}" for _ in range(mib * MIB // 4 // 80))


def work(piece):
    """Digest of a share of everything, a part of which is changed first."""
    digest = hashlib.sha256()
    for number in range(piece, len(blocks), PIECES):
        for at in range(0, MIB, 16384):
            blocks[number][at] ^= piece + 1
        digest.update(blocks[number])
    for word in words[piece::PIECES]:
        digest.update(word.encode())
    return digest.hexdigest()


def main():
    fill(int(sys.argv[1]))
    # A piece a process: nobody sees what another one changed.
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for result in pool.map(work, range(PIECES), chunksize=1):
            print(result)
    whole = hashlib.sha256()
    for block in blocks:
        whole.update(block)
    print(whole.hexdigest(), hashlib.sha256("".join(words).encode()).hexdigest())


main()
