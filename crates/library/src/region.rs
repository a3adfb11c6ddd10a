//! Slices of plain values.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

use bytemuck::Pod;

use crate::error::Error;
use crate::memory::{Memory, PinnedBytes};
use crate::stats::{RegionStats, Residency};
use crate::subscription::Subscription;
use crate::watch::Watch;
use crate::{Advice, Place, bytemuck};

/// Values of a type that is nothing but its bytes, in memory of a pager: a slice that may be larger than RAM.
///
/// Ranges are elements, half-open.
///
/// ```no_run
/// let pager = outpage::Pager::new(64 << 20)?;
/// let mut samples = pager.zeros::<f32>(1 << 26)?;
/// samples[5] = 2.5;
/// samples.sort_unstable_by(f32::total_cmp);
/// samples.resize(1 << 27)?;
/// assert_eq!((samples.len(), samples[(1 << 26) - 1]), (1 << 27, 2.5));
/// # Ok::<(), outpage::Error>(())
/// ```
pub struct Region<T> {
    memory: Memory,
    values: PhantomData<T>,
}

/// Elements that stay in RAM as long as it lives.
///
/// ```no_run
/// let pager = outpage::Pager::new(64 << 20)?;
/// let mut table = pager.zeros::<u64>(1 << 24)?;
/// let mut hot = table.pin_mut(0..512)?;
/// hot[0] = 1;
/// # Ok::<(), outpage::Error>(())
/// ```
#[must_use = "elements are pinned as long as it lives"]
pub struct Pinned<S> {
    elements: S,
    _pages: PinnedBytes,
}

impl<T: Pod> Region<T> {
    pub(crate) const fn of(memory: Memory) -> Self {
        Self {
            memory,
            values: PhantomData,
        }
    }

    /// The bytes that it is made of.
    #[must_use]
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// Makes it `len` elements long: new ones are zero. It may lie elsewhere afterwards; nothing is copied.
    ///
    /// # Errors
    /// Those of [`Memory::resize`].
    pub fn resize(&mut self, len: usize) -> Result<(), Error> {
        self.memory.resize(bytes_of::<T>(len)?)
    }

    /// Brings elements into RAM, as a touch of each page would.
    ///
    /// # Errors
    /// Those of [`Memory::prefault`].
    pub fn prefault(&self, range: Range<usize>) -> Result<(), Error> {
        self.memory.prefault(bytes(&range, size_of::<T>())?)
    }

    /// Brings elements into RAM and keeps them there as long as the result lives, half of the limit at most.
    ///
    /// # Errors
    /// Those of [`Memory::pin`].
    pub fn pin(&self, range: Range<usize>) -> Result<Pinned<&[T]>, Error> {
        let pages = self.memory.pin(bytes(&range, size_of::<T>())?)?;
        Ok(Pinned {
            elements: &self[range],
            _pages: pages,
        })
    }

    /// The same of elements that are to be changed.
    ///
    /// # Errors
    /// Those of [`Memory::pin`].
    pub fn pin_mut(&mut self, range: Range<usize>) -> Result<Pinned<&mut [T]>, Error> {
        let pages = self.memory.pin(bytes(&range, size_of::<T>())?)?;
        Ok(Pinned {
            elements: &mut self[range],
            _pages: pages,
        })
    }

    /// Makes elements zero. Whole pages take neither RAM nor disk until they are touched.
    ///
    /// # Errors
    /// Those of [`Memory::clear`].
    pub fn clear(&mut self, range: Range<usize>) -> Result<(), Error> {
        self.memory.clear(bytes(&range, size_of::<T>())?)
    }

    /// Where each page is that these elements touch.
    ///
    /// # Errors
    /// Those of [`Memory::places`].
    pub fn places(&self, range: Range<usize>) -> Result<Vec<Place>, Error> {
        self.memory.places(bytes(&range, size_of::<T>())?)
    }

    /// How many pages of the region are where.
    ///
    /// # Errors
    /// Those of [`Memory::residency`].
    pub fn residency(&self) -> Result<Residency, Error> {
        self.memory.residency(0..self.memory.len())
    }

    /// Says what will be done with elements: see [`Memory::advise`].
    ///
    /// ```no_run
    /// use outpage::Advice;
    ///
    /// let pager = outpage::Pager::new(64 << 20)?;
    /// let values = pager.zeros::<u64>(1 << 26)?;
    /// values.advise(0..values.len(), Advice::Sequential)?;
    /// let sum: u64 = values.iter().sum();
    /// values.advise(0..1 << 20, Advice::WillNeed)?; // read while something else is done
    /// # Ok::<(), outpage::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Memory::advise`].
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), Error> {
        (self.memory).advise(bytes(&range, size_of::<T>())?, advice)
    }

    /// From now on it can be known which pages are out, before they are touched. Positions are bytes.
    ///
    /// # Errors
    /// Those of [`Memory::subscribe`].
    pub fn subscribe(&self) -> Result<Subscription, Error> {
        self.memory.subscribe()
    }

    /// From now on `leaving` is called before pages leave RAM. Positions are bytes.
    ///
    /// # Errors
    /// Those of [`Memory::watch`].
    pub fn watch(
        &self,
        leaving: impl FnMut(Range<usize>) + Send + 'static,
    ) -> Result<Watch, Error> {
        self.memory.watch(leaving)
    }

    /// Where its pages are, and what became of them since it was subscribed to.
    ///
    /// # Errors
    /// Those of [`Memory::stats`].
    pub fn stats(&self) -> Result<RegionStats, Error> {
        self.memory.stats()
    }

    /// Copies elements from `start` on to `into`, without a signal where a page is lost.
    ///
    /// # Errors
    /// Those of [`Memory::read`].
    pub fn read(&self, start: usize, into: &mut [T]) -> Result<(), Error> {
        let offset = bytes_of::<T>(start)?;
        self.memory.read(offset, bytemuck::cast_slice_mut(into))
    }

    /// Copies `from` to the elements from `start` on, without a signal where a page is lost.
    ///
    /// # Errors
    /// Those of [`Memory::write`].
    pub fn write(&mut self, start: usize, from: &[T]) -> Result<(), Error> {
        let offset = bytes_of::<T>(start)?;
        self.memory.write(offset, bytemuck::cast_slice(from))
    }
}

/// The bytes of so many values.
pub(crate) fn bytes_of<T>(len: usize) -> Result<usize, Error> {
    // No object is larger (`std::slice::from_raw_parts`).
    let bytes = len.checked_mul(size_of::<T>());
    let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok());
    bytes.ok_or(Error::Bounds)
}

/// The bytes of elements.
pub(crate) fn bytes(range: &Range<usize>, size: usize) -> Result<Range<usize>, Error> {
    let [start, end] = [range.start, range.end].map(|index| index.checked_mul(size));
    match (start, end) {
        (Some(start), Some(end)) => Ok(start..end),
        _ => Err(Error::Bounds),
    }
}

impl<T: Pod> Deref for Region<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.memory.values()
    }
}

impl<T: Pod> DerefMut for Region<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.memory.values_mut()
    }
}

impl<S: Deref> Deref for Pinned<S> {
    type Target = S::Target;

    fn deref(&self) -> &S::Target {
        &self.elements
    }
}

impl<S: DerefMut> DerefMut for Pinned<S> {
    fn deref_mut(&mut self) -> &mut S::Target {
        &mut self.elements
    }
}

/// Its length and where it lies: the values may be many, and out.
impl<T> fmt::Debug for Region<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Region").field(&self.memory).finish()
    }
}

impl<S> fmt::Debug for Pinned<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pinned").field(&self._pages).finish()
    }
}
