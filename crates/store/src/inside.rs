//! What a wrapper leaves to the store inside.

/// Methods of [`Store`](crate::Store) that hand on to `self.store`: those that tell its sizes, those that wait for it,
/// the one that forgets slots, or what it has of RAM.
macro_rules! of_the_store_inside {
    (sizes) => {
        fn depth(&self) -> usize {
            self.store.depth()
        }

        fn request_pages_max(&self) -> u32 {
            self.store.request_pages_max()
        }

        fn capacity_slots(&self) -> u32 {
            self.store.capacity_slots()
        }
    };
    (forgetting) => {
        fn forget(&mut self, slots: outpage_core::units::SlotRange) {
            self.store.forget(slots);
        }
    };
    (ram) => {
        fn ram_bytes(&self) -> u64 {
            self.store.ram_bytes()
        }
    };
    (waiting) => {
        fn wait(&mut self, timeout_ns: u64) -> bool {
            self.store.wait(timeout_ns)
        }

        fn wake_fd(&self) -> Option<std::os::fd::RawFd> {
            self.store.wake_fd()
        }
    };
}

/// [`Grow`](crate::Grow), handed on to `self.store`.
macro_rules! grows_inside {
    ($wrapper:ident $(, $clock:ident)?) => {
        impl<S: $crate::Grow $(, $clock)?> $crate::Grow for $wrapper<S $(, $clock)?> {
            fn reserve(
                &mut self,
                slots: outpage_core::units::SlotRange,
            ) -> Result<$crate::Allocation, $crate::ReserveError> {
                self.store.reserve(slots)
            }

            fn beside(&self) -> Option<Box<dyn $crate::Reserve>> {
                self.store.beside()
            }
        }
    };
}

/// [`Reopen::carried_fd`](crate::Reopen::carried_fd), handed on to `self.store`.
macro_rules! carried_inside {
    () => {
        fn carried_fd(&self) -> Option<std::os::fd::RawFd> {
            self.store.carried_fd()
        }
    };
}

pub(crate) use of_the_store_inside;
pub(crate) use {carried_inside, grows_inside};
