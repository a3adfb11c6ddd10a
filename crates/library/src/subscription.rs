//! Which pages of a region are out, as the pager tells it.

use std::fmt;

use outpage_engine::scope;

/// Knows which pages of a region are out, before they are touched: asking costs no call, for the pager writes it down as pages leave and come.
///
/// Positions are bytes from the region's start. A region has one subscription at a time, and a pager 64 at most. It covers the bytes that the region had when it
/// was made: none that were added later, none that were taken away since, and nothing once the region is dropped, from the next call of the pager's on at the latest.
///
/// ```no_run
/// let pager = outpage::Pager::new(64 << 20)?;
/// let mut entries = pager.zeros::<[u64; 512]>(1 << 16)?; // a page each, 256 MiB
/// let mut subscription = entries.subscribe()?;
/// entries[0][0] = 1;
/// // ... others are used ...
/// if subscription.is_out(0) {
///     println!("entry 0 is computed anew sooner than it is read");
/// }
/// subscription.drain(|at, out| println!("entry {} is {}", at / 4096, if out { "out" } else { "in" }));
/// # Ok::<(), outpage::Error>(())
/// ```
pub struct Subscription {
    told: scope::Subscription,
    start: usize,
}

impl Subscription {
    pub(crate) const fn new(told: scope::Subscription, start: usize) -> Self {
        Self { told, start }
    }

    /// Whether the page is out that byte `at` lies in, so that a touch waits: for its decompression, or for a read, and until that has ended where it is under way
    /// ([`Place::Staged`](crate::Place::Staged)). It may change at any moment. False for what it does not cover.
    #[must_use]
    pub fn is_out(&self, at: usize) -> bool {
        let address = self.start.checked_add(at);
        address.is_some_and(|address| self.told.is_out(address))
    }

    /// Hands over the pages that went out or came in since the last time, each by its first byte and whether it is out now. A page may come several times; what
    /// is said last holds. The first time tells of what is out already, and a time after thousands of changes may tell of every page.
    pub fn drain(&mut self, mut each: impl FnMut(usize, bool)) {
        let start = self.start;
        self.told.drain(|address, out| each(address - start, out));
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}
