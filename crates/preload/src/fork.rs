//! Fork: every way in which a process comes to be with a copy of this one's memory.
//!
//! `vfork`, `posix_spawn` and threads share the memory and the pager with it; they need nothing.
//!
//! A managed parent's pager finishes its I/O, maps the pages around the forking thread's stack
//! pointer and thread block, and rests while the kernel copies. The child has one thread, this
//! one, and no pager: before it touches anything else it starts its own. All signals are blocked
//! meanwhile, for no handler of the program may run then.

use core::arch::asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use outpage_engine::{Engine, Ticket};
use outpage_sys::arena::Held;
use outpage_sys::futex::{self, Scope};
use outpage_sys::own;

use crate::mode::{self, Path};
use crate::raw::{self, SignalsBlocked, thread_pointer};
use crate::{ARENA, budget, share, threads, trace};

/// Forks by calling `original`, which returns twice, as the kernel does: 0 in the child, the
/// child's number in the parent, or a negative error number.
pub fn fork(original: impl Fn() -> isize) -> isize {
    let _trace = trace::begin(trace::Hook::Fork);
    let _signals = SignalsBlocked::new();
    match mode::enter() {
        Path::Raw => original(),
        Path::Direct(_at_work) => {
            let result = with_heap_held(&original);
            if result == 0 {
                start_direct_child();
            }
            result
        }
        Path::Managed(engine) => {
            let _turn = Turn::take();
            let ticket = prepare(engine, thread_pointer());
            let result = with_heap_held(&original);
            if result == 0 {
                engine.fork_child(ticket);
                threads::forget_births();
            } else {
                engine.fork_parent(ticket, result as i32);
            }
            result
        }
    }
}

/// Forks while no thread is within the shim's allocator, so that the child finds it usable.
fn with_heap_held(original: impl Fn() -> isize) -> isize {
    let _held = ARENA.hold();
    original()
}

/// Brings the pager to rest, with the caller's stack mapped.
fn prepare(engine: &'static Engine, tls: usize) -> Ticket {
    let here = 0u8;
    engine.fork_prepare((&raw const here) as usize, tls)
}

/// Threads that fork a managed process take turns: its pager rests for one at a time.
struct Turn;

static TAKEN: AtomicU32 = AtomicU32::new(0);

impl Turn {
    fn take() -> Self {
        while TAKEN.swap(1, Ordering::SeqCst) == 1 {
            futex::wait(&TAKEN, 1, None, Scope::Process);
        }
        Self
    }
}

impl Drop for Turn {
    /// In the parent and, in its copy, in the child.
    fn drop(&mut self) {
        TAKEN.store(0, Ordering::SeqCst);
        futex::wake(&TAKEN, 1, Scope::Process);
    }
}

/// In the child of a process in direct mode: it counts for itself.
fn start_direct_child() {
    own::after_fork_in_child();
    mode::forget_other_threads();
    threads::forget_births();
    share::forget();
    budget::restart_in_child();
}

/// libc's `clone`: entry, stack, flags, argument, then the variadic part.
pub type CloneFn = unsafe extern "C" fn(
    extern "C" fn(*mut c_void) -> c_int,
    usize,
    c_int,
    *mut c_void,
    usize,
    usize,
    usize,
) -> c_int;

/// What the program wants to run in the child.
#[derive(Clone, Copy)]
pub struct Child {
    /// `int (*)(void *)`.
    pub entry: usize,
    /// End of its stack.
    pub stack: usize,
    /// The argument of `entry`.
    pub argument: usize,
}

/// The other arguments of clone.
pub struct CloneRest {
    /// Flags, without `CLONE_VM`.
    pub flags: c_int,
    /// Where the parent finds the child's number.
    pub ptid: usize,
    /// The child's thread block, with `CLONE_SETTLS`.
    pub tls: usize,
    /// Where the child finds its number.
    pub ctid: usize,
}

/// What the child finds on its first stack. Parent and child each take out a copy of their own.
struct Start {
    child: Child,
    signals: u64,
    managed: Option<(&'static Engine, Ticket, Turn)>,
    /// The lock on the allocator.
    heap: Held<'static>,
}

/// Room for the child's first steps, in bytes: starting a pager included.
const FIRST_STACK_BYTES: usize = 256 << 10;

/// clone with a copy of the memory, at a function and a stack that the program names.
///
/// The stack may be paged out, so the child starts on one of ours and changes over when its pager
/// runs. Returns the child's number or a negative error number.
pub fn clone(original: CloneFn, child: Child, rest: &CloneRest) -> isize {
    if child.entry == 0 || child.stack == 0 {
        return -(libc::EINVAL as isize);
    }
    let _trace = trace::begin(trace::Hook::Fork);
    let signals = SignalsBlocked::new();
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a fresh mapping replaces nothing.
    let space = unsafe { raw::mmap(0, FIRST_STACK_BYTES, prot, flags, -1, 0) };
    if space < 0 {
        return space;
    }
    // The count of a direct hook goes on until the clone is done.
    let path = mode::enter();
    let managed = if let Path::Managed(engine) = path {
        let turn = Turn::take();
        let tls = if rest.flags & libc::CLONE_SETTLS != 0 {
            rest.tls
        } else {
            thread_pointer()
        };
        Some((engine, prepare(engine, tls), turn))
    } else {
        None
    };
    let start = (space as usize + FIRST_STACK_BYTES - size_of::<Start>()) & !15;
    let at = start as *mut Start;
    let record = Start {
        child,
        managed,
        signals: signals.before(),
        heap: ARENA.hold(),
    };
    // SAFETY: the record lies in the fresh mapping, aligned, and is taken out again; `original` is
    // libc's own function, here with a stack of ours for the program's child.
    let (result, record) = unsafe {
        at.write(record);
        let pid = original(
            child_main,
            start,
            rest.flags,
            at.cast(),
            rest.ptid,
            rest.tls,
            rest.ctid,
        );
        let result = if pid == -1 {
            -*libc::__errno_location() as isize
        } else {
            pid as isize
        };
        (result, at.read())
    };
    drop(record.heap);
    if let Some((engine, ticket, _turn)) = record.managed {
        engine.fork_parent(ticket, result as i32);
    }
    // SAFETY: the parent's copy of the stack that only the child uses.
    unsafe { raw::munmap(space as usize, FIRST_STACK_BYTES) };
    result
}

/// The child of [`clone`]: on its first stack, signals blocked.
extern "C" fn child_main(start: *mut c_void) -> c_int {
    // SAFETY: written by the parent before the memory was copied; the parent takes out its own copy.
    let start = unsafe { start.cast::<Start>().read() };
    drop(start.heap);
    match start.managed {
        Some((engine, ticket, _turn)) => {
            engine.fork_child(ticket);
            threads::forget_births();
        }
        None if mode::current() == mode::Mode::Direct => start_direct_child(),
        None => {}
    }
    trace::unlock_in_child();
    raw::set_signals(&start.signals, None);
    let Child {
        entry,
        stack,
        argument,
    } = start.child;
    // SAFETY: what libc's clone does: calls the program's function on the program's stack, then
    // ends the process with its result, the pager's threads included.
    unsafe {
        asm!(
            "mov rsp, {stack}",
            "xor ebp, ebp",
            "call {entry}",
            "mov edi, eax",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            stack = in(reg) stack & !15,
            entry = in(reg) entry,
            in("rdi") argument,
            exit = const libc::SYS_exit_group,
            options(noreturn),
        )
    }
}
