#!/bin/bash
# Every operation of torture/ under seeded store faults, once for each mechanism, or for hours with ever new seeds.
set -u
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    cat <<'END_OF_USAGE'
Usage: torture.sh [OPTIONS] [MECHANISM...]

Runs torture, of 96 MiB and all its operations, in 48 MiB under move and write-protect, or under those named. Of 1000
requests to the swap file 5 fail and 5 end in their midst, so that a page is lost (five failures in a row) in about one
of 1000 runs of ten minutes, which page 10 million pages in. No checksum may be wrong, and every kind of operation is
drawn. The counts of each kind are printed.

Options:
  --seconds N       for each mechanism (default 300)
  --hours N         runs of --seconds, each with the next seed, until N hours are over (default: one run)
  --seed N          of the program and the faults (default 1)
  --faults SPEC     what `outpage run --faults` gets; `none` for no faults (default seed=SEED,read=5,write=5,short=5)
  --encrypt on|off  passed on to `outpage run`
  --operations LIST only these operations, with commas between them
  --swap DIR        where the swap file and the program's files go (default /var/tmp)
  --outpage FILE    the program to test (default: the release build of this checkout)

Exit status: 0 every byte was right; 1 a byte was wrong, a page was lost or a call failed; 2 every byte was right, but in
some run a kind of operation was never done, for the machine was busy or the run short; 64 wrong option.
END_OF_USAGE
}

wrong() {
    echo "torture.sh: $1; see torture.sh --help" >&2
    exit 64
}

seconds=300 hours=0 seed=1 faults='' operations='' directory=/var/tmp mechanisms=() options=()
outpage=${CARGO_TARGET_DIR:-$here/../../target}/release/outpage
while [ $# -gt 0 ]; do
    case $1 in
    --help) usage && exit 0 ;;
    --seconds | --hours | --seed)
        [[ ${2-} =~ ^[1-9][0-9]*$ ]] || wrong "$1 needs a whole number above 0"
        declare "${1#--}=$2" && shift
        ;;
    --encrypt)
        [[ ${2-} =~ ^(on|off)$ ]] || wrong "--encrypt needs on or off"
        options+=(--encrypt "$2") && shift
        ;;
    --faults) faults=${2?} && shift ;;
    --operations) operations=${2?} && shift ;;
    --swap) directory=${2?} && shift ;;
    --outpage) outpage=${2?} && shift ;;
    move | write-protect) mechanisms+=("$1") ;;
    *) wrong "no such option: $1" ;;
    esac
    shift
done
[ ${#mechanisms[@]} -gt 0 ] || mechanisms=(move write-protect)

work=$(mktemp -d "$directory/torture.XXXXXX") || exit 1
# Every process of a run has this in its environment.
mark="TORTURE_RUN=$$-$RANDOM$RANDOM"

# What a run left behind: nothing, unless it failed or hangs.
end_all() {
    local pid
    for pid in $(grep -lzxF "$mark" /proc/[0-9]*/environ 2>/dev/null | grep -o '[0-9]*'); do
        kill -KILL "$pid" 2>/dev/null
    done
}
trap 'end_all; rm -rf "$work"' EXIT
chmod 755 "$work"
cc -O2 -pthread -o "$work/torture" "$here"/torture/*.c || exit 1

counter() {
    grep -o "\"$1\": *[0-9]*" "$work/stats" | head -n 1 | grep -o "[0-9]*$"
}

# One run; what was drawn goes to standard output.
torture() { # mechanism, seed
    local injected=(--faults "${faults:-seed=$2,read=5,write=5,short=5}") code
    [ "$faults" = none ] && injected=()
    rm -f "$work/stats"
    # A run that takes five times as long and two minutes hangs.
    env "$mark" timeout --signal=KILL $((5 * seconds + 120)) \
        "$outpage" run --memory 48M --swap "$directory" --mechanism "$1" --stats "$work/stats" \
        "${injected[@]}" "${options[@]}" -- \
        "$work/torture" -s "$seconds" -m 96 -r "$2" -d "$directory" ${operations:+-o "$operations"} >"$work/out"
    code=$?
    [ "$code" = 0 ] || end_all
    cat "$work/out"
    if [ "$code" = 0 ] && [ "$(counter poisoned)" = 0 ] && [ "$(counter checksum_errors)" = 0 ] &&
        { [ "$faults" = none ] || [ "$(counter store_errors)" -gt 0 ]; } && [ "$(counter page_ins)" -gt 0 ]; then
        if grep -q 'was never done' "$work/out"; then
            echo "torture.sh: $1, $seconds s, seed $2: every byte was right, but not all was done"
            [ $status = 1 ] || status=2
        else
            echo "torture.sh: $1, $seconds s, seed $2: every byte was right"
        fi
    else
        echo "torture.sh: $1, $seconds s, seed $2: FAILED (exit code $code)" >&2
        status=1
    fi
}

status=0 runs=0 ends=$((SECONDS + hours * 3600))
while :; do
    for mechanism in "${mechanisms[@]}"; do torture "$mechanism" "$seed"; done
    runs=$((runs + 1)) seed=$((seed + 1))
    [ "$SECONDS" -lt "$ends" ] || break
done
[ "$hours" = 0 ] || echo "torture.sh: $runs seeds under ${mechanisms[*]}"
exit $status
