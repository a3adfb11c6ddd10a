//! Memory for transfers to go through: one huge page, which is contiguous in RAM, for larger ones; a few frames for what is encrypted.

use std::mem;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use outpage_core::units::PAGE_BYTES;
use outpage_store::FrameArea;
use outpage_sys::map::{self, Area, HUGE_BYTES};
use outpage_sys::own::Fork;
use outpage_sys::raw::Errno;

/// It is at most this part of what a process holds of the limit. A choice: from 32 MiB on there is one.
pub(crate) const SHARE: u64 = 16;
const PAGES: usize = HUGE_BYTES / PAGE_BYTES;

const NONE_YET: u8 = 0;
const HELD: u8 = 1;
const REFUSED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NONE_YET);
/// Address of the huge page until the store has it.
static READY: AtomicUsize = AtomicUsize::new(0);
/// Pages that are kept beside it.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Gets the huge page when a process that holds `held_pages` of the limit can spare it, away from the way of a fault, for it takes 0.2 to 6 ms, and took
/// 22 ms once where RAM was fragmented. Returns the pages that are set apart, [`kept`] ones included, within the limit.
pub(crate) fn set_apart(held_pages: u64) -> usize {
    if STATE.load(Ordering::Relaxed) == NONE_YET && held_pages >= SHARE * PAGES as u64 {
        let state = match Area::huge(Fork::ParentOnly) {
            Ok(area) => {
                READY.store(area.start(), Ordering::Relaxed);
                // The store's until the process ends.
                mem::forget(area);
                HELD
            }
            Err(_) => REFUSED,
        };
        STATE.store(state, Ordering::Relaxed);
    }
    let held = STATE.load(Ordering::Relaxed) == HELD;
    kept() + if held { PAGES } else { 0 }
}

/// Sets `pages` frames apart for good, which forked children have as well: copies that count as theirs.
pub(crate) fn keep(pages: u32) -> Result<FrameArea, Errno> {
    let area = Area::new(pages as usize * PAGE_BYTES, Fork::Inherited)?;
    map::populate(area.start(), area.len())?;
    let start = area.start();
    mem::forget(area);
    KEPT.store(pages as usize, Ordering::Relaxed);
    #[expect(unsafe_code, reason = "names memory as I/O memory, once")]
    // SAFETY: mapped until the process ends, and given out once.
    Ok(unsafe { FrameArea::new(start, pages) })
}

/// Pages that [`keep`] set apart.
pub(crate) fn kept() -> usize {
    KEPT.load(Ordering::Relaxed)
}

/// In a forked child, which does not have its parent's.
pub(crate) fn none_in_child() {
    STATE.store(NONE_YET, Ordering::Relaxed);
    READY.store(0, Ordering::Relaxed);
}

/// The huge page, once.
pub(crate) fn provide() -> Option<FrameArea> {
    let start = READY.swap(0, Ordering::Relaxed);
    #[expect(unsafe_code, reason = "names memory as I/O memory, once")]
    // SAFETY: mapped until the process ends, and not in its children; the address is given out once.
    (start != 0).then(|| unsafe { FrameArea::new(start, PAGES as u32) })
}
