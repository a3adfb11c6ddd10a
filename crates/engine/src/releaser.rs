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
    done: AtomicBool,
}

/// The thread, as the pager sees it.
#[derive(Default)]
pub(crate) struct Releaser {
    order: OnceLock<Arc<Order>>,
    heard: RefCell<Heard>,
}

impl Releaser {
    /// Throws `len` bytes from `address` on away. False where the kernel refuses part of it.
    pub(crate) fn release(&self, address: usize, len: usize, uffd: &Uffd) -> bool {
        let order = self.order.get_or_init(start);
        let mut heard = self.heard.borrow_mut();
        heard.begin(address, len);
        order.address.store(address, Ordering::Relaxed);
        order.len.store(len, Ordering::Relaxed);
        order.state.store(ASKED, Ordering::Release);
        futex::wake(&order.state, 1, Scope::Process);
        while order.state.load(Ordering::Acquire) == ASKED {
            uffd.gather_but(&mut |message| heard.take(message));
            process::yield_now();
        }
        heard.end(&mut |message| uffd.put_back(message));
        order.done.load(Ordering::Relaxed)
    }
}

/// How often each page of a range was said to be removed while that was being done: once for ourselves, and in as many
/// messages as there are mappings. What is said once more the program had done.
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

    /// Gives `put` what the program had removed.
    fn end(&mut self, put: &mut dyn FnMut(Message)) {
        for (i, _) in self.counts.iter().enumerate().filter(|c| *c.1 > 1) {
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
            let address = self.address.load(Ordering::Relaxed);
            let done = map::release(address, self.len.load(Ordering::Relaxed)).is_ok();
            self.done.store(done, Ordering::Relaxed);
            self.state.store(IDLE, Ordering::Release);
        }
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
        heard.end(&mut |message| theirs.push(message));
        assert_eq!(theirs, [removed(10, 11), removed(11, 12), removed(19, 20)]);
    }
}
