//! What the thread is to throw away, and how far it came.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use outpage_core::units::PAGE_BYTES;
use outpage_sys::futex::{self, Scope};
use outpage_sys::uffd;
use outpage_sys::{landing, map};

use super::{CALL_PAGES, Part, Released};

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const ENDED: u32 = 2;

/// An order, and the answer.
pub(super) struct Order {
    state: AtomicU32,
    addresses: [AtomicUsize; CALL_PAGES],
    pages: [AtomicUsize; CALL_PAGES],
    parts: AtomicUsize,
    /// Where pages are taken to; 0 where they are thrown away.
    landing: AtomicUsize,
    /// Of the pager's userfaultfd.
    descriptor: AtomicI32,
    /// Twice the parts of which the kernel has answered, and one more while it is being asked for the next.
    progress: AtomicUsize,
    /// The parts that are gone, a bit each.
    done: AtomicU64,
    /// Those of them that were taken to the landing.
    taken: AtomicU64,
    /// Those that were refused, or of which a part was.
    refused: AtomicU64,
}

impl Order {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU32::new(IDLE),
            addresses: std::array::from_fn(|_| AtomicUsize::new(0)),
            pages: std::array::from_fn(|_| AtomicUsize::new(0)),
            parts: AtomicUsize::new(0),
            landing: AtomicUsize::new(0),
            descriptor: AtomicI32::new(-1),
            progress: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Begins: `parts` are to be thrown away, or taken to `landing`.
    pub(super) fn ask(&self, parts: &[Part], landing: usize, descriptor: i32) {
        for (i, part) in parts.iter().enumerate() {
            self.addresses[i].store(part.address, Ordering::Relaxed);
            self.pages[i].store(part.pages, Ordering::Relaxed);
        }
        self.parts.store(parts.len(), Ordering::Relaxed);
        self.landing.store(landing, Ordering::Relaxed);
        self.descriptor.store(descriptor, Ordering::Relaxed);
        self.progress.store(0, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        self.refused.store(0, Ordering::Relaxed);
        self.state.store(ASKED, Ordering::Release);
        futex::wake(&self.state, 1, Scope::Process);
    }

    /// Whether it is not carried out yet.
    pub(super) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == ASKED
    }

    /// No further one follows: the thread ends.
    pub(super) fn end(&self) {
        self.state.store(ENDED, Ordering::Release);
        futex::wake(&self.state, 1, Scope::Process);
    }

    /// The part that the kernel is being asked for.
    pub(super) fn asks(&self) -> Option<usize> {
        let progress = self.progress.load(Ordering::SeqCst);
        (progress % 2 == 1).then_some(progress / 2)
    }

    /// For how many parts the kernel was asked, or is being asked.
    pub(super) fn begun(&self) -> usize {
        self.progress.load(Ordering::SeqCst).div_ceil(2)
    }

    /// Puts into `out` what came of each part.
    pub(super) fn answer(&self, out: &mut [Released]) {
        let done = self.done.load(Ordering::Relaxed);
        let refused = self.refused.load(Ordering::Relaxed);
        for (i, released) in out.iter_mut().enumerate() {
            released.done = done >> i & 1 == 1;
            released.refused = refused >> i & 1 == 1;
        }
    }

    /// Which parts were taken to the landing, a bit each.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Carries out order after order, until the [end](Self::end).
    pub(super) fn work(&self) {
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
        let mut landing = self.landing.load(Ordering::Relaxed);
        for i in 0..self.parts.load(Ordering::Relaxed) {
            let address = self.addresses[i].load(Ordering::Relaxed);
            // What is changing may lie elsewhere by now, and something else here.
            if uffd::is_changing(descriptor, address) {
                return;
            }
            self.progress.store(2 * i + 1, Ordering::SeqCst);
            let bytes = self.pages[i].load(Ordering::Relaxed) * PAGE_BYTES;
            self.let_go(1 << i, address, bytes, landing);
            landing += if landing == 0 { 0 } else { bytes };
            self.progress.store(2 * i + 2, Ordering::SeqCst);
        }
    }

    /// Takes the part of the bit `part` to `landing`. Without one, or where it is locked, or several mappings, it is thrown away.
    fn let_go(&self, part: u64, address: usize, bytes: usize, landing: usize) {
        let is_taken = landing != 0 && landing::take(address, bytes, landing).is_ok();
        if is_taken {
            self.taken.fetch_or(part, Ordering::Relaxed);
        }
        let is_gone = is_taken || map::release(address, bytes).is_ok();
        let answer = if is_gone { &self.done } else { &self.refused };
        answer.fetch_or(part, Ordering::Relaxed);
    }
}
