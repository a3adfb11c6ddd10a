//! What an engine manages, and what an error of its pager ends.
//!
//! `outpage run` has the whole process managed: an error ends the process, with a line. A program that uses this library hands
//! over regions of its own ([`Scope`]): an error ends that scope alone.
//!
//! **A scope that ended.** While it winds up, threads that touch a page that is out wait. Afterwards the memory is ordinary:
//! each page has its bytes, but for those that could be read from nowhere, and whoever touches one of those gets a signal: SIGBUS
//! (`UFFDIO_POISON`, Linux 6.6), on older kernels SIGSEGV. No such page reads as zeroes. Their number is in [`Ended`].
//!
//! What leaves it open where a page's bytes are, an assertion that failed or page tables that cannot be read, ends the process whatever
//! an engine reaches: memory cannot be put right then.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};

pub use outpage_core::contract::Advice;
use outpage_core::notify::Guest;
use outpage_core::units::PAGE_BYTES;
use outpage_stats::Counts;
use outpage_sys::raw::Errno;
use outpage_sys::shared::{self, Words};
use outpage_sys::{process, say};

use crate::call::Call;
use crate::config::Config;
use crate::engine::{Engine, OpenStore};
use crate::leaving::BELL_WORDS;
pub use crate::leaving::{Ear, Leaving};
use crate::notify::subscription;
use crate::report;
use crate::session::SessionError;
use crate::start::StartError;
use crate::tell::{self, Place};

/// How far an engine reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// All private anonymous memory of the process, as the hooks tell of it.
    Process,
    /// What it was handed.
    Regions,
}

/// Frames beyond the limit that the end of a scope may take, so that what waits for a frame does not keep it from ending. A choice:
/// what several zero-fills and page-ins take at once.
pub(crate) const FRAMES_TO_END: usize = 1024;

impl Reach {
    /// Frames that the staging area has room for beside those of the limit.
    pub(crate) const fn frames_to_end(self) -> usize {
        match self {
            Self::Process => 0,
            Self::Regions => FRAMES_TO_END,
        }
    }
}

/// Why a pager cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The swap file is full, or no slot of it can be written any more, and every frame holds a page that is not in it.
    SwapFull,
    /// Every page within the limit is locked, pinned or shared with a child.
    NoVictims,
    /// The kernel has no memory for a frame within the limit.
    NoMemory(Errno),
    /// The session's shared memory is not as it should be.
    Session(SessionError),
    /// The kernel refused something that has to be possible: what, and its error.
    Os(&'static str, Errno),
    /// Contents of a page were lost or cannot be told, at this address: why.
    Page(usize, &'static str),
    /// The process that keeps the run's shared memory has ended: why, if it said so.
    Home(String),
}

impl Failure {
    const fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::SwapFull => Some(
                "a larger --swap-cap, a --swap directory with more space, or a larger limit on the size of files (ulimit -f) where the program sets one",
            ),
            Self::NoVictims => Some("a larger --memory"),
            Self::NoMemory(_) => Some("a smaller --memory"),
            Self::Session(_) | Self::Os(..) | Self::Page(..) | Self::Home(_) => None,
        }
    }
}

impl Failure {
    /// What to tell of it: why, and the remedy if there is one.
    pub(crate) fn whole(&self) -> String {
        let remedy = self.remedy();
        remedy.map_or_else(|| self.to_string(), |r| format!("{self}. Remedy: {r}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SwapFull => {
                f.write_str("the swap file is full and every frame holds a page that is not in it")
            }
            Self::NoVictims => {
                f.write_str("every page within the limit is locked, pinned or shared with a child")
            }
            Self::NoMemory(error) => write!(
                f,
                "the kernel has no memory for the limit that was asked for ({})",
                error.text()
            ),
            Self::Session(error) => error.fmt(f),
            Self::Os(what, error) => write!(f, "cannot {what}: {}", error.text()),
            Self::Page(address, why) => write!(f, "the page at {address:#x} {why}"),
            Self::Home(why) if why.is_empty() => {
                f.write_str("the process that keeps the run's shared memory has ended")
            }
            Self::Home(why) => write!(f, "the run's shared memory cannot be paged: {why}"),
        }
    }
}

impl std::error::Error for Failure {}

/// Where the errors of a pager go: the first one ends what its engine reaches.
pub(crate) struct Failing {
    reach: Reach,
    first: Cell<Option<Failure>>,
}

impl Failing {
    pub(crate) const fn new(reach: Reach) -> Self {
        Self {
            reach,
            first: Cell::new(None),
        }
    }

    /// The pager cannot go on. Ends the process if it is managed as a whole; otherwise returns, and the caller leaves
    /// things so that the scope can end: no page's bytes may be taken for another's, or for zeroes.
    pub(crate) fn fail(&self, failure: Failure) {
        match self.reach {
            Reach::Process => {
                let (why, remedy) = (failure.to_string(), failure.remedy());
                let remedy = remedy.map(|remedy| [". Remedy: ", remedy]);
                let [point, remedy] = remedy.unwrap_or_default();
                // One damaged session is that of several processes.
                let who = match failure {
                    Failure::Session(_) => format!("{}: ", process::pid()),
                    _ => String::new(),
                };
                report::die(&["outpage: ", &who, &why, "; the program ends", point, remedy])
            }
            Reach::Regions => {
                let first = self.first.take();
                self.first.set(Some(first.unwrap_or(failure)));
            }
        }
    }

    /// The first failure, once.
    pub(crate) fn take(&self) -> Option<Failure> {
        self.first.take()
    }

    pub(crate) const fn reach(&self) -> Reach {
        self.reach
    }
}

/// A scope that ended by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Why.
    pub failure: Failure,
    /// Pages whose bytes could not be had: whoever touches one gets a signal.
    pub pages_lost: usize,
}

/// Why a scope did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScopeError {
    /// It has ended.
    Ended(Ended),
    /// The kernel refused, or the range is not what it has to be.
    Os(Errno),
}

impl fmt::Display for ScopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(ended) => write!(
                f,
                "paging ended: {}; {} pages are lost",
                ended.failure, ended.pages_lost
            ),
            Self::Os(error) => f.write_str(error.text()),
        }
    }
}

impl std::error::Error for ScopeError {}

/// What a program knows of the pages of a range that it handed over.
#[derive(Debug)]
pub struct Subscription {
    area: Arc<Words>,
    guest: Guest,
    start: usize,
}

/// What became of the pages of a subscription since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Pages that went out: only the store has them, or the pool of compressed pages.
    pub out: u64,
    /// Pages that came back.
    pub back: u64,
    /// Touches of its pages that began a read of the store.
    pub major_faults: u64,
    /// Touches of its pages that the pager served otherwise: the first ones, and those of pages in RAM and of pages that were being read.
    pub minor_faults: u64,
}

impl Subscription {
    /// Whether the page at `address` is out, so that a touch waits for a read. It may change at any moment. False for an address outside the
    /// range.
    #[must_use]
    pub fn is_out(&self, address: usize) -> bool {
        let page = address
            .checked_sub(self.start)
            .map(|offset| offset / PAGE_BYTES);
        let page = page.and_then(|page| u32::try_from(page).ok());
        page.is_some_and(|page| self.guest.is_out(&self.area, page))
    }

    /// Hands over which pages went out or came in since the last time, by their addresses, and whether each is out now. A page may come several times; the
    /// last time counts. The first time tells of what is out already.
    pub fn drain(&mut self, mut each: impl FnMut(usize, bool)) {
        let (guest, start) = (&mut self.guest, self.start);
        let _ = guest.drain(&self.area, |page, out| {
            each(start + page as usize * PAGE_BYTES, out)
        });
    }

    /// The area itself, as `guest/outpage_notify.h` reads it.
    #[must_use]
    pub fn area(&self) -> &[AtomicU32] {
        &self.area
    }
}

/// Some of a process's memory, under a limit, with a store, a thread and a descriptor table of its own.
///
/// ```no_run
/// use outpage_engine::config::Config;
/// use outpage_engine::scope::Scope;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (start, end) = (0, 0);
/// let scope = Scope::open(Config::new(64 << 20), None)?;
/// scope.manage(start..end)?; // private anonymous memory, whole pages
/// // ... the program uses it: 64 MiB of it are in RAM at most ...
/// let pages_lost = scope.close()?;
/// # Ok(()) }
/// ```
///
/// The pager's thread is one that libc knows, and uses the program's heap: no part of that heap may be handed over. Memory that was handed over has no
/// huge pages, which is so afterwards too, and is not there in forked children while it is managed: a child has no pager, and a scope that it inherited
/// refuses every call by `ECHILD`. Of what the program unmaps, moves or empties the kernel tells; other calls on that memory are made through
/// [`Scope::engine`], or found out a tick later.
pub struct Scope {
    engine: Option<Engine>,
    /// One thread at a time has words for an answer laid ready.
    asking: Mutex<()>,
    /// The process that opened it.
    pid: u32,
}

impl Scope {
    /// Starts a pager that manages nothing yet. `store` takes the place of a swap file in [`Config::swap_dir`].
    ///
    /// # Errors
    /// [`StartError`]; [`StartError::Taken`] in a process that is managed as a whole.
    pub fn open(config: Config, store: Option<OpenStore>) -> Result<Self, StartError> {
        say::note_standard_error();
        let engine = Some(Engine::open(config, store)?);
        Ok(Self {
            engine,
            asking: Mutex::new(()),
            pid: process::pid(),
        })
    }

    /// The pager, for calls on memory that it manages.
    ///
    /// # Panics
    /// Never: it is there until [`Self::close`].
    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("there until it is closed")
    }

    /// Hands `range` over: addresses of private anonymous memory, multiples of the page size. Its contents stay, but pages of it
    /// beyond the limit leave before this returns.
    ///
    /// # Errors
    /// [`ScopeError::Os`], and nothing is managed: `EINVAL` where the range is not such memory, `EEXIST` where a part is managed, `EBUSY`
    /// where it is another engine's or another userfaultfd's. [`ScopeError::Ended`].
    pub fn manage(&self, range: Range<usize>) -> Result<(), ScopeError> {
        let (addr, len) = (range.start, range.len());
        self.ask(Call::Manage { addr, len }).map(drop)
    }

    /// Takes `range` back: all its pages are in the program and stay there, whatever the limit. Parts of it that are not managed are
    /// left alone. Returns how many pages are lost: whoever touches one gets a signal.
    ///
    /// # Errors
    /// [`ScopeError::Os`], with the first part of the range taken back: `EINVAL` where it is not of whole pages; `ENOMEM` where the process has too many
    /// mappings. [`ScopeError::Ended`].
    pub fn take_back(&self, range: Range<usize>) -> Result<usize, ScopeError> {
        let (addr, len) = (range.start, range.len());
        self.ask(Call::TakeBack { addr, len })
    }

    /// From now on the program can know which pages of `range` are paged out, before it touches them: its area is that of
    /// `docs/notify.md`, page n of the range being frame n. No page is in two subscriptions of a scope. One ends when it is
    /// dropped, or when its first page is unmapped; what is unmapped behind that is no part of it from then on.
    ///
    /// # Errors
    /// [`ScopeError::Os`]: `EINVAL` where the range is not of whole pages that are managed, `EBUSY` where a page of it is in another, or there are 64, `EAGAIN` where
    /// another thread is about to make one. [`ScopeError::Ended`].
    pub fn subscribe(&self, range: Range<usize>) -> Result<Subscription, ScopeError> {
        let start = range.start;
        let call = |addr, len| Call::Subscribe { addr, len };
        let (area, guest) = self.told_of(range, call)?;
        Ok(Subscription { area, guest, start })
    }

    /// From now on the program can hear of pages of `range` before they leave, while their frames have their bytes. No page is in two of these. One ends when it is dropped, or
    /// when its first page is unmapped; what is unmapped behind that is no part of it from then on.
    ///
    /// # Errors
    /// As [`Self::subscribe`].
    pub fn leaving(&self, range: Range<usize>) -> Result<Leaving, ScopeError> {
        let start = range.start;
        let call = |addr, len| Call::Listen { addr, len };
        let (area, guest) = self.told_of(range, call)?;
        Ok(Leaving::new(area, guest, start))
    }

    fn told_of(
        &self,
        range: Range<usize>,
        call: impl Fn(usize, usize) -> Call,
    ) -> Result<(Arc<Words>, Guest), ScopeError> {
        let (addr, len) = (range.start, range.len());
        let layout = subscription((len / PAGE_BYTES) as u64);
        let layout = layout.ok_or(ScopeError::Os(Errno::EINVAL))?;
        let area = words_for(layout.words() + BELL_WORDS)?;
        self.ask_for(&area, call(addr, len))?;
        let guest = Guest::attach(&area).map_err(|_| ScopeError::Os(Errno::EINVAL))?;
        Ok((area, guest))
    }

    /// What became of the pages of the subscription that has the page at `address`.
    ///
    /// # Errors
    /// [`ScopeError::Os`], `EINVAL` where none has it. [`ScopeError::Ended`].
    pub fn traffic(&self, address: usize) -> Result<Traffic, ScopeError> {
        let words = words_for(tell::TRAFFIC_WORDS)?;
        self.ask_for(&words, Call::Traffic { addr: address })?;
        let [out, back, major_faults, minor_faults] = [0, 1, 2, 3].map(|at| tell::wide(&words, at));
        Ok(Traffic {
            out,
            back,
            major_faults,
            minor_faults,
        })
    }

    /// The program says what it will do with the managed pages of `range`. No byte depends on it. Faults wait while the pager takes it in: say it of parts of
    /// what is long.
    ///
    /// # Errors
    /// [`ScopeError::Os`]: `EINVAL` where the range is not of whole pages. [`ScopeError::Ended`].
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), ScopeError> {
        let (addr, len) = (range.start, range.len());
        self.ask(Call::Advise { addr, len, advice }).map(drop)
    }

    /// What the managed pages of `range` hold is not wanted until [`Self::wanted`] says otherwise: the pager may drop it in place of writing it, as
    /// [`Config::discard`] says; under `none` nothing is dropped. A page that is touched meanwhile holds what it held, or zeroes.
    ///
    /// # Errors
    /// [`ScopeError::Os`]: `EINVAL` where the range is not of whole pages. [`ScopeError::Ended`].
    pub fn discardable(&self, range: Range<usize>) -> Result<(), ScopeError> {
        let (addr, len) = (range.start, range.len());
        self.ask(Call::Discardable { addr, len }).map(drop)
    }

    /// What the pages of `range` hold is wanted. Hands over the address of each page that was dropped since it was given up, ascending: it holds zeroes, or
    /// what was written since. All others are as they were.
    ///
    /// # Errors
    /// As [`Self::discardable`].
    pub fn wanted(
        &self,
        range: Range<usize>,
        mut dropped: impl FnMut(usize),
    ) -> Result<(), ScopeError> {
        let (addr, len) = (range.start, range.len());
        let pages = len / PAGE_BYTES;
        let words = words_for(tell::bit_words(pages))?;
        let count = self.ask_for(&words, Call::Wanted { addr, len })?;
        if count > 0 {
            let set = (0..pages).filter(|&page| tell::bit(&words, page));
            set.for_each(|page| dropped(addr + page * PAGE_BYTES));
        }
        Ok(())
    }

    /// Hands over where each page of `range` is at this moment, in order. Faults wait meanwhile: ask for parts of what is long.
    ///
    /// # Errors
    /// As [`Self::discardable`].
    pub fn places(
        &self,
        range: Range<usize>,
        mut each: impl FnMut(Place),
    ) -> Result<(), ScopeError> {
        let (addr, len) = (range.start, range.len());
        let pages = len / PAGE_BYTES;
        let words = words_for(Place::words(pages))?;
        self.ask_for(&words, Call::Places { addr, len })?;
        (0..pages).for_each(|page| each(Place::read(&words, page)));
        Ok(())
    }

    /// What was counted since it was opened, but for the sizes of writes.
    ///
    /// # Errors
    /// [`ScopeError::Ended`]; [`ScopeError::Os`] where there is no memory for the answer.
    pub fn counts(&self) -> Result<Counts, ScopeError> {
        let words = words_for(tell::COUNTS_WORDS)?;
        self.ask_for(&words, Call::Counts)?;
        Ok(tell::counts(&words))
    }

    /// Whether this is the process that opened it, and no forked child.
    #[must_use]
    pub fn is_here(&self) -> bool {
        process::pid() == self.pid
    }

    /// Why it ended by itself, if it did.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        let ended = self.engine().shared.ended.lock();
        ended.ok().and_then(|ended| ended.clone())
    }

    /// Takes everything back and ends the pager. Returns how many pages are lost.
    ///
    /// # Errors
    /// [`ScopeError::Ended`] if it had ended by itself.
    pub fn close(mut self) -> Result<usize, ScopeError> {
        self.end()
    }

    fn end(&mut self) -> Result<usize, ScopeError> {
        let result = self.ask(Call::Close);
        if !self.is_here() {
            // The parent's thread and memory; a child has neither.
            std::mem::forget(self.engine.take());
            return result;
        }
        if let Some(engine) = self.engine.take() {
            engine.await_end();
        }
        result
    }

    fn ask_for(&self, words: &Arc<Words>, call: Call) -> Result<usize, ScopeError> {
        let _turn = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = &self.engine().shared.calls;
        calls.offer(words.clone()).map_err(ScopeError::Os)?;
        let answer = self.ask(call);
        calls.take_offer();
        answer
    }

    fn ask(&self, call: Call) -> Result<usize, ScopeError> {
        if !self.is_here() {
            return Err(ScopeError::Os(Errno::ECHILD));
        }
        let answer = self.engine().call(call);
        if let Some(ended) = self.ended() {
            return Err(ScopeError::Ended(ended));
        }
        usize::try_from(answer).map_err(|_| ScopeError::Os(Errno::new(-answer as i32)))
    }
}

fn words_for(count: usize) -> Result<Arc<Words>, ScopeError> {
    let words = shared::new_words(count).map_err(ScopeError::Os)?;
    Ok(Arc::new(words))
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.engine.is_some() {
            // Pages that are lost signal whoever touches them.
            let _ = self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_of_regions_is_the_one_that_counts_and_is_told_once() {
        let failing = Failing::new(Reach::Regions);
        assert_eq!(failing.take(), None);
        failing.fail(Failure::SwapFull);
        failing.fail(Failure::NoVictims);
        assert_eq!(failing.take(), Some(Failure::SwapFull));
        assert_eq!(failing.take(), None);
    }

    #[test]
    fn an_ended_scope_says_why_and_what_it_cost() {
        let ended = Ended {
            failure: Failure::Os("start a thread", Errno::ENOMEM),
            pages_lost: 3,
        };
        let text = ScopeError::Ended(ended).to_string();
        assert!(text.contains("cannot start a thread"), "{text}");
        assert!(text.ends_with("; 3 pages are lost"), "{text}");
    }
}
