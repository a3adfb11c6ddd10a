#!/bin/bash
# What reading ahead costs real programs: `outpage bench readahead` with those of run.sh.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"
# shellcheck source=cases.sh
. "$here/cases.sh"

usage() {
    cat <<'END'
Usage: readahead.sh [OPTIONS] [PROGRAM...] [-- OPTION...]

Runs sort matrix numpy java sqlite ns2 redis gcc pool graph, or those named, at parts of the memory that
each needs, with the default read-ahead and with none. What follows -- goes to `outpage bench readahead`:

  readahead.sh sort gcc -- --memory-percent 50 --rounds 3 --kernel

Options:
  --full            the sizes of run.sh, not those of run.sh --quick
  --swap DIR        where the swap files and the inputs go (default /var/tmp)
  --outpage FILE    the program to test (default: the release build of this checkout)

Exit status: that of `outpage bench readahead`; 64 wrong option; 69 the machine lacks something.
END
}

# The program $1 with its inputs in $2/$1, at the sizes of --quick if $3 is 1; $4 is outpage. Prints what came
# out. It is this script again that runs, behind `outpage run`.
one() {
    local name=$1 out status
    # Read by the cases.
    # shellcheck disable=SC2034
    work=$2/$1 quick=$3 outpage=$4 wrap=()
    out=$(mktemp -d "$work/out.XXXXXX") || exit 1
    (cd "$out" && "run_$name" >stdout)
    status=$?
    (cd "$out" && find . -type f | LC_ALL=C sort | xargs sha256sum)
    rm -rf "$out"
    exit $status
}

[ "${1-}" != --one ] || one "${@:2}"

all=(sort matrix numpy java sqlite ns2 redis gcc pool graph)
chosen=() further=()
quick=1 swap_dir=/var/tmp
outpage=${CARGO_TARGET_DIR:-$here/../../target}/release/outpage
while [ $# -gt 0 ]; do
    case $1 in
    --swap | --outpage) [ $# -gt 1 ] || wrong "$1 needs a value" ;;
    esac
    case $1 in
    --full) quick=0 ;;
    --swap) swap_dir=$2 && shift ;;
    --outpage) outpage=$2 && shift ;;
    --) further=("${@:2}") && break ;;
    -h | --help) usage && exit 0 ;;
    -*) wrong "unknown option $1" ;;
    *) chosen+=("$1") ;;
    esac
    shift
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${all[@]}")
for name in "${chosen[@]}"; do
    [[ " ${all[*]} " == *" $name "* ]] || wrong "unknown program $name"
done

[ -x "$outpage" ] || lacks "no $outpage: cargo build --release -p outpage -p outpage-preload"
outpage=$(realpath "$outpage")
install_packages "${chosen[@]}"
base=$(mktemp -d "$swap_dir/outpage-readahead.XXXXXX") || lacks "cannot write to $swap_dir"
trap 'rm -rf "$base"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

commands=()
for name in "${chosen[@]}"; do
    # Inputs of their own: some have the same names.
    work=$base/$name
    mkdir "$work" && "prepare_$name" || lacks "$name could not be prepared"
    commands+=(--command "$name=$(printf '%q ' "$here/readahead.sh" --one "$name" "$base" $quick "$outpage")")
done
"$outpage" bench readahead --swap "$swap_dir" "${commands[@]}" "${further[@]}"
