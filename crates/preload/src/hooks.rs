//! The functions that libc's patched entries lead to: C signatures, C results, `errno`.
//!
//! Each is libc's function of the same name; what differs stands in the module that it calls.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::budget::GivenBack;
use crate::elf::Libc;
use crate::patch::EntryPoint;
use crate::threads::{self, Unbound};
use crate::{exec, fork, memory, pins, raw, refs, status, target, tasks};

/// Address of the trampoline to libc's `_Fork`.
static FORK_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
/// Address of the trampoline to libc's `clone`.
static CLONE_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
/// Addresses of the trampolines to libc's functions that begin threads and programs, or concern CPUs.
static VFORK_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
static CREATE_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
static SPAWN_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
static SPAWNP_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
static SETAFFINITY_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
static GETAFFINITY_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
static THREAD_SETAFFINITY_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
static THREAD_GETAFFINITY_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
/// Addresses of the trampolines to libc's reads.
static READ_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
static PREAD_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
static READV_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
static PREADV_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
static PREADV2_ORIGINAL: AtomicUsize = AtomicUsize::new(0);
/// libc's own copy of the break, which its `sbrk` starts from.
static CURRENT_BREAK: AtomicPtr<usize> = AtomicPtr::new(core::ptr::null_mut());

macro_rules! entry {
    ($name:literal, $hook:expr, $required:literal) => {
        entry!($name, $hook, $required, None)
    };
    ($name:literal, $hook:expr, $required:literal, $original:expr) => {
        EntryPoint {
            name: $name,
            hook: $hook as *const () as usize,
            required: $required,
            original: $original,
        }
    };
}

pub mod by_descriptor;
mod by_number;

use by_number::syscall;

/// Every entry that is patched.
///
/// Not required are functions that some supported glibc lacks, or whose loss loses no page: memory
/// that is locked behind the pager's back is refused by the kernel when it is to be evicted,
/// reads, and what a process writes to itself, are pinned for one mechanism only, and without the last nine a thread's end or its CPUs may go wrong.
pub fn entries() -> [EntryPoint; 42] {
    [
        entry!(c"mmap", mmap, true),
        entry!(c"mmap64", mmap, true),
        entry!(c"munmap", munmap, true),
        entry!(c"mremap", mremap, true),
        entry!(c"madvise", madvise, true),
        entry!(c"mprotect", mprotect, true),
        entry!(c"brk", brk, true),
        entry!(c"_Fork", fork_hook, true, Some(&FORK_ORIGINAL)),
        entry!(c"execve", execve, true),
        entry!(c"syscall", syscall, true),
        entry!(c"vmsplice", vmsplice, true),
        entry!(c"setsockopt", setsockopt, true),
        entry!(c"process_vm_writev", process_vm_writev, false),
        entry!(c"clone", clone, true, Some(&CLONE_ORIGINAL)),
        entry!(c"posix_madvise", posix_madvise, true),
        entry!(c"process_madvise", process_madvise, false),
        entry!(c"pkey_mprotect", pkey_mprotect, false),
        entry!(c"execveat", execveat, false),
        entry!(c"fexecve", fexecve, false),
        entry!(c"shmat", shmat, false),
        entry!(c"remap_file_pages", remap_pages, false),
        entry!(c"mlock", mlock, false),
        entry!(c"mlock2", mlock2, false),
        entry!(c"munlock", munlock, false),
        entry!(c"mlockall", mlockall, false),
        entry!(c"munlockall", munlockall, false),
        entry!(c"fstatat64", fstatat, false),
        entry!(c"fstat64", fstat, false, Some(&status::ORIGINAL)),
        entry!(c"statx", statx, false),
        entry!(c"read", read, false, Some(&READ_ORIGINAL)),
        entry!(c"pread64", pread, false, Some(&PREAD_ORIGINAL)),
        entry!(c"readv", readv, false, Some(&READV_ORIGINAL)),
        entry!(c"preadv64", preadv, false, Some(&PREADV_ORIGINAL)),
        entry!(c"preadv64v2", preadv2, false, Some(&PREADV2_ORIGINAL)),
        entry!(c"pthread_create", create, false, Some(&CREATE_ORIGINAL)),
        entry!(c"vfork", vfork, false, Some(&VFORK_ORIGINAL)),
        entry!(c"posix_spawn", spawn, false, Some(&SPAWN_ORIGINAL)),
        entry!(c"posix_spawnp", spawnp, false, Some(&SPAWNP_ORIGINAL)),
        entry!(
            c"sched_setaffinity",
            set_cpus,
            false,
            Some(&SETAFFINITY_ORIGINAL)
        ),
        entry!(
            c"sched_getaffinity",
            get_cpus,
            false,
            Some(&GETAFFINITY_ORIGINAL)
        ),
        entry!(
            c"pthread_setaffinity_np",
            thread_set_cpus,
            false,
            Some(&THREAD_SETAFFINITY_ORIGINAL)
        ),
        entry!(
            c"pthread_getaffinity_np",
            thread_get_cpus,
            false,
            Some(&THREAD_GETAFFINITY_ORIGINAL)
        ),
    ]
}

/// Finds libc's copy of the break; returns whether it has one.
pub fn find_break() -> bool {
    let found = Libc::find().and_then(|libc| libc.symbol(c"__curbrk"));
    CURRENT_BREAK.store(
        found.map_or(0, |symbol| symbol.address) as *mut usize,
        Ordering::Release,
    );
    found.is_some()
}

/// The kernel's result as a C function returns it.
fn c_result(result: isize) -> isize {
    if !(-4095..0).contains(&result) {
        return result;
    }
    // SAFETY: the calling thread's errno.
    unsafe { *libc::__errno_location() = -result as c_int };
    -1
}

extern "C" fn mmap(a: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, o: usize) -> isize {
    c_result(memory::mmap(a, len, prot, flags, fd, o))
}

extern "C" fn munmap(addr: usize, len: usize) -> c_int {
    c_result(memory::munmap(addr, len)) as c_int
}

/// The fifth argument exists only with the flags that use it.
extern "C" fn mremap(old: usize, old_len: usize, len: usize, flags: c_int, new: usize) -> isize {
    let takes_new = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0;
    c_result(memory::mremap(
        old,
        old_len,
        len,
        flags,
        if takes_new { new } else { 0 },
    ))
}

extern "C" fn madvise(addr: usize, len: usize, advice: c_int) -> c_int {
    c_result(memory::madvise(addr, len, advice)) as c_int
}

/// Returns the error number; `POSIX_MADV_DONTNEED` does nothing, as in glibc.
extern "C" fn posix_madvise(addr: usize, len: usize, advice: c_int) -> c_int {
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    -memory::madvise(addr, len, advice) as c_int
}

extern "C" fn process_madvise(fd: c_int, parts: usize, n: usize, advice: c_int, f: u32) -> isize {
    c_result(memory::process_madvise(fd, parts, n, advice, f))
}

extern "C" fn mprotect(addr: usize, len: usize, prot: c_int) -> c_int {
    c_result(memory::mprotect(addr, len, prot)) as c_int
}

extern "C" fn pkey_mprotect(addr: usize, len: usize, prot: c_int, key: c_int) -> c_int {
    c_result(memory::pkey_mprotect(addr, len, prot, key)) as c_int
}

/// Keeps libc's copy of the break up to date, whether it moved or not.
extern "C" fn brk(addr: usize) -> c_int {
    let current = CURRENT_BREAK.load(Ordering::Acquire);
    // SAFETY: libc's variable; libc itself reads and writes it without a lock.
    let before = unsafe { current.read_volatile() };
    let before = if before == 0 {
        memory::current_break()
    } else {
        before
    };
    let now = memory::brk(addr, before) as usize;
    // SAFETY: as above.
    unsafe { current.write_volatile(now) };
    let failed = now < addr;
    c_result(if failed { -(libc::ENOMEM as isize) } else { 0 }) as c_int
}

extern "C" fn shmat(id: c_int, addr: usize, flags: c_int) -> isize {
    c_result(memory::shmat(id, addr, flags))
}

extern "C" fn remap_pages(
    addr: usize,
    len: usize,
    prot: c_int,
    page: usize,
    flags: c_int,
) -> c_int {
    c_result(memory::remap_pages(addr, len, prot, page, flags)) as c_int
}

extern "C" fn mlock(addr: usize, len: usize) -> c_int {
    c_result(memory::mlock(addr, len, 0)) as c_int
}

extern "C" fn mlock2(addr: usize, len: usize, flags: c_int) -> c_int {
    c_result(memory::mlock(addr, len, flags)) as c_int
}

extern "C" fn munlock(addr: usize, len: usize) -> c_int {
    c_result(memory::munlock(addr, len)) as c_int
}

extern "C" fn mlockall(flags: c_int) -> c_int {
    c_result(memory::mlockall(flags)) as c_int
}

extern "C" fn munlockall() -> c_int {
    c_result(memory::munlockall()) as c_int
}

/// libc's `_Fork`: what `fork`, `forkpty` and `daemon` end in.
extern "C" fn fork_hook() -> c_int {
    let original = FORK_ORIGINAL.load(Ordering::Acquire);
    // SAFETY: the trampoline to libc's `_Fork`, written before its entry was patched.
    let original: extern "C" fn() -> c_int = unsafe { core::mem::transmute(original) };
    c_result(fork::fork(|| match original() {
        // SAFETY: the calling thread's errno.
        -1 => -unsafe { *libc::__errno_location() } as isize,
        pid => pid as isize,
    })) as c_int
}

/// `pthread_create`: the thread says that it begins.
extern "C" fn create(thread: usize, attributes: usize, function: usize, argument: usize) -> c_int {
    let original = CREATE_ORIGINAL.load(Ordering::Acquire);
    // SAFETY: the trampoline to libc's `pthread_create`, whose signature this is.
    let original: threads::Create = unsafe { core::mem::transmute(original) };
    threads::create(original, thread, attributes, [function, argument])
}

/// A hook that calls libc's function while the pager binds nobody (`$who`) to a CPU.
macro_rules! unbound_hook {
    (@word $argument:ident) => { usize };
    ($name:ident, $original:ident, $who:ident, ($($argument:ident),*)) => {
        extern "C" fn $name($($argument: usize),*) -> c_int {
            let _unbound = Unbound::$who();
            let original = $original.load(Ordering::Acquire);
            // SAFETY: the trampoline to libc's function of so many words, which returns an int.
            let original = unsafe {
                core::mem::transmute::<usize, extern "C" fn($(unbound_hook!(@word $argument)),*) -> c_int>(original)
            };
            original($($argument),*)
        }
    };
}
unbound_hook!(
    spawn,
    SPAWN_ORIGINAL,
    caller,
    (pid, path, actions, attributes, argv, envp)
);
unbound_hook!(
    spawnp,
    SPAWNP_ORIGINAL,
    caller,
    (pid, file, actions, attributes, argv, envp)
);
unbound_hook!(set_cpus, SETAFFINITY_ORIGINAL, all, (pid, len, set));
unbound_hook!(get_cpus, GETAFFINITY_ORIGINAL, all, (pid, len, set));
unbound_hook!(
    thread_set_cpus,
    THREAD_SETAFFINITY_ORIGINAL,
    all,
    (thread, len, set)
);
unbound_hook!(
    thread_get_cpus,
    THREAD_GETAFFINITY_ORIGINAL,
    all,
    (thread, len, set)
);

/// libc's `vfork`, which returns twice: nothing of ours is on the stack.
#[unsafe(naked)]
unsafe extern "C" fn vfork() -> c_int {
    naked_asm!(
        "sub rsp, 8",
        "xor edi, edi",
        "mov esi, {vfork}",
        "call {before}",
        "add rsp, 8",
        "jmp qword ptr [rip + {original}]",
        vfork = const CLONE_VM | libc::CLONE_VFORK,
        before = sym threads::before_sharing_child,
        original = sym VFORK_ORIGINAL,
    )
}

extern "C" fn execve(path: *const c_char, argv: exec::Strings, envp: exec::Strings) -> c_int {
    target::tell(libc::AT_FDCWD, path, 0);
    let _unbound = Unbound::caller();
    let _given_back = GivenBack::before(libc::AT_FDCWD, path, 0);
    let args = |envp: exec::Strings| [path as usize, argv as usize, envp as usize, 0, 0, 0];
    // SAFETY: the program's own call with an environment that has what the shim needs.
    c_result(exec::with_environment(envp, |envp| unsafe {
        raw::call(libc::SYS_execve, args(envp))
    })) as c_int
}

extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    argv: exec::Strings,
    envp: exec::Strings,
    flags: c_int,
) -> c_int {
    target::tell(dir, path, flags);
    let _unbound = Unbound::caller();
    let _given_back = GivenBack::before(dir, path, flags);
    c_result(exec::with_environment(envp, |envp| {
        let args = [
            dir as usize,
            path as usize,
            argv as usize,
            envp as usize,
            flags as usize,
            0,
        ];
        // SAFETY: the program's own call with an environment that has what the shim needs.
        unsafe { raw::call(libc::SYS_execveat, args) }
    })) as c_int
}

extern "C" fn fexecve(fd: c_int, argv: exec::Strings, envp: exec::Strings) -> c_int {
    // As libc has it; the kernel takes none for an empty list.
    if fd < 0 || argv.is_null() || envp.is_null() {
        return c_result(-(libc::EINVAL as isize)) as c_int;
    }
    execveat(fd, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH)
}

extern "C" fn vmsplice(fd: c_int, parts: *const libc::iovec, count: usize, flags: c_int) -> isize {
    c_result(refs::vmsplice(fd, parts, count, flags))
}

extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: u32,
) -> c_int {
    c_result(refs::setsockopt(fd, level, name, value.cast(), len)) as c_int
}

extern "C" fn fstatat(
    dir: c_int,
    path: *const c_char,
    stat: *mut libc::stat,
    flags: c_int,
) -> c_int {
    c_result(tasks::fstatat(dir, path.cast(), stat, flags)) as c_int
}

extern "C" fn fstat(file: c_int, stat: *mut libc::stat) -> c_int {
    let result = status::of_libc().expect("libc's, which is hooked")(file, stat);
    if result == 0 {
        // SAFETY: libc has written the structure.
        tasks::seen(file, unsafe { &mut *stat });
    }
    result
}

extern "C" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: u32,
    found: *mut libc::statx,
) -> c_int {
    c_result(tasks::statx(dir, path.cast(), flags, mask, found)) as c_int
}

/// A hook of a read: straight to libc unless reads are looked at and this is a device's.
///
/// Of libc's own there is no frame of ours on the stack, for it may be cancelled.
macro_rules! read_hook {
    ($name:ident, $original:ident, $pinned:ident) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "cmp byte ptr [rip + {needed}], 0",
                "jne 3f",
                "2:",
                "jmp qword ptr [rip + {original}]",
                "3:",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "call {device}",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test al, al",
                "jz 2b",
                "jmp {pinned}",
                needed = sym pins::NEEDED,
                original = sym $original,
                device = sym pins::is_device_read,
                pinned = sym $pinned,
            )
        }
    };
}
read_hook!(read, READ_ORIGINAL, read_pinned);
read_hook!(pread, PREAD_ORIGINAL, pread_pinned);
read_hook!(readv, READV_ORIGINAL, readv_pinned);
read_hook!(preadv, PREADV_ORIGINAL, preadv_pinned);
read_hook!(preadv2, PREADV2_ORIGINAL, preadv2_pinned);

extern "C" fn read_pinned(fd: usize, at: usize, len: usize) -> isize {
    c_result(pinned(libc::SYS_read, [fd, at, len, 0, 0, 0]))
}

extern "C" fn pread_pinned(fd: usize, at: usize, len: usize, offset: usize) -> isize {
    c_result(pinned(libc::SYS_pread64, [fd, at, len, offset, 0, 0]))
}

extern "C" fn readv_pinned(fd: usize, parts: usize, count: c_int) -> isize {
    c_result(pinned(
        libc::SYS_readv,
        [fd, parts, count as usize, 0, 0, 0],
    ))
}

extern "C" fn preadv_pinned(fd: usize, parts: usize, count: c_int, offset: usize) -> isize {
    let args = [fd, parts, count as usize, offset, 0, 0];
    c_result(pinned(libc::SYS_preadv, args))
}

extern "C" fn preadv2_pinned(
    fd: usize,
    parts: usize,
    count: c_int,
    offset: usize,
    flags: usize,
) -> isize {
    // The kernel takes the offset in two halves, of which 64-bit programs use the first.
    let args = [fd, parts, count as usize, offset, 0, flags];
    c_result(pinned(libc::SYS_preadv2, args))
}

extern "C" fn process_vm_writev(
    pid: usize,
    local: usize,
    locals: usize,
    remote: usize,
    remotes: usize,
    flags: usize,
) -> isize {
    let args = [pid, local, locals, remote, remotes, flags];
    c_result(pins::write_process(args))
}

/// A device's read, as the system call `number` takes it.
fn pinned(number: c_long, [fd, at, count, offset, high, flags]: [usize; 6]) -> isize {
    let positioned = match number {
        libc::SYS_pread64 | libc::SYS_preadv => true,
        libc::SYS_preadv2 => offset != usize::MAX,
        _ => false,
    };
    let call = |at: usize, count: usize, done: usize| {
        let offset = if positioned {
            offset.wrapping_add(done)
        } else {
            offset
        };
        // SAFETY: the program's own call, or a part of it.
        unsafe { raw::call(number, [fd, at, count, offset, high, flags]) }
    };
    match number {
        libc::SYS_read | libc::SYS_pread64 => pins::read(at, count, call),
        _ => pins::vectored(at as *const libc::iovec, count, |parts, count, done| {
            call(parts as usize, count, done)
        }),
    }
}

/// A read through `syscall(2)`.
fn read_by_number(number: c_long, args: [usize; 6]) -> isize {
    if pins::NEEDED.load(Ordering::Acquire) && pins::is_device_read(args[0] as c_int) {
        return pinned(number, args);
    }
    // SAFETY: the program's own call.
    unsafe { raw::call(number, args) }
}

/// `CLONE_VM`, for the assembly below; the same as [`libc::CLONE_VM`].
const CLONE_VM: i32 = 0x100;
const _: () = assert!(CLONE_VM == libc::CLONE_VM);
/// `CLONE_CHILD_CLEARTID`, likewise.
const CLEARS_WORD: i32 = 0x20_0000;
const _: () = assert!(CLEARS_WORD == libc::CLONE_CHILD_CLEARTID);

/// libc's `clone`: a child that shares the memory goes straight to libc, on a stack of its own.
///
/// The seventh argument, `ctid`, lies on the stack, where both targets find it.
#[unsafe(naked)]
unsafe extern "C" fn clone() -> c_int {
    naked_asm!(
        "test edx, {vm}",
        "jz {copy}",
        "xor eax, eax",
        "test edx, {clears}",
        "cmovnz rax, [rsp + 8]",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "mov rdi, rax",
        "mov esi, edx",
        "call {before}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp qword ptr [rip + {original}]",
        vm = const CLONE_VM,
        clears = const CLEARS_WORD,
        before = sym threads::before_sharing_child,
        copy = sym clone_copying,
        original = sym CLONE_ORIGINAL,
    )
}

/// libc's `clone` with a copy of the memory: a fork. The result as libc has it.
unsafe extern "C" fn clone_copying(
    entry: usize,
    stack: usize,
    flags: c_int,
    argument: usize,
    ptid: usize,
    tls: usize,
    ctid: usize,
) -> c_int {
    if entry == 0 || stack == 0 {
        return c_result(-(libc::EINVAL as isize)) as c_int;
    }
    let copied = fork::Copied::by_clone(flags as u32 as usize, stack, ptid, ctid, tls);
    match copied.make() {
        // SAFETY: the child, whose pager runs, where the program wants it.
        0 => unsafe { fork::enter(entry, argument, stack) },
        result => c_result(result) as c_int,
    }
}
