//! MOC with full buffers: a cluster that does not fit is split.
//!
//! Ours. MOC writes a buffer before it is full rather than split a cluster, because the parts
//! would get slots apart from each other. Where slots are a log (`slots::Log`), the part in the
//! next buffer gets the slots behind the part in this one, so nothing is lost by filling buffers.

use alloc::boxed::Box;

use super::Entry;
use super::moc::{Moc, Parted};

pub(super) const ENTRY: Entry = Entry {
    name: "packed",
    summary: "like moc, but buffers are filled to the last page: clusters may be split",
    source: "Outpage",
    // Measured: a write of 64 pages costs twice one of a single page, and beyond it hardly less a page.
    buffer_pages: 64,
    build: |params| Box::new(Moc::new(ENTRY.name, Parted::ToFill, params)),
};
