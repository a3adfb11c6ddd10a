//! Threads that glibc does not know: bare clone(2), own stack, own (fake) thread control block. And threads that it does know, where a pager
//! serves memory that no part of libc uses ([`Options::known`]): those may use all of libc.
//!
//! A bare thread is invisible to the program: not in pthread's lists, with every signal blocked, and
//! with its own descriptor table if asked. glibc functions find their thread state at the `fs` register;
//! here that is a block which looks enough like glibc's for functions that keep no state but `errno`.
//!
//! What such a thread may call: system calls ([`crate::raw`]), the memory and string functions,
//! `clock_gettime`, plain wrappers such as `pread`. What it must not: anything that uses a lock, the
//! heap of libc, a locale or stdio, and Rust's `std::thread` and `thread_local!` (initial values of
//! thread-locals are not copied: all are zero; libraries loaded later would allocate them with malloc).
//!
//! | offset from `fs` | content | as in glibc's `tcbhead_t` (sysdeps/x86_64/nptl/tls.h) |
//! |---|---|---|
//! | down from 0, to 256 KiB below `errno` | zero | thread-locals of the program and of the libraries present at start |
//! | 0, 0x10 | its own address | `tcb`, `self` |
//! | 8 | a copy of the creator's vector, pointing into this block | `dtv` |
//! | 0x18 | 1 | `multiple_threads` |
//! | 0x28, 0x30 | the creator's | stack protector canary, pointer guard |
//! | up to 4 KiB | zero | the rest of glibc's `struct pthread` |

use core::arch::asm;
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use outpage_core::units::{Nanos, PAGE_BYTES};

use crate::futex::{self, Scope};
use crate::instructions;
use crate::map::{self, Area};
use crate::mask;
use crate::own::Fork;
pub use crate::pagers::{is_bare, is_pagers};
use crate::process::{self, Tid};
use crate::raw::{self, Errno, check, syscall3};

mod deadline;
mod known;

use deadline::ResetOnFork;

/// Room for the thread-locals of the libraries that were loaded after libc and before the program began. A few KiB are usual; only touched pages take frames.
const TLS_BEHIND_ERRNO: usize = 256 << 10;
/// No program's thread-locals that come before libc's are larger: a choice.
const TLS_MAX: usize = 1 << 30;
/// Room above `fs`: glibc's `struct pthread` is about 2.3 KiB.
const TCB_BYTES: usize = PAGE_BYTES;
/// Room for the control word, the start record and the module vector.
const CONTROL_BYTES: usize = 4 * PAGE_BYTES;
const GUARD_BYTES: usize = PAGE_BYTES;

/// Offset of the module vector in the control part: an entry before it holds the length.
const DTV_OFFSET: usize = 256;
/// Entries of the vector: more than any program loads modules with thread-locals.
const DTV_ENTRIES: usize = 800;
/// `TLS_DTV_UNALLOCATED`: glibc allocates the module's block on first use.
const DTV_UNALLOCATED: usize = usize::MAX;

/// A thread that is ending leaves its group within microseconds where it has a CPU, so it is first
/// given one a few times, then looked for at intervals, for a second in all: a choice, beyond which the
/// machine has other troubles.
const YIELDS: u32 = 64;
const LOOK_AGAIN: Nanos = Nanos(50_000);
const LOOKS_MAX: u32 = YIELDS + 20_000;

/// So often, and so many times, a thread is tried to begin ([`despite_exec`]): for two seconds in all, many times what the kernel needs to read a program's
/// head. A choice; where the user has as many processes as may be, the same error comes, and stays.
const TRY_AGAIN: Nanos = Nanos(1_000_000);
const TRIES_MAX: u32 = 2_000;

/// What the names of a pager's threads begin with, by which they are told from the program's.
pub const NAME_PREFIX: &[u8] = b"outpage";

/// How to start a thread.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Its name in /proc and ps; the kernel keeps 15 bytes. A pager's begins with [`NAME_PREFIX`].
    pub name: &'static CStr,
    /// Stack size in bytes, rounded up to pages. A guard page lies below it.
    pub stack_bytes: usize,
    /// Use the creator's descriptor table, rather than a copy of it.
    pub share_files: bool,
    /// A process of its own that shares the memory, rather than a thread of this one: it does not end with it. It sends no
    /// signal at its end, so that no ordinary wait(2) meets it.
    pub process: bool,
    /// No tracer of the creator is told of it, as none is of a process of its own: for a thread that its creator waits for. A tracer that waits for the creator
    /// alone would not let it begin; a thread that lasts, untold, lets a debugger take the program's first thread for gone when the program ends.
    pub untraced: bool,
    /// glibc makes it and knows it: its heap and thread-locals may be used there. Not for a process of its own.
    pub known: bool,
}

/// A started thread. Dropping this value does not end it.
#[derive(Debug)]
pub struct Thread {
    tid: Tid,
    body: Body,
}

/// What a thread runs on.
#[derive(Debug)]
enum Body {
    Bare(core::mem::ManuallyDrop<Area>),
    Known(known::Handle),
}

/// What a new thread finds on its own block.
#[repr(C)]
struct Start {
    /// The thread's number; zeroed and woken by the kernel when it has ended.
    alive: AtomicU32,
    entry: extern "C" fn(*mut u8),
    argument: *mut u8,
    name: *const libc::c_char,
}

const _: () = assert!(size_of::<Start>() <= DTV_OFFSET - DTV_ENTRY_BYTES);
const DTV_ENTRY_BYTES: usize = 16;
const _: () = assert!(DTV_OFFSET + DTV_ENTRIES * DTV_ENTRY_BYTES <= CONTROL_BYTES);

impl Thread {
    /// Its number.
    #[must_use]
    pub const fn tid(&self) -> Tid {
        self.tid
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.alive().load(Ordering::Acquire) != 0
    }

    /// Waits for its end.
    pub fn await_end(&self) {
        loop {
            let alive = self.alive().load(Ordering::Acquire);
            if alive == 0 {
                return;
            }
            // The kernel wakes with the scope "any process".
            futex::wait(self.alive(), alive, None, Scope::System);
        }
    }

    /// Waits for its end, for `span` at most. Whether it has come.
    #[must_use]
    pub fn ends_within(&self, span: Nanos) -> bool {
        let alive = self.alive().load(Ordering::Acquire);
        if alive != 0 {
            futex::wait(self.alive(), alive, Some(span), Scope::System);
        }
        !self.is_alive()
    }

    /// Waits for its end and unmaps its stack.
    pub fn join(self) {
        self.await_end();
        match self.body {
            Body::Bare(block) => drop(core::mem::ManuallyDrop::into_inner(block)),
            Body::Known(handle) => handle.join(),
        }
    }

    /// Waits for its end as [`Self::join`] does, and until the kernel no longer counts it among the
    /// process's threads: what is refused to a process with several (unshare(2)) works afterwards.
    pub fn join_out_of_group(self) {
        let tid = self.tid;
        self.join();
        for look in 0..LOOKS_MAX {
            if !process::has_thread(tid) {
                return;
            }
            if look < YIELDS {
                raw::yield_now();
            } else {
                futex::wait(&AtomicU32::new(0), 0, Some(LOOK_AGAIN), Scope::Process);
            }
        }
    }

    fn alive(&self) -> &AtomicU32 {
        let block = match &self.body {
            Body::Bare(block) => block,
            Body::Known(handle) => return handle.alive(),
        };
        let start: *const Start = ptr::with_exposed_provenance(control(block));
        // SAFETY: the block is mapped as long as `self` lives and its control part holds a `Start`.
        unsafe { &(*start).alive }
    }
}

/// Runs `entry(argument)` on a new thread, which ends when it returns.
///
/// The argument is moved to the new thread's stack: nothing is allocated. It is forgotten on failure.
///
/// # Errors
/// Those of mmap(2) and clone(2); `EINVAL` when the argument or libc's thread-locals do not fit. Of a known thread those of pthread_create(3) and
/// unshare(2), and its argument is allocated.
pub fn spawn<T: Send + 'static>(
    entry: fn(T),
    argument: T,
    options: &Options,
) -> Result<Thread, Errno> {
    if options.known {
        return known::spawn(entry, argument, options);
    }
    struct Payload<T> {
        entry: fn(T),
        argument: T,
    }
    extern "C" fn run<T>(payload: *mut u8) {
        // SAFETY: `spawn` wrote the payload there for this thread alone, which reads it once.
        let Payload { entry, argument } = unsafe { payload.cast::<Payload<T>>().read() };
        instructions::have_all();
        entry(argument);
    }
    let block = new_block(options)?;
    let top = stack_top(&block);
    let align = align_of::<Payload<T>>().max(16);
    let address = top.saturating_sub(size_of::<Payload<T>>()) & !(align - 1);
    // Half of the stack at least is for running.
    if address < block.start() + GUARD_BYTES + options.stack_bytes / 2 {
        return Err(Errno::EINVAL);
    }
    let payload: *mut Payload<T> = ptr::with_exposed_provenance_mut(address);
    // SAFETY: aligned, inside the stack that nobody uses yet.
    unsafe { payload.write(Payload { entry, argument }) };
    // SAFETY: `run` takes exactly this payload, and the stack begins below it.
    unsafe { start(block, address, run::<T>, payload.cast(), options) }
}

/// Maps guard, stack, thread-locals, control block and control part, in this order.
fn new_block(options: &Options) -> Result<Area, Errno> {
    let stack = options
        .stack_bytes
        .max(PAGE_BYTES)
        .next_multiple_of(PAGE_BYTES);
    let tls = errno_distance() + TLS_BEHIND_ERRNO;
    if tls > TLS_MAX {
        return Err(Errno::EINVAL);
    }
    let len = GUARD_BYTES + stack + tls + TCB_BYTES + CONTROL_BYTES;
    let block = Area::new(len, Fork::ParentOnly)?;
    map::mprotect(block.start(), GUARD_BYTES, libc::PROT_NONE)?;
    Ok(block)
}

fn control(block: &Area) -> usize {
    block.start() + block.len() - CONTROL_BYTES
}

fn thread_pointer(block: &Area) -> usize {
    control(block) - TCB_BYTES
}

fn stack_top(block: &Area) -> usize {
    thread_pointer(block) - errno_distance() - TLS_BEHIND_ERRNO
}

/// Fills in the block and starts the thread with all signals blocked.
///
/// # Safety
/// `entry` must be sound to call with `argument` on another thread, at any later time; `stack` is the 16-aligned end of unused stack in `block`.
unsafe fn start(
    block: Area,
    stack: usize,
    entry: extern "C" fn(*mut u8),
    argument: *mut u8,
    options: &Options,
) -> Result<Thread, Errno> {
    let (tp, control) = (thread_pointer(&block), control(&block));
    // SAFETY: the block is fresh and has all the parts.
    unsafe { fill_tcb(tp, control + DTV_OFFSET) };
    let record: *mut Start = ptr::with_exposed_provenance_mut(control);
    let name = options.name.as_ptr();
    // SAFETY: the control part is fresh, page-aligned and larger than `Start`.
    unsafe {
        record.write(Start {
            alive: AtomicU32::new(0),
            entry,
            argument,
            name,
        })
    };
    let files = if options.share_files {
        libc::CLONE_FILES
    } else {
        0
    };
    let member = if options.process {
        0
    } else {
        libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_SYSVSEM
    };
    let told = if options.process || options.untraced {
        untraced()
    } else {
        0
    };
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | member
        | told
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID
        | files;
    // Blocked before the clone: the thread inherits the mask, so that no handler ever runs on it.
    let old = mask::change(libc::SIG_SETMASK, u64::MAX)?;
    // SAFETY: stack, record and control block are ready and stay mapped while the thread lives.
    let tid = despite_exec(|| unsafe { clone_thread(flags as usize, stack, record, tp) });
    // Cannot fail with valid arguments; an early return would unmap a running thread's stack.
    let _ = mask::change(libc::SIG_SETMASK, old);
    Ok(Thread {
        tid: Tid(tid? as u32),
        body: Body::Bare(core::mem::ManuallyDrop::new(block)),
    })
}

/// The flag by which a tracer of the caller is told nothing of a process of the pager's.
fn untraced() -> i32 {
    if process::is_filtered() {
        0
    } else {
        libc::CLONE_UNTRACED
    }
}

/// Begins a thread by `begin`, again and again for a while where the kernel refuses that for now. While another thread executes a program it refuses all new
/// ones (`EAGAIN`; `copy_fs` in kernel/fork.c, Linux 6.18): then this process goes, or the program could not be executed, and a thread can begin.
fn despite_exec<T>(mut begin: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut result = begin();
    if !matches!(result, Err(Errno::EAGAIN)) {
        return result;
    }
    let _usual = ResetOnFork::set();
    for _ in 0..TRIES_MAX {
        result = begin();
        if !matches!(result, Err(Errno::EAGAIN)) {
            break;
        }
        futex::wait(&AtomicU32::new(0), 0, Some(TRY_AGAIN), Scope::Process);
    }
    result
}

/// Signals by which the kernel answers what a thread does itself, as by a touch of a page that is lost or a call that a filter has trapped: with them blocked
/// it would be killed.
pub const OWN_SIGNALS: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// From now on the caller runs none of the program's handlers but those of [`OWN_SIGNALS`].
pub fn leave_signals_to_others() {
    let own = OWN_SIGNALS
        .iter()
        .fold(0, |own, &signal| own | mask::bit(signal));
    // Cannot fail with valid arguments.
    let _ = mask::change(libc::SIG_SETMASK, !own);
}

/// Starts a thread that calls [`thread_main`] on the stack ending at `stack`; returns its number.
///
/// # Safety
/// `stack` is 16-aligned with unused stack below; `record` and the block at `tp` outlive the thread.
unsafe fn clone_thread(
    flags: usize,
    stack: usize,
    record: *mut Start,
    tp: usize,
) -> Result<usize, Errno> {
    let alive = record as usize;
    let words: *mut usize = ptr::with_exposed_provenance_mut(stack - 16);
    // SAFETY: the two topmost words of the stack, which nobody uses yet.
    unsafe {
        words
            .cast::<[usize; 2]>()
            .write([thread_main as *const () as usize, alive])
    };
    let result: isize;
    // SAFETY: the parent comes out behind the instruction with nothing but rax, rcx and r11 changed. The
    // child comes out on its own stack, calls `thread_main` with the stack aligned as the ABI wants, and exits
    // without returning here.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "pop rax",
            "pop rdi",
            "call rax",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            exit = const libc::SYS_exit,
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") flags,
            in("rsi") words,
            in("rdx") alive,
            in("r10") alive,
            in("r8") tp,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    check(result)
}

/// The first Rust code of the new thread.
///
/// # Safety
/// Called once, by the new thread, with its own record.
unsafe extern "C" fn thread_main(record: *const Start) {
    // SAFETY: the creator wrote the record before the clone and does not change it.
    let (entry, argument, name) = unsafe { ((*record).entry, (*record).argument, (*record).name) };
    // SAFETY: the name is a static C string.
    let _ = unsafe {
        syscall3(
            libc::SYS_prctl,
            libc::PR_SET_NAME as usize,
            name as usize,
            0,
        )
    };
    entry(argument);
}

/// Reads the word at `offset` from the caller's `fs`.
///
/// # Safety
/// `offset` lies within the thread control block.
unsafe fn fs_word(offset: usize) -> usize {
    let word: usize;
    // SAFETY: glibc's block (or this module's) is at `fs`, readable up to the offsets used here.
    unsafe {
        asm!("mov {word}, fs:[{offset}]", word = out(reg) word, offset = in(reg) offset,
             options(nostack, readonly, preserves_flags));
    }
    word
}

/// Writes the thread control block at `tp` and the module vector at `dtv`, after the creator's.
///
/// # Safety
/// Both lie in a fresh, zeroed block with room for thread-locals below and [`TCB_BYTES`] above `tp`.
unsafe fn fill_tcb(tp: usize, dtv: usize) {
    // SAFETY: offsets as in the module's table.
    let (own_tp, own_dtv) = unsafe { (fs_word(0x10), fs_word(8)) };
    let words: *mut usize = ptr::with_exposed_provenance_mut(tp);
    // SAFETY: within the 4 KiB above `tp`.
    unsafe {
        words.write(tp);
        words.add(2).write(tp);
        words.add(3).write(1);
        words.add(5).write(fs_word(0x28));
        words.add(6).write(fs_word(0x30));
        if own_dtv != 0 {
            words.add(1).write(dtv);
            copy_dtv(own_dtv, own_tp, dtv, tp);
        }
    }
}

/// How far `errno`, a thread-local of libc's, lies below `fs`: in each thread as far, in whole pages.
fn errno_distance() -> usize {
    // SAFETY: always callable; gives the address of the caller's `errno`.
    let errno = unsafe { libc::__errno_location() } as usize;
    // SAFETY: offsets as in the module's table.
    let own_tp = unsafe { fs_word(0x10) };
    own_tp
        .wrapping_sub(errno)
        .min(TLS_MAX)
        .next_multiple_of(PAGE_BYTES)
}

/// Copies glibc's vector of thread-local blocks (`dtv_t`, two words an entry; entry -1 holds the number
/// of entries, entry 0 the generation). Blocks that lie below the creator's `fs` become the same places
/// below the new one. All others become "not allocated": they end with the creator.
///
/// # Safety
/// `from` is the caller's own vector and `to` has room for [`DTV_ENTRIES`] entries after it and one before.
unsafe fn copy_dtv(from: usize, from_tp: usize, to: usize, to_tp: usize) {
    let from: *const [usize; 2] = ptr::with_exposed_provenance(from);
    let to: *mut [usize; 2] = ptr::with_exposed_provenance_mut(to);
    let last = DTV_ENTRIES - 2;
    // SAFETY: indices -1 to the number of entries exist in the creator's vector; to's are bounded by `last`.
    unsafe {
        let used = (*from.sub(1))[0].min(last);
        to.sub(1).write([last, 0]);
        to.write(*from);
        for index in 1..=last {
            let block = if index <= used {
                (*from.add(index))[0]
            } else {
                DTV_UNALLOCATED
            };
            let below = from_tp.wrapping_sub(block);
            let is_static = below > 0 && below <= errno_distance() + TLS_BEHIND_ERRNO;
            let block = if is_static {
                to_tp - below
            } else {
                DTV_UNALLOCATED
            };
            to.add(index).write([block, 0]);
        }
    }
}
