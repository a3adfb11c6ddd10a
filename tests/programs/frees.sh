#!/bin/bash
# What lazily freed memory saves: programs that free by MADV_FREE under `outpage run --discard none`, which empties it at once, and `on-demand`.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    cat <<'END'
Usage: frees.sh [OPTIONS]

Each program with both settings in turn; which of them begins rotates. What it prints must be the same.
  gofrees    spans given back when they are empty and written again, beside data that stays
  jemalloc   a Python program with libjemalloc2 and muzzy pages
  mimalloc   the same with libmimalloc2.0, which resets pages
  sort       sort(1) with libjemalloc2
  gcc        a C file of 3000 functions compiled with libjemalloc2
  redis      redis-server with muzzy pages, keys of many sizes written and deleted

Options:
  --rounds N        rounds (default 5)
  --programs NAMES  of the above (default: all)
  --libraries DIR   where libjemalloc.so.2 and libmimalloc.so.2 are (default /usr/lib/x86_64-linux-gnu)
  --swap DIR        where the swap file goes (default /var/tmp)
  --outpage FILE    the program to test (default: the release build of this checkout)

Prints for each program and setting: seconds, page-outs and bytes written, medians [least-most].
Exit status: 0 all is well; 1 a run failed or printed something else; 64 wrong option.
END
}

rounds=5 programs='gofrees jemalloc mimalloc sort gcc redis' libraries=/usr/lib/x86_64-linux-gnu swap=/var/tmp
outpage=${CARGO_TARGET_DIR:-$here/../../target}/release/outpage
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --rounds) rounds=$2 ;;
    --programs) programs=$2 ;;
    --libraries) libraries=$2 ;;
    --swap) swap=$2 ;;
    --outpage) outpage=$2 ;;
    *) echo "frees.sh: unknown option $1; see frees.sh --help" >&2 && exit 64 ;;
    esac
    shift 2 || exit 64
done

work=$(mktemp -d /var/tmp/frees.XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
cc -O2 -o "$work/gofrees" "$here/gofrees.c" || exit 1
cat >"$work/lists.py" <<'END'
import hashlib, random
draw, kept, total = random.Random(7), {}, hashlib.sha256()
for step in range(1500):
    key = draw.randrange(120)
    kept[key] = bytes([step % 251]) * draw.randrange(1 << 16, 1 << 20)
    if draw.randrange(3) == 0:
        gone = kept.pop(draw.choice(list(kept)))
        total.update(gone[:64] + gone[-64:])
print(total.hexdigest(), sum(len(value) for value in kept.values()))
END
awk 'BEGIN { srand(7); for (i = 0; i < 600000; i++) printf "%d line %d of many\n", rand() * 1e9, i }' >"$work/lines"
awk 'BEGIN { for (i = 0; i < 3000; i++) printf "int f%d(int x) { int s = 0; for (int k = 0; k < x; k++) s += k * %d ^ (s >> 3); return s; }\n", i, i }' >"$work/many.c"

cat >"$work/redis.sh" <<'END'
at=$1
redis-server --port 0 --unixsocket "$at/socket" --save '' --appendonly no --dir "$at" --enable-debug-command yes >"$at/redis.log" &
server=$!
until redis-cli -s "$at/socket" ping >"$at/pong" 2>&1; do sleep 0.05; done
redis-cli -s "$at/socket" --pipe <"$at/commands" >"$at/piped"
redis-cli -s "$at/socket" debug digest
redis-cli -s "$at/socket" shutdown nosave
wait $server
END
awk 'BEGIN { srand(7); v = sprintf("%2600s", ""); gsub(/ /, "x", v); for (i = 0; i < 60000; i++) { k = int(rand() * 20000); if (i % 3) print "SET k" k " " i substr(v, 1, 50 + int(rand() * 2500)); else print "DEL k" k } }' >"$work/commands"

# The limit and the command of program $1.
command_of() {
    local je=$libraries/libjemalloc.so.2 mi=$libraries/libmimalloc.so.2
    local muzzy=(env "LD_PRELOAD=$je" MALLOC_CONF=dirty_decay_ms:100,muzzy_decay_ms:10000)
    case $1 in
    gofrees) limit=80M command=("$work/gofrees" 48 64 60) ;;
    jemalloc) limit=48M library=$je command=("${muzzy[@]}" python3 "$work/lists.py") ;;
    mimalloc) limit=48M library=$mi command=(env "LD_PRELOAD=$mi" MIMALLOC_ALLOW_DECOMMIT=0 MIMALLOC_RESET_DELAY=10 python3 "$work/lists.py") ;;
    sort) limit=32M library=$je command=("${muzzy[@]}" sort -S 60M -T "$work" "$work/lines") ;;
    gcc) limit=40M library=$je command=("${muzzy[@]}" gcc -O2 -S -o - "$work/many.c") ;;
    redis) limit=16M needs=redis-server command=(env MALLOC_CONF=dirty_decay_ms:100,muzzy_decay_ms:10000 bash "$work/redis.sh" "$work") ;;
    *) echo "frees.sh: there is no program $1" >&2 && exit 64 ;;
    esac
}

failures=0
for program in $programs; do
    library='' command=() limit='' needs=bash
    command_of "$program"
    if [ -n "$library" ] && [ ! -e "$library" ]; then
        echo "frees.sh: SKIPPED: $program: there is no $library"
        continue
    fi
    if ! command -v "$needs" >/dev/null; then
        echo "frees.sh: SKIPPED: $program: there is no $needs"
        continue
    fi
    settings=(none on-demand) expected=''
    for ((round = 0; round < rounds; round++)); do
        for setting in "${settings[@]}"; do
            began=$(date +%s.%N)
            sum=$("$outpage" run --quiet --swap "$swap" --memory "$limit" --discard "$setting" --stats "$work/stats" -- "${command[@]}" | md5sum) || failures=$((failures + 1))
            ended=$(date +%s.%N)
            [ "${expected:=$sum}" = "$sum" ] || { echo "frees.sh: FAILED: $program printed something else under $setting" >&2 && failures=$((failures + 1)); }
            python3 - "$work/stats" "$setting" "$began" "$ended" >>"$work/$program.counts" <<'END'
import json, sys
counts = json.load(open(sys.argv[1]))
names = "page_outs", "bytes_out", "page_ins", "zero_fills", "freed_pages", "freed_drops", "freed_kept"
print(sys.argv[2], round(float(sys.argv[4]) - float(sys.argv[3]), 3), *(counts[name] for name in names))
END
        done
        settings=("${settings[1]}" "${settings[0]}")
    done
    for setting in none on-demand; do
        printf '%s %s %s' "$program" "$limit" "$setting"
        column_number=2
        for name in seconds page-outs bytes-written page-ins zero-fills freed dropped written-again; do
            mapfile -t values < <(awk -v s="$setting" -v n=$column_number '$1 == s { print $n }' "$work/$program.counts" | sort -n)
            printf ' | %s %s [%s-%s]' "$name" "${values[$((${#values[@]} / 2))]}" "${values[0]}" "${values[-1]}"
            column_number=$((column_number + 1))
        done
        printf '\n'
    done
done
[ "$failures" = 0 ]
