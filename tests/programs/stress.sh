#!/bin/bash
# stress-ng's own checks, natively and under half of the memory that it takes.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=compare.sh
. "$here/compare.sh"

usage() {
    cat <<END
Usage: stress.sh [OPTIONS] [STRESSOR...]

Runs each stressor of stress-ng's classes vm, memory and os, or those named, alone and with --verify:
natively, then under outpage with half of the bytes it was given, or of what it took natively where that
is less, at least 8 MiB. Its exit code and the number of its verify failures must be the
native ones, and where it took more than the limit, pages must have come back from the swap file, or left as zeroes.

Options:
  --class NAME      vm, memory or os; may be repeated (default: all three)
  --seconds N       for each run (default 60)
  --mib N           bytes given to those that take a size (default 64)
  --list            only says which stressors would run, with what, and why pages may not come back
$common_options
END
}

classes=() seconds=60 mib=64 list_only=0
own_option() {
    case $1 in
    --class)
        among "$2" vm memory os || wrong "unknown class $2"
        classes+=("$2")
        ;;
    --seconds | --mib) number "$1" "$2" && declare -g "${1#--}=$2" ;;
    *) return 1 ;;
    esac
}

# Why the stressor $1 runs only where it is named.
hazard() {
    case $1 in
    bad-ioctl | dev) echo 'tries requests on every device of the machine' ;;
    clock) echo "sets the machine's time" ;;
    cpu-online | memhotplug) echo 'takes away CPUs or memory of the machine' ;;
    reboot | watchdog) echo 'may restart the machine' ;;
    swap) echo "turns the kernel's swap on, which stays on if it is killed" ;;
    tun | rawpkt) echo 'makes network devices, or sends to them' ;;
    esac
}

# The options that give the stressor $1 its size.
sizes() {
    local b="${mib}m" ints=$((mib << 18))
    case $1 in
    malloc) echo "--malloc-bytes $b --malloc-max 32" ;;
    memfd | memrate | mmap | mremap | msync | pagemove | shm | shm-sysv | vm | vm-rw | vm-splice)
        echo "--$1-bytes $b"
        ;;
    # In numbers of 4 bytes: more than 4 Mi of them are refused.
    bsearch | heapsort | lsearch | mergesort | qsort | shellsort)
        [ "$1" != lsearch ] || ints=16384
        [ $ints -lt 4194304 ] || ints=4194304
        echo "--$1-size $ints"
        ;;
    hsearch | judy | radixsort | skiplist | tree | tsearch) echo "--$1-size $((mib << 13))" ;;
    list) echo '--list-size 100000' ;;
    matrix) echo "--matrix-size 1024" ;;
    matrix-3d) echo "--matrix-3d-size 192" ;;
    stream) echo "--stream-l3-size $b" ;;
    copy-file | fallocate | fiemap | hdd | iomix | readahead | sync-file) echo "--$1-bytes $b" ;;
    ramfs | seek) echo "--$1-size $b" ;;
    esac
}

# Why pages of the stressor $1 need not come back though it takes more than its limit.
unpaged() {
    case $1 in
    mlock | mlockmany) echo 'its pages are locked' ;;
    shm | shm-sysv | memfd) echo 'its memory is shared; what else it takes is not touched again' ;;
    stack) echo 'it is the stack of the main thread' ;;
    esac
}

verdict() {
    local fails
    fails=$(grep -ac ' fail: ' "$work/err")
    [ "$fails" = 0 ] || fails=some
    echo "exit $run_status, verify failures: $fails"
}

# What is wrong with a run under Outpage though its verdict is the native one; names of compare's.
fault() {
    local came left
    # shellcheck disable=SC2154
    came=$(counter page_ins) left=$(counter zero_drops)
    # Zeroes leave and come back without the swap file.
    if [ "$((came + left))" = 0 ] && [ "$native_peak_kib" -gt "$kib" ] && [ -z "$(unpaged "$name")" ]; then
        echo "$((native_peak_kib >> 10)) MiB natively, but nothing was paged in"
    fi
}

stressors() {
    local class
    for class in "${classes[@]}"; do
        stress-ng --class "$class?" 2>/dev/null | sed 's/.*: //' | tr ' ' '\n'
    done | sort -u
}

stressor() {
    local options why
    why=$(hazard "$1")
    if [ -n "$why" ] && [ "$named" = 0 ]; then
        row skipped "$1" - "$why: only where it is named" - -
        return
    fi
    read -ra options <<<"$(sizes "$1")"
    if [ "$list_only" = 1 ]; then
        printf '%s\t%s\t%s\n' "$1" "${options[*]:--}" "$(unpaged "$1")"
        return
    fi
    # In a cgroup of 1 GiB, as some take whatever there is.
    compare "$1" $((mib << 9)) 1048576 behind stress-ng "--$1" 1 "${options[@]}" --timeout "$seconds" --verify --oomable
}

timeout=''
parse "$@"
[ -n "$timeout" ] || timeout=$((seconds * 2 + 300))
[ ${#classes[@]} -gt 0 ] || classes=(vm memory os)
named=1
available stress || finish
if [ ${#chosen[@]} = 0 ]; then
    named=0
    mapfile -t chosen < <(stressors)
fi
[ "$list_only" = 1 ] || begin
for name in "${chosen[@]}"; do
    among "$name" "${excepted[@]}" || stressor "$name"
done
[ "$list_only" = 1 ] || finish
