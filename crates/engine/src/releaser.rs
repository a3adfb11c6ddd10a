//! A thread that throws pages of the program's away for the pager.
//!
//! `MADV_DONTNEED` waits until the pager has read the kernel's message about it, so the pager's thread cannot make
//! the call itself. Needed where pages cannot be moved: under write-protect, and for read-only and executable ranges; the
//! thread starts with the first such page.
//!
//! The kernel throws away what lies at an address, whatever that is by then. So it has to be the pager's [turn](Turns): nobody
//! maps or moves anything there from the last look until the pages are gone. What no hook sees does not wait for its turn; that is noticed
//! afterwards ([`Releaser::disturbed_in`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use outpage_core::units::{Nanos, PAGE_BYTES};
use outpage_sys::futex::{self, Scope};
use outpage_sys::raw::Errno;
use outpage_sys::thread::{self, Options, Thread};
use outpage_sys::turns::{Turn, Turns};
use outpage_sys::uffd::{self, Message, Uffd};
use outpage_sys::{map, process};

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const ENDED: u32 = 2;

/// What one call throws away at most, in pages: a bit of a word for each. What a call costs, 10 us and more for two switches of threads,
/// is little for each of so many.
pub const CALL_PAGES: usize = u64::BITS as usize;

/// How long the pager waits for its turn while a thread maps or moves something: many times what such a call takes. It may take longer,
/// where it fills what it maps or its thread is stopped; then pages are thrown away as if a hook had not seen it.
const PATIENCE: Nanos = Nanos(20_000_000);

/// The kernel's calls take less than 4 KiB of stack, the loop a few hundred bytes.
const STACK_BYTES: usize = 32 << 10;

#[derive(Default)]
struct Order {
    state: AtomicU32,
    address: AtomicUsize,
    len: AtomicUsize,
    /// Of the pager's userfaultfd.
    descriptor: AtomicI32,
    /// The kernel is being asked.
    begun: AtomicBool,
    /// It was done.
    done: AtomicBool,
    /// It was refused, a part of it at least.
    refused: AtomicBool,
}

/// What came of a release. Neither done nor refused: a change of the address space came between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Released {
    /// All of it was thrown away.
    pub done: bool,
    /// The kernel refused it, or a part of it.
    pub refused: bool,
    /// The kernel had told that a refused page is being thrown away: by us, who then met a lock or found it moved away, or by the
    /// program, which then did that.
    pub heard: bool,
}

/// Calls that were disturbed and are remembered, the latest: as many as are made while a few threads change mappings all the time.
const DISTURBED_MAX: usize = 64;

/// The thread, as the pager sees it.
pub(crate) struct Releaser {
    order: OnceLock<(Arc<Order>, Thread)>,
    /// Where pages were thrown away while something changed that is not attended to yet: first address, first one behind it.
    disturbed: RefCell<VecDeque<(usize, usize)>>,
    turns: Arc<Turns>,
    /// The turn that lasted too long, by its number.
    too_long: Cell<Option<u32>>,
}

impl Releaser {
    /// Waits for its turn as one of `turns`.
    pub(crate) fn new(turns: Arc<Turns>) -> Self {
        Self {
            order: OnceLock::new(),
            disturbed: RefCell::new(VecDeque::with_capacity(DISTURBED_MAX)),
            turns,
            too_long: Cell::new(None),
        }
    }

    /// In another process than that of the thread: what it was is forgotten.
    pub(crate) fn forget_thread(&mut self) {
        let new = Self::new(self.turns.clone());
        std::mem::forget(std::mem::replace(self, new));
    }

    /// The pager's turn. Who has it may wait to be heard.
    fn turn(&self, uffd: &Uffd) -> Option<Turn<'_>> {
        let known = self.too_long.get() == Some(self.turns.begun());
        let patience = if known { Nanos(0) } else { PATIENCE };
        let turn = (self.turns).take_within(patience, || uffd.let_change_pass());
        self.too_long
            .set(turn.is_none().then(|| self.turns.begun()));
        turn
    }
}

impl Drop for Releaser {
    /// A forked child, which has none of its parent's threads, must not drop it.
    fn drop(&mut self) {
        if let Some((order, thread)) = self.order.take() {
            order.state.store(ENDED, Ordering::Release);
            futex::wake(&order.state, 1, Scope::Process);
            thread.join();
        }
    }
}

impl Releaser {
    /// Throws `pages` pages from `address` on away, [`CALL_PAGES`] at most, unless the address space changes: something else may be
    /// mapped there then. If the kernel refuses one of several, some may be gone: each is to be asked for by itself then.
    ///
    /// # Errors
    /// The kernel's, when the thread cannot be started.
    ///
    /// # Panics
    /// When it is to throw more away.
    pub(crate) fn release(
        &self,
        address: usize,
        pages: usize,
        uffd: &Uffd,
    ) -> Result<Released, Errno> {
        let order = &self.thread()?.0;
        let mut heard = Heard::new(address, pages);
        let turn = self.turn(uffd);
        let mut addresses = (0..pages).map(|i| address + i * PAGE_BYTES);
        if !uffd.is_calm() && addresses.any(|page| uffd.is_disturbed(page)) {
            return Ok(Released {
                done: false,
                refused: false,
                heard: false,
            });
        }
        let known = uffd.known_changes();
        order.ask(address, pages * PAGE_BYTES, uffd.descriptor());
        while order.state.load(Ordering::Acquire) == ASKED {
            // Before the kernel is asked nothing is said for us. Between being heard and throwing pages away the thread may wait for a
            // CPU: nobody else is heard meanwhile, who would go on and might move something else there.
            if order.begun.load(Ordering::SeqCst) && !heard.all() {
                uffd.gather_but(&mut |message| heard.take(message));
                heard.rest().for_each(|message| uffd.put_back(message));
            }
            process::yield_now();
        }
        let done = order.done.load(Ordering::Relaxed);
        if done && (uffd.known_changes() > known || uffd.is_changing(address)) {
            // Something may have been moved here just before.
            let mut disturbed = self.disturbed.borrow_mut();
            if disturbed.len() == DISTURBED_MAX {
                disturbed.pop_front();
            }
            disturbed.push_back((address, address + pages * PAGE_BYTES));
        }
        drop(turn);
        // Who is at a change waits to be heard.
        uffd.let_change_pass();
        let refused = order.refused.load(Ordering::Relaxed);
        Ok(Released {
            done,
            refused,
            heard: refused && heard.any(),
        })
    }

    /// The thread; without it such pages could never leave, which a limit does not survive.
    fn thread(&self) -> Result<&(Arc<Order>, Thread), Errno> {
        if self.order.get().is_none() {
            // One thread uses it: nobody else set it meanwhile.
            let _ = self.order.set(start()?);
        }
        self.order.get().ok_or(Errno::EIO)
    }

    /// Calls `check` with every part of `start..end` where pages were thrown away while something changed.
    pub(crate) fn disturbed_in(
        &self,
        start: usize,
        end: usize,
        mut check: impl FnMut(usize, usize),
    ) {
        for &(from, to) in self.disturbed.borrow().iter() {
            if from < end && start < to {
                check(from.max(start), to.min(end));
            }
        }
    }

    /// All that changed was attended to.
    pub(crate) fn undisturbed(&self) {
        self.disturbed.borrow_mut().clear();
    }
}

/// What was said of the pages that are thrown away: of each once for ourselves, and as often as the program throws it away besides.
/// Who said it first does not matter, for what is left over is the program's.
struct Heard {
    start: usize,
    end: usize,
    /// The pages of which it was said, from the first on.
    pages: u64,
    /// What the last message said once more.
    again: u64,
}

impl Heard {
    fn new(start: usize, pages: usize) -> Self {
        assert!((1..=CALL_PAGES).contains(&pages), "{pages} pages at once");
        Self {
            start,
            end: start + pages * PAGE_BYTES,
            pages: 0,
            again: 0,
        }
    }

    /// Of the pages of `start..end`, which are some of these, each a bit.
    const fn mask(&self, start: usize, end: usize) -> u64 {
        let first = (start - self.start) / PAGE_BYTES;
        (u64::MAX >> (CALL_PAGES - (end - start) / PAGE_BYTES)) << first
    }

    const fn all(&self) -> bool {
        self.pages == self.mask(self.start, self.end)
    }

    const fn any(&self) -> bool {
        self.pages != 0
    }

    /// Takes what is said of these pages for the first time; returns every other message, but what is said again of some, which
    /// [`Self::rest`] has then. Those are the program's, and what it moves or unmaps next is told behind them, so they must not wait.
    fn take(&mut self, message: Message) -> Option<Message> {
        let Message::Removed { start, end } = message else {
            return Some(message);
        };
        if start < self.start || self.end < end {
            return Some(message);
        }
        let said = self.mask(start, end);
        if said & self.pages == said {
            return Some(message);
        }
        self.again = said & self.pages;
        self.pages |= said;
        None
    }

    /// What the last message said again.
    fn rest(&mut self) -> impl Iterator<Item = Message> {
        let (first, again) = (self.start, core::mem::take(&mut self.again));
        let pages = (0..CALL_PAGES).filter(move |page| again >> page & 1 == 1);
        pages.map(move |page| {
            let start = first + page * PAGE_BYTES;
            Message::Removed {
                start,
                end: start + PAGE_BYTES,
            }
        })
    }
}

impl Order {
    fn ask(&self, address: usize, len: usize, descriptor: i32) {
        self.address.store(address, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.descriptor.store(descriptor, Ordering::Relaxed);
        self.begun.store(false, Ordering::Relaxed);
        self.state.store(ASKED, Ordering::Release);
        futex::wake(&self.state, 1, Scope::Process);
    }

    fn work(&self) {
        loop {
            match self.state.load(Ordering::Acquire) {
                IDLE => drop(futex::wait(&self.state, IDLE, None, Scope::Process)),
                ENDED => return,
                _ => {
                    self.carry_out();
                    self.state.store(IDLE, Ordering::Release);
                }
            }
        }
    }

    fn carry_out(&self) {
        let address = self.address.load(Ordering::Relaxed);
        let descriptor = self.descriptor.load(Ordering::Relaxed);
        let (mut done, mut refused) = (false, false);
        // What is changing may lie elsewhere by now, and something else here.
        if !uffd::is_changing(descriptor, address) {
            self.begun.store(true, Ordering::SeqCst);
            done = map::release(address, self.len.load(Ordering::Relaxed)).is_ok();
            refused = !done;
        }
        self.done.store(done, Ordering::Relaxed);
        self.refused.store(refused, Ordering::Relaxed);
    }
}

fn start() -> Result<(Arc<Order>, Thread), Errno> {
    let order = Arc::new(Order::default());
    let options = Options {
        name: c"outpage-drop",
        stack_bytes: STACK_BYTES,
        share_files: true,
        process: false,
        known: !thread::is_bare(),
    };
    let theirs = order.clone();
    let thread = thread::spawn(|order: Arc<Order>| order.work(), theirs, &options)?;
    Ok((order, thread))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(first: usize, end: usize) -> Message {
        Message::Removed {
            start: first * PAGE_BYTES,
            end: end * PAGE_BYTES,
        }
    }

    #[test]
    fn of_what_is_said_each_page_is_ours_once() {
        let at = 10 * PAGE_BYTES;
        let moved = Message::Remapped {
            from: at,
            to: 90 * PAGE_BYTES,
            len: PAGE_BYTES,
        };
        let mut heard = Heard::new(at, 4);
        // What reaches beyond cannot be ours.
        for message in [removed(8, 12), removed(13, 15), moved, removed(9, 10)] {
            assert_eq!(heard.take(message), Some(message));
        }
        // The program throws away two of them meanwhile: whoever tells first, that is what is left over.
        for messages in [
            [removed(11, 13), removed(10, 14)],
            [removed(10, 14), removed(11, 13)],
        ] {
            let mut heard = Heard::new(at, 4);
            let mut left = Vec::new();
            for message in messages {
                left.extend(heard.take(message));
                left.extend(heard.rest());
            }
            assert!(heard.all());
            let in_parts = left == [removed(11, 12), removed(12, 13)];
            assert!(in_parts || left == [removed(11, 13)], "{left:?}");
        }
    }

    #[test]
    fn of_a_run_the_kernel_may_tell_in_parts() {
        let mut heard = Heard::new(10 * PAGE_BYTES, CALL_PAGES);
        assert!(!heard.any() && !heard.all());
        assert_eq!(heard.take(removed(10, 30)), None);
        assert!(heard.any() && !heard.all());
        assert_eq!(heard.take(removed(30, 74)), None);
        assert!(heard.all() && heard.rest().next().is_none());
    }
}
