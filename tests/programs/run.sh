#!/bin/bash
# Real programs under half of the memory that they need: Outpage against the kernel's own swap.
#
# Each program runs without a limit (its peak of anonymous memory is measured), under `outpage run`
# with half of that peak, and in a memory cgroup of the same size with kernel swap. The outputs must
# be the same three times. Everything that is changed on the machine is undone at the end.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"
# shellcheck source=measure.sh
. "$here/measure.sh"
# shellcheck source=cases.sh
. "$here/cases.sh"

usage() {
    cat <<'END'
Usage: run.sh [OPTIONS] [PROGRAM...]

Programs (all of them when none is named):
  sort     sort(1) of a file larger than the limit
  matrix   numpy: product of two matrices
  numpy    numpy: sort of random numbers
  java     a heap full of live objects, walked in random order
  sqlite   an index built in memory
  ns2      the wireless demo with 700 nodes
  redis    redis-server under redis-benchmark
  gcc      one very large generated C file
  pool     a Python multiprocessing pool that forks with its memory full
  graph    search of a random graph, which the kernel's OOM killer may end

Options:
  --quick           small sizes: seconds instead of minutes
  --rounds N        rounds of outpage and kernel swap, in turn (default 1); the medians count
  --part PERCENT    limit as part of the peak (default 50; 90 for graph, whatever is said)
  --timeout SECONDS ends a run that takes longer (default 900)
  --swap DIR        where both swap files go (default /var/tmp)
  --outpage FILE    the program to test (default: the release build of this checkout)
  --keep-going      do not stop at the first failure

Exit status: 0 all is well; 1 an output differs, a run failed, or Outpage took more than twice as long
as the kernel where the kernel's run survived; 64 wrong option; 69 the machine lacks something.
END
}

all=(sort matrix numpy java sqlite ns2 redis gcc pool graph)
chosen=()
quick=0 rounds=1 part=50 timeout=900 swap_dir=/var/tmp keep_going=0
outpage=${CARGO_TARGET_DIR:-$here/../../target}/release/outpage

while [ $# -gt 0 ]; do
    case $1 in
    --rounds | --part | --timeout | --swap | --outpage) [ $# -gt 1 ] || wrong "$1 needs a value" ;;
    esac
    case $1 in
    --quick) quick=1 ;;
    --keep-going) keep_going=1 ;;
    --rounds) number "$1" "$2" && rounds=$2 && shift ;;
    --part) number "$1" "$2" && part=$2 && shift ;;
    --timeout) number "$1" "$2" && timeout=$2 && shift ;;
    --swap) swap_dir=$2 && shift ;;
    --outpage) outpage=$2 && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) wrong "unknown option $1" ;;
    *)
        [[ " ${all[*]} " == *" $1 "* ]] || wrong "unknown program $1"
        chosen+=("$1")
        ;;
    esac
    shift
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${all[@]}")

[ -x "$outpage" ] || lacks "no $outpage: cargo build --release -p outpage -p outpage-preload"
outpage=$(realpath "$outpage")
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
install_packages "${chosen[@]}"
set_up_machine

failures=0
fail() {
    echo "FAILED $*" >&2
    failures=$((failures + 1))
}

# Compares a run with the first one. $1 program, $2 side.
check_run() {
    if [ "$run_end" != ok ]; then
        fail "$1 $2: $run_end"
        tail -n 5 "$work/err" | sed 's/^/    /' >&2
    elif [ "$run_digest" != "$digest" ]; then
        fail "$1 $2: its output differs from that of the run without a limit"
        diff -rq "$work/free" "$work/out" >&2
        diff -a "$work/free/stdout" "$work/out/stdout" | head -n 10 | cut -c 1-200 >&2
    fi
}

# One round of $1: both sides, the first one alternating. $2 is the round's number.
round() {
    local side sides=(outpage kernel)
    [ $(($2 % 2)) = 1 ] || sides=(kernel outpage)
    for side in "${sides[@]}"; do
        measure "$1" "$side" "$limit_kib"
        if [ "$side" = outpage ]; then
            check_run "$1" outpage
            [ "$run_end" = ok ] && ours+=("$run_seconds")
            pages_in=$(counter page_ins) pages_out=$(counter page_outs) top_kib=$run_peak_kib
            [ "$run_end" != ok ] || [ "${pages_in:-0}" -gt 0 ] || fail "$1 outpage: nothing was paged in"
        elif [ "$run_end" = oom ]; then
            kills=$((kills + 1))
        elif [[ $run_end == 'ended after'* ]]; then
            # Ours is faster, whatever the kernel would have needed.
            theirs+=("$timeout")
        else
            check_run "$1" kernel
            [ "$run_end" = ok ] && theirs+=("$run_seconds")
        fi
    done
}

# All runs of $1, and its line of the table.
program() {
    local ours=() theirs=() kills=0 pages_in='' pages_out='' top_kib=0
    local digest limit_kib peak_kib free_seconds our_median='' their_median='' ratio='-' i share=$part
    echo "$1: $(load_average)" >&2
    "prepare_$1" || lacks "$1 could not be prepared"
    measure "$1" free 0
    rm -rf "$work/free" && mv "$work/out" "$work/free"
    digest=$run_digest peak_kib=$run_peak_kib free_seconds=$run_seconds
    if [ "$run_end" != ok ]; then
        check_run "$1" free
        return
    fi
    # Killed are programs that need a little more than they have.
    [ "$1" != graph ] || share=90
    limit_kib=$((peak_kib * share / 100))
    for ((i = 1; i <= rounds; i++)); do round "$1" "$i"; done
    our_median=$(median "${ours[@]}") their_median=$(median "${theirs[@]}")
    if [ -n "$our_median" ] && [ -n "$their_median" ]; then
        ratio=$(awk -v a="$our_median" -v b="$their_median" 'BEGIN { printf "%.2f", a / b }')
        awk -v r="$ratio" 'BEGIN { exit !(r > 2) }' && fail "$1: $ratio times as slow as kernel swap"
    fi
    [ "$kills" = 0 ] || their_median="${their_median:+$their_median, }killed by the kernel $kills of $rounds"
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" $((peak_kib >> 10)) $((limit_kib >> 10)) \
        $((top_kib >> 10)) "$free_seconds" "${our_median:--}" "${their_median:--}" "$ratio" "${pages_in:--}" \
        "${pages_out:--}" | tee -a "$work/table" >&2
}

describe_machine
for name in "${chosen[@]}"; do
    program "$name"
    rm -rf "${work:?}/data"
    [ "$failures" = 0 ] || [ "$keep_going" = 1 ] || break
done

printf 'program\tpeak MiB\tlimit MiB\tour peak MiB\ts unlimited\ts outpage\ts kernel swap\tratio\tpage-ins\tpage-outs\n' |
    cat - "$work/table" | column -t -s $'\t'
[ "$failures" = 0 ]
