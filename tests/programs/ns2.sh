#!/bin/bash
# Records the page references of a whole run of NS2 with 700 nodes, for `outpage paper moc --ns2`.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"
# shellcheck source=cases.sh
. "$here/cases.sh"

# Less than half of its peak, and two thirds of the memory that it has in the report: references that hit it are not recorded, and with less of it they take longer.
memory=320M
# Of pktdemo.tr, what Debian's ns2 2.35 writes of the simulation: the same each time, so this run was whole and the same.
checksum=80aa17a4e750a5817dd46df857e7e00f40addd47d391dfd1a5ba5b3163e4d119

usage() {
    cat <<'END'
Usage: ns2.sh [OPTIONS] FILE

Writes FILE, the trace of wireless-pkt-demo.tcl with opt(nn) 700, all its 90 simulated seconds, which takes half an hour and 4 GB
meanwhile, and says whether ns2 wrote what it wrote when the figures of docs/papers.md were made. Then:

  outpage paper moc --ns2 FILE --out DIR

Options:
  --swap DIR        where the swap file and the recording go meanwhile (default /var/tmp)
  --outpage FILE    the program to use (default: the release build of this checkout)

Exit status: 0 all is well; 1 it failed, or wrote something else; 64 wrong option; 69 the machine lacks something.
END
}

words=()
swap_dir=/var/tmp
outpage=${CARGO_TARGET_DIR:-$here/../../target}/release/outpage
swap_and_outpage "$@"
[ ${#words[@]} = 1 ] || wrong 'name one file'
[ -x "$outpage" ] || lacks "no $outpage: cargo build --release -p outpage -p outpage-preload"
outpage=$(realpath "$outpage")
file=$(realpath -m "${words[0]}")
[ -d "$(dirname "$file")" ] || lacks "no directory $(dirname "$file")"
install_packages ns2
work=$(mktemp -d "$swap_dir/outpage-ns2.XXXXXX") || lacks "cannot write to $swap_dir"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

sed -e 's/^set opt(nn) .*/set opt(nn) 700/' "$ns2_demo" >"$work/demo.tcl" || lacks "$ns2_demo cannot be read"
cd "$work" || exit 1
"$outpage" trace --once --memory $memory --swap "$swap_dir" -o "$work/ns2.refs" -- ns demo.tcl >"$work/out" 2>"$work/err" </dev/null
status=$?
if [ $status != 0 ]; then
    echo "ns2.sh: ns ended with status $status" >&2
    tail -n 5 "$work/err" | sed 's/^/    /' >&2
    exit 1
fi
grep "^outpage: $work/ns2.refs" "$work/err" | sed "s|$work/ns2.refs|$file|" | head -n 1
mv "$work/ns2.refs" "$file" || exit 1
found=$(sha256sum <"$work/pktdemo.tr" | cut -d ' ' -f 1)
if [ "$found" != "$checksum" ]; then
    echo "ns2.sh: ns wrote something else than it did for docs/papers.md ($found): another version of it, or another machine" >&2
    exit 1
fi
