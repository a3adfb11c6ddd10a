//! A store over a swap file that fails for good from some moment on.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use outpage_core::units::SlotRange;
use outpage_engine::{OpenStore, StartError, Workers};
use outpage_store::{
    Allocation, BackendError, Cause, Choice, Completion, Descriptors, Direction, Grow, PageBits,
    Reopen, Request, ReserveError, Store, StoreError, SubmitError, SwapFile, SwapStore,
};

/// What the test sees of the store.
#[derive(Default)]
pub struct Breaking {
    pub state: Arc<State>,
}

#[derive(Default)]
pub struct State {
    pub broken: AtomicBool,
    /// Requests that were passed on.
    pub reads: AtomicU64,
    pub writes: AtomicU64,
}

struct Ailing {
    inner: Box<dyn SwapStore + Send>,
    state: Arc<State>,
    failed: VecDeque<Completion>,
}

impl Breaking {
    pub fn over(&self, directory: &Path, cap: u64) -> OpenStore {
        let (directory, state) = (directory.to_owned(), self.state.clone());
        Box::new(move |config| {
            let file = SwapFile::create_in(&directory, cap).map_err(StartError::Swap)?;
            let workers = Box::new(Workers::default());
            let inner = outpage_store::open(file, Choice::Auto, config, workers)
                .map_err(StartError::Store)?;
            let failed = VecDeque::with_capacity(inner.depth());
            Ok(Box::new(Ailing {
                inner,
                state,
                failed,
            }))
        })
    }
}

impl Store for Ailing {
    fn submit(&mut self, request: &Request<'_>) -> Result<(), SubmitError> {
        if !self.state.broken.load(SeqCst) {
            self.inner.submit(request)?;
            match request.direction {
                Direction::PageIn => self.state.reads.fetch_add(1, SeqCst),
                Direction::PageOut => self.state.writes.fetch_add(1, SeqCst),
            };
            return Ok(());
        }
        if self.in_flight() >= self.depth() {
            return Err(SubmitError::Full);
        }
        self.failed.push_back(Completion {
            token: request.token,
            result: Err(StoreError {
                direction: request.direction,
                slots: request.slots,
                bytes_done: 0,
                cause: Cause::Errno(libc::EIO),
            }),
            failed: PageBits::of(0..request.slots.slots),
        });
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        let before = out.len();
        while out.len() < out.capacity()
            && let Some(failed) = self.failed.pop_front()
        {
            out.push(failed);
        }
        self.inner.poll(out);
        out.len() - before
    }

    fn wait(&mut self, timeout_ns: u64) -> bool {
        !self.failed.is_empty() || self.inner.wait(timeout_ns)
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.inner.wake_fd()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.failed.len()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn request_pages_max(&self) -> u32 {
        self.inner.request_pages_max()
    }

    fn capacity_slots(&self) -> u32 {
        self.inner.capacity_slots()
    }

    fn ram_bytes(&self) -> u64 {
        self.inner.ram_bytes()
    }

    fn forget(&mut self, slots: SlotRange) {
        self.inner.forget(slots);
    }
}

impl Grow for Ailing {
    fn reserve(&mut self, slots: SlotRange) -> Result<Allocation, ReserveError> {
        self.inner.reserve(slots)
    }
}

impl Reopen for Ailing {
    fn carried_fd(&self) -> Option<RawFd> {
        self.inner.carried_fd()
    }

    fn reopen_after_fork(&mut self, descriptors: Descriptors) -> Result<(), BackendError> {
        self.inner.reopen_after_fork(descriptors)
    }
}
