//! Memory for transfers to go through: one huge page, which is contiguous in RAM, for larger ones; a few frames for what is encrypted.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use outpage_core::units::PAGE_BYTES;
use outpage_store::FrameArea;
use outpage_sys::map::{self, Area, HUGE_BYTES};
use outpage_sys::own::Fork;
use outpage_sys::raw::Errno;

/// It is at most this part of what a process holds of the limit. A choice: from 32 MiB on there is one.
pub(crate) const SHARE: u64 = 16;
const PAGES: usize = HUGE_BYTES / PAGE_BYTES;

/// What an engine has of such memory. The store holds it as well, by the way it gets the huge page: so it is there as long as either.
#[derive(Default)]
pub(crate) struct SetApart {
    /// The huge page, or why the kernel refused it; nothing as long as it was not asked for.
    huge: Mutex<Option<Result<Area, Errno>>>,
    /// Address of the huge page until the store has it.
    ready: AtomicUsize,
    /// Frames that are kept beside it.
    kept: OnceLock<Area>,
}

impl SetApart {
    /// Gets the huge page when a process that holds `held_pages` of the limit can spare it, away from the way of a fault, for it takes 0.2 to 6 ms, and took
    /// 22 ms once where RAM was fragmented. Returns the pages that are set apart, [`Self::kept`] ones included, within the limit.
    pub(crate) fn set_apart(&self, held_pages: u64) -> usize {
        let Ok(mut huge) = self.huge.lock() else {
            return self.kept();
        };
        if huge.is_none() && held_pages >= SHARE * PAGES as u64 {
            let area = Area::huge(Fork::ParentOnly);
            if let Ok(area) = &area {
                self.ready.store(area.start(), Ordering::Relaxed);
            }
            *huge = Some(area);
        }
        let held = matches!(*huge, Some(Ok(_)));
        self.kept() + if held { PAGES } else { 0 }
    }

    /// Sets `pages` frames apart for good, which forked children have as well: copies that count as theirs.
    ///
    /// # Errors
    /// The kernel's, when it has no memory.
    ///
    /// # Panics
    /// When it was called before.
    pub(crate) fn keep(&self, pages: u32) -> Result<FrameArea, Errno> {
        let area = Area::new(pages as usize * PAGE_BYTES, Fork::Inherited)?;
        map::populate(area.start(), area.len())?;
        let start = area.start();
        assert!(self.kept.set(area).is_ok(), "frames are kept once");
        #[expect(unsafe_code, reason = "names memory as I/O memory, once")]
        // SAFETY: mapped as long as this value, which the store has a share of, and given out once.
        Ok(unsafe { FrameArea::new(start, pages) })
    }

    /// Pages that [`Self::keep`] set apart.
    pub(crate) fn kept(&self) -> usize {
        self.kept.get().map_or(0, |area| area.len() / PAGE_BYTES)
    }

    /// In a forked child, which does not have its parent's.
    pub(crate) fn none_in_child(&self) {
        if let Ok(mut huge) = self.huge.lock() {
            mem::forget(huge.take());
        }
        self.ready.store(0, Ordering::Relaxed);
    }

    /// The huge page, once.
    pub(crate) fn provide(&self) -> Option<FrameArea> {
        let start = self.ready.swap(0, Ordering::Relaxed);
        #[expect(unsafe_code, reason = "names memory as I/O memory, once")]
        // SAFETY: mapped as long as this value, which the store has a share of, and not in forked children; the address is given out once.
        (start != 0).then(|| unsafe { FrameArea::new(start, PAGES as u32) })
    }
}
