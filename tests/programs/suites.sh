# shellcheck shell=bash
# Other people's test suites: prepare_SUITE finds or builds it, list_SUITE prints its tests as lines of a name,
# a tab and the command.
# Sourced by ltp.sh, which sets these:
# shellcheck disable=SC2154

ltp_root=${LTPROOT:-/opt/ltp}

# What is missing for the suite $1: said, and counted as skipped.
without() {
    echo "NOTE: $1: $2: skipped" >&2
    row skipped "$1" - "$2" - -
    return 1
}

prepare_ltp() {
    [ -r "$ltp_root/runtest/syscalls" ] || without ltp "no LTP in $ltp_root (no Debian package)" || return
    export LTPROOT=$ltp_root PATH=$PATH:$ltp_root/testcases/bin
    # Tests make their files there.
    mkdir -p "$work/tmp" && export TMPDIR=$work/tmp
}

list_ltp() {
    # hugetlb tests need a pool of huge pages; oom and the like take the whole machine.
    local calls='v?fork|clone3?|mremap|(process_)?madvise|m(un)?lock(all)?2?|userfaultfd|shm(at|ctl|dt|get)'
    calls+='|mmap|munmap|mprotect|msync|mincore|s?brk|remap_file_pages|memfd_create|mallopt'
    {
        grep -vE '^(#|hugetlb|oom|swapping|vma05|min_free|overcommit|thp)' "$ltp_root/runtest/mm"
        grep -E "^($calls)_?[0-9]+" "$ltp_root/runtest/syscalls"
    } | awk 'NF > 1 { name = $1; $1 = ""; print name "\t" substr($0, 2) }'
}

# Parts of the kernel's source that its selftests are built from.
kernel_parts=(Makefile scripts include arch/x86 tools/testing/selftests tools/include tools/arch/x86/include
    mm/gup_test.h usr/include)

# Of each test: directory of the selftests, program, arguments (as its run_vmtests.sh has them).
kernel_tests() {
    cat <<'END'
mm compaction_test
mm cow
mm gup_longterm
mm ksm_functional_tests
mm madv_populate
mm map_fixed_noreplace
mm map_populate
mm mdwe_test
mm memfd_secret
mm migration
mm mkdirty
mm mlock-random-test
mm mlock2-tests
mm mremap_dontunmap
mm mremap_test
mm mrelease_test
mm mseal_test
mm on-fault-limit
mm pagemap_ioctl
mm pkey_sighandler_tests
mm protection_keys
mm soft-dirty
mm split_huge_page_test
mm transhuge-stress -d 5
mm uffd-stress anon 20 4
mm uffd-stress shmem 20 4
mm uffd-stress shmem-private 20 4
mm uffd-unit-tests
mm va_high_addr_switch
clone3 clone3
clone3 clone3_cap_checkpoint_restore
clone3 clone3_clear_sighand
clone3 clone3_set_tid
membarrier membarrier_test_multi_thread
membarrier membarrier_test_single_thread
memfd memfd_test
mincore mincore_selftest
pidfd pidfd_fdinfo_test
pidfd pidfd_open_test
pidfd pidfd_poll_test
pidfd pidfd_test
pidfd pidfd_wait
sigaltstack sas
proc proc-self-map-files-001
proc proc-pid-vm
futex/functional futex_requeue
futex/functional futex_wait
futex/functional futex_wait_private_mapped_file
futex/functional futex_wait_uninitialized_heap
futex/functional futex_wait_timeout
futex/functional futex_wait_wouldblock
futex/functional futex_waitv
END
}

# Builds the test $2 in the directory $1 of the selftests into $kernel/bin.
build_kernel_test() {
    local directory=$kernel/tools/testing/selftests/$1 files=("$2.c") file
    if [ "$1" = mm ]; then
        files+=(vm_util.c thp_settings.c)
        [[ $2 != uffd-* ]] || files+=(uffd-common.c)
    elif [ "$1" = memfd ]; then
        files+=(common.c)
    fi
    : >>"$directory/local_config.h"
    (cd "$directory" && cc -O2 -w -U_FORTIFY_SOURCE -D_GNU_SOURCE= -mxsave -isystem "$kernel/usr/include" -I "$kernel" \
        -I .. -I ../include -I "$kernel/tools/testing/selftests" -I "$kernel/tools/include" -o "$kernel/bin/$2" "${files[@]}" \
        -lrt -lpthread -lm -lcap -lnuma) 2>"$kernel/bin/$2.log"
}

prepare_kernel() {
    local archive directory program
    kernel=$sources/linux
    available kernel || return
    if [ ! -e "$kernel/usr/include/linux/userfaultfd.h" ]; then
        archive=$(find /usr/src -name 'linux-source-*.tar.xz' | sort -V | tail -n 1)
        mkdir -p "$kernel"
        tar -C "$kernel" --strip-components=1 -xJf "$archive" \
            "${kernel_parts[@]/#/$(basename "$archive" .tar.xz)/}" &&
            make -s -C "$kernel" headers >&2 || without kernel 'its headers could not be made' || return
    fi
    mkdir -p "$kernel/bin"
    while read -r directory program _; do
        [ -x "$kernel/bin/$program" ] || build_kernel_test "$directory" "$program" ||
            row skipped "kernel.$program" - 'does not compile here' - -
    done < <(kernel_tests)
}

list_kernel() {
    local program arguments
    while read -r _ program arguments; do
        [ ! -x "$kernel/bin/$program" ] ||
            printf '%s\t%s %s\n' "$program${arguments:+-${arguments// /-}}" "$kernel/bin/$program" "$arguments"
    done < <(kernel_tests)
}

posix_interfaces=(fork mmap munmap mlock mlockall munlock munlockall shm_open shm_unlink pthread_atfork
    pthread_attr_setstack pthread_attr_setstacksize pthread_barrier_wait pthread_cancel pthread_cond_wait pthread_create
    pthread_exit pthread_join pthread_kill pthread_mutex_lock sem_init sem_post sem_wait sigaltstack aio_read aio_write
    lio_listio)

# Fetches the source package $1 into the directory $2, through the package sources of the machine.
fetch_source() {
    local apt
    mkdir -p "$2/parts" "$2/lists/partial"
    sed 's/^Types: .*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$2/parts/debian.sources" || return
    apt=(apt-get -qq -o "Dir::Etc::sourceparts=$2/parts" -o Dir::Etc::sourcelist=/dev/null -o "Dir::State::lists=$2/lists")
    (cd "$2" && "${apt[@]}" update && "${apt[@]}" source "$1") >&2
}

prepare_posix() {
    local interface file program
    available posix || return
    if [ ! -d "$sources/posix" ]; then
        fetch_source posixtestsuite "$work/posix-source" && mv "$work"/posix-source/posixtestsuite-*/ "$sources/posix" ||
            without posix 'apt-get source posixtestsuite failed' || return
    fi
    mkdir -p "$sources/posix/bin"
    for interface in "${posix_interfaces[@]}"; do
        for file in "$sources/posix/conformance/interfaces/$interface"/[0-9]*-*.c; do
            program=$interface.$(basename "$file" .c)
            [ -x "$sources/posix/bin/$program" ] || cc -w -D_XOPEN_SOURCE=600 -D_GNU_SOURCE -I "$sources/posix/include" \
                -include fcntl.h -include signal.h -o "$sources/posix/bin/$program" "$file" -lpthread -lrt -lm 2>/dev/null ||
                row skipped "posix.$program" - 'does not compile here' - -
        done
    done
}

list_posix() {
    local program
    for program in "$sources/posix/bin"/*; do printf '%s\t%s\n' "${program##*/}" "$program"; done | sort -V
}
