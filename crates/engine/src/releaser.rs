//! A thread that throws pages of the program's away for the pager.
//!
//! `MADV_DONTNEED` waits until the pager has read the kernel's message about it, so the pager's thread cannot make
//! the call itself. Needed where pages cannot be moved: under write-protect, where the thread starts with the pager, and for read-only and
//! executable ranges, where it starts with the first such page.
//!
//! The kernel throws away what lies at an address, whatever that is by then. So it has to be the pager's [turn](Turns): nobody
//! maps or moves anything there from the last look until the pages are gone. What no hook sees does not wait for its turn; that is noticed
//! afterwards ([`Releaser::disturbed_in`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use outpage_core::units::{Nanos, PAGE_BYTES};
use outpage_sys::futex::{self, Scope};
use outpage_sys::map;
use outpage_sys::process::{self, CpuSet};
use outpage_sys::raw::Errno;
use outpage_sys::thread::{self, Options, Thread};
use outpage_sys::turns::{Turn, Turns};
use outpage_sys::uffd::{self, Message, Uffd};

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const ENDED: u32 = 2;

/// What one order throws away at most, in pages, and so in parts: a bit of a word for each. What an order costs, 10 us and more for two switches of
/// threads, is little for each of so many.
pub const CALL_PAGES: usize = u64::BITS as usize;

/// How long the pager waits for its turn while a thread maps or moves something: many times what such a call takes. It may take longer,
/// where it fills what it maps or its thread is stopped; then pages are thrown away as if a hook had not seen it.
const PATIENCE: Nanos = Nanos(20_000_000);

/// The kernel's calls take less than 4 KiB of stack, the loop a few hundred bytes.
const STACK_BYTES: usize = 32 << 10;

/// Neighbouring pages, which one call of the kernel's throws away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Of the first page.
    pub address: usize,
    /// How many.
    pub pages: usize,
}

impl Part {
    const fn end(self) -> usize {
        self.address + self.pages * PAGE_BYTES
    }
}

struct Order {
    state: AtomicU32,
    addresses: [AtomicUsize; CALL_PAGES],
    pages: [AtomicUsize; CALL_PAGES],
    parts: AtomicUsize,
    /// Of the pager's userfaultfd.
    descriptor: AtomicI32,
    /// Twice the parts of which the kernel has answered, and one more while it is being asked for the next.
    progress: AtomicUsize,
    /// The parts that were thrown away, a bit each.
    done: AtomicU64,
    /// Those that were refused, or of which a part was.
    refused: AtomicU64,
}

/// What came of a release.
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

impl Released {
    /// A change of the address space came between.
    pub const NEITHER: Self = Self {
        done: false,
        refused: false,
        heard: false,
    };
}

/// Parts that were disturbed and are remembered, the latest: as many as go while a few threads change mappings all the time.
const DISTURBED_MAX: usize = 16 * CALL_PAGES;

/// The thread, as the pager sees it.
pub(crate) struct Releaser {
    order: OnceLock<(Arc<Order>, Thread)>,
    /// Where pages were thrown away while something changed that is not attended to yet: first address, first one behind it.
    disturbed: RefCell<VecDeque<(usize, usize)>>,
    turns: Arc<Turns>,
    /// The turn that lasted too long, by its number.
    too_long: Cell<Option<u32>>,
    /// The CPU that the thread is bound to.
    cpu: Cell<Option<u32>>,
}

impl Releaser {
    /// Waits for its turn as one of `turns`.
    pub(crate) fn new(turns: Arc<Turns>) -> Self {
        Self {
            order: OnceLock::new(),
            disturbed: RefCell::new(VecDeque::with_capacity(DISTURBED_MAX)),
            turns,
            too_long: Cell::new(None),
            cpu: Cell::new(None),
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
    /// Throws `parts` away, [`CALL_PAGES`] pages at most, and says of each in `out` what came of it. Once the address space changes no further one is
    /// begun: something else may be mapped there then. If the kernel refuses one of several pages, some of them may be gone: each is to be asked for
    /// by itself then.
    ///
    /// # Errors
    /// The kernel's, when the thread cannot be started.
    ///
    /// # Panics
    /// When it is to throw more away.
    pub(crate) fn release(
        &self,
        parts: &[Part],
        uffd: &Uffd,
        out: &mut [Released],
    ) -> Result<(), Errno> {
        out.fill(Released::NEITHER);
        let (order, thread) = self.thread()?;
        let mut heard = Heard::new(parts);
        let turn = self.turn(uffd);
        let pages = |part: &Part| (part.address..part.end()).step_by(PAGE_BYTES);
        let mut addresses = parts.iter().flat_map(pages);
        if !uffd.is_calm() && addresses.any(|page| uffd.is_disturbed(page)) {
            return Ok(());
        }
        let known = uffd.known_changes();
        self.bind(thread);
        order.ask(parts, uffd.descriptor());
        while order.state.load(Ordering::Acquire) == ASKED {
            // Before the kernel is asked nothing is said for us. Between being heard and throwing pages away the thread may wait for a
            // CPU: nobody else is heard meanwhile, who would go on and might move something else there.
            if order.asks().is_some_and(|part| !heard.all(part)) {
                uffd.gather_but(&mut |message| heard.take(message, order.begun()));
                heard.rest().for_each(|message| uffd.put_back(message));
            }
            process::yield_now();
        }
        order.answer(out);
        let changed = uffd.known_changes() > known || uffd.is_changing(parts[0].address);
        for (i, (part, released)) in parts.iter().zip(out).enumerate() {
            if released.done && changed {
                // Something may have been moved here just before.
                self.note_disturbed(*part);
            }
            released.heard = released.refused && heard.any(i);
        }
        drop(turn);
        // Who is at a change waits to be heard.
        uffd.let_change_pass();
        Ok(())
    }

    /// Binds the thread to the CPU that the pager's thread is on. Each waits for the other twice a part, and is woken on another virtual CPU in 50 to 60 us,
    /// on its own in 7 ([`crate::placement`]).
    fn bind(&self, thread: &Thread) {
        let cpu = process::cpu();
        if self.cpu.get() != Some(cpu) {
            let bound = process::set_affinity(thread.tid(), &CpuSet::one(cpu));
            self.cpu.set(bound.is_ok().then_some(cpu));
        }
    }

    fn note_disturbed(&self, part: Part) {
        let mut disturbed = self.disturbed.borrow_mut();
        if disturbed.len() == DISTURBED_MAX {
            disturbed.pop_front();
        }
        disturbed.push_back((part.address, part.end()));
    }

    /// Starts the thread, if there is none yet.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn start(&self) -> Result<(), Errno> {
        self.thread().map(drop)
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
struct Heard<'a> {
    parts: &'a [Part],
    /// The pages of which it was said, in their order.
    pages: u64,
    /// What the last message said once more.
    again: u64,
}

impl<'a> Heard<'a> {
    fn new(parts: &'a [Part]) -> Self {
        let pages: usize = parts.iter().map(|part| part.pages).sum();
        assert!((1..=CALL_PAGES).contains(&pages), "{pages} pages at once");
        assert!(parts.iter().all(|part| part.pages > 0), "an empty part");
        Self {
            parts,
            pages: 0,
            again: 0,
        }
    }

    /// Of the pages of `start..end`, which are some of part `i`, each a bit.
    fn mask(&self, i: usize, start: usize, end: usize) -> u64 {
        let before: usize = self.parts[..i].iter().map(|part| part.pages).sum();
        let first = before + (start - self.parts[i].address) / PAGE_BYTES;
        (u64::MAX >> (CALL_PAGES - (end - start) / PAGE_BYTES)) << first
    }

    fn of_part(&self, i: usize) -> u64 {
        self.mask(i, self.parts[i].address, self.parts[i].end())
    }

    /// Whether it was said of all pages of part `i`.
    fn all(&self, i: usize) -> bool {
        self.pages & self.of_part(i) == self.of_part(i)
    }

    fn any(&self, i: usize) -> bool {
        self.pages & self.of_part(i) != 0
    }

    /// Takes what is said for the first time of pages of the first `begun` parts; returns every other message, but what is said again of some, which
    /// [`Self::rest`] has then. Those are the program's, and what it moves or unmaps next is told behind them, so they must not wait.
    fn take(&mut self, message: Message, begun: usize) -> Option<Message> {
        let Message::Removed { start, end } = message else {
            return Some(message);
        };
        let within = |part: &Part| part.address <= start && end <= part.end();
        let Some(i) = self.parts[..begun].iter().position(within) else {
            return Some(message);
        };
        let said = self.mask(i, start, end);
        if said & self.pages == said {
            return Some(message);
        }
        self.again = said & self.pages;
        self.pages |= said;
        None
    }

    /// What the last message said again.
    fn rest(&mut self) -> impl Iterator<Item = Message> {
        let again = core::mem::take(&mut self.again);
        let pages = |part: &Part| (part.address..part.end()).step_by(PAGE_BYTES);
        let addresses = (0..).zip(self.parts.iter().flat_map(pages));
        let said = addresses.filter(move |(bit, _)| again >> bit & 1 == 1);
        said.map(|(_, start)| Message::Removed {
            start,
            end: start + PAGE_BYTES,
        })
    }
}

impl Order {
    fn new() -> Self {
        Self {
            state: AtomicU32::new(IDLE),
            addresses: std::array::from_fn(|_| AtomicUsize::new(0)),
            pages: std::array::from_fn(|_| AtomicUsize::new(0)),
            parts: AtomicUsize::new(0),
            descriptor: AtomicI32::new(-1),
            progress: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    fn ask(&self, parts: &[Part], descriptor: i32) {
        for (i, part) in parts.iter().enumerate() {
            self.addresses[i].store(part.address, Ordering::Relaxed);
            self.pages[i].store(part.pages, Ordering::Relaxed);
        }
        self.parts.store(parts.len(), Ordering::Relaxed);
        self.descriptor.store(descriptor, Ordering::Relaxed);
        self.progress.store(0, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.refused.store(0, Ordering::Relaxed);
        self.state.store(ASKED, Ordering::Release);
        futex::wake(&self.state, 1, Scope::Process);
    }

    /// The part that the kernel is being asked for.
    fn asks(&self) -> Option<usize> {
        let progress = self.progress.load(Ordering::SeqCst);
        (progress % 2 == 1).then_some(progress / 2)
    }

    /// For how many parts the kernel was asked, or is being asked.
    fn begun(&self) -> usize {
        self.progress.load(Ordering::SeqCst).div_ceil(2)
    }

    fn answer(&self, out: &mut [Released]) {
        let done = self.done.load(Ordering::Relaxed);
        let refused = self.refused.load(Ordering::Relaxed);
        for (i, released) in out.iter_mut().enumerate() {
            released.done = done >> i & 1 == 1;
            released.refused = refused >> i & 1 == 1;
        }
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
        let descriptor = self.descriptor.load(Ordering::Relaxed);
        for i in 0..self.parts.load(Ordering::Relaxed) {
            let address = self.addresses[i].load(Ordering::Relaxed);
            // What is changing may lie elsewhere by now, and something else here.
            if uffd::is_changing(descriptor, address) {
                return;
            }
            self.progress.store(2 * i + 1, Ordering::SeqCst);
            let bytes = self.pages[i].load(Ordering::Relaxed) * PAGE_BYTES;
            let answer = match map::release(address, bytes) {
                Ok(()) => &self.done,
                Err(_) => &self.refused,
            };
            answer.fetch_or(1 << i, Ordering::Relaxed);
            self.progress.store(2 * i + 2, Ordering::SeqCst);
        }
    }
}

fn start() -> Result<(Arc<Order>, Thread), Errno> {
    let order = Arc::new(Order::new());
    let options = Options {
        name: c"outpage-drop",
        stack_bytes: STACK_BYTES,
        share_files: true,
        process: false,
        untraced: false,
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

    fn part(first: usize, pages: usize) -> Part {
        Part {
            address: first * PAGE_BYTES,
            pages,
        }
    }

    #[test]
    fn of_what_is_said_each_page_is_ours_once() {
        let parts = [part(10, 4)];
        let moved = Message::Remapped {
            from: 10 * PAGE_BYTES,
            to: 90 * PAGE_BYTES,
            len: PAGE_BYTES,
        };
        let mut heard = Heard::new(&parts);
        // What reaches beyond cannot be ours.
        for message in [removed(8, 12), removed(13, 15), moved, removed(9, 10)] {
            assert_eq!(heard.take(message, 1), Some(message));
        }
        // The program throws away two of them meanwhile: whoever tells first, that is what is left over.
        for messages in [
            [removed(11, 13), removed(10, 14)],
            [removed(10, 14), removed(11, 13)],
        ] {
            let mut heard = Heard::new(&parts);
            let mut left = Vec::new();
            for message in messages {
                left.extend(heard.take(message, 1));
                left.extend(heard.rest());
            }
            assert!(heard.all(0));
            let in_parts = left == [removed(11, 12), removed(12, 13)];
            assert!(in_parts || left == [removed(11, 13)], "{left:?}");
        }
    }

    #[test]
    fn of_a_run_the_kernel_may_tell_in_parts() {
        let parts = [part(10, CALL_PAGES)];
        let mut heard = Heard::new(&parts);
        assert!(!heard.any(0) && !heard.all(0));
        assert_eq!(heard.take(removed(10, 30), 1), None);
        assert!(heard.any(0) && !heard.all(0));
        assert_eq!(heard.take(removed(30, 74), 1), None);
        assert!(heard.all(0) && heard.rest().next().is_none());
    }

    #[test]
    fn what_is_said_of_a_part_before_it_is_begun_is_the_programs() {
        let parts = [part(10, 2), part(20, 1), part(30, 61)];
        let mut heard = Heard::new(&parts);
        assert_eq!(heard.take(removed(20, 21), 1), Some(removed(20, 21)));
        assert_eq!(heard.take(removed(10, 12), 1), None);
        assert_eq!([0, 1, 2].map(|i| heard.all(i)), [true, false, false]);
        assert_eq!(heard.take(removed(20, 21), 2), None);
        assert_eq!(heard.take(removed(30, 31), 3), None);
        // The program throws away a page that was thrown away, and one that is about to be.
        assert_eq!(heard.take(removed(30, 32), 3), None);
        assert_eq!(heard.rest().collect::<Vec<_>>(), [removed(30, 31)]);
        assert_eq!(heard.take(removed(11, 12), 3), Some(removed(11, 12)));
        assert_eq!(heard.take(removed(32, 91), 3), None);
        assert_eq!([0, 1, 2].map(|i| heard.all(i)), [true; 3]);
    }
}
