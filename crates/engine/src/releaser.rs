//! A thread that throws pages of the program's away for the pager.
//!
//! `MADV_DONTNEED` waits until the pager has read the kernel's message about it, so the pager's thread cannot make
//! the call itself. Needed where pages cannot be moved: under write-protect, where the thread starts with the pager, and for read-only and
//! executable ranges, where it starts with the first such page.
//!
//! The kernel throws away what lies at an address, whatever that is by then. So it has to be the pager's [turn](Turns): nobody
//! maps or moves anything there from the last look until the pages are gone. What no hook sees does not wait for its turn. That is noticed
//! afterwards ([`Releaser::disturbed_in`]), and from then on pages are taken away in place of being thrown away ([`takes`]).

mod heard;
mod order;
mod takes;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use outpage_core::units::{Nanos, PAGE_BYTES};
use outpage_sys::map::Memory;
use outpage_sys::pagemap::Pagemap;
use outpage_sys::process::{self, CpuSet, Tid};
use outpage_sys::raw::Errno;
use outpage_sys::thread::{self, Options, Thread};
use outpage_sys::turns::{Turn, Turns};
use outpage_sys::uffd::{Change, CopyMode, Stop, Uffd};

use self::heard::Heard;
use self::order::Order;
use self::takes::Takes;

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

/// What the pager sees the program's memory by.
#[derive(Clone, Copy)]
pub(crate) struct Senses<'a> {
    pub uffd: &'a Uffd,
    pub pagemap: &'a Pagemap,
    pub memory: &'a Memory,
}

/// Parts that were disturbed and are remembered, the latest: as many as go while a few threads change mappings all the time.
const DISTURBED_MAX: usize = 16 * CALL_PAGES;

/// The thread, as the pager sees it.
pub(crate) struct Releaser {
    order: OnceLock<(Arc<Order>, Thread)>,
    /// Where pages were thrown away while something changed that is not attended to yet: first address, first one behind it.
    disturbed: RefCell<VecDeque<(usize, usize)>>,
    turns: Arc<Turns>,
    /// Memory was moved by a call that no hook saw.
    moves_unseen: Cell<bool>,
    /// Where pages are taken to, once it was.
    takes: RefCell<Option<Takes>>,
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
            moves_unseen: Cell::new(false),
            takes: RefCell::new(None),
            too_long: Cell::new(None),
            cpu: Cell::new(None),
        }
    }

    /// In another process than that of the thread: what it was is forgotten.
    pub(crate) fn forget_thread(&mut self) {
        let mut new = Self::new(self.turns.clone());
        new.moves_unseen = self.moves_unseen.clone();
        new.takes = RefCell::new(self.takes.take());
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
            order.end();
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
    /// The kernel's, when the thread cannot be started, or when what was not to be thrown away cannot be put back.
    ///
    /// # Panics
    /// When it is to throw more away.
    pub(crate) fn release(
        &self,
        parts: &[Part],
        door: Senses<'_>,
        out: &mut [Released],
    ) -> Result<(), Errno> {
        out.fill(Released::NEITHER);
        let uffd = door.uffd;
        let (order, thread) = self.thread()?;
        let turn = self.turn(uffd);
        let landing = self.landing(turn.is_none());
        let mut heard = Heard::new(parts, landing);
        let pages = |part: &Part| (part.address..part.end()).step_by(PAGE_BYTES);
        let mut addresses = parts.iter().flat_map(pages);
        if !uffd.is_calm() && addresses.any(|page| uffd.is_disturbed(page)) {
            return Ok(());
        }
        let known = uffd.known_changes();
        self.bind(thread);
        order.ask(parts, landing, uffd.descriptor());
        // In the pager's own turn no hook moves anything.
        if heard.hear(order, uffd) && turn.is_some() {
            self.moves_unseen.set(true);
        }
        order.answer(out);
        let changed = uffd.known_changes() > known || uffd.is_changing(parts[0].address);
        if landing != 0 {
            self.settle(order.taken(), &heard, changed, door)?;
        }
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

    /// Has `read` read what the kernel says, and notes whether memory was moved by a thread that has no turn. Who moves memory in its turn has it
    /// until it is heard.
    pub(crate) fn listen(&self, uffd: &Uffd, read: impl FnOnce(&Uffd)) {
        let (before, moves) = (self.turns.begun_and_over(), uffd.moves());
        read(uffd);
        if uffd.moves() > moves && before.is_some() && self.turns.begun_and_over() == before {
            self.moves_unseen.set(true);
        }
    }

    /// Where pages are taken to, if something may be moved where they are: by a call that no hook sees, or in a turn that lasts `too_long`.
    fn landing(&self, too_long: bool) -> usize {
        if !too_long && !self.moves_unseen.get() {
            return 0;
        }
        let mut takes = self.takes.borrow_mut();
        if takes.is_none() {
            // Without the room they are thrown away.
            *takes = Takes::new().ok();
        }
        takes.as_ref().map_or(0, Takes::start)
    }

    /// Throws away what was taken, but for what may be wanted back: the parts of the bits in `taken`, of which was `heard`, while something
    /// `changed` or not.
    fn settle(
        &self,
        taken: u64,
        heard: &Heard<'_>,
        changed: bool,
        door: Senses<'_>,
    ) -> Result<(), Errno> {
        let mut takes = self.takes.borrow_mut();
        let Some(takes) = takes.as_mut().filter(|_| taken != 0) else {
            return Ok(());
        };
        for (i, part) in heard.parts.iter().enumerate() {
            let landing = heard.landing_of(i);
            match taken >> i & 1 == 1 {
                true if !heard.any(i) => Takes::put_back(*part, landing)?,
                true if changed => takes.keep(*part, landing, door.pagemap, door.memory),
                true => takes.forget_part(*part),
                false => {}
            }
        }
        takes.clear(door.uffd)
    }

    /// Gives the program back what was taken away at `address` when it had just been moved there; false where that is not known any more, or
    /// cannot be.
    pub(crate) fn give_back(&self, address: usize, uffd: &Uffd) -> bool {
        let takes = self.takes.borrow();
        let Some(copy) = takes.as_ref().and_then(|takes| takes.copy_of(address)) else {
            return false;
        };
        while uffd.change_at(address) != Some(Change::Removed) {
            let to = uffd.moved_to(address);
            match uffd.copy(to, copy, PAGE_BYTES, CopyMode::default()).stop {
                None | Some(Stop::Exists) => return true,
                Some(Stop::Again) => uffd.let_change_pass(),
                Some(_) => return false,
            }
        }
        true
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

    /// The thread, if there is one.
    pub(crate) fn helper(&self) -> Option<Tid> {
        self.order.get().map(|(_, thread)| thread.tid())
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
        if let Some(takes) = self.takes.borrow_mut().as_mut() {
            takes.forget_all();
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
mod tests;
