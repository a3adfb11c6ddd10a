# shellcheck shell=bash
# The machine: Debian packages, memory cgroups (version 1 or 2), the kernel's swap file; and undoing it all.
# Sourced by run.sh, traces.sh, ns2.sh, readahead.sh, compare.sh and ../../workloads/jbb/three.sh, which set these:
# shellcheck disable=SC2154

lacks() {
    echo "${0##*/}: $1" >&2
    exit 69
}

wrong() {
    echo "${0##*/}: $1; see ${0##*/} --help" >&2
    exit 64
}

# Takes --swap, --outpage and --help from "$@"; what is no option comes into words.
swap_and_outpage() {
    while [ $# -gt 0 ]; do
        case $1 in
        --swap | --outpage) [ $# -gt 1 ] || wrong "$1 needs a value" ;;
        esac
        case $1 in
        --swap) swap_dir=$2 && shift ;;
        --outpage) outpage=$2 && shift ;;
        -h | --help) usage && exit 0 ;;
        -*) wrong "unknown option $1" ;;
        *) words+=("$1") ;;
        esac
        shift
    done
}

# Checks that the value $2 of the option $1 is a whole number.
number() {
    [[ $2 =~ ^[1-9][0-9]*$ ]] || wrong "$1 needs a whole number above 0, not '$2'"
}

# What has to be there for a program: "command-or-file=package ...".
needs() {
    case $1 in
    matrix | numpy)
        echo /usr/lib/python3/dist-packages/numpy=python3-numpy /usr/bin/python3=python3
        echo /usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0=libopenblas0-pthread
        ;;
    pool) echo /usr/bin/python3=python3 ;;
    java) echo javac=openjdk-17-jdk-headless ;;
    sqlite) echo sqlite3=sqlite3 ;;
    ns2) echo ns=ns2 "$ns2_demo=ns2-examples" ;;
    redis*) echo redis-server=redis-server redis-benchmark=redis-tools ;;
    gcc) echo gcc=gcc /usr/include/stdlib.h=libc6-dev ;;
    stress) echo stress-ng=stress-ng ;;
    kernel)
        echo /usr/src/linux-source-6.12.tar.xz=linux-source-6.12 cc=gcc make=make
        echo /usr/include/sys/capability.h=libcap-dev /usr/include/numa.h=libnuma-dev
        ;;
    postgres*) echo pg_createcluster=postgresql-common "${postgres:-/usr/lib/postgresql}/initdb=postgresql" setpriv=util-linux ;;
    chromium*) echo chromium=chromium setpriv=util-linux ;;
    asan-gcc*) echo gcc=gcc /usr/include/stdlib.h=libc6-dev ;;
    asan-clang*) echo clang=clang "$(clang -print-file-name=libclang_rt.asan-x86_64.a 2>/dev/null)=libclang-rt-14-dev" ;;
    posix) echo apt-get=apt dpkg-source=dpkg-dev cc=gcc ;;
    esac
}

# Of the requirements of the programs $@, the packages that are missing.
missing_packages() {
    local name need
    for name in "$@"; do
        for need in $(needs "$name") column=bsdextrautils; do
            [ -e "${need%%=*}" ] || command -v "${need%%=*}" >/dev/null || echo "${need##*=}"
        done
    done | sort -u
}

install_packages() {
    local packages
    mapfile -t packages < <(missing_packages "$@")
    [ ${#packages[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || lacks "missing: ${packages[*]}; as root: apt-get install ${packages[*]}"
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends)
    "${install[@]}" "${packages[@]}" >&2 || {
        apt-get update -qq >&2
        "${install[@]}" "${packages[@]}" >&2
    } || lacks "apt-get could not install ${packages[*]}"
    mapfile -t packages < <(missing_packages "$@")
    [ ${#packages[@]} = 0 ] || lacks "still missing after apt-get install: ${packages[*]}"
}

cgroup_root='' cgroup_version='' cgroup='' subtree_changed=0

find_cgroups() {
    local root
    while read -r _ root kind options _; do
        if [ "$kind" = cgroup2 ] && grep -qw memory "$root/cgroup.controllers"; then
            cgroup_root=$root cgroup_version=2
            break
        elif [ "$kind" = cgroup ] && [[ ,$options, == *,memory,* ]]; then
            cgroup_root=$root cgroup_version=1
        fi
    done </proc/self/mounts
    [ -n "$cgroup_root" ] || lacks 'no memory cgroup controller is mounted'
    if [ "$cgroup_version" = 2 ] && ! grep -qw memory "$cgroup_root/cgroup.subtree_control"; then
        echo +memory >"$cgroup_root/cgroup.subtree_control" || lacks 'the memory controller cannot be enabled'
        subtree_changed=1
    fi
}

# Makes the cgroup of the next run. $1 limit in KiB, 0 for none; $2 whether the kernel may swap it.
make_cgroup() {
    cgroup=$cgroup_root/outpage-programs-$$
    mkdir "$cgroup" || lacks "cannot make $cgroup"
    if [ "$cgroup_version" = 1 ]; then
        [ "$1" = 0 ] || echo $(($1 << 10)) >"$cgroup/memory.limit_in_bytes"
        [ "$2" = swap ] || echo 0 >"$cgroup/memory.swappiness"
    else
        [ "$1" = 0 ] || echo $(($1 << 10)) >"$cgroup/memory.max"
        [ "$2" = swap ] || echo 0 >"$cgroup/memory.swap.max"
    fi
}

# Ends what runs in the cgroup and those within it, and removes them.
remove_cgroup() {
    local pid tries inner
    [ -n "$cgroup" ] && [ -d "$cgroup" ] || return 0
    for ((tries = 0; tries < 100; tries++)); do
        for inner in "$cgroup"/*/ "$cgroup"; do
            [ -d "$inner" ] || continue
            while read -r pid; do kill -KILL "$pid" 2>/dev/null; done <"$inner/cgroup.procs"
            rmdir "$inner" 2>/dev/null
        done
        [ -d "$cgroup" ] || return 0
        sleep 0.05
    done
    echo "${0##*/}: cannot remove $cgroup" >&2
}

# Makes a cgroup within the cgroup, which nobody is in itself. $1 its name; $2 limit in KiB.
make_inner_cgroup() {
    if [ "$cgroup_version" = 2 ]; then
        echo +memory >"$cgroup/cgroup.subtree_control" || return 1
        mkdir "$cgroup/$1" && echo $(($2 << 10)) >"$cgroup/$1/memory.max"
    else
        mkdir "$cgroup/$1" && echo $(($2 << 10)) >"$cgroup/$1/memory.limit_in_bytes"
    fi
}

# How many of the cgroup's processes the OOM killer has ended.
oom_kills() {
    local file=memory.oom_control
    [ "$cgroup_version" = 1 ] || file=memory.events
    awk '$1 == "oom_kill" { print $2 }' "$cgroup/$file"
}

swap_file='' work='' swap_mib=4096

set_up_machine() {
    [ "$(id -u)" = 0 ] || lacks 'kernel swap and memory cgroups need root'
    local tool
    for tool in mkswap swapon swapoff; do
        command -v $tool >/dev/null || lacks "missing: $tool (packages util-linux and mount)"
    done
    [ -d "$swap_dir" ] || lacks "no directory $swap_dir; choose one with --swap"
    find_cgroups
    work=$(mktemp -d "$swap_dir/outpage-programs.XXXXXX") || lacks "cannot write to $swap_dir"
    : >"$work/table"
    swap_file=$work/swap
    # Written in full: the first write to a block that is only allocated is slower.
    (umask 077 && dd if=/dev/zero of="$swap_file" bs=1M count="$swap_mib" conv=fsync status=none) ||
        lacks "no room for a swap file of $swap_mib MiB in $swap_dir"
    mkswap "$swap_file" >/dev/null || lacks 'mkswap failed'
    swap_on
    swap_off
}

swap_on() {
    swapon -p 32767 "$swap_file" || lacks "the kernel cannot swap to a file in $swap_dir; choose a local ext4 or xfs"
}

swap_off() {
    ! grep -qs "^$swap_file " /proc/swaps || swapoff "$swap_file"
}

clean_up() {
    [ -z "${run_pid:-}" ] || kill -KILL "$run_pid" 2>/dev/null
    remove_cgroup
    [ -z "$swap_file" ] || swap_off
    [ "$subtree_changed" = 0 ] || echo -memory >"$cgroup_root/cgroup.subtree_control"
    [ -z "$work" ] || rm -rf "$work"
}

load_average() {
    local load
    read -r load _ </proc/loadavg
    echo "load average $load"
}

describe_machine() {
    local device
    device=$(lsblk -no PKNAME,NAME "$(df --output=source "$swap_dir" | tail -n 1)" 2>/dev/null | awk '{ print $1; exit }')
    echo "$(uname -r), $(nproc) CPUs, cgroup v$cgroup_version, page-cluster $(cat /proc/sys/vm/page-cluster)," \
        "rotational $(cat "/sys/block/$device/queue/rotational" 2>/dev/null || echo '?')," \
        "vma_ra_enabled $(cat /sys/kernel/mm/swap/vma_ra_enabled 2>/dev/null || echo '?'), $(load_average)"
}
