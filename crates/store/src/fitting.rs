//! A store that goes by io_uring where that is to be had, and by a pool of threads elsewhere.
//!
//! A ring's memory counts in `RLIMIT_MEMLOCK`, for all processes of a user together (before Linux 5.12, and in 6.18 again, where
//! it was measured: of 64 KiB thirty children of an ordinary user get seven rings). So a forked child may be refused what its
//! parent has.

use std::mem;
use std::os::fd::RawFd;

use outpage_core::units::SlotRange;

use crate::{
    Allocation, BackendError, Completion, Config, Descriptors, Grow, PoolStore, Reopen, Request,
    Reserve, ReserveError, Spawner, Store, SubmitError, SwapFile, SwapStore, UringStore,
    WORKERS_DEFAULT, uring,
};

/// A [`UringStore`], or a [`PoolStore`] once there can be no ring.
pub(crate) struct FittingStore(Way);

#[expect(clippy::large_enum_variant, reason = "a process has one")]
enum Way {
    Uring {
        store: UringStore,
        config: Config,
        /// Makes the pool's threads, should there be one; taken then.
        spawner: Option<Box<dyn Spawner + Send>>,
    },
    Pool(PoolStore),
}

impl FittingStore {
    /// # Errors
    /// What the pool met, where there is no ring.
    ///
    /// # Panics
    /// When `config` is out of range.
    pub(crate) fn new(
        file: SwapFile,
        config: Config,
        spawner: Box<dyn Spawner + Send>,
    ) -> Result<Self, BackendError> {
        Ok(Self(match uring::ring(config) {
            Ok(ring) => Way::Uring {
                store: UringStore::on(ring, file, config),
                config,
                spawner: Some(spawner),
            },
            Err(_) => Way::Pool(PoolStore::new(file, config, WORKERS_DEFAULT, spawner)?),
        }))
    }

    fn store(&self) -> &dyn SwapStore {
        match &self.0 {
            Way::Uring { store, .. } => store,
            Way::Pool(store) => store,
        }
    }

    fn store_mut(&mut self) -> &mut dyn SwapStore {
        match &mut self.0 {
            Way::Uring { store, .. } => store,
            Way::Pool(store) => store,
        }
    }

    /// Goes on with a pool, nothing being in flight, if it is not a pool already; `refused` is what the ring met.
    fn give_up_ring(&mut self, refused: BackendError) -> Result<(), BackendError> {
        let Way::Uring {
            store,
            config,
            spawner,
        } = &mut self.0
        else {
            return Err(refused);
        };
        let (Ok(file), Some(spawner)) = (store.file().duplicate(), spawner.take()) else {
            return Err(refused);
        };
        let pool = PoolStore::new(file, *config, WORKERS_DEFAULT, spawner)?;
        drop(mem::replace(&mut self.0, Way::Pool(pool)));
        Ok(())
    }
}

impl Store for FittingStore {
    fn submit(&mut self, request: &Request<'_>) -> Result<(), SubmitError> {
        self.store_mut().submit(request)
    }
    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        self.store_mut().poll(out)
    }
    fn forget(&mut self, slots: SlotRange) {
        self.store_mut().forget(slots);
    }
    fn wait(&mut self, timeout_ns: u64) -> bool {
        self.store_mut().wait(timeout_ns)
    }
    fn wake_fd(&self) -> Option<RawFd> {
        self.store().wake_fd()
    }
    fn in_flight(&self) -> usize {
        self.store().in_flight()
    }
    fn depth(&self) -> usize {
        self.store().depth()
    }
    fn request_pages_max(&self) -> u32 {
        self.store().request_pages_max()
    }
    fn capacity_slots(&self) -> u32 {
        self.store().capacity_slots()
    }
    fn ram_bytes(&self) -> u64 {
        self.store().ram_bytes()
    }
}

impl Grow for FittingStore {
    fn reserve(&mut self, slots: SlotRange) -> Result<Allocation, ReserveError> {
        self.store_mut().reserve(slots)
    }
    fn beside(&self) -> Option<Box<dyn Reserve>> {
        self.store().beside()
    }
}

impl Reopen for FittingStore {
    fn carried_fd(&self) -> Option<RawFd> {
        self.store().carried_fd()
    }
    fn reopen_after_fork(&mut self, descriptors: Descriptors) -> Result<(), BackendError> {
        let reopened = self.store_mut().reopen_after_fork(descriptors);
        reopened.or_else(|refused| self.give_up_ring(refused))
    }
}

#[cfg(test)]
mod tests {
    use outpage_core::units::{PAGE_BYTES, SlotNo};

    use super::*;
    use crate::{Backend, Direction, Frame, StdSpawner, Token};

    #[repr(align(4096))]
    struct Page([u8; PAGE_BYTES]);

    fn transfer(store: &mut FittingStore, direction: Direction, page: &mut Page) {
        let request = Request {
            token: Token(1),
            direction,
            slots: SlotRange::new(SlotNo(3), 1),
            // SAFETY: the page outlives the request, which has ended below.
            #[allow(unsafe_code)]
            frames: &[unsafe { Frame::new(page.0.as_mut_ptr().expose_provenance()) }],
            awaited: true,
        };
        store.submit(&request).unwrap();
        let mut out = Vec::with_capacity(1);
        while store.poll(&mut out) == 0 {
            store.wait(1_000_000);
        }
        assert_eq!(out, [Completion::whole(Token(1))]);
    }

    #[test]
    fn what_went_out_by_a_ring_comes_back_by_a_pool() {
        let directory = std::env::current_dir().unwrap();
        let file = SwapFile::create_in(&directory, 8 * PAGE_BYTES as u64).unwrap();
        let config = Config::default();
        let mut store = FittingStore::new(file, config, Box::new(StdSpawner)).unwrap();
        if matches!(store.0, Way::Pool(_)) {
            return eprintln!("SKIPPED: there is no io_uring here");
        }
        let mut page = Page([7; PAGE_BYTES]);
        transfer(&mut store, Direction::PageOut, &mut page);
        page.0.fill(0);
        let refused = BackendError {
            backend: Backend::Uring,
            call: "io_uring_setup",
            errno: libc::ENOMEM,
        };
        store.give_up_ring(refused).unwrap();
        assert!(matches!(store.0, Way::Pool(_)));
        transfer(&mut store, Direction::PageIn, &mut page);
        assert_eq!(page.0, [7; PAGE_BYTES]);
        assert_eq!(store.give_up_ring(refused), Err(refused));
    }
}
