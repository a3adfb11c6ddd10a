#!/bin/bash
# Three JVMs with the SPECjbb stand-in at once, in half of the memory that they want: Outpage against
# the kernel's own swap. Everything that is changed on the machine is undone at the end, also on failure.
set -u
here=$(cd "$(dirname "$0")" && pwd)
tests=$here/../../tests/programs
# shellcheck source=../../tests/programs/machine.sh
. "$tests/machine.sh"
# shellcheck source=../../tests/programs/measure.sh
. "$tests/measure.sh"

usage() {
    cat <<'END'
Usage: three.sh [OPTIONS]

Three times `java -Xmx230m Jbb --warehouses 6 --verify`, all at once, on each side in turn. They are set up
at once too, and begin to work when the last of them is ready:
  each     one `outpage run` for each, with a third of the limit
  one      one `outpage run` for all three, with the whole limit
  kernel   kernel swap, one memory cgroup with the whole limit
  apart    kernel swap, a memory cgroup for each with a third of the limit

Options:
  --memory MIB      the whole limit (default 480)
  --seconds S       how long the terminals work (default 20)
  --rounds N        rounds; which side begins rotates (default 3)
  --sides NAMES     of each, one, kernel and apart (default: all four)
  --swap DIR        where both swap files go (default /var/tmp)
  --outpage FILE    the program to test (default: the release build of this checkout)

Of the limit Outpage gets a 32nd and 12 MiB a JVM less, for what it needs itself and what it does not
manage; the table shows the peak of anonymous memory that the cgroup had on each side.
Exit status: 0 all is well; 1 a run failed or did not verify; 64 wrong option; 69 the machine lacks something.
END
}

wrong() {
    echo "three.sh: $1; see three.sh --help" >&2
    exit 64
}

limit_mib=480 seconds=20 rounds=3 sides='each one kernel apart' swap_dir=/var/tmp
outpage=${CARGO_TARGET_DIR:-$here/../../target}/release/outpage
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --memory | --seconds | --rounds | --sides | --swap | --outpage) [ $# -gt 1 ] || wrong "$1 needs a value" ;;
    *) wrong "unknown option $1" ;;
    esac
    case $1 in
    --memory | --seconds | --rounds) [[ $2 =~ ^[1-9][0-9]*$ ]] || wrong "$1 needs a whole number above 0" ;;
    esac
    case $1 in
    --memory) limit_mib=$2 ;;
    --seconds) seconds=$2 ;;
    --rounds) rounds=$2 ;;
    --sides) sides=$2 ;;
    --swap) swap_dir=$2 ;;
    --outpage) outpage=$2 ;;
    esac
    shift 2
done
for side in $sides; do
    [[ $side =~ ^(each|one|kernel|apart)$ ]] || wrong "there is no side $side"
done

command -v javac >/dev/null || lacks 'missing: javac (Debian: default-jdk-headless)'
[ -x "$outpage" ] || lacks "no $outpage: cargo build --release -p outpage -p outpage-preload"
outpage=$(realpath "$outpage")
# Read by machine.sh and measure.sh.
# shellcheck disable=SC2034
timeout=300 swap_mib=2048
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
set_up_machine
javac -d "$work/classes" "$here/Jbb.java" || exit 1

# Without container support, so that the JVM does not choose another collector in a small cgroup.
java=(java -XX:-UseContainerSupport -XX:-UsePerfData -XX:+UseSerialGC -Xmx230m -cp "$work/classes" Jbb
    --warehouses 6 --seconds "$seconds" --verify --wait "$work/go")

# The three JVMs of side $1, each with its output in $work/N.
three() {
    local n run=() pids=() status=0 own=$((limit_mib * 1024 / 3 - limit_mib * 1024 / 96 - 12288))
    if [ "$1" = apart ]; then
        for n in 1 2 3; do make_inner_cgroup $n $((limit_mib * 1024 / 3)) || return 1; done
    else
        echo "$BASHPID" >"$cgroup/cgroup.procs" || return 1
    fi
    case $1 in
    each) run=("$outpage" run --quiet --swap "$swap_dir" --memory "${own}K" --) ;;
    one)
        # shellcheck disable=SC2016
        "$outpage" run --quiet --swap "$swap_dir" --memory "$((3 * own))K" -- \
            bash -c 'work=$1; shift; for n in 1 2 3; do "$@" >"$work/$n" 2>&1 & pids+=" $!"; done
                for pid in $pids; do wait "$pid" || exit 1; done' three "$work" "${java[@]}"
        return
        ;;
    esac
    for n in 1 2 3; do
        # shellcheck disable=SC2016
        [ "$1" != apart ] || run=(sh -c 'echo $$ >"$0" && exec "$@"' "$cgroup/$n/cgroup.procs")
        "${run[@]}" "${java[@]}" >"$work/$n" 2>&1 &
        pids+=($!)
    done
    for n in "${pids[@]}"; do wait "$n" || status=1; done
    return $status
}

# Lets the three begin to work once all of them are set up, so that all work for the same time.
start_together() {
    until [ "$(cat "$work"/[123] 2>/dev/null | grep -c '^set up in')" = 3 ]; do
        kill -0 "$1" 2>/dev/null || return
        sleep 0.1
    done
    : >"$work/go"
}

failures=0
# A run of side $1 in round $2: a line of the table.
run_side() {
    local scores load
    load=$(cut -d ' ' -f 1 /proc/loadavg)
    rm -f "$work"/[123] "$work/go"
    if [[ $1 =~ ^(kernel|apart)$ ]]; then
        swap_on && make_cgroup $((limit_mib * 1024)) swap
    else
        make_cgroup 0 none
    fi
    (
        trap - EXIT
        three "$1"
    ) &
    run_pid=$!
    start_together $run_pid &
    watch_run || echo "three.sh: $1 took longer than $timeout s" >&2
    if ! wait "$run_pid" || [ "$(cat "$work"/[123] | grep -c 'verified *yes')" != 3 ]; then
        echo "three.sh: FAILED: $1 in round $2" >&2
        tail -n 3 "$work"/[123] >&2
        failures=$((failures + 1))
    fi
    run_pid=''
    mapfile -t scores < <(cat "$work"/[123] | sed -n 's/^score *\([0-9.]*\).*/\1/p')
    [ "$(oom_kills)" = 0 ] || echo "three.sh: the kernel killed a process of $1" >&2
    remove_cgroup
    swap_off
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$load" $((run_peak_kib >> 10)) \
        "$(printf '%s\n' "${scores[@]}" | awk '{ sum += $1 } END { printf "%.0f", sum }')" "${scores[*]}" |
        tee -a "$work/table" >&2
}

describe_machine
read -r -a order <<<"$sides"
for ((round = 1; round <= rounds; round++)); do
    for side in "${order[@]}"; do run_side "$side" "$round"; done
    order=("${order[@]:1}" "${order[0]}")
done
printf 'side\tround\tload\tpeak MiB\ttransactions/s\tof each JVM\n' | cat - "$work/table" | column -t -s $'\t'
for side in $sides; do
    mapfile -t scores < <(awk -F '\t' -v side="$side" '$1 == side { print $5 }' "$work/table")
    mapfile -t least < <(awk -F '\t' -v side="$side" '$1 == side { split($6, of, " "); low = of[1]
        for (n in of) if (of[n] < low) low = of[n]; print low }' "$work/table")
    echo "$side: median of $rounds rounds: all three $(median "${scores[@]}"), the slowest $(median "${least[@]}") transactions/s"
done
[ "$failures" = 0 ]
