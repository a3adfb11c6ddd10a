//! Ranges that the kernel is about to unmap or to map over.
//!
//! What it refuses must cost nothing, so it is asked before contents are dropped.

use outpage_sys::map;
use outpage_sys::raw::Errno;

use crate::live::Live;
use crate::regions::Region;

/// Whether `parts`, which begin where a call's range does, are one mapping of the kernel's up to `end`.
/// Parts of one mapping have numbers of their own where some of it was moved or its protection changed.
pub(crate) fn one_mapping(parts: &[Region], end: usize) -> bool {
    let alike = |a: &Region, b: &Region| {
        a.end == b.start && (a.prot, a.wiped_by_fork) == (b.prot, b.wiped_by_fork)
    };
    parts.last().is_some_and(|last| last.end == end)
        && parts.windows(2).all(|pair| alike(&pair[0], &pair[1]))
}

impl Live {
    /// Lets `start..end` go, which the kernel is about to unmap or to map over. It refuses that, and nothing
    /// may be lost then, when it would have to split a mapping and there are `vm.max_map_count`; so the
    /// range is split off before, by a flag that goes with it.
    pub(crate) fn vacate(&mut self, start: usize, end: usize) -> Result<(), Errno> {
        let regions = &self.world.regions;
        if start > 0 && regions.at(start - 1).is_some() && regions.at(end).is_some() {
            let mut parts = std::mem::take(&mut self.scratch);
            self.world.regions.within(start, end, &mut parts);
            let one = one_mapping(&parts, end);
            self.scratch = parts;
            if one {
                // madvise says EAGAIN where munmap and mmap say ENOMEM.
                map::madvise(start, end - start, libc::MADV_DONTDUMP).map_err(|_| Errno::ENOMEM)?;
            }
        }
        self.let_go(start, end);
        Ok(())
    }

    /// The same for a range that is about to be mapped over, for which the kernel wants some mappings to
    /// spare: a move of two pages shows whether there are.
    pub(crate) fn make_way(&mut self, start: usize, end: usize) -> Result<(), Errno> {
        if self.manages_any(start, end - start) {
            map::can_move()?;
        }
        self.vacate(start, end)
    }
}
