# shellcheck shell=bash
# One run of one program on one side.
# Sourced by run.sh and compare.sh, which set and read these:
# shellcheck disable=SC2154,SC2034

run_pid='' run_end='' run_status='' run_digest='' run_seconds='' run_peak_kib=0

# Anonymous memory of the cgroup in bytes, what is in swap not included, into $anon.
read_anon() {
    local key value
    anon=0
    while read -r key value; do
        case $key in total_rss | anon) anon=$value && return ;; esac
    done <"$cgroup/memory.stat"
}

# What stands between the cgroup and Outpage, for programs that do not run as root.
as_user=()

# The command line in front of the program on side $1 with a limit of $2 KiB, into $wrap. $3 a mechanism.
set_wrap() {
    # shellcheck disable=SC2016
    wrap=(sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$cgroup" "${as_user[@]}")
    [ "$1" = outpage ] || return 0
    wrap+=("$outpage" run --quiet --memory "$2K" --swap "$swap_dir" --stats "$work/stats")
    [ -z "${3-}" ] || wrap+=(--mechanism "$3")
    wrap+=(--)
}

now_ms() {
    echo $((${EPOCHREALTIME/[.,]/} / 1000))
}

# Waits for run_pid, sampling the cgroup's memory; fails when the time is over.
watch_run() {
    local peak=0 anon started pid
    started=$(now_ms)
    while kill -0 "$run_pid" 2>/dev/null; do
        read_anon
        [ "$anon" -le "$peak" ] || peak=$anon
        if [ $(($(now_ms) - started)) -gt $((timeout * 1000)) ]; then
            while read -r pid; do kill -KILL "$pid" 2>/dev/null; done <"$cgroup/cgroup.procs"
            wait "$run_pid" 2>/dev/null
            run_peak_kib=$((peak >> 10))
            return 1
        fi
        sleep 0.02
    done
    run_peak_kib=$((peak >> 10))
}

# Runs the command $@ in $work/out and watches it.
#
# Sets run_end (ok, oom, or that it took too long), run_status, run_seconds and run_peak_kib.
watched() {
    local started
    rm -rf "$work/out" "$work/stats" "$work/err"
    mkdir "$work/out" || lacks "cannot write to $work"
    # For whoever the program runs as.
    : >"$work/stats" && chmod 666 "$work/stats"
    started=$(now_ms)
    (
        trap - EXIT
        cd "$work/out" && "$@"
    ) >"$work/out/stdout" 2>"$work/err" &
    run_pid=$!
    run_end=ok
    watch_run || run_end="ended after $timeout s"
    wait "$run_pid"
    run_status=$?
    run_pid=''
    run_seconds=$(awk -v ms=$(($(now_ms) - started)) 'BEGIN { printf "%.2f", ms / 1000 }')
    [ "$(oom_kills)" = 0 ] || run_end=oom
}

# Runs $1 on side $2 (free, outpage, kernel) with a limit of $3 KiB.
#
# Sets run_digest and what watched sets; run_end is then also an exit status.
measure() {
    local wrap kib=$3
    # shellcheck disable=SC2119
    case $2 in
    kernel) swap_on && make_cgroup "$kib" swap ;;
    *) make_cgroup 0 none ;;
    esac
    # Both sides get the same RAM: what Outpage needs itself comes off its limit. The table shows the
    # measured peak, which also counts private pages of files, such as the JVM's class archive.
    [ "$2" != outpage ] || kib=$((kib - kib / 32 - 3072))
    set_wrap "$2" "$kib"
    watched "run_$1"
    [ "$run_end" != ok ] || [ "$run_status" = 0 ] || run_end="exit status $run_status"
    run_digest=$(cd "$work/out" && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum)
    remove_cgroup
    [ "$2" != kernel ] || swap_off
}

# A counter of the last run under Outpage: of the whole run, not of a memory object.
counter() {
    sed -n "s/^  \"$1\": \([0-9]*\),*$/\1/p" "$work/stats" 2>/dev/null
}

median() {
    [ $# -gt 0 ] || return 0
    printf '%s\n' "$@" | sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}
