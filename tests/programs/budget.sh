#!/bin/bash
# One limit for several processes: pipelines against kernel swap at the same limit, and programs of unequal needs at once under one limit
# against parts of it that were fixed before.
#
# Everything that is changed on the machine is undone at the end.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"
# shellcheck source=measure.sh
. "$here/measure.sh"

usage() {
    cat <<'END'
Usage: budget.sh [OPTIONS] [CASE...]

Cases (all of them when none is named):
  count     sort FILE | uniq -c | sort -n | tail
  reverse   sort FILE, awk that keeps all lines and says them backwards, and cksum
  unpack    the same with gzip -dc in place of sort
  two       a table that is looked up at random and a scan, in 32 MiB
  eight     two tables, two scans and four that sleep, in 128 MiB

Options:
  --rounds N        rounds of all sides, in turn (default 5); the medians count
  --part PERCENT    limit of a pipeline as part of its peak (default 50)
  --tier NAME       as that of outpage run (default none)
  --timeout SECONDS ends a run that takes longer (default 300)
  --swap DIR        where swap and files go (default /var/tmp)
  --outpage FILE    the program to test (default: the release build of this checkout)

Exit status: 0 all is well; 1 a run failed or its output differs; 64 wrong option; 69 the machine lacks something.
END
}

all=(count reverse unpack two eight)
chosen=()
rounds=5 part=50 timeout=300 swap_dir=/var/tmp tier=none
outpage=${CARGO_TARGET_DIR:-$here/../../target}/release/outpage

while [ $# -gt 0 ]; do
    case $1 in
    --rounds | --part | --timeout | --swap | --outpage | --tier) [ $# -gt 1 ] || wrong "$1 needs a value" ;;
    esac
    case $1 in
    --rounds | --part | --timeout) number "$1" "$2" && declare "${1#--}=$2" && shift ;;
    --swap) swap_dir=$2 && shift ;;
    --outpage) outpage=$2 && shift ;;
    --tier) tier=$2 && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) wrong "unknown option $1" ;;
    *)
        [[ " ${all[*]} " == *" $1 "* ]] || wrong "unknown case $1"
        chosen+=("$1")
        ;;
    esac
    shift
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${all[@]}")
[ -x "$outpage" ] || lacks "no $outpage: cargo build --release -p outpage -p outpage-preload"
[ -x /usr/bin/python3 ] || lacks 'missing: /usr/bin/python3 (package python3)'
outpage=$(realpath "$outpage")
export LC_ALL=C OUTPAGE_TIER=$tier
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
set_up_machine
echo "budget.sh: $(describe_machine), tier $tier, $outpage"

failures=0
fail() {
    echo "FAILED $*" >&2
    failures=$((failures + 1))
}

# 600,000 lines of which few are most, some a few times and many once.
make_lines() {
    [ ! -e "$work/lines" ] || return 0
    /usr/bin/python3 -c '
import random
r = random.Random(7)
for _ in range(600000):
    n = int(r.paretovariate(0.35)) % 400000
    print(f"{n:x} request /item/{n * 2654435761 % 2**32:08x}/{n % 97}")
' >"$work/lines"
    gzip -k "$work/lines"
}

run_count() { "${wrap[@]}" sh -c "sort '$work/lines' | uniq -c | sort -n | tail"; }
backwards='{ line[NR] = $0 } END { while (NR > 0) print line[NR--] }'
run_reverse() { "${wrap[@]}" sh -c "sort '$work/lines' | awk '$backwards' | cksum"; }
run_unpack() { "${wrap[@]}" sh -c "gzip -dc '$work/lines.gz' | awk '$backwards' | cksum"; }

# Median, least and most of the numbers $@.
spread() {
    local sorted
    sorted=$(printf '%s\n' "$@" | sort -n)
    echo "$(median "$@") ($(head -n 1 <<<"$sorted") to $(tail -n 1 <<<"$sorted"))"
}

# The pipeline $1 at a part of its peak, under Outpage and kernel swap in turn.
pipeline() {
    local digest limit peak i side ours=() theirs=() kills=0
    make_lines
    measure "$1" free 0
    digest=$run_digest peak=$run_peak_kib limit=$((run_peak_kib * part / 100))
    # The least that Outpage takes, and what it needs itself.
    [ "$limit" -ge 11720 ] || limit=11720
    for ((i = 0; i < rounds; i++)); do
        for side in outpage kernel; do
            measure "$1" "$side" "$limit"
            if [ "$side" = kernel ] && [ "$run_end" = oom ]; then
                kills=$((kills + 1))
                continue
            fi
            [ "$run_end" = ok ] && [ "$run_digest" = "$digest" ] || fail "$1 $side: $run_end"
            if [ "$side" = outpage ]; then ours+=("$run_seconds"); else theirs+=("$run_seconds"); fi
        done
    done
    echo "$1: peak $((peak >> 10)) of $((limit >> 10)) MiB; outpage $(spread "${ours[@]}") s;" \
        "kernel $(spread "${theirs[@]:-0}") s, killed $kills times; $(load_average)"
}

# The programs of $programs at once: under one limit of $1 MiB, or each with its part where $1 has several. How long all of them waited into
# $waited, in seconds.
at_once() {
    local i=0 line='' program parts
    read -ra parts <<<"$1"
    rm -f "$work"/waited.*
    for program in "${programs[@]}"; do
        line+="/usr/bin/python3 '$here/needs.py' $program >'$work/waited.$i' & "
        if [ ${#parts[@]} -gt 1 ]; then
            "$outpage" run --quiet --memory "${parts[i]}M" --swap "$swap_dir" -- sh -c "${line%& }" &
            line=''
        fi
        i=$((i + 1))
    done
    [ ${#parts[@]} -gt 1 ] || "$outpage" run --quiet --memory "$1M" --swap "$swap_dir" -- sh -c "$line wait"
    wait
    waited=$(cat "$work"/waited.* | awk '{ n++; t += $5 } END { printf "%.2f", t; exit n != '"$i"' }') ||
        fail "programs with $1 MiB: not all came to their end"
    said=$(cat "$work"/waited.* | cut -d ' ' -f 1-4 | sort)
}

# The ways $@ to divide a limit, in turn.
divided() {
    local i way first=''
    local -A times=()
    for ((i = 0; i < rounds; i++)); do
        for way in "$@"; do
            at_once "$way"
            [ "${first:=$said}" = "$said" ] || fail "programs with $way MiB: their output differs"
            times[$way]+=" $waited"
        done
    done
    for way in "$@"; do
        # shellcheck disable=SC2086
        echo "$case_name: in $way MiB: $(spread ${times[$way]}) s in all; $(load_average)"
    done
}

for case_name in "${chosen[@]}"; do
    case $case_name in
    two)
        programs=('table 24 600000' 'stream 48 8')
        divided 32 '16 16' '18 14' '20 12' '22 10' '24 8'
        ;;
    eight)
        programs=('table 36 600000' 'table 24 600000' 'stream 48 8' 'stream 48 8'
            'sleeper 16 5' 'sleeper 16 5' 'sleeper 16 5' 'sleeper 16 5')
        divided 128 '16 16 16 16 16 16 16 16' '24 24 16 16 12 12 12 12' '36 28 16 16 8 8 8 8' '40 32 12 12 8 8 8 8'
        ;;
    *) pipeline "$case_name" ;;
    esac
done
[ "$failures" = 0 ]
