# shellcheck shell=bash
# The same program natively and under Outpage, with both mechanisms, and what came of it beside each other.
# Sourced by ltp.sh, stress.sh and services.sh, which set `here` and have a function usage:
# shellcheck disable=SC2154,SC2034
# shellcheck source=machine.sh
. "$here/machine.sh"
# shellcheck source=measure.sh
. "$here/measure.sh"

outpage=${OUTPAGE:-${CARGO_TARGET_DIR:-$here/../../target}/release/outpage}
swap_dir=/var/tmp timeout=300 rounds=1 logs='' whole='' mechanisms=() chosen=() excepted=()
passed=0 failed=0 skipped=0

# shellcheck disable=SC2016
common_options='  --mechanism NAME  only this one (default: move, then write-protect)
  --rounds N        runs of each, natively and with each mechanism (default 1)
  --timeout SECONDS ends a run that takes longer
  --except NAME     leaves this one out; may be repeated
  --swap DIR        where the swap file and the files of the programs go (default /var/tmp)
  --outpage FILE    the program to test (default: $OUTPAGE, or the release build of this checkout)
  --logs DIR        what the programs said is kept there

Exit status: 0 all is well; 1 something differs; 64 wrong option; 69 the machine lacks something.'

# Takes the options and names in "$@"; the function own_option of the script takes its own, each with a value.
parse() {
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help) usage && exit 0 ;;
        --list) list_only=1 && shift && continue ;;
        --*) [ $# -gt 1 ] || wrong "$1 needs a value" ;;
        -*) wrong "unknown option $1" ;;
        *) chosen+=("$1") && shift && continue ;;
        esac
        case $1 in
        --mechanism)
            [[ $2 == move || $2 == write-protect ]] || wrong "unknown mechanism $2"
            mechanisms+=("$2")
            ;;
        --rounds | --timeout) number "$1" "$2" && declare -g "${1#--}=$2" ;;
        --except) excepted+=("$2") ;;
        --swap) swap_dir=$2 ;;
        --outpage) outpage=$2 ;;
        --logs) mkdir -p "$2" && logs=$(realpath "$2") ;;
        *) own_option "$1" "$2" || wrong "unknown option $1" ;;
        esac
        shift 2
    done
    [ ${#mechanisms[@]} -gt 0 ] || mechanisms=(move write-protect)
}

# Whether the list $2... contains $1.
among() {
    local word=$1 other
    shift
    for other in "$@"; do [ "$word" != "$other" ] || return 0; done
    return 1
}

begin() {
    [ "$(id -u)" = 0 ] || lacks 'memory cgroups need root'
    [ -x "$outpage" ] || lacks "no $outpage: cargo build --release -p outpage -p outpage-preload"
    outpage=$(realpath "$outpage")
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    find_cgroups
    work=$(mktemp -d "$swap_dir/outpage-compare.XXXXXX") || lacks "cannot write to $swap_dir"
    # Some of the programs run as another user.
    chmod 711 "$work"
    : >"$work/table"
    echo "${0##*/}: $(uname -r), $(nproc) CPUs, $(load_average), $outpage" >&2
}

# Whether all that $1 needs is there; if not, its packages are named and it counts as skipped.
available() {
    local packages
    mapfile -t packages < <(missing_packages "$1")
    [ ${#packages[@]} -gt 0 ] || return 0
    echo "NOTE: $1: (Debian package ${packages[*]}) is missing: skipped" >&2
    row skipped "$1" - "missing: ${packages[*]}" - -
    return 1
}

# A line of the table: passed, failed or skipped; name; mechanism; native verdict; verdict; page-ins.
row() {
    local -n count=$1
    count=$((count + 1))
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$@" | tee -a "$work/table" >&2
    case $1 in
    failed) tail -n 5 "$work/err" 2>/dev/null | cut -c 1-300 | sed 's/^/    /' >&2 ;;
    esac
}

# Runs "${@:5}" as $1 (native or a mechanism), with a limit of $2 KiB, in a cgroup of $3 KiB (0: none), and keeps
# what it said under the name $4. The program gets no input.
side() {
    local wrap
    make_cgroup "$3" none
    if [ "$1" = native ]; then set_wrap free 0; else set_wrap outpage "$2" "$1"; fi
    watched "${@:5}" </dev/null
    remove_cgroup
    if [ -n "$logs" ]; then
        cp "$work/out/stdout" "$logs/$4.$1.out"
        cp "$work/err" "$logs/$4.$1.err"
        cp "$work/stats" "$logs/$4.$1.stats" 2>/dev/null
    fi
}

# The program and its arguments $@, on the side that is being run.
behind() {
    "${wrap[@]}" "$@"
}

# What a run that ended by itself says of itself is up to the function verdict of the script.
read_verdict() {
    if [ "$run_end" = ok ]; then verdict; else echo "$run_end"; fi
}

# Compares "${@:4}" on all sides. $1 its name, $2 the largest limit in KiB, $3 the cgroup's in KiB (0: none).
#
# The limit is half of the native peak of anonymous memory, at least the 8 MiB that Outpage wants, or, where
# $whole is set, the largest.
#
# The function fault of the script, if there is one, says what else is wrong with a run under Outpage. Its function
# promised, if there is one, prints words for a program that the documents make an exception of: a run in which a line of
# Outpage's has them is as promised if its results are the native ones, or if it was refused (exit code 126).
compare() {
    local name=$1 most=$2 cap=$3 kib mechanism i said natives=() native_peak_kib=0 wrongs
    shift 3
    for ((i = 0; i < rounds; i++)); do
        side native 0 "$cap" "$name" "$@"
        natives+=("$(read_verdict)")
        [ "$run_peak_kib" -le "$native_peak_kib" ] || native_peak_kib=$run_peak_kib
    done
    kib=$((native_peak_kib > 16384 ? native_peak_kib / 2 : 8192))
    [ "$kib" -lt "$most" ] && [ -z "$whole" ] || kib=$most
    for mechanism in "${mechanisms[@]}"; do
        for ((i = 0; i < rounds; i++)); do
            side "$mechanism" "$kib" "$cap" "$name" "$@"
            said=$(read_verdict)
            wrongs=''
            if as_promised "$name" "$said" "${natives[@]}"; then
                row passed "$name" "$mechanism" "${natives[0]}" "$said (as promised)" "$(counter page_ins)"
                continue
            fi
            among "$said" "${natives[@]}" || wrongs=differs
            # Outpage itself speaks only when something is wrong, as it is told to be quiet.
            [ -n "$wrongs" ] || ! grep -aq '^outpage: ' "$work/err" || wrongs='Outpage reports an error'
            [ -n "$wrongs" ] || [ "$run_end" != ok ] || [ -s "$work/stats" ] || wrongs='no statistics'
            [ -n "$wrongs" ] || ! declare -F fault >/dev/null || wrongs=$(fault)
            if [ -z "$wrongs" ]; then
                row passed "$name" "$mechanism" "${natives[0]}" "$said" "$(counter page_ins)"
            else
                row failed "$name" "$mechanism" "${natives[0]}" "$said ($wrongs)" "$(counter page_ins)"
            fi
        done
    done
}

# Whether the run of $1 with the verdict $2 ended as promised; "${@:3}" are the native verdicts.
as_promised() {
    local name=$1 said=$2 words
    shift 2
    declare -F promised >/dev/null && words=$(promised) && [ -n "$words" ] || return
    grep -a '^outpage: ' "$work/err" | grep -qF "$words" || return
    [[ $said = 'exit 126,'* ]] || among "$said" "$@"
}

# The table and the closing line; ends the script.
finish() {
    printf 'result\tname\tmechanism\tnative\toutpage\tpage-ins\n' | cat - "$work/table" |
        column -t -s $'\t' -o '  '
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
    exit
}
