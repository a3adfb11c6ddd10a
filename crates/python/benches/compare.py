"""Sort, a product of matrices and a groupby over four times the limit: `outpage`, `numpy.memmap` and Dask, each in a process of its own.

    python compare.py FOLDER [--limit 64M] [--runs 3] [--work sort product groupby] [--cgroup /sys/fs/cgroup/memory]

Every result is compared with what is known of it. With `--cgroup`, the folder of the memory controller (version 1), what is not limited by itself runs in a group whose
memory, cache of files included, is the limit and what the interpreter takes (`BESIDE`); without it memmap and Dask have all of RAM, which is said. Times are of the work alone, without
making the data. Needs numpy; pandas and dask where they are there.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

# What the interpreter, numpy and pandas take before there is any data, measured as the peak of an empty run, rounded up.
BESIDE = 160 << 20


def values(count):
    """A permutation of 0..count, as floats, in blocks: no copy as large as the data. An odd factor and a power of two have no common divisor."""
    import numpy as np

    for start in range(0, count, 1 << 18):
        numbers = np.arange(start, min(count, start + (1 << 18)), dtype=np.uint64)
        yield start, ((numbers * np.uint64(2654435761)) % np.uint64(count)).astype(float)


def sort(array):
    count = len(array)
    for start, block in values(count):
        array[start : start + len(block)] = block
    began = time.monotonic()
    array.sort()
    took = time.monotonic() - began
    assert all(array[at] == at for at in range(0, count, 4093))
    return took


def product(a, b, c):
    a[:] = 1
    b[:] = 2
    began = time.monotonic()
    # By panels, each of which fits; OpenBLAS would go over all of `b` for each block of `a`.
    step = 256
    for row in range(0, len(a), step):
        for column in range(0, b.shape[1], step):
            c[row : row + step, column : column + step] = a[row : row + step] @ b[:, column : column + step]
    took = time.monotonic() - began
    assert (c[::61, ::67] == 2 * a.shape[1]).all()
    return took


def groupby(table):
    import pandas

    rows = len(table)
    for start, block in values(rows):
        table[start : start + len(block), 0] = block % 100
        table[start : start + len(block), 1] = 1
    frame = pandas.DataFrame(table, columns=["key", "value"], copy=False)
    began = time.monotonic()
    # In blocks: pandas makes codes and masks as long as what it groups, in ordinary memory.
    step = 1 << 18
    parts = [frame[at : at + step].groupby("key")["value"].sum() for at in range(0, rows, step)]
    sums = pandas.concat(parts).groupby(level=0).sum()
    took = time.monotonic() - began
    assert sums.sum() == rows and len(sums) == 100
    return took


def side(limit):
    """Three matrices of that side are four times the limit, by blocks of 256."""
    return int((4 * limit / 8 / 3) ** 0.5) // 256 * 256


def power(limit):
    return 1 << ((4 * limit // 8).bit_length() - 1)


def arrays(kind, folder, limit):
    import numpy as np

    if kind == "outpage":
        import outpage

        pager = outpage.Pager(limit, swap=folder)
        return pager.zeros

    def mapped(shape, order="C"):
        file = tempfile.NamedTemporaryFile(dir=folder)
        array = np.memmap(file, dtype=float, mode="w+", shape=shape, order=order)
        # The mapping goes on when the file is closed, and unlinked.
        file.close()
        return array

    return mapped


def dask_work(what, folder, limit):
    import dask
    import dask.array as da
    import numpy as np

    dask.config.set(scheduler="threads", temporary_directory=folder)
    if what == "product":
        n = side(limit)
        a = da.ones((n, n), chunks=(512, 512))
        b = 2 * da.ones((n, n), chunks=(512, 512))
        began = time.monotonic()
        # Made where it is needed, and summed up block by block: Dask has no array that it writes in place.
        total = (a @ b).sum().compute()
        took = time.monotonic() - began
        assert total == 2.0 * n * n * n
        return took
    if what == "groupby":
        import dask.dataframe as dd
        import pandas

        rows = power(limit) // 2
        path = os.path.join(folder, "table.parquet")
        parts = ({"key": block % 100, "value": np.ones(len(block))} for _, block in values(rows))
        os.makedirs(path)
        for at, part in enumerate(parts):
            pandas.DataFrame(part).to_parquet(os.path.join(path, f"{at:05}.parquet"), compression=None)
        began = time.monotonic()
        sums = dd.read_parquet(path).groupby("key")["value"].sum().compute()
        took = time.monotonic() - began
        assert sums.sum() == rows and len(sums) == 100
        return took
    raise SystemExit(3)


def work(kind, what, folder, limit):
    if kind == "dask":
        return dask_work(what, folder, limit)
    make = arrays(kind, folder, limit)
    if what == "sort":
        return sort(make(power(limit)))
    if what == "product":
        n = side(limit)
        return product(make((n, n)), make((n, n), order="F"), make((n, n)))
    return groupby(make((power(limit) // 2, 2), order="F"))


@contextlib.contextmanager
def group(folder, limit):
    if folder is None:
        yield None
        return
    path = os.path.join(folder, f"outpage-compare-{os.getpid()}")
    os.mkdir(path)
    try:
        with open(os.path.join(path, "memory.limit_in_bytes"), "w") as file:
            file.write(str(limit + BESIDE))
        yield os.path.join(path, "cgroup.procs")
    finally:
        os.rmdir(path)


def run(kind, what, options):
    """Seconds, or why there are none."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        with group(None if kind == "outpage" else options.cgroup, options.limit) as procs:

            def join():
                if procs is not None:
                    with open(procs, "w") as file:
                        file.write("0")

            command = [sys.executable, __file__, folder, "--limit", str(options.limit), "--one", kind, what]
            told = subprocess.run(command, capture_output=True, text=True, preexec_fn=join)
    if told.returncode == 3:
        return "no such thing"
    if told.returncode != 0:
        lines = told.stderr.strip().splitlines()
        return f"failed ({told.returncode}): {lines[-1] if lines else ''}"
    return json.loads(told.stdout)


def size(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1]] if text[-1] in units else int(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--limit", type=size, default=64 << 20)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cgroup")
    parser.add_argument("--work", nargs="+", default=["sort", "product", "groupby"])
    parser.add_argument("--one", nargs=2)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(work(*options.one, options.folder, options.limit)))
        return
    if options.cgroup is None:
        print("memmap and Dask are not limited: name the folder of the memory controller by --cgroup")
    for what in options.work:
        found = {"outpage": [], "memmap": [], "dask": []}
        # By turns, so that what else the machine does meets all of them.
        for _ in range(options.runs):
            for kind, times in found.items():
                if not times or isinstance(times[-1], float):
                    times.append(run(kind, what, options))
                    print(what, kind, times[-1], f"load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
        for kind, times in found.items():
            seconds = sorted(t for t in times if isinstance(t, float))
            why = [t for t in times if not isinstance(t, float)]
            spread = f"{statistics.median(seconds):.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f})" if seconds else ""
            print(what, kind, spread, *why, f"load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
