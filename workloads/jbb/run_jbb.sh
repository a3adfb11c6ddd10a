#!/bin/sh
# Builds the SPECjbb stand-in and shows that it holds what its README says. Takes about 20 s.
# Usage: run_jbb.sh [--live]     --live also runs it under `outpage run` (OUTPAGE names the program)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
classes=$(mktemp -d)
trap 'rm -rf "$classes"' EXIT
passed=0
failed=0

if ! command -v javac >/dev/null; then
    echo "run_jbb.sh: SKIPPED: there is no javac (Debian: default-jdk-headless)"
    exit 0
fi
javac -Xlint:all -Werror -d "$classes" "$here/Jbb.java"

jbb() {
    java -Xmx230m -cp "$classes" Jbb "$@"
}

# expect STATUS TEXT COMMAND...: the command ends with STATUS and says TEXT.
expect() {
    status=$1
    text=$2
    shift 2
    got=0
    "$@" >"$classes/out" 2>&1 || got=$?
    if [ "$got" -eq "$status" ] && grep -q -e "$text" "$classes/out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $*: status $got, expected $status and '$text'"
        cat "$classes/out"
    fi
}

state() {
    jbb --transactions 20000 "$@" | sed -n 's/^state *//p'
}

expect 0 'score .* transactions/s' jbb --seconds 2 --verify
expect 0 'verified *yes' jbb --warehouses 4 --seconds 3 --verify
expect 0 'transactions *60000$' jbb --warehouses 3 --transactions 20000 --verify
expect 1 'verified *no' jbb --transactions 1000 --verify --damage
expect 2 'from 1 to 1000' jbb --warehouses 0
expect 0 'transactions *10$' jbb --transactions 10 --wait "$here/Jbb.java"
expect 0 'service rounds *[1-9]' jbb --seconds 2 --service-ms 10 --verify
expect 2 'takes a number' jbb --seconds
expect 2 'from 1 to' jbb --service-ms 0
expect 2 'name of a file' jbb --wait
expect 2 'unknown argument' jbb --warehouse 3

# Equal seeds end in equal states, whatever the threads did; other seeds in others.
one=$(state --warehouses 3 --seed 7)
two=$(state --warehouses 3 --seed 7)
other=$(state --warehouses 3 --seed 8)
if [ -n "$one" ] && [ "$one" = "$two" ] && [ "$one" != "$other" ]; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "FAILED: states of seeds 7, 7, 8: $one, $two, $other"
fi

if [ "${1-}" = --live ]; then
    outpage=${OUTPAGE:-outpage}
    expect 0 'verified *yes' "$outpage" run --memory 160M -- \
        java -Xmx230m -cp "$classes" Jbb --warehouses 6 --seconds 10 --verify
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
