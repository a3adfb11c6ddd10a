#!/bin/bash
# Every operation of torture.c under seeded store faults, once for each mechanism.
set -u
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    cat <<'END'
Usage: torture.sh [OPTIONS] [MECHANISM...]

Runs torture.c, of 96 MiB and all its operations, in 48 MiB under move and write-protect, or under
those named. Of 1000 requests to the swap file 5 fail and 5 end in their midst, so that a page is
lost (five failures in a row) in about one of 1000 runs of ten minutes, which page 10 million pages
in. No checksum may be wrong.

Options:
  --seconds N       for each mechanism (default 300)
  --seed N          of the program and the faults (default 1)
  --swap DIR        where the swap file and the program's files go (default /var/tmp)
  --outpage FILE    the program to test (default: the release build of this checkout)

Exit status: 0 every byte was right; 1 a byte was wrong, a page was lost or a call failed; 64 wrong option.
END
}

seconds=300 seed=1 directory=/var/tmp mechanisms=()
outpage=${CARGO_TARGET_DIR:-$here/../../target}/release/outpage
while [ $# -gt 0 ]; do
    case $1 in
    --help) usage && exit 0 ;;
    --seconds | --seed)
        [[ ${2-} =~ ^[1-9][0-9]*$ ]] || { echo "torture.sh: $1 needs a whole number above 0" >&2 && exit 64; }
        declare "${1#--}=$2" && shift
        ;;
    --swap) directory=${2?} && shift ;;
    --outpage) outpage=${2?} && shift ;;
    move | write-protect) mechanisms+=("$1") ;;
    *) echo "torture.sh: no such option: $1; see torture.sh --help" >&2 && exit 64 ;;
    esac
    shift
done
[ ${#mechanisms[@]} -gt 0 ] || mechanisms=(move write-protect)

work=$(mktemp -d "$directory/torture.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cc -O2 -pthread -o "$work/torture" "$here/torture.c" || exit 1

counter() {
    grep -o "\"$1\": *[0-9]*" "$work/stats" | head -n 1 | grep -o "[0-9]*$"
}

status=0
for mechanism in "${mechanisms[@]}"; do
    "$outpage" run --memory 48M --swap "$directory" --mechanism "$mechanism" --stats "$work/stats" \
        --faults "seed=$seed,read=5,write=5,short=5" -- \
        "$work/torture" -s "$seconds" -m 96 -r "$seed" -d "$directory"
    code=$?
    if [ $code = 0 ] && [ "$(counter poisoned)" = 0 ] && [ "$(counter checksum_errors)" = 0 ] &&
        [ "$(counter store_errors)" -gt 0 ] && [ "$(counter page_ins)" -gt 0 ]; then
        echo "torture.sh: $mechanism, $seconds s, seed $seed: every byte was right"
    else
        echo "torture.sh: $mechanism, $seconds s, seed $seed: FAILED (exit code $code)" >&2
        status=1
    fi
done
exit $status
