//! A thread that throws pages of the program's away for the pager.
//!
//! `MADV_DONTNEED` waits until the pager has read the kernel's message about it, so the pager's thread cannot make
//! the call itself. Needed where pages cannot be moved: under write-protect, and for read-only and executable ranges; the
//! thread starts with the first such page.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use outpage_core::units::PAGE_BYTES;
use outpage_sys::futex::{self, Scope};
use outpage_sys::thread::{self, Options};
use outpage_sys::uffd::{self, Message, Uffd};
use outpage_sys::{map, process};

const IDLE: u32 = 0;
const ASKED: u32 = 1;

/// The kernel's calls take less than 4 KiB of stack, the loop a few hundred bytes.
const STACK_BYTES: usize = 32 << 10;

#[derive(Default)]
struct Order {
    state: AtomicU32,
    address: AtomicUsize,
    len: AtomicUsize,
    /// Of the pager's userfaultfd.
    descriptor: AtomicI32,
    /// The address space is changing: what is left is to stay.
    stop: AtomicBool,
    /// The page that is being thrown away, or was the last.
    current: AtomicUsize,
    /// First address that was not released.
    reached: AtomicUsize,
    /// It was refused.
    refused: AtomicBool,
}

/// How far a release came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Released {
    /// Bytes from the beginning that were thrown away.
    pub(crate) bytes: usize,
    /// The kernel refused the next page. Otherwise a change of the address space came between, if anything is left.
    pub(crate) refused: bool,
    /// The kernel had told that the refused page is being thrown away: by us, who then met a lock or found it moved away, or by the
    /// program, which then did that.
    pub(crate) heard: bool,
}

/// The thread, as the pager sees it.
#[derive(Default)]
pub(crate) struct Releaser {
    order: OnceLock<Arc<Order>>,
}

impl Releaser {
    /// Throws `len` bytes from `address` on away, until the address space changes: something else may be mapped there then.
    pub(crate) fn release(&self, address: usize, len: usize, uffd: &Uffd) -> Released {
        let order = self.order.get_or_init(start);
        let mut heard = Heard { next: address };
        order.address.store(address, Ordering::Relaxed);
        order.len.store(len, Ordering::Relaxed);
        order.descriptor.store(uffd.descriptor(), Ordering::Relaxed);
        order.current.store(0, Ordering::Relaxed);
        order.stop.store(false, Ordering::Relaxed);
        let known = uffd.known_changes();
        order.state.store(ASKED, Ordering::Release);
        futex::wake(&order.state, 1, Scope::Process);
        while order.state.load(Ordering::Acquire) == ASKED {
            // What it is at was stored before the kernel was asked, so before this was told.
            let current = || order.current.load(Ordering::SeqCst);
            // Between being heard and throwing the page away the thread may wait for a CPU: nobody else is heard meanwhile, who would
            // go on and might move something else there.
            if heard.next <= current() {
                uffd.gather_but(&mut |message| heard.take(message, current()));
            }
            if uffd.known_changes() > known {
                order.stop.store(true, Ordering::Relaxed);
            }
            process::yield_now();
        }
        // Who is at a change that it stopped for waits to be heard.
        uffd.let_change_pass();
        let reached = order.reached.load(Ordering::Relaxed);
        let refused = order.refused.load(Ordering::Relaxed);
        Released {
            bytes: reached - address,
            refused,
            heard: refused && heard.next > reached,
        }
    }
}

/// What was said of the pages that are thrown away: of each once for ourselves, in their order.
struct Heard {
    /// Nothing was said for ourselves of this page and those behind it.
    next: usize,
}

impl Heard {
    /// Takes what is said for ourselves, of a page that is no further than `current`, which is being thrown away; returns every other
    /// message. Those are the program's, and what it moves or unmaps next is told behind them, so they must not wait.
    fn take(&mut self, message: Message, current: usize) -> Option<Message> {
        let Message::Removed { start, end } = message else {
            return Some(message);
        };
        if end - start != PAGE_BYTES || !(self.next..=current).contains(&start) {
            return Some(message);
        }
        self.next = end;
        None
    }
}

impl Order {
    fn work(&self) -> ! {
        loop {
            if self.state.load(Ordering::Acquire) == IDLE {
                futex::wait(&self.state, IDLE, None, Scope::Process);
                continue;
            }
            self.release_each();
            self.state.store(IDLE, Ordering::Release);
        }
    }

    /// Page by page. Of a longer range the kernel tells in parts where its mapping is split meanwhile, by a lock or an unmapping
    /// (`madvise_dontneed_free` in mm/madvise.c, Linux 6.18); of a page it tells once, so that ours is known among the program's. And
    /// while the pager reads what it is told of one page it sees whether the next is still what it was.
    fn release_each(&self) {
        let start = self.address.load(Ordering::Relaxed);
        let end = start + self.len.load(Ordering::Relaxed);
        let descriptor = self.descriptor.load(Ordering::Relaxed);
        let (mut at, mut refused) = (start, false);
        // What is changing may lie elsewhere by now, and something else here.
        let stop = |at| self.stop.load(Ordering::Relaxed) || uffd::is_changing(descriptor, at);
        while at < end && !refused && !stop(at) {
            self.current.store(at, Ordering::SeqCst);
            refused = map::release(at, PAGE_BYTES).is_err();
            at += if refused { 0 } else { PAGE_BYTES };
        }
        self.reached.store(at, Ordering::Relaxed);
        self.refused.store(refused, Ordering::Relaxed);
    }
}

/// Without the thread such pages could never leave, which a limit does not survive.
fn start() -> Arc<Order> {
    let order = Arc::new(Order::default());
    let options = Options {
        name: c"outpage-drop",
        stack_bytes: STACK_BYTES,
        share_files: true,
        process: false,
    };
    let theirs = order.clone();
    if let Err(error) = thread::spawn(|order: Arc<Order>| order.work(), theirs, &options) {
        crate::start::fatal(&["outpage: cannot start a thread: ", error.text()]);
    }
    order
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
    fn of_what_is_said_only_the_page_at_hand_is_ours_and_that_once() {
        let at = 10 * PAGE_BYTES;
        let mut heard = Heard { next: at };
        let moved = Message::Remapped {
            from: at,
            to: 90 * PAGE_BYTES,
            len: PAGE_BYTES,
        };
        // The program's discards around the page and of the next one, each in its place among other changes.
        for message in [removed(8, 12), removed(11, 12), moved, removed(10, 12)] {
            assert_eq!(heard.take(message, at), Some(message));
        }
        // Before anything is asked for, what is said is the program's.
        assert_eq!(heard.take(removed(10, 11), 0), Some(removed(10, 11)));
        assert_eq!(heard.take(removed(10, 11), at), None);
        assert_eq!(heard.take(removed(10, 11), at), Some(removed(10, 11)));
        // Of the next page it may be heard when the one behind it is at hand.
        let at = 12 * PAGE_BYTES;
        assert_eq!(heard.take(removed(11, 12), at), None);
        assert_eq!(heard.take(removed(12, 13), at), None);
        assert_eq!(heard.take(removed(11, 12), at), Some(removed(11, 12)));
        assert_eq!(heard.next, at + PAGE_BYTES);
    }
}
