"""A program with a need of its own: says for how long it ran, and a digest of what it read.

needs.py table MIB LOOKUPS   a dictionary, looked up at random, some keys more often than others
needs.py stream MIB PASSES   bytes that are read and changed from beginning to end
needs.py sleeper MIB SECONDS bytes that are written, and read again after a sleep
"""

import random
import sys
import time
import zlib

MIB = 1 << 20
PAGE = 4096
# Of an entry, its key and its value, as sys.getsizeof has them.
ENTRY_BYTES = 160


def table(mib, lookups):
    generator = random.Random(1)
    entries = mib * MIB // ENTRY_BYTES
    values = {number: f"value {number}" for number in range(entries)}
    digest = 0
    for _ in range(lookups):
        key = int(entries * generator.random() ** 2)
        digest = zlib.crc32(values[key].encode(), digest)
    return digest


def stream(mib, passes):
    data = bytearray(mib * MIB)
    digest = 0
    for number in range(passes):
        for at in range(0, len(data), PAGE):
            digest = zlib.crc32(data[at : at + PAGE], digest)
            data[at] = (at // PAGE + number) & 255
    return digest


def sleeper(mib, seconds):
    data = bytearray(random.Random(2).randbytes(MIB) * mib)
    time.sleep(seconds)
    return zlib.crc32(data)


def main():
    began = time.monotonic()
    kind, mib, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    digest = {"table": table, "stream": stream, "sleeper": sleeper}[kind](mib, number)
    slept = number if kind == "sleeper" else 0
    waited = time.monotonic() - began - slept
    print(kind, mib, number, digest, f"{waited:.2f}", flush=True)


main()
