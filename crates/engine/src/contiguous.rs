//! Memory that is contiguous in RAM, for larger transfers to go through: one huge page.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use outpage_core::units::PAGE_BYTES;
use outpage_store::FrameArea;
use outpage_sys::map::{Area, HUGE_BYTES};
use outpage_sys::own::Fork;

use crate::session::Session;
use crate::world::Mechanism;

/// It is at most this part of what a process may have of the limit. A choice: 32 MiB for the first process.
const SHARE: u64 = 16;
const PAGES: usize = HUGE_BYTES / PAGE_BYTES;

/// Whether the process can spare it.
static ALLOWED: AtomicBool = AtomicBool::new(false);
/// Pages that it has.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// Decides whether [`provide`] gives any. Pages that are protected in place are copied before they are written
/// anyway; there a second copy gained nothing.
pub(crate) fn allow(session: &Session, mechanism: Mechanism) {
    let members = session.members().count().max(1) as u64;
    let spares = session.limit_pages() / members >= SHARE * PAGES as u64;
    ALLOWED.store(spares && mechanism == Mechanism::Move, Ordering::Relaxed);
}

/// The huge page, if the process can spare one and the kernel has one.
pub(crate) fn provide() -> Option<FrameArea> {
    let allowed = ALLOWED.load(Ordering::Relaxed);
    let area = allowed.then(|| Area::huge(Fork::ParentOnly).ok()).flatten();
    let pages = if area.is_some() { PAGES } else { 0 };
    GIVEN.store(pages, Ordering::Relaxed);
    let area = area?;
    let start = area.start();
    // The store's until the process ends.
    mem::forget(area);
    #[expect(unsafe_code, reason = "names memory as I/O memory, once")]
    // SAFETY: mapped until the process ends, and not in its children; nobody else knows the address.
    Some(unsafe { FrameArea::new(start, PAGES as u32) })
}

/// Pages that [`provide`] gave.
pub(crate) fn pages() -> usize {
    GIVEN.load(Ordering::Relaxed)
}
