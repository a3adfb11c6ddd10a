"""Misses of libCacheSim's policies on an oracleGeneral trace.

usage: compare_libcachesim.py ENVIRONMENT TRACE REQUESTS FRAMES...

ENVIRONMENT is a folder: a virtual environment is made there, with the package `libcachesim` from
the registry, unless it is there already. Prints `NAME FRAMES MISSES` lines. Ends with 77 when the
package cannot be installed.
"""

import os
import subprocess
import sys
import venv

SKIPPED = 77
# The version that the comparison was made with.
PACKAGE = "libcachesim==0.3.5"


def environment(folder):
    python = os.path.join(folder, "bin", "python")
    try:
        subprocess.run([python, "-c", "import libcachesim"], check=True, capture_output=True)
        return python
    except (OSError, subprocess.CalledProcessError):
        pass  # Not there yet.
    try:
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"SKIPPED: {PACKAGE} cannot be installed: {error}", file=sys.stderr)
        sys.exit(SKIPPED)
    return python


def compare(trace, requests, frames):
    import libcachesim as lcs

    policies = {
        "lru": lcs.LRU,
        "clock": lcs.Clock,
        "2q": lcs.TwoQ,
        "arc": lcs.ARC,
        "lirs": lcs.LIRS,
        "clock-pro": lcs.ClockPro,
        "s3-fifo": lcs.S3FIFO,
        "opt": lcs.Belady,
    }
    parameters = lcs.ReaderInitParam(ignore_obj_size=True)
    for name, policy in policies.items():
        for size in frames:
            reader = lcs.TraceReader(trace, lcs.TraceType.ORACLE_GENERAL_TRACE, parameters)
            ratio, _ = policy(cache_size=size).process_trace(reader)
            print(name, size, round(ratio * requests), flush=True)


def main():
    folder, trace, requests, *frames = sys.argv[1:]
    if os.environ.get("OUTPAGE_INSIDE") == "1":
        compare(trace, int(requests), [int(size) for size in frames])
        return
    python = environment(folder)
    inside = dict(os.environ, OUTPAGE_INSIDE="1")
    sys.exit(subprocess.run([python, __file__, *sys.argv[1:]], env=inside).returncode)


main()
