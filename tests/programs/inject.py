#!/usr/bin/env python3
"""Has every system call of the pager fail, one at a time, and sees that no byte is wrong.

  tests/programs/inject.py [--outpage PATH] [--where first,middle,last] [--only NAME] [--options "..."]

Counts the calls that the pager of a paging program makes, by kind; then runs the program again for each kind, each error that
the call can give (its man page's among ENOMEM, EAGAIN, EINTR and EIO, and half of what was asked for where it moves bytes) and each
place: the first call, one in the middle, the last. A run is right if the program found every byte right, or if it ended with one line of
outpage's. Anything else is told, and the exit code is 1. Exit code 77: programs cannot be traced or paged here.
"""

import argparse
import collections
import errno
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# A run takes half a second; a hundred times that is a hang.
HUNG_S = 60
RIGHT = b"16384 pages were right\n"

# By number (asm/unistd_64.h): name, and what the man page lists among the four errors. The userfaultfd calls: ioctl_userfaultfd(2) and
# fs/userfaultfd.c, which gives EAGAIN while mappings change, ENOMEM where there is no page; PAGEMAP_SCAN: EINTR, ENOMEM.
CALLS = {
    0: ("read", "EAGAIN EINTR EIO short"),
    # To eventfds only, which are written whole.
    1: ("write", "EAGAIN EINTR"),
    3: ("close", "EINTR EIO"),
    5: ("fstat", "ENOMEM"),
    7: ("poll", "EINTR ENOMEM"),
    9: ("mmap", "EAGAIN ENOMEM"),
    10: ("mprotect", "ENOMEM"),
    11: ("munmap", "ENOMEM"),
    16: ("ioctl", "EAGAIN ENOMEM"),
    # Of files in /proc, which never put off.
    17: ("pread64", "EINTR EIO short"),
    18: ("pwrite64", "EINTR EIO short"),
    25: ("mremap", "EAGAIN ENOMEM"),
    28: ("madvise", "EAGAIN EIO ENOMEM"),
    56: ("clone", "EAGAIN ENOMEM"),
    72: ("fcntl", "EAGAIN EINTR"),
    77: ("ftruncate", "EINTR EIO"),
    138: ("fstatfs", "EINTR EIO ENOMEM"),
    202: ("futex", "EAGAIN EINTR"),
    203: ("sched_setaffinity", ""),
    217: ("getdents64", "ENOMEM"),
    257: ("openat", "EINTR ENOMEM"),
    271: ("ppoll", "EINTR ENOMEM"),
    274: ("get_robust_list", ""),
    285: ("fallocate", "EINTR EIO"),
    290: ("eventfd2", "ENOMEM"),
    291: ("epoll_create1", "ENOMEM"),
    281: ("epoll_pwait", "EINTR"),
    295: ("preadv", "EAGAIN EINTR EIO short"),
    296: ("pwritev", "EAGAIN EINTR EIO short"),
    319: ("memfd_create", "ENOMEM"),
    323: ("userfaultfd", "ENOMEM"),
    332: ("statx", "ENOMEM"),
    425: ("io_uring_setup", "ENOMEM"),
    426: ("io_uring_enter", "EAGAIN EINTR"),
    427: ("io_uring_register", "ENOMEM"),
}
PAGEMAP_SCAN = "16:c0606610"
# FUTEX_WAKE, private or not: none of the errors (futex(2)).
FUTEX_WAKES = ("202:1", "202:81")


class Bench:
    def __init__(self, outpage, options, directory):
        self.directory = pathlib.Path(directory)
        for name in ("inject", "fill"):
            source = HERE / f"{name}.c"
            subprocess.run(["cc", "-O1", "-pthread", "-o", self.directory / name, source], check=True)
        self.told = self.directory / "told"
        self.command = [outpage, "run", "--quiet", "--memory", "32M", "--swap", str(self.directory), *options, "--"]

    def run(self, *how):
        """One run: exit status (None: it hung), output, error output, what the injector told."""
        self.told.write_text("")
        words = [self.directory / "inject", *how, self.told, self.directory / "fill", "64"]
        program = subprocess.Popen([*self.command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = program.communicate(timeout=HUNG_S)
            status = program.returncode
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            out, err = program.communicate()
            status = None
        return status, out, err, self.told.read_text()

    def counts(self):
        status, out, err, told = self.run("count")
        if status == 77:
            return None
        if status != 0 or out != RIGHT:
            sys.exit(f"the program does not run at all: {status} {out} {err}")
        return {call: int(count) for call, count in (line.split() for line in told.splitlines())}


def verdict(status, out, err):
    """None if the run was right, else what was wrong."""
    lines = [line for line in err.splitlines() if line.startswith(b"outpage: ")]
    if status is None:
        return "hung"
    if status == 0:
        return None if out == RIGHT else f"said {out!r}"
    if b"panicked" in err:
        return f"panicked: {err[:300]!r}"
    if out or len(lines) != 1:
        return f"ended with {status}, {out!r}, {err[:300]!r}"
    return None


def places(count, where):
    all_places = {"first": 1, "middle": (count + 1) // 2, "last": count}
    return sorted({all_places[name] for name in where})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outpage", default=str(HERE.parent.parent / "target/debug/outpage"))
    parser.add_argument("--where", default="first,middle,last")
    parser.add_argument("--only", default="", help="calls whose names begin so, or a kind of call as it is counted")
    parser.add_argument("--options", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        bench = Bench(args.outpage, args.options.split(), directory)
        counts = bench.counts()
        if counts is None:
            print("SKIPPED: programs cannot be traced here")
            return 77
        return enumerate_faults(bench, counts, args)


def enumerate_faults(bench, counts, args):
    tally, wrong = collections.Counter(), 0
    for call, count in sorted(counts.items(), key=lambda item: tuple(item[0].split(":"))):
        number = int(call.split(":")[0])
        name, errors = CALLS.get(number, (f"call {number}", ""))
        if args.only and args.only != call and not name.startswith(args.only):
            continue
        if call == PAGEMAP_SCAN:
            errors = "EINTR ENOMEM"
        if call in FUTEX_WAKES:
            errors = ""
        for how in errors.split():
            code = how if how == "short" else str(getattr(errno, how))
            for place in places(count, args.where.split(",")):
                status, out, err, told = bench.run(call, str(place), code)
                struck = told.strip() == "struck"
                problem = verdict(status, out, err)
                if not struck and status is not None and status >= 0 and problem is None:
                    tally["not reached"] += 1
                elif problem is None:
                    tally["went on" if status == 0 else "ended with a line"] += 1
                if problem:
                    wrong += 1
                    print(f"{name} ({call}) {place} of {count}, {how}: {problem}", flush=True)
                elif status != 0:
                    print(f"  {name} ({call}) {place} of {count}, {how}: {err.decode().strip()}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in tally.items()), f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
