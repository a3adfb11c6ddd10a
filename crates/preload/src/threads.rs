//! Threads and programs that begin, threads that end, and the CPUs they may use.
//!
//! The pager keeps in RAM what the kernel needs at a thread's end (`outpage_engine`, `threads`). So each
//! thread says that it begins: `pthread_create` starts it at [`thread_main`], which goes on to the
//! program's function without leaving a frame. That it ends is heard by the destructor of a pthread key; only
//! a thread that holds robust mutexes then has anything to say.
//!
//! The pager also binds a thread to one CPU while it faults again and again. What begins meanwhile would
//! inherit that, and what the program sets would be overwritten. So whoever makes a thread or a
//! program, or asks for or sets CPUs, has the pager bind nobody for so long ([`Unbound`]).

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use outpage_core::units::Nanos;
use outpage_engine::Engine;
use outpage_engine::call::Call;
use outpage_sys::futex::{self, Scope};
use outpage_sys::process;

use crate::mode::{self, Path};
use crate::raw::SignalsBlocked;

/// `pthread_create`.
pub type Create = unsafe extern "C" fn(usize, usize, usize, usize) -> c_int;

/// Threads that can be on their way from `pthread_create` to their first function at once; whoever
/// makes more waits for those.
const BIRTHS: usize = 64;
/// How long it waits until it looks again.
const LOOK: Nanos = Nanos(1_000_000);

/// What a thread that is being made will run.
struct Birth {
    taken: AtomicU32,
    /// The program's function and its argument.
    run: UnsafeCell<[usize; 2]>,
}

// SAFETY: `run` is used by whoever set `taken`, then by the thread it was handed to.
unsafe impl Sync for Birth {}

static BIRTHS_NOW: [Birth; BIRTHS] = [const {
    Birth {
        taken: AtomicU32::new(0),
        run: UnsafeCell::new([0; 2]),
    }
}; BIRTHS];

/// The key whose destructor runs when a thread ends; its number plus one, 0 for none.
static KEY: AtomicU32 = AtomicU32::new(0);

impl Birth {
    fn claim() -> &'static Self {
        loop {
            for birth in &BIRTHS_NOW {
                if birth.taken.swap(1, Ordering::Acquire) == 0 {
                    return birth;
                }
            }
            futex::wait(&BIRTHS_NOW[0].taken, 1, Some(LOOK), Scope::Process);
        }
    }

    fn free(&self) {
        self.taken.store(0, Ordering::Release);
    }
}

/// Called by the constructor, on the main thread.
pub fn set_up() {
    let mut key = 0;
    // SAFETY: a place for the key, and a destructor that stays loaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0 {
        KEY.store(key + 1, Ordering::Release);
        hear_of_end();
    }
}

/// Has [`thread_ends`] called when the calling thread ends.
fn hear_of_end() {
    if let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) {
        // Any value but null; without one the end is not heard.
        // SAFETY: a key of ours, and a value that nobody looks at.
        unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) };
    }
}

/// In the child of a fork: threads that the parent was making begin there, and nobody shares its memory.
pub fn forget_births() {
    // What is read only stays shared with the parent.
    if SHARED.load(Ordering::SeqCst) {
        SHARED.store(false, Ordering::SeqCst);
    }
    let taken = |birth: &&Birth| birth.taken.load(Ordering::SeqCst) != 0;
    BIRTHS_NOW.iter().filter(taken).for_each(Birth::free);
}

/// `pthread_create`, by `original`; returns its error number.
pub fn create(original: Create, thread: usize, attributes: usize, run: [usize; 2]) -> c_int {
    let birth = Birth::claim();
    // SAFETY: claimed above.
    unsafe { *birth.run.get() = run };
    let _unbound = Unbound::caller();
    let main = thread_main as *const () as usize;
    let birth_at = core::ptr::from_ref(birth) as usize;
    // SAFETY: libc's own function with the program's arguments and a function that runs the program's.
    let result = unsafe { original(thread, attributes, main, birth_at) };
    if result != 0 {
        birth.free();
    }
    result
}

/// What `pthread_create` runs on the new thread: goes over to the program's function.
#[unsafe(naked)]
unsafe extern "C" fn thread_main() {
    naked_asm!(
        "sub rsp, 8",
        "call {begins}",
        "add rsp, 8",
        "mov rdi, rdx",
        "jmp rax",
        begins = sym thread_begins,
    )
}

/// What a thread is to run; returned in two registers.
#[repr(C)]
struct Run {
    function: usize,
    argument: usize,
}

extern "C" fn thread_begins(birth: &'static Birth) -> Run {
    // SAFETY: handed to this thread by the one that claimed it.
    let [function, argument] = unsafe { *birth.run.get() };
    birth.free();
    hear_of_end();
    if let Path::Managed(engine) = mode::enter() {
        let tid = process::tid().0;
        ask(engine, Call::ThreadBegins { tid });
    }
    Run { function, argument }
}

/// The destructor of the key: on the thread that ends, among the program's own destructors.
extern "C" fn thread_ends(_value: *mut c_void) {
    if let Path::Managed(engine) = mode::enter() {
        let tid = process::tid();
        let head = process::robust_list(tid).unwrap_or(0) as *const usize;
        // SAFETY: the kernel says that the list's head lies there; its first word points to itself
        // when the list is empty.
        let empty = head.is_null() || unsafe { head.read_volatile() } == head as usize;
        if !empty {
            ask(engine, Call::ThreadEnds { tid: tid.0 });
        }
    }
}

/// Makes the call; signals wait, for a handler that jumps away would leave its place taken for ever.
fn ask(engine: &Engine, call: Call) {
    let _signals = SignalsBlocked::new();
    engine.call(call);
}

/// While it lives the pager binds a thread to no CPU.
pub struct Unbound {
    told: Option<(&'static Engine, u32)>,
    _signals: Option<SignalsBlocked>,
}

impl Unbound {
    /// The calling thread. Signals come meanwhile, for what is begun has the mask of who begins it: after a handler that jumps away the thread
    /// is never bound again, which costs time alone.
    pub fn caller() -> Self {
        Self::thread(|| process::tid().0, None)
    }

    /// Every thread; signals wait.
    pub fn all() -> Self {
        Self::thread(|| 0, Some(SignalsBlocked::new()))
    }

    fn thread(tid: impl FnOnce() -> u32, signals: Option<SignalsBlocked>) -> Self {
        let told = match mode::enter() {
            Path::Managed(engine) => Some((engine, tid())),
            _ => None,
        };
        if let Some((engine, tid)) = told {
            ask(engine, Call::Unbind { tid, lasting: true });
        }
        Self {
            told,
            _signals: signals,
        }
    }
}

impl Drop for Unbound {
    fn drop(&mut self) {
        if let Some((engine, tid)) = self.told {
            ask(engine, Call::Bind { tid });
        }
    }
}

/// Before a `clone` or `vfork` with `flags` that shares the memory, which comes at once: no page is touched until then.
/// `word` is cleared when the child ends, unless it is 0.
pub extern "C" fn before_sharing_child(word: usize, flags: c_int) {
    let outlives = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_VFORK;
    let may_outlive = flags & outlives == libc::CLONE_VM;
    if may_outlive {
        SHARED.store(true, Ordering::SeqCst);
    }
    if let Path::Managed(engine) = mode::enter() {
        if may_outlive {
            ask(engine, Call::Outlive);
        }
        if word != 0 {
            ask(engine, Call::KeepWord { addr: word });
        }
        let tid = process::tid().0;
        ask(
            engine,
            Call::Unbind {
                tid,
                lasting: false,
            },
        );
    }
}

/// A process that shares the memory was made, and may be there when this one is gone.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Tells a pager that begins of such a process.
pub fn tell_of_sharers(engine: &Engine) {
    if SHARED.load(Ordering::SeqCst) {
        ask(engine, Call::Outlive);
    }
}
