//! A store whose transfers can be held back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use outpage_engine::OpenStore;
use outpage_store::{Delay, Delayed};

/// While it is closed no transfer ends.
#[derive(Default)]
pub struct Gate {
    pub closed: AtomicBool,
    /// It was opened though nobody had gone on.
    pub forced: AtomicBool,
    time: AtomicU64,
}

impl Gate {
    pub fn over(self: &Arc<Self>, open: OpenStore) -> OpenStore {
        let gate = self.clone();
        // Or time stands still.
        let clock = move || match gate.closed.load(SeqCst) {
            false => gate.time.fetch_add(1, SeqCst),
            true => gate.time.load(SeqCst),
        };
        Box::new(move |config| {
            Ok(Box::new(Delayed::new(
                open(config)?,
                Delay::Nanos(1),
                clock,
            )))
        })
    }

    /// So that a pager in which everybody waits fails the test, and does not hang it.
    pub fn open_if_nobody_goes_on(&self) {
        for _ in 0..1000 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            if !self.closed.load(SeqCst) {
                return;
            }
        }
        self.forced.store(true, SeqCst);
        self.closed.store(false, SeqCst);
    }
}
