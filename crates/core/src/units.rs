//! The units of paging. Every conversion between them lives here.
//!
//! Ranges are half-open everywhere: `start..end` holds `start` and not `end`.

use core::fmt;

/// Binary logarithm of the page size.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page: 4 KiB, the base page of x86-64.
pub const PAGE_BYTES: usize = 1 << PAGE_SHIFT;

/// Bits of a [`PageNo`] that hold the index within the memory object.
///
/// 36 bits of 4 KiB pages are 2^48 bytes, more than the 47-bit user address space of x86-64.
const INDEX_BITS: u32 = 36;

/// A memory object: one span of managed memory whose pages are neighbours when their indices are.
///
/// Ids below 2^28; the body hands them out and may reuse one after all its pages were unmapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId(pub u32);

/// A page: (memory object, index within it), packed. Neighbours in an object differ by one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNo(u64);

impl PageNo {
    /// The page at `index` (in pages) of `object`.
    ///
    /// # Panics
    /// When the object id needs more than 28 bits or the index more than 36.
    #[must_use]
    pub const fn new(object: ObjectId, index: u64) -> Self {
        assert!(object.0 < 1 << (64 - INDEX_BITS) && index < 1 << INDEX_BITS);
        Self((object.0 as u64) << INDEX_BITS | index)
    }

    /// The memory object.
    #[must_use]
    pub const fn object(self) -> ObjectId {
        ObjectId((self.0 >> INDEX_BITS) as u32)
    }

    /// The index within the object, in pages.
    #[must_use]
    pub const fn index(self) -> u64 {
        self.0 & ((1 << INDEX_BITS) - 1)
    }

    /// The packed form, for tables keyed by page.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The page whose packed form is `raw`.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The page `n` pages later in the same object; `None` past the object's last index.
    #[must_use]
    pub const fn checked_add(self, n: u64) -> Option<Self> {
        if n >= (1 << INDEX_BITS) - self.index() {
            None
        } else {
            Some(Self(self.0 + n))
        }
    }

    /// The page `n` pages earlier in the same object; `None` before index 0.
    #[must_use]
    pub const fn checked_sub(self, n: u64) -> Option<Self> {
        if n > self.index() {
            None
        } else {
            Some(Self(self.0 - n))
        }
    }

    /// The page `n` pages on in the same object, the way that a walk goes; `None` where the object ends.
    #[must_use]
    pub const fn beyond(self, n: u64, downward: bool) -> Option<Self> {
        if downward {
            self.checked_sub(n)
        } else {
            self.checked_add(n)
        }
    }
}

impl fmt::Debug for PageNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.object().0, self.index())
    }
}

/// Consecutive pages of one memory object, half-open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageRange {
    /// The first page.
    pub start: PageNo,
    /// How many pages.
    pub pages: u64,
}

impl PageRange {
    /// `pages` pages from `start` on.
    #[must_use]
    pub const fn new(start: PageNo, pages: u64) -> Self {
        Self { start, pages }
    }

    /// The same; `None` where the range would have no end, for the page behind it has no number.
    #[must_use]
    pub const fn checked(start: PageNo, pages: u64) -> Option<Self> {
        match start.0.checked_add(pages) {
            Some(_) => Some(Self { start, pages }),
            None => None,
        }
    }

    /// The one-page range.
    #[must_use]
    pub const fn one(page: PageNo) -> Self {
        Self {
            start: page,
            pages: 1,
        }
    }

    /// Whether `page` lies in the range.
    #[must_use]
    pub const fn contains(self, page: PageNo) -> bool {
        page.0 >= self.start.0 && page.0 - self.start.0 < self.pages
    }

    /// The pages in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = PageNo> {
        (self.start.0..self.start.0 + self.pages).map(PageNo)
    }
}

/// A page-sized place in the swap store. `SlotNo::NONE` stands for "no slot".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotNo(pub u32);

impl SlotNo {
    /// "No slot": never allocated.
    pub const NONE: Self = Self(u32::MAX);

    /// Whether this is a slot at all.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }

    /// The first slot of the pool of compressed pages. Those below are the store's: 2^31 of them are 8 TiB.
    pub const POOL_START: Self = Self(1 << 31);

    /// Whether it is a place in the pool of compressed pages, not one in the store.
    #[must_use]
    pub const fn is_pooled(self) -> bool {
        self.is_some() && self.0 >= Self::POOL_START.0
    }

    /// Byte offset of the slot in the store.
    #[must_use]
    pub const fn byte_offset(self) -> u64 {
        (self.0 as u64) << PAGE_SHIFT
    }
}

/// Consecutive slots, half-open. Aligned so that it moves as one word: what is written in halves and
/// read whole soon after waits for the writes to reach the cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(align(8))]
pub struct SlotRange {
    /// The first slot.
    pub start: SlotNo,
    /// How many slots.
    pub slots: u32,
}

impl SlotRange {
    /// `slots` slots from `start` on.
    #[must_use]
    pub const fn new(start: SlotNo, slots: u32) -> Self {
        Self { start, slots }
    }

    /// The first slot after the range.
    #[must_use]
    pub const fn end(self) -> SlotNo {
        SlotNo(self.start.0 + self.slots)
    }

    /// The slots in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = SlotNo> {
        (self.start.0..self.start.0 + self.slots).map(SlotNo)
    }
}

/// A point in time or a span, in nanoseconds since an origin that the body chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub u64);

/// Pages that `bytes` bytes need, rounded up.
#[must_use]
pub const fn pages_ceil(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES as u64)
}
