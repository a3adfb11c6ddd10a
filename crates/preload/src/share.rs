//! This process's part of the session's limit while it is in direct mode.
//!
//! Membership of a session hangs on a lock that dies with its holder, and its holder must not share
//! the program's descriptor table, for the program may close every descriptor. So the first time
//! that this process asks for more than [`FREE_BYTES`], a thread is started that joins the session,
//! then sleeps until the pager takes over or the process ends. Small processes never start one.
//!
//! Without a session (the variables were set by hand) the process has the limit for itself.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::ffi::CString;

use outpage_core::units::PAGE_BYTES;
use outpage_engine::session::{Session, SessionPaths};
use outpage_sys::futex::{self, Scope};
use outpage_sys::thread::{self, Options};

/// Private writable bytes that a process has without asking: the shell's and cat's kind needs no
/// more, and it is part of the stated overhead of a process.
const FREE_BYTES: u64 = 4 << 20;

static LIMIT_BYTES: AtomicU64 = AtomicU64::new(0);
/// Path of the session's memfd; null without a session.
static PATH: AtomicPtr<CString> = AtomicPtr::new(core::ptr::null_mut());
/// The member's view, once joined.
static SESSION: AtomicPtr<Session> = AtomicPtr::new(core::ptr::null_mut());
/// Where the member's thread stands.
static STATE: AtomicU32 = AtomicU32::new(ABSENT);

const ABSENT: u32 = 0;
const JOINING: u32 = 1;
const JOINED: u32 = 2;
const FAILED: u32 = 3;
const LEAVING: u32 = 4;
const LEFT: u32 = 5;

/// Sets the limit for a process alone, and where its session is.
pub fn set_up(limit_bytes: u64, paths: &SessionPaths) {
    LIMIT_BYTES.store(limit_bytes, Ordering::Release);
    if let Some(path) = &paths.session {
        PATH.store(Box::into_raw(Box::new(path.clone())), Ordering::Release);
    }
}

/// Asks for `need` bytes where `have` are lent; returns what is lent now, which may be less.
///
/// Grows in steps of `step` bytes. One caller at a time, its signals blocked.
pub fn raise_to(have: u64, need: u64, step: u64) -> u64 {
    if need <= FREE_BYTES {
        return FREE_BYTES
            .min(LIMIT_BYTES.load(Ordering::Acquire))
            .max(have);
    }
    let wish = need.next_multiple_of(step);
    if PATH.load(Ordering::Acquire).is_null() {
        return wish.min(LIMIT_BYTES.load(Ordering::Acquire)).max(have);
    }
    let Some(session) = member() else { return have };
    let lent = session.held_pages() * PAGE_BYTES as u64;
    let pages = wish.saturating_sub(lent) / PAGE_BYTES as u64;
    let granted = session.reserve(pages) * PAGE_BYTES as u64;
    (lent + granted).max(have)
}

/// The member's view, joining if need be; `None` if that fails.
fn member() -> Option<&'static Session> {
    if STATE.load(Ordering::Acquire) == ABSENT {
        STATE.store(JOINING, Ordering::Release);
        let options = Options {
            name: c"outpage-member",
            stack_bytes: 64 << 10,
            share_files: false,
            process: false,
        };
        if thread::spawn(be_member, (), &options).is_err() {
            STATE.store(FAILED, Ordering::Release);
        }
    }
    while STATE.load(Ordering::Acquire) == JOINING {
        futex::wait(&STATE, JOINING, None, Scope::Process);
    }
    let session = SESSION.load(Ordering::Acquire);
    // SAFETY: the member's thread keeps its view until `leave`, after which it is null.
    (STATE.load(Ordering::Acquire) == JOINED).then(|| unsafe { &*session })
}

fn say(state: u32) {
    STATE.store(state, Ordering::Release);
    futex::wake(&STATE, u32::MAX, Scope::Process);
}

/// The member's thread, with a descriptor table of its own.
fn be_member((): ()) {
    // Whatever the program has open would stay open here.
    let closed = outpage_sys::fd::close_all_except(&[]);
    // SAFETY: set once by `set_up` and never freed.
    let path = unsafe { &*PATH.load(Ordering::Acquire) };
    let joined = Session::open(path).and_then(|mut session| session.join().map(|_| session));
    let (Ok(mut session), Ok(())) = (joined, closed) else {
        return say(FAILED);
    };
    SESSION.store(&raw mut session, Ordering::Release);
    say(JOINED);
    while STATE.load(Ordering::Acquire) == JOINED {
        futex::wait(&STATE, JOINED, None, Scope::Process);
    }
    SESSION.store(core::ptr::null_mut(), Ordering::Release);
    // An error leaves the entry to whoever next looks for the dead.
    let _ = session.leave();
    say(LEFT);
}

/// Gives everything back, for the pager joins in the process's stead.
pub fn leave() {
    if STATE.load(Ordering::Acquire) != JOINED {
        return;
    }
    say(LEAVING);
    while STATE.load(Ordering::Acquire) == LEAVING {
        futex::wait(&STATE, LEAVING, None, Scope::Process);
    }
}

/// In a forked child: the parent's member is not this process.
pub fn forget() {
    SESSION.store(core::ptr::null_mut(), Ordering::Release);
    STATE.store(ABSENT, Ordering::Release);
}
