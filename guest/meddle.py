"""A host that is not Outpage, or whoever else writes to the shared area: for tests of what either side makes of it.

SPDX-License-Identifier: MIT OR Apache-2.0
"""
import mmap
import random
import struct
import threading

# docs/notify.md: the words of the header, in bytes.
MAGIC, HEADER, OUT_HEAD, IN_HEAD, LOST, OUT_TAIL, SEEN_END = b"OPHN", 4096, 64, 68, 72, 128, 140
ENTRIES = 65536


def make(path, ram_mib, file_mib):
    """An area for a guest of `ram_mib` MiB, as a host makes it."""
    frames = ram_mib << 8
    words = [1, HEADER + 8 * ENTRIES + 4 * -(-frames // 32), frames, HEADER, ENTRIES, HEADER + 4 * ENTRIES, ENTRIES, HEADER + 8 * ENTRIES]
    with open(path, "wb") as file:
        file.truncate(file_mib << 20)
        file.write(MAGIC + struct.pack("<8I", *words))


class Meddler(threading.Thread):
    """Writes to the area every few milliseconds, until it is told to stop.

    all-out: the host says that every frame is out, and keeps saying so. garbage: the host puts anything into its rings, heads and bits.
    scribble: somebody overwrites everything that a guest could, header and all.
    """

    def __init__(self, path, what, seed=1):
        super().__init__(daemon=True)
        self.what, self.over, self.random = what, threading.Event(), random.Random(seed)
        with open(path, "r+b") as file:
            self.area = mmap.mmap(file.fileno(), 0)
        self.times = 0

    def run(self):
        act = {"all-out": self.all_out, "garbage": self.garbage, "scribble": self.scribble}[self.what]
        while not self.over.wait(0.02):
            act()
            self.times += 1

    def stop(self):
        self.over.set()
        self.join()
        self.area.close()

    def put(self, at, value):
        self.area[at:at + 4] = struct.pack("<I", value & 0xffffffff)

    def get(self, at):
        return struct.unpack("<I", self.area[at:at + 4])[0]

    def all_out(self):
        bits, frames = HEADER + 8 * ENTRIES, self.get(12)
        self.area[bits:bits + frames // 8] = b"\xff" * (frames // 8)
        # An entry was lost: the guest looks at all frames.
        self.put(LOST, self.get(LOST) + 1)

    def garbage(self):
        draw = self.random
        for _ in range(200):
            self.put(HEADER + 4 * draw.randrange(2 * ENTRIES), draw.choice([draw.getrandbits(32), draw.randrange(self.get(12))]))
            self.put(HEADER + 8 * ENTRIES + 4 * draw.randrange(self.get(12) // 32), draw.getrandbits(32))
        for at in (OUT_HEAD, IN_HEAD):
            self.put(at, draw.choice([draw.getrandbits(32), self.get(at) + draw.randrange(300)]))
        if draw.random() < 0.1:
            self.put(LOST, draw.getrandbits(32))

    def scribble(self):
        draw = self.random
        for at in range(0, 160, 4):
            self.put(at, draw.choice([0, draw.getrandbits(32), 0xffffffff]))
        at = draw.randrange(HEADER, len(self.area) - 4096)
        self.area[at:at + 4096] = draw.randbytes(4096)
