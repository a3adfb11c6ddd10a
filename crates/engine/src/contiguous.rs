//! Memory for transfers to go through: some that is contiguous in RAM, for larger ones; a few frames for what is encrypted.

use std::mem;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use outpage_core::units::PAGE_BYTES;
use outpage_store::FrameArea;
use outpage_sys::map::{self, Area, HUGE_BYTES};
use outpage_sys::own::Fork;
use outpage_sys::raw::Errno;

/// What a process holds of the limit, by what it has of contiguous memory. Where that is a 16th, programs lose more by the frames than streams gain
/// (docs/performance.md).
const SHARE: u64 = 64;
/// Frames of contiguous memory: the most is a huge page, the least two transfers of the default size.
const PAGES_MAX: u64 = (HUGE_BYTES / PAGE_BYTES) as u64;
const PAGES_MIN: u64 = 128;

/// What an engine has of such memory. The store holds it as well, by the way it gets the contiguous part: so it is there as long as either.
#[derive(Default)]
pub(crate) struct SetApart {
    /// What is contiguous, or why the kernel refused it; nothing as long as it was not asked for.
    contiguous: Mutex<Option<Result<Area, Errno>>>,
    /// Its address until the store has it, and its pages.
    ready: AtomicUsize,
    pages: AtomicU32,
    /// Frames that are kept beside it.
    kept: OnceLock<Area>,
}

/// Pages of contiguous memory for a process that holds `held_pages` of the limit; a power of two, or none where it holds too little.
fn pages_for(held_pages: u64) -> Option<u64> {
    let pages = (held_pages / SHARE).min(PAGES_MAX).checked_ilog2()?;
    Some(1 << pages).filter(|&pages| pages >= PAGES_MIN)
}

impl SetApart {
    /// Gets the contiguous memory when a process that holds `held_pages` of the limit can spare it, away from the way of a fault, for it takes 0.2 to 6 ms,
    /// and took 22 ms once where RAM was fragmented. Returns the pages that are set apart, [`Self::kept`] ones included, within the limit.
    pub(crate) fn set_apart(&self, held_pages: u64) -> usize {
        let Ok(mut contiguous) = self.contiguous.lock() else {
            return self.kept();
        };
        if contiguous.is_none()
            && let Some(pages) = pages_for(held_pages)
        {
            let area = Area::contiguous(pages as usize * PAGE_BYTES, Fork::ParentOnly);
            if let Ok(area) = &area {
                self.pages.store(pages as u32, Ordering::Relaxed);
                self.ready.store(area.start(), Ordering::Release);
            }
            *contiguous = Some(area);
        }
        let held = match &*contiguous {
            Some(Ok(area)) => area.len() / PAGE_BYTES,
            _ => 0,
        };
        self.kept() + held
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
        if let Ok(mut contiguous) = self.contiguous.lock() {
            mem::forget(contiguous.take());
        }
        self.ready.store(0, Ordering::Relaxed);
    }

    /// The contiguous memory, once.
    pub(crate) fn provide(&self) -> Option<FrameArea> {
        let start = self.ready.swap(0, Ordering::Acquire);
        let pages = self.pages.load(Ordering::Relaxed);
        #[expect(unsafe_code, reason = "names memory as I/O memory, once")]
        // SAFETY: mapped as long as this value, which the store has a share of, and not in forked children; the address is given out once.
        (start != 0).then(|| unsafe { FrameArea::new(start, pages) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_what_is_held_is_contiguous() {
        let mib = |mib: u64| pages_for(mib << 8);
        assert_eq!([mib(8), mib(31), mib(32)], [None, None, Some(128)]);
        assert_eq!(
            [mib(63), mib(64), mib(100)],
            [Some(128), Some(256), Some(256)]
        );
        assert_eq!([mib(128), mib(1 << 20)], [Some(512); 2]);
    }

    #[test]
    fn the_store_gets_it_once() {
        let apart = SetApart::default();
        assert_eq!(apart.set_apart(0), 0);
        assert!(apart.provide().is_none());
        if apart.set_apart(32 << 8) == 0 {
            eprintln!("SKIPPED: the kernel has no huge page to give");
            return;
        }
        assert_eq!(apart.set_apart(1 << 20), 128, "it stays as it is");
        assert_eq!(apart.provide().map(|area| area.frames()), Some(128));
        assert!(apart.provide().is_none());
    }
}
