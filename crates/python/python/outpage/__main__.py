"""`python -m outpage run ...`: the command `outpage`, wherever it is found.

OUTPAGE names it; else it is looked for beside this Python and in PATH.
"""

import os
import shutil
import sys


def main() -> int:
    beside = os.path.join(os.path.dirname(sys.executable), "outpage")
    command = os.environ.get("OUTPAGE") or (beside if os.access(beside, os.X_OK) else shutil.which("outpage"))
    if command is None:
        print("outpage: the command is not in PATH: cargo install outpage, or name it in OUTPAGE", file=sys.stderr)
        return 127
    os.execv(command, ["outpage", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
