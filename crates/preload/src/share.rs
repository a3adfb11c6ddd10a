//! This process's part of the session's limit while it is in direct mode.
//!
//! A program that fits must be able to do all that it could do alone: close every descriptor, count its
//! threads, enter a new user namespace. So nothing of the session is kept between two calls. A thread
//! with a descriptor table of its own opens the session, finds this process's entry by its number and start,
//! does what is asked and ends, before the hook that asked returns. Small processes never ask.
//!
//! Without a session (the variables were set by hand) the process has the limit for itself.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use outpage_core::units::PAGE_BYTES;
use outpage_engine::session::{Session, SessionError, SessionPaths};

use crate::{apart, statm};

/// Private writable bytes that a process has without asking: the shell's and cat's kind needs no
/// more, and it is part of the stated overhead of a process.
const FREE_BYTES: u64 = 4 << 20;

static LIMIT_BYTES: AtomicU64 = AtomicU64::new(0);
/// Where the session is; null without one.
static PATHS: AtomicPtr<SessionPaths> = AtomicPtr::new(core::ptr::null_mut());
/// Whether this process has an entry, as far as it knows.
#[unsafe(link_section = "outpage_forks")]
static IS_MEMBER: AtomicBool = AtomicBool::new(false);

/// Sets the limit for a process alone, and where its session is.
pub fn set_up(limit_bytes: u64, paths: &SessionPaths) {
    LIMIT_BYTES.store(limit_bytes, Ordering::Release);
    if paths.session.is_some() {
        let paths = Box::into_raw(Box::new(paths.clone()));
        PATHS.store(paths, Ordering::Release);
    }
}

/// The limit, in bytes.
pub fn limit_bytes() -> u64 {
    LIMIT_BYTES.load(Ordering::Acquire)
}

/// Asks for `need` bytes where `have` are lent; returns what is lent now, which may be less.
///
/// Grows in steps of `step` bytes. One caller at a time, its signals blocked.
///
/// # Errors
/// Why the session lends nothing.
pub fn raise_to(have: u64, need: u64, step: u64) -> Result<u64, SessionError> {
    if need <= FREE_BYTES {
        let free = FREE_BYTES.min(LIMIT_BYTES.load(Ordering::Acquire));
        return Ok(free.max(have));
    }
    let wish = need.next_multiple_of(step);
    if PATHS.load(Ordering::Acquire).is_null() {
        return Ok(wish.min(LIMIT_BYTES.load(Ordering::Acquire)).max(have));
    }
    let lent = ask(Request::Raise(wish.div_ceil(PAGE_BYTES as u64)))?;
    IS_MEMBER.store(true, Ordering::Release);
    Ok((lent * PAGE_BYTES as u64).max(have))
}

/// Whether something is lent to this process that it could give back.
pub fn is_member() -> bool {
    IS_MEMBER.load(Ordering::Acquire)
}

/// Gives everything back. What cannot be is found when the process has ended.
///
/// One caller at a time, its signals blocked.
pub fn leave() {
    if IS_MEMBER.swap(false, Ordering::AcqRel) {
        let _ = ask(Request::Leave);
    }
}

/// In a forked child: the parent's entry is not this process's.
pub fn forget() {
    if is_member() {
        IS_MEMBER.store(false, Ordering::Release);
    }
}

#[derive(Clone, Copy)]
enum Request {
    /// To hold so many pages.
    Raise(u64),
    Leave,
}

/// Has a thread carry `request` out; returns the pages that this process holds then.
fn ask(request: Request) -> Result<u64, SessionError> {
    let asked = apart::carry_out(c"outpage-member", None, move || with_session(request));
    asked.map_err(|e| SessionError::Os("start a thread for the session", e))?
}

fn with_session(request: Request) -> Result<u64, SessionError> {
    // SAFETY: set once by `set_up` and never freed.
    let paths = unsafe { &*PATHS.load(Ordering::Acquire) };
    let mut session = paths.open()?;
    match request {
        Request::Raise(pages) => {
            session.join_direct()?;
            raise(&session, pages)
        }
        Request::Leave => {
            if session.rejoin_direct()? {
                session.leave()?;
            }
            Ok(0)
        }
    }
}

fn raise(session: &Session, pages: u64) -> Result<u64, SessionError> {
    let touched = statm::touched_pages();
    let most = session.most_without_pager(touched);
    let missing = || pages.min(most).saturating_sub(session.held_pages());
    session.reserve(missing());
    if missing() > 0 || most < pages {
        // What the dead held is to be had.
        session.reap_all()?;
        let most = session.most_without_pager(touched);
        session.reserve(pages.min(most).saturating_sub(session.held_pages()));
    }
    session.check()?;
    Ok(session.held_pages())
}

#[cfg(test)]
mod tests;
