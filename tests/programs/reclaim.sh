#!/bin/bash
# Records small runs of real programs, and of the bundled ones, for `outpage bench reclaim`.
#
# Each runs once with 8 MiB of RAM, and touches 35 MiB or more: a quarter of it is more than what the trace was recorded with
# (docs/simulator.md says what such a trace holds).
set -u
here=$(cd "$(dirname "$0")" && pwd)
scripts=$here/../../crates/cli/src/bench/programs/scripts
outpage=${OUTPAGE:-${CARGO_TARGET_DIR:-$here/../../target}/release/outpage}
swap_dir=${SWAP:-/var/tmp}
# Seconds that a recording may take: what does not end by then is recorded up to there.
patience=${PATIENCE:-150}

if [ $# = 0 ] || [ "$1" = --help ]; then
    cat <<'END_OF_HELP'
Usage: reclaim.sh DIR [PROGRAM...]

Writes DIR/PROGRAM.trace for each program that is installed, or for those named. Then:

  outpage bench reclaim DIR/*.trace

Environment: OUTPAGE, the program to use; SWAP, where the swap file goes (/var/tmp); PATIENCE, seconds for each (150).
END_OF_HELP
    [ $# -gt 0 ]
    exit
fi
mkdir -p "$1" && out=$(realpath "$1") || exit 69
shift
work=$(mktemp -d "$swap_dir/outpage-reclaim.XXXXXX") || exit 69
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 69

perl_zipf='my ($n, $x, $s) = (120000, 1, 0); my @a = map { ["item $_", $_, [$_, $_ + 1]] } 1 .. $n;
    for (1 .. 400000) { $x = ($x * 69069 + 12345) % 4294967296; $s += $a[int($n * ($x / 4294967296) ** 4)][1] } print "$s\n"'
python_zipf='
n, x, s = 250000, 1, 0
a = [(i, str(i)) for i in range(n)]
for _ in range(400000):
    x = (x * 69069 + 12345) % 4294967296
    s += a[int(n * (x / 4294967296) ** 4) * 7919 % n][0]
print(s)'
python_passes='
a = [list(range(i, i + 8)) for i in range(200000)]
print(sum(sum(r[0] for r in a) for _ in range(12)))'
# References keep their order from one collection to the next, so each is a pass over all objects.
python_gc='
import gc
a = [{"i": i, "l": [i]} for i in range(90000)]
print(len(a), sum(gc.collect() for _ in range(10)))'

# NAME COMMAND...
declare -A command=(
    [perl-hash]="perl $scripts/hash.pl 200000"
    [perl-zipf]='perl -e "$perl_zipf"'
    [python-dict]="/usr/bin/python3 $scripts/dict.py 130000"
    [python-zipf]='/usr/bin/python3 -c "$python_zipf"'
    [python-passes]='/usr/bin/python3 -c "$python_passes"'
    [python-gc]='/usr/bin/python3 -c "$python_gc"'
    [mawk-array]="mawk -v n=350000 -f $scripts/array.awk"
    [gawk-array]="gawk -v n=220000 -f $scripts/array.awk"
    [ruby-hash]="ruby $scripts/hash.rb 150000"
    [lua-table]="lua5.4 $scripts/table.lua 150000"
    [sqlite-zipf]='sed "s/{n}/160000/g" "$scripts/zipf.sql" >zipf.sql; sqlite3 -init /dev/null :memory: ".read zipf.sql"'
    [gcc]='awk -v n=60 -f "$scripts/source.awk" >large.c; gcc -O2 -S -o large.s large.c'
    [xz]='awk -v n=100000 -f "$scripts/lines.awk" >lines; xz -6 -T1 -k -c lines >lines.xz'
    [sort]='awk -v n=400000 -f "$scripts/lines.awk" >lines; sort -S 1G --parallel=1 -o sorted lines'
    [minisat]='awk -v n=60000 -f "$scripts/clauses.awk" >clauses; minisat -verb=0 clauses answer >/dev/null 2>&1; true'
    [w-random]='"$outpage" workload random --mib 40'
    [w-hotset]='"$outpage" workload hotset --mib 40'
    [w-sor]='"$outpage" workload sor --mib 40 --sweeps 8'
    [w-graph]='"$outpage" workload graph --mib 40'
    [w-alloc]='"$outpage" workload alloc --mib 40'
    [w-join]='"$outpage" workload join --mib 40'
    [w-zigzag]='"$outpage" workload zigzag --mib 40'
    [w-phases]='"$outpage" workload phases --mib 40'
    [w-fft]='"$outpage" workload fft --mib 40'
    [w-column]='"$outpage" workload column --mib 40'
)
names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(printf '%s\n' "${!command[@]}" | sort)
export LC_ALL=C PYTHONHASHSEED=0 PERL_HASH_SEED=0 PERL_PERTURB_KEYS=0
export perl_zipf python_zipf python_passes python_gc scripts outpage
failures=0
for name in "${names[@]}"; do
    timeout "$patience" "$outpage" trace --once --swap "$swap_dir" -o "$work/$name.trace" -- \
        sh -c "${command[$name]}" >stdout 2>err </dev/null
    status=$?
    if { [ $status = 0 ] || [ $status = 124 ]; } && mv "$name.trace" "$out"; then
        grep "^outpage: .*trace: " err | sed "s|$work|$out|" | head -n 1
    else
        echo "reclaim.sh: $name left no trace" >&2
        tail -n 3 err | sed 's/^/    /' >&2
        failures=$((failures + 1))
    fi
    rm -f "$work/$name".trace* lines* large* sorted clauses answer zipf.sql
done
[ "$failures" = 0 ]
