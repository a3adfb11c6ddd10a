//! Parts of a region that can be given up.

use std::fmt;
use std::ops::Range;

use bytemuck::Pod;

use crate::error::Error;
use crate::memory::Memory;
use crate::region::{Region, bytes};
use crate::{PAGE_BYTES, Residency};

/// A region in blocks of one length, for caches and collectors: a block that is discarded leaves before everything else and is never written. Who
/// wants it again asks for it, and hears what is left of it.
///
/// A discarded block is out of reach, so that nobody holds a slice of what may become zero at any moment.
///
/// ```no_run
/// use outpage::{Blocks, Kept, Pager};
///
/// let pager = Pager::new(64 << 20)?;
/// let mut cache = Blocks::new(pager.zeros::<u64>(1 << 24)?, 1 << 16)?;
/// cache.get_mut(3).expect("not discarded").fill(7);
/// cache.discard(3)?;
/// assert!(cache.get(3).is_none());
/// match cache.take_back(3)? {
///     Kept::Whole => println!("as it was"),
///     Kept::Without(lost) => println!("to be computed anew: {lost:?}"),
/// }
/// # Ok::<(), outpage::Error>(())
/// ```
pub struct Blocks<T> {
    memory: Memory,
    block: usize,
    given_up: Vec<bool>,
    values: std::marker::PhantomData<T>,
}

/// What is left of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kept {
    /// Everything.
    Whole,
    /// All but these elements, ascending: they were dropped, in whole pages, and are zero or, at the end of such a range, partly so.
    Without(Vec<Range<usize>>),
}

impl<T: Pod> Blocks<T> {
    /// `region` in blocks of `block` elements; the last one may be shorter.
    ///
    /// # Errors
    /// [`Error::Bounds`] where a block is not of whole pages.
    pub fn new(region: Region<T>, block: usize) -> Result<Self, Error> {
        let block_bytes = block.checked_mul(size_of::<T>());
        let whole = block_bytes.is_some_and(|n| n > 0 && n.is_multiple_of(PAGE_BYTES));
        if !whole {
            return Err(Error::Bounds);
        }
        Ok(Self {
            given_up: vec![false; region.len().div_ceil(block)],
            memory: region.into_memory(),
            block,
            values: std::marker::PhantomData,
        })
    }

    /// Blocks.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.given_up.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.given_up.is_empty()
    }

    /// Block `index`; `None` if it is discarded, or is none.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[T]> {
        let range = self.reach(index)?;
        self.memory.values().get(range)
    }

    /// The same, to be changed.
    #[must_use]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut [T]> {
        let range = self.reach(index)?;
        self.memory.values_mut().get_mut(range)
    }

    /// Gives block `index` up. Nothing, where it was given up.
    ///
    /// # Errors
    /// [`Error::Bounds`] where there is none; [`Error::Ended`], [`Error::Forked`].
    pub fn discard(&mut self, index: usize) -> Result<(), Error> {
        let range = bytes(&self.elements(index).ok_or(Error::Bounds)?, size_of::<T>())?;
        // Before the pager hears of it, and whatever it says.
        self.given_up[index] = true;
        self.memory.discard(range)
    }

    /// Block `index` is wanted again: what of it is left.
    ///
    /// # Errors
    /// As [`Self::discard`]; the block stays out of reach.
    pub fn take_back(&mut self, index: usize) -> Result<Kept, Error> {
        let elements = self.elements(index).ok_or(Error::Bounds)?;
        if !self.given_up[index] {
            return Ok(Kept::Whole);
        }
        let range = bytes(&elements, size_of::<T>())?;
        let dropped = self.memory.take_back(range.clone())?;
        self.given_up[index] = false;
        let pages = dropped.iter().map(|page| page - range.start);
        let lost = lost_elements(pages, size_of::<T>(), elements.len());
        Ok(match lost.is_empty() {
            true => Kept::Whole,
            false => Kept::Without(lost),
        })
    }

    /// How many pages are where, of all blocks.
    ///
    /// # Errors
    /// Those of [`Memory::residency`].
    pub fn residency(&self) -> Result<Residency, Error> {
        self.memory.residency(0..self.memory.len())
    }

    /// The region again. Blocks that are discarded are zero.
    ///
    /// # Errors
    /// Those of [`Memory::clear`].
    pub fn into_region(mut self) -> Result<Region<T>, Error> {
        for index in 0..self.len() {
            if self.given_up[index] {
                self.take_back(index)?;
                let elements = self.elements(index).ok_or(Error::Bounds)?;
                self.memory.clear(bytes(&elements, size_of::<T>())?)?;
            }
        }
        Ok(Region::of(self.memory))
    }

    fn elements(&self, index: usize) -> Option<Range<usize>> {
        let len = self.memory.len() / size_of::<T>();
        let start = self.block.checked_mul(index).filter(|&start| start < len)?;
        Some(start..len.min(start + self.block))
    }

    fn reach(&self, index: usize) -> Option<Range<usize>> {
        let given_up = *self.given_up.get(index)?;
        self.elements(index).filter(|_| !given_up)
    }
}

/// The elements, of `size` bytes each and `len` of them, that have a byte in one of `pages`, ascending offsets in bytes.
fn lost_elements(pages: impl Iterator<Item = usize>, size: usize, len: usize) -> Vec<Range<usize>> {
    let mut lost: Vec<Range<usize>> = Vec::new();
    for page in pages {
        let (start, end) = (page / size, (page + PAGE_BYTES).div_ceil(size).min(len));
        match lost.last_mut() {
            Some(last) if last.end >= start => last.end = end,
            _ if start < end => lost.push(start..end),
            _ => {}
        }
    }
    lost
}

impl<T> fmt::Debug for Blocks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Blocks({} of {} elements)",
            self.given_up.len(),
            self.block
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_with_a_byte_in_a_dropped_page_are_lost() {
        let lost = |pages: &[usize], size, len| -> Vec<(usize, usize)> {
            let ranges = lost_elements(pages.iter().copied(), size, len);
            ranges.into_iter().map(|r| (r.start, r.end)).collect()
        };
        assert_eq!(lost(&[], 8, 1024), []);
        assert_eq!(lost(&[0], 8, 1024), [(0, 512)]);
        assert_eq!(lost(&[0, 4096, 12_288], 8, 2048), [(0, 1024), (1536, 2048)]);
        // 4096 is no multiple of 12: element 341 lies in both pages.
        assert_eq!(lost(&[4096], 12, 1024), [(341, 683)]);
        // The last page is not full.
        assert_eq!(lost(&[4096], 8, 600), [(512, 600)]);
    }
}
