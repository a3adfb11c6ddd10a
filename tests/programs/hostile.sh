#!/bin/bash
# The hostile cases of hostile/cases.txt, natively and under each mechanism, and how many of the runs were right.
set -u
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    cat <<'END_OF_USAGE'
Usage: hostile.sh [OPTIONS] [PROGRAM[/VARIANT]...]

Runs each case of hostile/cases.txt, or those named, natively once and under `outpage run` in 32 MiB with 96 MiB in
use. A case is right when every byte was, pages went out and came back, and no process was left behind.

Options:
  --first           the first variant of each program alone
  --rounds N        runs of each case under each mechanism (default 1)
  --mechanism NAME  move or write-protect alone (default: both in turn)
  --memory SIZE     the limit (default 32M)
  --mib N           memory in use (default 96, at most 128)
  --timeout SECONDS a run that takes longer hangs (default 60)
  --swap DIR        where the swap file goes (default /var/tmp)
  --outpage FILE    the program to test (default: the release build of this checkout)
  --quiet           only cases that are not right, and the sums

Exit status: 0 every case came as cases.txt says; 1 one did not; 64 wrong option; 77 nothing could be run.
END_OF_USAGE
}

wrong() {
    echo "hostile.sh: $1; see hostile.sh --help" >&2
    exit 64
}

rounds=1 memory=32M mib=96 timeout=60 swap=/var/tmp quiet=0 first=0 mechanisms=() chosen=()
outpage=${CARGO_TARGET_DIR:-$here/../../target}/release/outpage
while [ $# -gt 0 ]; do
    case $1 in
    --rounds | --mib | --timeout)
        [[ ${2-} =~ ^[1-9][0-9]*$ ]] || wrong "$1 needs a whole number above 0"
        declare "${1#--}=$2" && shift
        ;;
    --mechanism) mechanisms+=("${2?}") && shift ;;
    --memory) memory=${2?} && shift ;;
    --swap) swap=$(realpath "${2?}") && shift ;;
    --outpage) outpage=$(realpath "${2?}") && shift ;;
    --quiet) quiet=1 ;;
    --first) first=1 ;;
    -h | --help) usage && exit 0 ;;
    -*) wrong "no such option: $1" ;;
    *) chosen+=("$1") ;;
    esac
    shift
done
[ ${#mechanisms[@]} -gt 0 ] || mechanisms=(move write-protect)

work=$(mktemp -d "$swap/hostile.XXXXXX") || exit 1
chmod 755 "$work" && mkdir "$work/empty" "$work/swap" && chmod 777 "$work/empty"
# Every process of a run has this in its environment, the keeper too.
mark="HOSTILE_RUN=$$-$RANDOM$RANDOM"

# Processes of the present run.
left() {
    grep -lzxF "$mark" /proc/[0-9]*/environ 2>/dev/null | grep -o '[0-9]*'
}

end_all() {
    local pid
    for pid in $(left); do kill -KILL "$pid" 2>/dev/null; done
}
trap 'end_all; rm -rf "$work"' EXIT

# Whether every process of the run ends by itself: the keeper looks about every half second.
all_gone() {
    local look
    for ((look = 0; look < 100; look++)); do
        [ -z "$(left)" ] && return 0
        sleep 0.1
    done
    return 1
}

is_chosen() {
    local one
    [ ${#chosen[@]} = 0 ] && return 0
    for one in "${chosen[@]}"; do [[ $1/$2 = "$one" || $1 = "$one" ]] && return 0; done
    return 1
}

# Runs a command in the empty directory; output in $work/out and $work/err, exit code in $code, whether it hung in $hung.
watched() {
    local began=$SECONDS
    # The group is for bash, which tells of what was killed.
    {
        (cd "$work/empty" && exec env "$mark" setsid --wait timeout --signal=KILL "$timeout" "$@") \
            >"$work/out" 2>"$work/err" </dev/null
    } 2>/dev/null
    code=$? hung=$((SECONDS - began >= timeout))
}

counter() {
    grep -o "\"$1\": *[0-9]*" "$work/stats" 2>/dev/null | head -n 1 | grep -o "[0-9]*$"
}

# What came of the run in $work, in one word and a reason: $verdict, $why.
judge() { # expectation, words of the line
    local expectation=$1 words=$2
    verdict=wrong why=$(head -n 1 "$work/err" | cut -c 1-160)
    if ! all_gone; then
        why="left behind: $(ps -o comm= -p "$(left | paste -sd,)" | paste -sd' ')"
        end_all
        return
    fi
    [ $hung = 1 ] && why="hangs; $why"
    if [ $code = 77 ]; then
        verdict=skipped
    elif [ "$expectation" = line ] && grep '^outpage: ' "$work/err" | grep -qF "$words"; then
        verdict=promised
    elif [ $code != 0 ]; then
        why="exit code $code; $why"
    elif grep -q '^promised' "$work/out"; then
        [ "$expectation" = segv ] && verdict=promised || why=$(cat "$work/out")
    elif [ "$(counter page_outs)" = 0 ] || [ "$(counter page_ins)" = 0 ]; then
        why="nothing was paged; $why"
    else
        verdict=right
    fi
}

run_case() { # mechanism, program, variant, expectation, words
    local round right=0 promised=0 bad=0 reasons=""
    for ((round = 0; round < rounds; round++)); do
        rm -f "$work/stats"
        watched "$outpage" run --quiet --memory "$memory" --swap "$work/swap" --mechanism "$1" --stats "$work/stats" \
            -- "$work/$2" "$mib" "$3"
        judge "$4" "$5"
        case $verdict in
        right) right=$((right + 1)) ;;
        promised) promised=$((promised + 1)) ;;
        *) bad=$((bad + 1)) && reasons+="$why"$'\n' ;;
        esac
    done
    runs=$((runs + rounds)) good=$((good + right + promised))
    [ $bad -gt 0 ] && failed=1 && failed_cases=$((failed_cases + 1))
    [ $bad = 0 ] && [ $quiet = 1 ] && return
    printf '%-13s %-10s %-16s %d of %d' "$1" "$2" "$3" $((right + promised)) "$rounds"
    [ $promised -gt 0 ] && printf ', %d as promised' "$promised"
    printf '\n'
    [ $bad = 0 ] || printf '%s' "$reasons" | sed 's/^[0-9]*, /, /' | sort | uniq -c | sort -rn | head -n 3 | sed 's/^/      /'
}

failed=0 skipped=0 ran=0 last=
for source in "$here"/hostile/*.c; do
    cc -O1 -Wall -Werror -pthread -o "$work/$(basename "$source" .c)" "$source" || exit 1
done
declare -A runs_of good_of failed_of
while read -r program variant move protect words; do
    [[ -z $program || $program = \#* ]] && continue
    is_chosen "$program" "$variant" || continue
    [ $first = 1 ] && [ "$program" = "$last" ] && continue
    last=$program
    [ "$protect" = = ] && protect=$move
    watched "$work/$program" "$mib" "$variant"
    if [ $code = 77 ]; then
        echo "SKIPPED: $program $variant: $(head -n 1 "$work/out")"
        skipped=$((skipped + 1))
        continue
    elif [ $code != 0 ] || grep -q '^promised' "$work/out"; then
        echo "natively      $program $variant: exit code $code: $(head -n 1 "$work/err")"
        failed=1
        continue
    fi
    ran=$((ran + 1))
    for mechanism in "${mechanisms[@]}"; do
        expectation=$move
        [ "$mechanism" = write-protect ] && expectation=$protect
        runs=0 good=0 failed_cases=0
        run_case "$mechanism" "$program" "$variant" "$expectation" "$words"
        runs_of[$mechanism]=$((${runs_of[$mechanism]:-0} + runs))
        good_of[$mechanism]=$((${good_of[$mechanism]:-0} + good))
        failed_of[$mechanism]=$((${failed_of[$mechanism]:-0} + failed_cases))
    done
done < <(sed 's/#.*//' "$here/hostile/cases.txt")

for mechanism in "${mechanisms[@]}"; do
    echo "hostile.sh: $mechanism: ${good_of[$mechanism]:-0} of ${runs_of[$mechanism]:-0} runs right," \
        "${failed_of[$mechanism]:-0} of $ran cases not always; $skipped cases skipped"
done
[ "$ran" -gt 0 ] || exit 77
exit $failed
