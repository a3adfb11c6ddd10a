#!/bin/bash
# Servers, a browser and sanitized programs, natively and under Outpage: the same results.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=compare.sh
. "$here/compare.sh"
# shellcheck source=cases.sh
. "$here/cases.sh"
# shellcheck source=daemons.sh
. "$here/daemons.sh"

all=(postgres postgres-cluster redis-rewrite chromium chromium-sandbox asan-gcc asan-gcc-overflow asan-clang
    asan-clang-after-free)

usage() {
    cat <<END
Usage: services.sh [OPTIONS] [PROGRAM...]

Programs (all of them when none is named):
  postgres               PostgreSQL under pgbench with large sorts, stopped and started in between by pg_ctl
  postgres-cluster       the same by pg_ctlcluster, as root, which becomes another user
  redis-rewrite          redis-server that saves a snapshot and rewrites its log of commands
  chromium               a page of a local file as a picture, headless, as root without a sandbox
  chromium-sandbox       the same as another user, in Chromium's sandbox
  asan-gcc, asan-clang   a program with AddressSanitizer, one that ends well
  asan-gcc-overflow, asan-clang-after-free   and one with an error that the sanitizer finds

Each runs natively, under outpage with half of what it took natively, where pages must have come back from
the swap file, and with 4 GiB. Programs with AddressSanitizer are refused in one line; what becomes another user or
enters namespaces before it pages runs without a limit, and says so. Servers listen on sockets in directories of their own only.

Options:
  --limit WHICH     only half or only fits
$common_options
END
}

limits=(half fits) quick=1
own_option() {
    [ "$1" = --limit ] && among "$2" half fits && limits=("$2")
}

# How it ended and a digest of what it wrote to standard output and into files.
verdict() {
    echo "exit $run_status, digest $(cd "$work/out" && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum |
        cut -c 1-8)"
}

# What is wrong with a run though its results are the native ones; names of compare's.
fault() {
    # shellcheck disable=SC2154
    if [[ $name != asan-*-* && ${natives[0]} != 'exit 0,'* ]]; then
        echo 'the native run failed'
    elif [ "$limit" = half ] && [ "$(counter page_ins)" = 0 ]; then
        echo "$((native_peak_kib >> 10)) MiB natively, but nothing was paged in"
    fi
}

# Words of the line by which Outpage says what docs/compatibility.md promises of the program.
promised() {
    case $name in
    asan-*) echo 'its memory cannot be managed' ;;
    postgres-cluster.* | chromium-sandbox.*) echo 'this process runs without a limit' ;;
    esac
}

parse "$@"
[ ${#chosen[@]} -gt 0 ] || chosen=("${all[@]}")
for name in "${chosen[@]}"; do
    among "$name" "${all[@]}" || wrong "unknown program $name"
done
begin
for program in "${chosen[@]}"; do
    among "$program" "${excepted[@]}" || ! available "$program" || {
        "prepare_${program//-/_}" || lacks "$program could not be prepared"
        for limit in "${limits[@]}"; do
            whole=1
            [ "$limit" = fits ] || whole=''
            compare "$program.$limit" $((4 << 20)) 0 "run_${program//-/_}"
        done
        rm -rf "${work:?}/data"
        as_user=()
    }
done
finish
