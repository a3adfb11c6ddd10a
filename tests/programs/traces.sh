#!/bin/bash
# Records the page references of real programs, at small sizes, for `outpage replay`.
#
# Each program runs once with 8 MiB of RAM (docs/simulator.md says what such a trace holds). Of a program of
# several processes the trace of the one with the most references is kept.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"
# shellcheck source=cases.sh
. "$here/cases.sh"

# What `run.sh --quick` takes, or a part of it, so that a recording takes less than a minute: with 8 MiB
# nearly every touch of another page costs a read.
size() {
    local part=1
    case $name in
    sort | numpy | java | gcc) part=4 ;;
    sqlite) part=8 ;;
    ns2) part=2 ;;
    esac
    awk -v quick="$2" -v part=$part 'BEGIN { print quick / part }'
}

usage() {
    cat <<'END'
Usage: traces.sh [OPTIONS] DIR [PROGRAM...]

Writes DIR/PROGRAM.trace for each of sort numpy java sqlite ns2 redis gcc pool, or for those named. Then:

  outpage replay DIR/*.trace --no-rivals --no-bounds --disk nvme \
      --readahead none,bsd,linux-slot,linux-vma,asp,asp2,leap,stream

Options:
  --swap DIR        where the swap file goes (default /var/tmp)
  --outpage FILE    the program to use (default: the release build of this checkout)

Exit status: 0 all is well; 1 a program failed; 64 wrong option; 69 the machine lacks something.
END
}

all=(sort numpy java sqlite ns2 redis gcc pool)
words=()
swap_dir=/var/tmp
outpage=${CARGO_TARGET_DIR:-$here/../../target}/release/outpage
swap_and_outpage "$@"
[ ${#words[@]} -gt 0 ] || wrong 'no directory named'
out=${words[0]} chosen=("${words[@]:1}")
[ ${#chosen[@]} -gt 0 ] || chosen=("${all[@]}")
for name in "${chosen[@]}"; do
    [[ " ${all[*]} " == *" $name "* ]] || wrong "unknown program $name"
done

[ -x "$outpage" ] || lacks "no $outpage: cargo build --release -p outpage -p outpage-preload"
outpage=$(realpath "$outpage")
mkdir -p "$out" && out=$(realpath "$out") || lacks "cannot make $out"
install_packages "${chosen[@]}"
work=$(mktemp -d "$swap_dir/outpage-traces.XXXXXX") || lacks "cannot write to $swap_dir"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

failures=0
for name in "${chosen[@]}"; do
    "prepare_$name" || lacks "$name could not be prepared"
    mkdir "$work/out"
    # Read by the cases.
    # shellcheck disable=SC2034
    wrap=("$outpage" trace --once --swap "$swap_dir" -o "$work/$name.trace" --)
    (cd "$work/out" && "run_$name") >"$work/stdout" 2>"$work/err" </dev/null
    status=$?
    if [ $status = 0 ] && mv "$work/$name.trace" "$out"; then
        grep "^outpage: $work/$name.trace" "$work/err" | sed "s|$work|$out|" | head -n 1
    else
        echo "traces.sh: $name ended with status $status" >&2
        tail -n 5 "$work/err" | sed 's/^/    /' >&2
        failures=$((failures + 1))
    fi
    rm -rf "${work:?}/out" "$work/data" "$work/$name".trace*
done
[ "$failures" = 0 ]
