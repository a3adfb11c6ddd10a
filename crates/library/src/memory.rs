//! Bytes at an address: what regions are made of.
#![expect(unsafe_code)] // slices of memory that is mapped as long as they live

use std::fmt;
use std::ops::Range;

use bytemuck::Pod;
use outpage_engine::call::Call;
use outpage_engine::scope::ScopeError;
use outpage_sys::raw::Errno;
use outpage_sys::{libc, map, process};

use crate::error::Error;
use crate::shared::Shared;
use crate::stats::{RegionStats, Residency};
use crate::subscription::Subscription;
use crate::watch::Watch;
use crate::{Advice, PAGE_BYTES, Place};

/// Pages whose places are asked for at once: for so long other faults wait.
const PLACES_AT_ONCE: usize = 1 << 14;

/// Cold pages that are taken out of the program at once, for the same reason: each takes a microsecond or two.
const COLD_AT_ONCE: usize = 1 << 10;

/// How often memory is asked for that the pager of `outpage run` took over before it was registered here: it looks ten times a second, and registering
/// takes less than a millisecond.
pub(crate) const TRIES: u32 = 10;

/// Memory of a pager, zero where nothing was written, unmapped when it is dropped. What it offers is safe, for it refers to none of it: pointers are the
/// caller's to use, and what happens to pages that were given up is the caller's to know.
///
/// Ranges are bytes from its start on, half-open.
pub struct Memory {
    pager: Shared,
    start: usize,
    bytes: usize,
}

/// Pages that stay in RAM, until it is dropped.
#[must_use = "pages are pinned as long as it lives"]
pub struct PinnedBytes {
    pager: Shared,
    range: Range<usize>,
}

const fn whole(bytes: usize) -> usize {
    // At least one: there is no empty mapping.
    let bytes = if bytes == 0 { 1 } else { bytes };
    match bytes.checked_next_multiple_of(PAGE_BYTES) {
        Some(whole) => whole,
        None => usize::MAX & !(PAGE_BYTES - 1),
    }
}

impl Memory {
    pub(crate) fn new(pager: Shared, bytes: usize) -> Result<Self, Error> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        if !pager.is_here() {
            return Err(Error::Forked);
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let start = pager.engine().mmap(0, whole(bytes), prot, flags);
            if start == -(libc::EBUSY as isize) && tries < TRIES {
                continue;
            }
            let start = usize::try_from(start).map_err(|_| match pager.ended() {
                Some(ended) => Error::Ended(ended.into()),
                None => Error::Os("reserve address space", -start as i32),
            })?;
            return Ok(Self {
                pager,
                start,
                bytes,
            });
        }
    }

    fn manage(&self, range: Range<usize>) -> Result<(), Error> {
        let managed = self.pager.manage(range);
        managed.map_err(Error::of("manage a region"))
    }

    /// Its first byte, at a whole page. It stays there until [`Self::resize`].
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.start)
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Makes it `bytes` bytes long: what is new is zero, what is beyond is gone. It may lie elsewhere afterwards. Nothing is copied.
    ///
    /// # Errors
    /// [`Error::Os`] where there is no address space, [`Error::Ended`], [`Error::Forked`]; it is as it was then.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Error> {
        let (old, new) = (whole(self.bytes), whole(bytes));
        self.check_pager()?;
        if new != old {
            self.remap(old, new)?;
        }
        let shrinks = bytes < self.bytes;
        self.bytes = bytes;
        if shrinks {
            // What is grown into again is zero.
            self.zero_bytes(bytes..whole(bytes))?;
        }
        Ok(())
    }

    fn remap(&mut self, old: usize, new: usize) -> Result<(), Error> {
        let engine = self.pager.engine();
        let at = engine.mremap(self.start, old, new, libc::MREMAP_MAYMOVE, 0);
        let at = usize::try_from(at).map_err(|_| Error::Os("resize a region", -at as i32))?;
        self.start = at;
        if new > old && self.places_at(at + old..at + old + PAGE_BYTES)? == [Place::Unmanaged] {
            let managed = self.manage(at + old..at + new);
            if managed.is_err() {
                let _ = map::munmap(at + old, new - old);
            }
            return managed;
        }
        Ok(())
    }

    /// Brings the pages of `range` into RAM, as a touch of each would. What is beyond the limit leaves again as other pages come.
    ///
    /// # Errors
    /// [`Error::Bounds`]; [`Error::Lost`] at the first page that is lost, [`Error::Forked`].
    pub fn prefault(&self, range: Range<usize>) -> Result<(), Error> {
        let pages = self.outer(&range)?;
        self.check_here()?;
        process::touch(pages).map_err(|_| Error::Lost(1))
    }

    /// Brings the pages of `range` into RAM, and keeps them there as long as the result lives. Pins are counted. A half of the limit may be
    /// pinned at most; a single pin may be of three quarters.
    ///
    /// # Errors
    /// [`Error::Pinned`], and those of [`Self::prefault`].
    pub fn pin(&self, range: Range<usize>) -> Result<PinnedBytes, Error> {
        let pages = self.outer(&range)?;
        self.check_pager()?;
        let (addr, len) = (pages.start, pages.len());
        match self.pager.engine().call(Call::Pin { addr, len }) {
            0 => {}
            error if error == -(libc::EAGAIN as isize) => return Err(Error::Pinned),
            error => {
                self.check_pager()?;
                return Err(Error::Os("pin pages", -error as i32));
            }
        }
        let pinned = PinnedBytes {
            pager: self.pager.clone(),
            range: pages,
        };
        self.prefault(range)?;
        Ok(pinned)
    }

    /// What the pages hold that lie in `range` as a whole is not wanted until [`Self::take_back`]: they leave before all others, and nothing is written. A
    /// page that is touched meanwhile holds what it held, or zeroes.
    ///
    /// # Errors
    /// [`Error::Bounds`], [`Error::Ended`], [`Error::Forked`].
    pub fn discard(&self, range: Range<usize>) -> Result<(), Error> {
        let pages = self.inner(&range)?;
        if pages.is_empty() {
            return Ok(());
        }
        let result = self.pager.discardable(pages);
        result.map_err(Error::of("discard pages"))
    }

    /// What [`Self::discard`] gave up is wanted again. The pages that were dropped, ascending, each by the offset of its first byte: they hold zeroes, or what
    /// was written since. All others are as they were.
    ///
    /// # Errors
    /// As [`Self::discard`].
    pub fn take_back(&self, range: Range<usize>) -> Result<Vec<usize>, Error> {
        let pages = self.inner(&range)?;
        let (mut dropped, start) = (Vec::new(), self.start);
        if pages.is_empty() {
            return Ok(dropped);
        }
        let result = (self.pager).wanted(pages, |address| dropped.push(address - start));
        result.map_err(Error::of("take pages back"))?;
        Ok(dropped)
    }

    /// Makes `range` zero. Whole pages of it are given back: they take neither RAM nor disk until they are touched.
    ///
    /// # Errors
    /// [`Error::Bounds`], [`Error::Forked`], [`Error::Os`].
    pub fn clear(&self, range: Range<usize>) -> Result<(), Error> {
        let pages = self.inner(&range)?;
        self.check_here()?;
        if pages.is_empty() {
            return self.zero_bytes(range);
        }
        map::release(pages.start, pages.len()).map_err(Error::os("give pages back"))?;
        let (first, end) = (pages.start - self.start, pages.end - self.start);
        self.zero_bytes(range.start..first)?;
        // The last page may reach beyond the range.
        self.zero_bytes(end.min(range.end)..range.end)
    }

    fn zero_bytes(&self, range: Range<usize>) -> Result<(), Error> {
        for at in range.clone().step_by(PAGE_BYTES) {
            let zeroes = &[0; PAGE_BYTES][..PAGE_BYTES.min(range.end - at)];
            let at = self.start + at;
            process::copy_to(at, zeroes).map_err(lost("clear a region", at, zeroes.len()))?;
        }
        Ok(())
    }

    /// Where each page is that `range` touches, at this moment.
    ///
    /// # Errors
    /// [`Error::Bounds`], [`Error::Ended`], [`Error::Forked`].
    pub fn places(&self, range: Range<usize>) -> Result<Vec<Place>, Error> {
        self.places_at(self.outer(&range)?)
    }

    fn places_at(&self, pages: Range<usize>) -> Result<Vec<Place>, Error> {
        let mut places = Vec::with_capacity(pages.len() / PAGE_BYTES);
        for at in pages.clone().step_by(PLACES_AT_ONCE * PAGE_BYTES) {
            let end = pages.end.min(at + PLACES_AT_ONCE * PAGE_BYTES);
            let asked = (self.pager).places(at..end, |place| places.push(place));
            asked.map_err(Error::of("see where pages are"))?;
        }
        Ok(places)
    }

    /// How many pages that `range` touches are where.
    ///
    /// # Errors
    /// As [`Self::places`].
    pub fn residency(&self, range: Range<usize>) -> Result<Residency, Error> {
        self.places(range).map(Residency::count)
    }

    /// Says what will be done with the pages that `range` touches; of [`Advice::Cold`] those that lie in it as a whole. No byte depends on it.
    ///
    /// `Sequential`, `Random` and `Normal` hold until the next of them, for the bytes that are there now. `WillNeed` returns at once, while pages are read: up to half
    /// of the limit. `Cold` pages leave before others; a touch of one meanwhile costs a minor fault.
    ///
    /// # Errors
    /// [`Error::Bounds`], [`Error::Ended`], [`Error::Forked`].
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), Error> {
        let pages = match advice {
            Advice::Cold => self.inner(&range)?,
            _ => self.outer(&range)?,
        };
        let at_once = match advice {
            Advice::Cold => COLD_AT_ONCE,
            Advice::WillNeed => PLACES_AT_ONCE,
            _ => pages.len().max(1),
        };
        self.check_pager()?;
        for at in pages.clone().step_by(at_once * PAGE_BYTES) {
            let end = pages.end.min(at.saturating_add(at_once * PAGE_BYTES));
            let said = self.pager.advise(at..end, advice);
            said.map_err(Error::of("give advice on pages"))?;
        }
        Ok(())
    }

    /// From now on it can be known which pages are out, before they are touched.
    ///
    /// # Errors
    /// [`Error::Os`]: `EBUSY` where it is subscribed to, or 64 other memories of the pager are. [`Error::Ended`], [`Error::Forked`].
    pub fn subscribe(&self) -> Result<Subscription, Error> {
        self.check_pager()?;
        let pages = self.start..self.start + whole(self.bytes);
        let told = self.pager.subscribe(pages);
        let told = told.map_err(Error::of("subscribe to a region"))?;
        Ok(Subscription::new(told, self.start))
    }

    /// From now on `leaving` is called before pages leave RAM, with the bytes that they hold: they were taken out of the program, and have their frames
    /// still. So whoever reads or writes them meanwhile keeps them, for a fault of a few microseconds, and what is discarded is not written. What nobody
    /// touches is written and leaves. Without `UFFDIO_MOVE` (before Linux 6.8) only a write keeps a page: a read is not seen.
    ///
    /// A thread of the watch's own, which handles none of the program's signals, makes the calls, one after the other; the pager waits for none of them, so
    /// that `leaving` may touch the memory and make any call, and a page of which it takes long to hear may have left. It hears of runs of whole pages, the
    /// last of which may reach beyond the bytes of the memory, of a page each time that it is on its way, and of one now and then that was kept meanwhile. A
    /// panic in it ends the watch. In a forked child there is no watch.
    ///
    /// # Errors
    /// Those of [`Self::subscribe`], which is no watch: `EBUSY` where there is a watch. [`Error::Io`] where there is no thread.
    pub fn watch(
        &self,
        leaving: impl FnMut(Range<usize>) + Send + 'static,
    ) -> Result<Watch, Error> {
        self.check_pager()?;
        let pages = self.start..self.start + whole(self.bytes);
        let told = self.pager.leaving(pages);
        let told = told.map_err(Error::of("watch a region"))?;
        Watch::new(told, self.start, leaving)
    }

    /// Where its pages are, and what became of them since it was subscribed to.
    ///
    /// # Errors
    /// [`Error::Ended`], [`Error::Forked`].
    pub fn stats(&self) -> Result<RegionStats, Error> {
        let residency = self.residency(0..self.bytes)?;
        let traffic = match self.pager.traffic(self.start) {
            Ok(traffic) => Some(traffic),
            Err(ScopeError::Os(Errno::EINVAL)) => None,
            Err(error) => return Err(Error::of("see what became of a region")(error)),
        };
        Ok(RegionStats { residency, traffic })
    }

    /// Copies what lies from byte `offset` on to `into`, without a signal where a page is lost.
    ///
    /// # Errors
    /// [`Error::Bounds`]; [`Error::Lost`], with a part copied; [`Error::Forked`], [`Error::Os`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        let at = self.span(offset, into.len())?;
        process::copy_from(at, into).map_err(lost("read a region", at, into.len()))
    }

    /// Copies `from` to byte `offset` and on, without a signal where a page is lost.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        let at = self.span(offset, from.len())?;
        process::copy_to(at, from).map_err(lost("write to a region", at, from.len()))
    }

    fn span(&self, offset: usize, bytes: usize) -> Result<usize, Error> {
        let end = offset.checked_add(bytes).filter(|&end| end <= self.bytes);
        end.ok_or(Error::Bounds)?;
        self.check_here()?;
        Ok(self.start + offset)
    }

    /// The pages that `range` touches, by their addresses.
    fn outer(&self, range: &Range<usize>) -> Result<Range<usize>, Error> {
        self.check(range)?;
        let start = range.start & !(PAGE_BYTES - 1);
        let end = range.end.next_multiple_of(PAGE_BYTES).max(start);
        Ok(self.start + start..self.start + end)
    }

    /// The pages that lie in `range` as a whole, the last page of the memory included where `range` ends with it.
    fn inner(&self, range: &Range<usize>) -> Result<Range<usize>, Error> {
        self.check(range)?;
        let end = match range.end == self.bytes {
            true => whole(self.bytes),
            false => range.end & !(PAGE_BYTES - 1),
        };
        let start = range.start.next_multiple_of(PAGE_BYTES).min(end);
        Ok(self.start + start..self.start + end)
    }

    fn check(&self, range: &Range<usize>) -> Result<(), Error> {
        let inside = range.start <= range.end && range.end <= self.bytes;
        inside.then_some(()).ok_or(Error::Bounds)
    }

    fn check_here(&self) -> Result<(), Error> {
        let here = self.pager.is_here();
        here.then_some(()).ok_or(Error::Forked)
    }

    fn check_pager(&self) -> Result<(), Error> {
        self.check_here()?;
        let ended = self.pager.ended();
        ended.map_or(Ok(()), |ended| Err(Error::Ended(ended.into())))
    }

    /// All of it, as values.
    pub(crate) fn values<T: Pod>(&self) -> &[T] {
        let len = self.bytes.checked_div(size_of::<T>()).unwrap_or(0);
        let start = std::ptr::with_exposed_provenance(self.start);
        const { assert!(align_of::<T>() <= PAGE_BYTES) };
        // SAFETY: at a whole page, which any type is aligned to; so many values lie within the mapping, which is there as long as `self` is; any bytes are a
        // value. What moves pages out and in keeps their bytes. No other borrow writes: `values_mut` takes `self` exclusively, and so does what
        // gives up pages, in the types that hand slices out.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// All of it, as values that may be changed.
    pub(crate) fn values_mut<T: Pod>(&mut self) -> &mut [T] {
        let len = self.bytes.checked_div(size_of::<T>()).unwrap_or(0);
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        const { assert!(align_of::<T>() <= PAGE_BYTES) };
        // SAFETY: as in `values`, and borrowed exclusively; any value may be written as bytes.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}

/// Why `bytes` bytes at `at` could not be copied. The other side can be what is not there: a caller of the C library's can be wrong about it.
fn lost(what: &'static str, at: usize, bytes: usize) -> impl FnOnce(Errno) -> Error {
    let pages = at & !(PAGE_BYTES - 1)..(at + bytes).next_multiple_of(PAGE_BYTES);
    move |error| match error {
        Errno::EFAULT if process::touch(pages).is_err() => Error::Lost(1),
        other => Error::Os(what, other.number()),
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A child has something else there, or nothing.
        if self.pager.is_here() {
            let _ = map::munmap(self.start, whole(self.bytes));
        }
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        let scope = &self.pager;
        if scope.is_here() {
            let (addr, len) = (self.range.start, self.range.len());
            scope.engine().call(Call::Unpin { addr, len });
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:#x}, {} bytes)", self.start, self.bytes)
    }
}

impl fmt::Debug for PinnedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBytes({} pages)", self.range.len() / PAGE_BYTES)
    }
}
