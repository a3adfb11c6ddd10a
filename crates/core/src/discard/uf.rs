//! Flushing by the program: `FlushDiscardable`.

use alloc::boxed::Box;

use super::{Discard, Entry};

pub(super) const ENTRY: Entry = Entry {
    name: "uf",
    summary: "as nf, and the program may ask for discardable pages to be dropped",
    source: "PagerUF of Subramanian, 1991",
    settings: &[],
    build: |_| Some(Box::new(UserFlush)),
};

struct UserFlush;

impl Discard for UserFlush {
    fn follows(&self) -> bool {
        true
    }
}
