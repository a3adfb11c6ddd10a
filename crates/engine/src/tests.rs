//! What tests of this crate stand on: an address space without a kernel, and pagers over it.

pub(crate) mod fake;
pub(crate) mod paged;
pub(crate) mod random;
pub(crate) mod stage;
