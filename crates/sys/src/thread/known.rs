//! Threads that glibc makes: with every signal blocked but those that glibc sends itself, and with a descriptor table of their own if asked.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::{Body, Options, Thread, despite_exec};
use crate::futex::{self, Scope};
use crate::instructions;
use crate::pagers;
use crate::process::{self, Tid};
use crate::raw::{Errno, syscall3};

/// What a thread and those who know it share.
#[derive(Debug)]
struct Life {
    /// 1 until it has ended.
    alive: AtomicU32,
    /// Its number, once it has begun; 0 before.
    tid: AtomicU32,
    /// Why it did not begin; 0 if it did.
    error: AtomicUsize,
}

/// A thread of glibc's.
#[derive(Debug)]
pub(super) struct Handle {
    thread: libc::pthread_t,
    life: Arc<Life>,
}

struct Payload<T> {
    entry: fn(T),
    argument: T,
    life: Arc<Life>,
    options: Options,
}

impl Handle {
    pub(super) fn alive(&self) -> &AtomicU32 {
        &self.life.alive
    }

    pub(super) fn join(self) {
        // SAFETY: a thread that was started and is joined once, for that takes the handle.
        unsafe { libc::pthread_join(self.thread, core::ptr::null_mut()) };
    }
}

/// As [`super::spawn`]. Waits until it runs.
pub(super) fn spawn<T: Send + 'static>(
    entry: fn(T),
    argument: T,
    options: &Options,
) -> Result<Thread, Errno> {
    let life = Arc::new(Life {
        alive: AtomicU32::new(1),
        tid: AtomicU32::new(0),
        error: AtomicUsize::new(0),
    });
    let payload = Box::new(Payload {
        entry,
        argument,
        life: life.clone(),
        options: *options,
    });
    let payload = Box::into_raw(payload);
    // SAFETY: `run` takes exactly this payload, once.
    let started = despite_exec(|| unsafe { create(run::<T>, payload.cast(), options.stack_bytes) });
    let thread = started.inspect_err(|_| {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(payload) });
    })?;
    let handle = Handle { thread, life };
    let tid = &handle.life.tid;
    while tid.load(Ordering::Acquire) == 0 {
        futex::wait(tid, 0, None, Scope::Process);
    }
    let tid = Tid(tid.load(Ordering::Acquire));
    match handle.life.error.load(Ordering::Acquire) {
        0 => Ok(Thread {
            tid,
            body: Body::Known(handle),
        }),
        error => {
            handle.join();
            Err(Errno::new(error as i32))
        }
    }
}

/// pthread_create(3), with the signals blocked that can be.
///
/// # Safety
/// `run` is sound to call with `argument` on another thread.
unsafe fn create(
    run: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
    stack_bytes: usize,
) -> Result<libc::pthread_t, Errno> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut all, mut old) = (
        MaybeUninit::<libc::sigset_t>::uninit(),
        MaybeUninit::<libc::sigset_t>::uninit(),
    );
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // glibc takes its block and the thread-locals of all libraries from the stack, beside what the caller asked for. A choice: a few KiB are usual.
    let stack = stack_bytes.max(libc::PTHREAD_STACK_MIN) + (64 << 10);
    // SAFETY: each value is initialised by the first call that is given it, and used after that; glibc leaves those signals out of the set that it
    // sends itself (setuid(2) waits for every thread).
    let error = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack.next_multiple_of(4096));
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
        let error = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, argument);
        libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), core::ptr::null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        error
    };
    match error {
        // SAFETY: written on success.
        0 => Ok(unsafe { thread.assume_init() }),
        error => Err(Errno::new(error)),
    }
}

extern "C" fn run<T>(payload: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` made it for this thread alone, which takes it once.
    let payload = unsafe { Box::from_raw(payload.cast::<Payload<T>>()) };
    let Payload {
        entry,
        argument,
        life,
        options,
    } = *payload;
    let began = begin(&options);
    if let Err(error) = began {
        life.error.store(error.number() as usize, Ordering::Release);
    }
    life.tid.store(process::tid().0, Ordering::Release);
    futex::wake(&life.tid, 1, Scope::Process);
    if began.is_ok() {
        instructions::have_all();
        pagers::enter();
        entry(argument);
    }
    life.alive.store(0, Ordering::Release);
    // With the scope by which the kernel wakes for a bare thread.
    futex::wake(&life.alive, i32::MAX as u32, Scope::System);
    core::ptr::null_mut()
}

/// Takes its name, and a descriptor table of its own.
fn begin(options: &Options) -> Result<(), Errno> {
    let (name, files) = (options.name.as_ptr() as usize, libc::CLONE_FILES as usize);
    // SAFETY: the name is a static C string; unshare(2) takes flags.
    unsafe {
        let _ = syscall3(libc::SYS_prctl, libc::PR_SET_NAME as usize, name, 0);
        if options.share_files {
            return Ok(());
        }
        syscall3(libc::SYS_unshare, files, 0, 0).map(drop)
    }
}
