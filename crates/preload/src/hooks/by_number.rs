//! libc's `syscall`: the hooks of calls that the program makes by their numbers.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_long};

use super::{CLEARS_WORD, CLONE_VM, by_descriptor, c_result, read_by_number};
use crate::checked::Reader;
use crate::threads::{self, Unbound};
use crate::{exec, fork, memory, pins, raw, refs, target, tasks, words};

/// libc's `syscall`: calls that concern the shim go to [`routed`], the others are made here.
///
/// Those must not have a frame of ours on the stack, for `vfork` and `clone` return twice, the
/// latter on another stack. Bits of [`ROUTED`] say which numbers concern the shim.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn syscall() -> c_long {
    naked_asm!(
        "cmp rdi, {end}",
        "jae 2f",
        "cmp rdi, {clone}",
        "je 3f",
        "cmp rdi, {vfork}",
        "je 5f",
        "cmp rdi, {clone3}",
        "je 6f",
        "lea rax, [rip + {routed_bits}]",
        "bt qword ptr [rax], rdi",
        "jnc 2f",
        "jmp {routed}",
        // clone: a fork if it copies the memory.
        "3:",
        "test rsi, {vm}",
        "jnz 5f",
        "jmp {copying}",
        // clone3: what the kernel refuses for its size or place is left to it, as what copies the memory can find out.
        "6:",
        "call {before}",
        "test eax, eax",
        "jnz 2f",
        "jmp {copying}",
        // A child that shares the memory, or may.
        "5:",
        "call {before}",
        "2:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 4f",
        "ret",
        "4:",
        "mov rdi, rax",
        "jmp {failed}",
        end = const ROUTED_END,
        clone = const libc::SYS_clone,
        routed_bits = sym ROUTED,
        routed = sym routed,
        copying = sym copying,
        vm = const CLONE_VM,
        vfork = const libc::SYS_vfork,
        clone3 = const libc::SYS_clone3,
        before = sym before_child_kept,
        failed = sym c_failed,
    )
}

/// [`before_child`], with the registers of `syscall` as they were but for the result.
#[unsafe(naked)]
unsafe extern "C" fn before_child_kept() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "mov rcx, rdx",
        "mov rdx, r8",
        "call {before}",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "ret",
        before = sym before_child,
    )
}

/// Before a child that may share the memory is made by number: `flags` and `word` as `clone` takes them, `size` as `clone3` does. Returns
/// whether it shares the memory; not so where a structure cannot be read.
extern "C" fn before_child(number: c_long, flags: usize, word: usize, size: usize) -> c_int {
    let (flags, word) = match number {
        libc::SYS_clone => (flags, word),
        // `struct clone_args` begins with flags, a descriptor's place and the child's word.
        libc::SYS_clone3 if size >= fork::CLONE_ARGS_MIN => {
            let asked = Reader::default().value::<[usize; 3]>(flags);
            asked.map_or((0, 0), |[flags, _, word]| (flags, word))
        }
        libc::SYS_vfork => ((libc::CLONE_VM | libc::CLONE_VFORK) as usize, 0),
        _ => (0, 0),
    };
    if flags & CLONE_VM as usize == 0 {
        return 0;
    }
    let clears = flags & CLEARS_WORD as usize != 0;
    threads::before_sharing_child(if clears { word } else { 0 }, flags as c_int);
    1
}

/// A child with a copy of the memory, by number. One that has a stack of its own returns there, with the caller's registers.
#[unsafe(naked)]
unsafe extern "C" fn copying() -> c_long {
    naked_asm!(
        // What the child is to find again.
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "call {make}",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        // In the second register: where the child goes on, 0 for here.
        "test rdx, rdx",
        "cmovnz rsp, rdx",
        "ret",
        make = sym make_copy,
    )
}

/// A result, and the stack to go on with; returned in two registers.
#[repr(C)]
struct Made {
    result: c_long,
    stack: usize,
}

extern "C" fn make_copy(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize) -> Made {
    let copied = if number == libc::SYS_clone {
        Some(fork::Copied::by_clone(a, b, c, d, e))
    } else {
        fork::Copied::by_clone3(a, b)
    };
    let Some(copied) = copied else {
        // The kernel refuses the structure, or it asks for more than is known: no memory is managed in such a child.
        // SAFETY: the program's own call.
        let result = unsafe { raw::call(number, [a, b, c, d, e, 0]) };
        return Made {
            result: c_result(result) as c_long,
            stack: 0,
        };
    };
    let result = copied.make();
    let stack = if result == 0 { copied.stack() } else { 0 };
    Made {
        result: c_result(result) as c_long,
        stack,
    }
}

extern "C" fn c_failed(result: isize) -> isize {
    c_result(result)
}

/// Numbers below this have a bit in [`ROUTED`].
const ROUTED_END: usize = 512;

/// The numbers that [`routed`] handles, clone apart.
static ROUTED: [u64; ROUTED_END / 64] = {
    let numbers = [
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_process_madvise,
        libc::SYS_mprotect,
        libc::SYS_pkey_mprotect,
        libc::SYS_brk,
        libc::SYS_shmat,
        libc::SYS_remap_file_pages,
        libc::SYS_mlock,
        libc::SYS_mlock2,
        libc::SYS_munlock,
        libc::SYS_mlockall,
        libc::SYS_munlockall,
        libc::SYS_fork,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_vmsplice,
        libc::SYS_setsockopt,
        libc::SYS_newfstatat,
        libc::SYS_stat,
        libc::SYS_fstat,
        libc::SYS_lstat,
        libc::SYS_statx,
        libc::SYS_read,
        libc::SYS_pread64,
        libc::SYS_readv,
        libc::SYS_preadv,
        libc::SYS_preadv2,
        libc::SYS_process_vm_writev,
        libc::SYS_futex,
        libc::SYS_set_tid_address,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_setattr,
    ];
    let mut bits = [0; ROUTED_END / 64];
    let mut i = 0;
    while i < numbers.len() {
        bits[numbers[i] as usize / 64] |= 1 << (numbers[i] % 64);
        i += 1;
    }
    let numbers = by_descriptor::NUMBERS;
    let mut i = 0;
    while i < numbers.len() {
        bits[numbers[i] as usize / 64] |= 1 << (numbers[i] % 64);
        i += 1;
    }
    bits
};

/// A call through `syscall(2)` that looks at a file.
#[inline(never)] // the others need no room for it on the stack
fn look_by_number(number: c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
    let here = libc::AT_FDCWD;
    let (into, path) = (b as *mut libc::stat, a as *const u8);
    match number {
        libc::SYS_stat => tasks::fstatat(here, path, into, 0),
        libc::SYS_lstat => tasks::fstatat(here, path, into, libc::AT_SYMLINK_NOFOLLOW),
        libc::SYS_fstat => tasks::fstat(a as c_int, into),
        libc::SYS_statx => tasks::statx(
            a as c_int,
            b as *const u8,
            c as c_int,
            d as u32,
            e as *mut libc::statx,
        ),
        _ => tasks::fstatat(a as c_int, b as *const u8, c as *mut libc::stat, d as c_int),
    }
}

/// Another program, by a call through `syscall(2)`.
#[inline(never)] // the others need no room for it on the stack
fn exec_by_number(number: c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
    let s = |value: usize| value as c_int;
    let at = number == libc::SYS_execveat;
    if at {
        target::tell(s(a), b as *const c_char, s(e));
    } else {
        target::tell(libc::AT_FDCWD, a as *const c_char, 0);
    }
    let _unbound = Unbound::caller();
    let environment = if at { d } else { c };
    exec::with_environment(environment as exec::Strings, |envp| {
        let envp = envp as usize;
        let args = if at {
            [a, b, c, envp, e, 0]
        } else {
            [a, b, envp, 0, 0, 0]
        };
        // SAFETY: the program's own call with an environment that has what the shim needs.
        unsafe { raw::call(number, args) }
    })
}

/// A call through `syscall(2)` that concerns the shim.
unsafe extern "C" fn routed(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let s = |value: usize| value as c_int;
    let result = match number {
        libc::SYS_mmap => memory::mmap(a, b, s(c), s(d), s(e), f),
        libc::SYS_munmap => memory::munmap(a, b),
        libc::SYS_mremap => memory::mremap(a, b, c, s(d), e),
        libc::SYS_madvise => memory::madvise(a, b, s(c)),
        libc::SYS_process_madvise => memory::process_madvise(s(a), b, c, s(d), e as u32),
        libc::SYS_mprotect => memory::mprotect(a, b, s(c)),
        libc::SYS_pkey_mprotect => memory::pkey_mprotect(a, b, s(c), s(d)),
        libc::SYS_brk => memory::brk(a, memory::current_break()),
        libc::SYS_shmat => memory::shmat(s(a), b, s(c)),
        libc::SYS_remap_file_pages => memory::remap_pages(a, b, s(c), d, s(e)),
        libc::SYS_mlock => memory::mlock(a, b, 0),
        libc::SYS_mlock2 => memory::mlock(a, b, s(c)),
        libc::SYS_munlock => memory::munlock(a, b),
        libc::SYS_mlockall => memory::mlockall(s(a)),
        libc::SYS_munlockall => memory::munlockall(),
        libc::SYS_vmsplice => refs::vmsplice(s(a), b as *const libc::iovec, c, s(d)),
        libc::SYS_setsockopt => refs::setsockopt(s(a), s(b), s(c), d as *const u8, e as u32),
        libc::SYS_newfstatat
        | libc::SYS_stat
        | libc::SYS_fstat
        | libc::SYS_lstat
        | libc::SYS_statx => look_by_number(number, [a, b, c, d, e]),
        libc::SYS_execve | libc::SYS_execveat => exec_by_number(number, [a, b, c, d, e]),
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_preadv2 => read_by_number(number, [a, b, c, d, e, f]),
        libc::SYS_process_vm_writev => pins::write_process([a, b, c, d, e, f]),
        // SAFETY: the program's own call.
        libc::SYS_futex => unsafe { words::futex([a, b, c, d, e, f]) },
        libc::SYS_set_tid_address => {
            threads::before_sharing_child(a, libc::CLONE_THREAD);
            // SAFETY: the program's own call.
            unsafe { raw::call(number, [a, b, c, d, e, f]) }
        }
        // A deadline is refused to who may not run on every CPU.
        libc::SYS_sched_setaffinity | libc::SYS_sched_getaffinity | libc::SYS_sched_setattr => {
            let _unbound = Unbound::all();
            // SAFETY: the program's own call.
            unsafe { raw::call(number, [a, b, c, d, e, f]) }
        }
        number if by_descriptor::NUMBERS.contains(&number) => {
            by_descriptor::by_number(number, [a, b, c, d, e, f])
        }
        // SAFETY: the program's own fork, on the same stack with a copy of the memory.
        _ => fork::fork(|| unsafe { raw::call(number, [a, b, c, d, e, f]) }),
    };
    c_result(result) as c_long
}
