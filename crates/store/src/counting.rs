//! Counts what goes through a store.

use outpage_core::units::PAGE_BYTES;

use crate::inside::{carried_inside, grows_inside, of_the_store_inside};
use crate::{
    BackendError, Completion, Descriptors, Direction, REQUEST_PAGES_LIMIT, Reopen, Request, Store,
    SubmitError,
};

/// Buckets of [`Counts::histogram`].
pub const HISTOGRAM_BUCKETS: usize = REQUEST_PAGES_LIMIT.ilog2() as usize + 1;

/// Totals of one direction. Requests, pages and the histogram count at `submit` (tried).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests taken.
    pub requests: u64,
    /// Pages in them.
    pub pages: u64,
    /// Requests that ended with an error, counted at their completion.
    pub failed: u64,
    /// Pages of those that were not transferred.
    pub failed_pages: u64,
    /// Requests by size: bucket `i` counts those of `2^i..2^(i+1)` pages.
    pub histogram: [u64; HISTOGRAM_BUCKETS],
}

impl Counts {
    /// Bytes in the requests.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.pages * PAGE_BYTES as u64
    }
}

/// A store that counts.
pub struct Counting<S> {
    store: S,
    page_in: Counts,
    page_out: Counts,
}

impl<S: Store> Counting<S> {
    /// Wraps `store`, at zero.
    pub fn new(store: S) -> Self {
        Self {
            store,
            page_in: Counts::default(),
            page_out: Counts::default(),
        }
    }

    /// The totals of one direction.
    pub const fn counts(&self, direction: Direction) -> &Counts {
        match direction {
            Direction::PageIn => &self.page_in,
            Direction::PageOut => &self.page_out,
        }
    }

    /// The store inside.
    pub const fn inner(&self) -> &S {
        &self.store
    }

    const fn of(&mut self, direction: Direction) -> &mut Counts {
        match direction {
            Direction::PageIn => &mut self.page_in,
            Direction::PageOut => &mut self.page_out,
        }
    }
}

impl<S: Store> Store for Counting<S> {
    fn submit(&mut self, request: &Request<'_>) -> Result<(), SubmitError> {
        self.store.submit(request)?;
        let counts = self.of(request.direction);
        counts.requests += 1;
        counts.pages += u64::from(request.slots.slots);
        counts.histogram[request.slots.slots.ilog2() as usize] += 1;
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        let first = out.len();
        let count = self.store.poll(out);
        for completion in &out[first..] {
            if let Err(error) = completion.result {
                let counts = self.of(error.direction);
                counts.failed += 1;
                counts.failed_pages += u64::from(completion.failed.count());
            }
        }
        count
    }

    of_the_store_inside!(waiting);

    fn in_flight(&self) -> usize {
        self.store.in_flight()
    }

    of_the_store_inside!(sizes);

    of_the_store_inside!(forgetting);

    of_the_store_inside!(ram);
}

grows_inside!(Counting);

impl<S: Reopen> Reopen for Counting<S> {
    carried_inside!();

    /// The totals go on from the parent's.
    fn reopen_after_fork(&mut self, descriptors: Descriptors) -> Result<(), BackendError> {
        self.store.reopen_after_fork(descriptors)
    }
}
