#!/bin/bash
# Other people's tests of memory, fork and threads, natively and under Outpage: the same verdicts.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=compare.sh
. "$here/compare.sh"
# shellcheck source=suites.sh
. "$here/suites.sh"

usage() {
    cat <<END
Usage: ltp.sh [OPTIONS] [SUITE | SUITE/TEST]...

Suites (all of them when none is named):
  ltp      the Linux Test Project: its memory, fork, clone, mremap, madvise, mlock, userfaultfd and shm tests.
           Debian has no package of it: it must be installed, in \$LTPROOT or /opt/ltp
  kernel   the kernel's selftests of mm, clone3, memfd, futex and more, built from the package linux-source-6.12
  posix    the Open POSIX Test Suite of mmap, fork, threads and more, built from the source package posixtestsuite

Each test runs natively and under outpage. The verdicts must be the same: how many of its checks passed,
failed, broke and were skipped, and its exit status.

Options:
  --memory MIB      the limit (default 24)
  --sources DIR     suites unpacked before, and where what is unpacked is kept (default: a directory
                    that is removed at the end)
  --list            only says which tests would run
$common_options
END
}

memory=24 sources='' list_only=0 whole=1
own_option() {
    case $1 in
    --memory) number "$1" "$2" && memory=$2 ;;
    --sources) mkdir -p "$2" && sources=$(realpath "$2") ;;
    *) return 1 ;;
    esac
}

# Verdict of the last run: of LTP and the kernel the numbers of their lines, of POSIX the exit code alone.
verdict() {
    local lines
    case $suite in
    ltp) lines=$(count_lines TPASS TFAIL TBROK TCONF) ;;
    kernel) lines=$(count_lines '^ok ' '^not ok ' '# SKIP' 'pass=' 'skip=' 'fail=') ;;
    posix) lines='' ;;
    esac
    echo "exit $run_status${lines:+, $lines}"
}

# How often each of the patterns $@ is in what the last run said; those that are not are left out.
count_lines() {
    local pattern found=() n
    for pattern in "$@"; do
        case $pattern in
        *=) n=$(cat "$work/out/stdout" "$work/err" | grep -ao "${pattern}[0-9]*" | tail -n 1 | grep -o '[0-9]*$') ;;
        *) n=$(cat "$work/out/stdout" "$work/err" | grep -ac "$pattern") ;;
        esac
        [ "${n:-0}" = 0 ] || found+=("${pattern//[#^=]/} $n")
    done
    echo "${found[*]}"
}

# Whether $1, a suite or one of its tests, is to run.
wanted() {
    local word
    [ ${#chosen[@]} -gt 0 ] || return 0
    for word in "${chosen[@]}"; do
        case $1/ in "$word"/*) return 0 ;; esac
        case $word/ in "$1"/*) return 0 ;; esac
    done
    return 1
}

timeout=60
parse "$@"
for name in "${chosen[@]}"; do
    among "${name%%/*}" ltp kernel posix || wrong "unknown suite ${name%%/*}"
done
begin
[ -n "$sources" ] || sources=$work
for suite in ltp kernel posix; do
    wanted $suite || continue
    "prepare_$suite" || continue
    while IFS=$'\t' read -r name words; do
        wanted "$suite/$name" || continue
        ! among "$suite/$name" "${excepted[@]}" || continue
        if [ "$list_only" = 1 ]; then
            echo "$suite/$name: $words"
            continue
        fi
        read -ra words <<<"$words"
        # In a cgroup of 4 GiB, as some take whatever there is.
        compare "$suite.$name" $((memory << 10)) 4194304 behind "${words[@]}"
    done < <("list_$suite")
done
[ "$list_only" = 1 ] || finish
