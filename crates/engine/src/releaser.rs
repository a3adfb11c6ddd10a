//! A thread that throws pages of the program's away for the pager.
//!
//! `MADV_DONTNEED` waits until the pager has read the kernel's message about it, so the pager's thread cannot make
//! the call itself. Needed where pages cannot be moved: under write-protect, and for read-only and executable ranges; the
//! thread starts with the first such page.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use outpage_core::units::PAGE_BYTES;
use outpage_sys::futex::{self, Scope};
use outpage_sys::thread::{self, Options};
use outpage_sys::uffd::{Message, Uffd};
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
    /// The address space is changing: what is left is to stay.
    stop: AtomicBool,
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
}

/// The thread, as the pager sees it.
#[derive(Default)]
pub(crate) struct Releaser {
    order: OnceLock<Arc<Order>>,
    heard: RefCell<Heard>,
}

impl Releaser {
    /// Throws `len` bytes from `address` on away, until the address space changes: something else may be mapped there then.
    pub(crate) fn release(&self, address: usize, len: usize, uffd: &Uffd) -> Released {
        let order = self.order.get_or_init(start);
        let mut heard = self.heard.borrow_mut();
        heard.begin(address, len);
        order.address.store(address, Ordering::Relaxed);
        order.len.store(len, Ordering::Relaxed);
        order.stop.store(false, Ordering::Relaxed);
        let known = uffd.known_changes();
        order.state.store(ASKED, Ordering::Release);
        futex::wake(&order.state, 1, Scope::Process);
        while order.state.load(Ordering::Acquire) == ASKED {
            uffd.gather_but(&mut |message| heard.take(message));
            if uffd.known_changes() > known {
                order.stop.store(true, Ordering::Relaxed);
            }
            process::yield_now();
        }
        let released = Released {
            bytes: order.reached.load(Ordering::Relaxed) - address,
            refused: order.refused.load(Ordering::Relaxed),
        };
        heard.end(released, &mut |message| uffd.put_back(message));
        released
    }
}

/// How often each page of a range was said to be removed while that was being done: once for ourselves. What is said once more
/// the program had done.
#[derive(Default)]
struct Heard {
    start: usize,
    counts: Vec<u8>,
}

impl Heard {
    fn begin(&mut self, start: usize, len: usize) {
        self.start = start;
        self.counts.clear();
        self.counts.resize(len / PAGE_BYTES, 0);
    }

    /// Takes what a message says of the range; returns what it says of memory below and above it.
    fn take(&mut self, message: Message) -> [Option<Message>; 2] {
        let end = self.start + self.counts.len() * PAGE_BYTES;
        let Message::Removed {
            start: from,
            end: to,
        } = message
        else {
            return [Some(message), None];
        };
        let (inside, beyond) = (from.max(self.start), to.min(end));
        if inside >= beyond {
            return [Some(message), None];
        }
        let first = (inside - self.start) / PAGE_BYTES;
        for count in &mut self.counts[first..(beyond - self.start) / PAGE_BYTES] {
            *count = count.saturating_add(1);
        }
        let rest = |start, end| (start < end).then_some(Message::Removed { start, end });
        [rest(from, inside), rest(beyond, to)]
    }

    /// Gives `put` what the program had removed. Of a page that was refused the kernel may have told for ourselves: a mapping that is
    /// locked while it waits to be heard is looked at again.
    fn end(&mut self, released: Released, put: &mut dyn FnMut(Message)) {
        let ours = released.bytes / PAGE_BYTES + usize::from(released.refused);
        let removed = |i: usize, count: u8| count > u8::from(i < ours);
        for (i, _) in (self.counts.iter().enumerate()).filter(|c| removed(c.0, *c.1)) {
            let start = self.start + i * PAGE_BYTES;
            let end = start + PAGE_BYTES;
            put(Message::Removed { start, end });
        }
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

    /// Page by page. Of a longer range the kernel tells twice where its mapping is split meanwhile, by a lock or an unmapping
    /// (`madvise_dontneed_free` in mm/madvise.c, Linux 6.18), and what is told twice the program had done. And while the pager reads
    /// what it is told of one page it sees whether the next is still what it was.
    fn release_each(&self) {
        let start = self.address.load(Ordering::Relaxed);
        let end = start + self.len.load(Ordering::Relaxed);
        let (mut at, mut refused) = (start, false);
        while at < end && !refused && !self.stop.load(Ordering::Relaxed) {
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
    fn what_is_said_once_is_ours_and_what_is_said_twice_the_programs() {
        let mut heard = Heard::default();
        heard.begin(10 * PAGE_BYTES, 10 * PAGE_BYTES);
        // Two mappings of ours, and the program's pages 8 to 12 in between.
        assert_eq!(heard.take(removed(10, 15)), [None, None]);
        assert_eq!(heard.take(removed(8, 12)), [Some(removed(8, 10)), None]);
        assert_eq!(heard.take(removed(15, 20)), [None, None]);
        assert_eq!(heard.take(removed(19, 25)), [None, Some(removed(20, 25))]);
        assert_eq!(heard.take(removed(30, 31)), [Some(removed(30, 31)), None]);
        let mut theirs = Vec::new();
        let whole = Released {
            bytes: 10 * PAGE_BYTES,
            refused: false,
        };
        heard.end(whole, &mut |message| theirs.push(message));
        assert_eq!(theirs, [removed(10, 11), removed(11, 12), removed(19, 20)]);
    }

    #[test]
    fn what_is_said_of_pages_that_were_not_reached_is_the_programs() {
        let mut heard = Heard::default();
        heard.begin(10 * PAGE_BYTES, 4 * PAGE_BYTES);
        for page in [10, 11, 12, 13] {
            assert_eq!(heard.take(removed(page, page + 1)), [None, None]);
        }
        let mut theirs = Vec::new();
        let part = Released {
            bytes: PAGE_BYTES,
            refused: true,
        };
        heard.end(part, &mut |message| theirs.push(message));
        assert_eq!(theirs, [removed(12, 13), removed(13, 14)]);
    }
}
