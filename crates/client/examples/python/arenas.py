"""Tuples of 48 MiB, built and thrown away over and over beside some that stay, in arenas of a server: python3 arenas.py SOCKET"""

import sys

import outpage_arenas

outpage_arenas.install(sys.argv[1], 256 << 20)


def build(of, count):
    return [(of, n, n * n) for n in range(1000, 1000 + count)]


def check(of, found):
    for n, entry in enumerate(found, 1000):
        assert entry == (of, n, n * n), (of, n, entry)


kept = []
for turn in range(6):
    scratch = build(turn, 200_000)
    check(turn, scratch)
    kept.append(build(100 + turn, 5_000))
    del scratch
for turn, found in enumerate(kept):
    check(100 + turn, found)

counts = outpage_arenas.counts()
print(", ".join(f"{name}: {count}" for name, count in counts.items()))
assert counts["freed"] > 0 and counts["pages used again"] > 0, counts
