//! A thread that throws pages of the program's away for the pager.
//!
//! `MADV_DONTNEED` waits until the pager has read the kernel's message about it, so the pager's thread cannot make
//! the call itself. Needed for ranges whose pages cannot be moved (read-only, executable) where the kernel tells of
//! removals; the thread starts with the first such page.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use outpage_core::units::PAGE_BYTES;
use outpage_sys::futex::{self, Scope};
use outpage_sys::thread::{self, Options};
use outpage_sys::uffd::Uffd;
use outpage_sys::{map, process};

const IDLE: u32 = 0;
const ASKED: u32 = 1;

/// The kernel's calls take less than 4 KiB of stack, the loop a few hundred bytes.
const STACK_BYTES: usize = 32 << 10;

#[derive(Default)]
struct Order {
    state: AtomicU32,
    address: AtomicUsize,
    done: AtomicBool,
}

/// The thread, as the pager sees it.
#[derive(Default)]
pub(crate) struct Releaser {
    order: OnceLock<Arc<Order>>,
}

impl Releaser {
    /// Throws `len` bytes from `address` on away, page by page: each page is one mapping's, so the message about
    /// it is known. False where the kernel refuses; what lies before that page is gone then.
    pub(crate) fn release(&self, address: usize, len: usize, uffd: &Uffd) -> bool {
        let order = self.order.get_or_init(start);
        (address..address + len)
            .step_by(PAGE_BYTES)
            .all(|page| order.release(page, uffd))
    }
}

impl Order {
    fn release(&self, page: usize, uffd: &Uffd) -> bool {
        self.address.store(page, Ordering::Relaxed);
        self.state.store(ASKED, Ordering::Release);
        futex::wake(&self.state, 1, Scope::Process);
        let mut heard = false;
        while self.state.load(Ordering::Acquire) == ASKED {
            heard = heard || uffd.hear_removal(page, page + PAGE_BYTES);
            process::yield_now();
        }
        self.done.load(Ordering::Relaxed)
    }

    fn work(&self) -> ! {
        loop {
            if self.state.load(Ordering::Acquire) == IDLE {
                futex::wait(&self.state, IDLE, None, Scope::Process);
                continue;
            }
            let address = self.address.load(Ordering::Relaxed);
            let done = map::release(address, PAGE_BYTES).is_ok();
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
    };
    let theirs = order.clone();
    if let Err(error) = thread::spawn(|order: Arc<Order>| order.work(), theirs, &options) {
        crate::start::fatal(&["outpage: cannot start a thread: ", error.text()]);
    }
    order
}
