//! Advice of madvise(2) that libc does not name: include/uapi/asm-generic/mman-common.h.

/// Leaves sooner (Linux 5.4).
pub(crate) const MADV_COLD: i32 = 20;
/// Leaves now (5.4).
pub(crate) const MADV_PAGEOUT: i32 = 21;
/// Is brought in, to be read (5.14).
pub(crate) const MADV_POPULATE_READ: i32 = 22;
/// Is brought in, to be written (5.14).
pub(crate) const MADV_POPULATE_WRITE: i32 = 23;
/// Becomes huge pages (6.1).
pub(crate) const MADV_COLLAPSE: i32 = 25;
/// A touch is an error (6.13).
pub(crate) const MADV_GUARD_INSTALL: i32 = 102;
/// A touch is no error any more (6.13).
pub(crate) const MADV_GUARD_REMOVE: i32 = 103;
