//! What a wrapper leaves to the store inside.

/// Methods of [`Store`](crate::Store) that hand on to `self.store`: those that tell its sizes, or those that wait for it.
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

        fn swap_file(&self) -> Option<&$crate::SwapFile> {
            self.store.swap_file()
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

pub(crate) use of_the_store_inside;
