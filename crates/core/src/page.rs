//! What the pager knows of each touched page, packed. `page/state.rs` has the transitions it may take.
//!
//! A page in memory occupies one frame in every state but Untouched, `PagedOut` and Poisoned.
//!
//! Memory: a leaf describes 64 neighbouring pages in 26 bytes each and 17 for all; the directory adds at most
//! a byte and the way from a slot to its page one byte a slot: below 32 bytes a touched page when
//! neighbours are touched, slots being up to twice the pages. Bits add 0.75 bytes, a daemon's ages 1 byte; a body without bits pays for neither. Pages
//! that were never touched have no entry.

mod bits;
mod by_slot;
pub(crate) mod directory;
mod queues;
mod state;

use alloc::vec::Vec;

pub use crate::content::ContentHash;
use crate::units::{PageNo, PageRange, SlotNo};
pub use bits::Bit;
use bits::Bits;
use by_slot::BySlot;
use directory::Directory;
use queues::Ends;
pub use queues::Queue;
pub use state::State;
use state::{FRAMED, STATES};

/// Pages of one leaf.
const LEAF_PAGES: usize = 64;
/// Leaves that are allocated together: 430 KB, which any allocator maps without rounding up much.
const SLAB_LEAVES: usize = 256;
const SLAB_PAGES: usize = SLAB_LEAVES * LEAF_PAGES;
const LEAF_SHIFT: u32 = LEAF_PAGES.trailing_zeros();

/// The dense name of a touched page, valid until the page is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageId(u32);

impl PageId {
    /// "No page".
    pub const NONE: Self = Self(u32::MAX);

    /// Below [`Pages::ids`], for a table beside the pages; used again when the page is forgotten.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    const fn leaf(self) -> usize {
        (self.0 >> LEAF_SHIFT) as usize
    }

    const fn offset(self) -> usize {
        self.0 as usize & (LEAF_PAGES - 1)
    }

    /// Whether this is a page at all.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }
}

/// The content in the frame differs from the slot, or there is no slot.
pub const DIRTY: u8 = 1;
/// Came with a read-ahead and was not touched since.
pub const READ_AHEAD: u8 = 2;
/// Sits in the page-out buffer.
pub const COLLECTED: u8 = 4;
/// Zero-filled around a fault, not seen with content yet.
pub const ZERO_AROUND: u8 = 8;
/// Stayed staged as a sample when its neighbours were mapped, and is touched now.
pub const SAMPLED: u8 = 16;

/// One page. Without padding, and in one piece: a transition touches most of it.
#[derive(Clone, Copy)]
#[repr(C, packed(2))]
pub struct PageEntry {
    /// See [`Pages::set_slot`].
    pub(crate) slot: SlotNo,
    /// See [`Pages::hash`].
    pub(crate) hash: ContentHash,
    state: State,
    flags: u8,
}

impl PageEntry {
    const UNTOUCHED: Self = Self {
        slot: SlotNo::NONE,
        hash: ContentHash([0; 3]),
        state: State::Untouched,
        flags: 0,
    };

    /// The page's state.
    #[must_use]
    #[inline]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The queue the page is on.
    #[must_use]
    #[inline]
    pub const fn queue(&self) -> Queue {
        Queue::of(self.flags)
    }

    /// Whether all of `mask` is set.
    #[must_use]
    #[inline]
    pub const fn has(&self, mask: u8) -> bool {
        self.flags & mask == mask
    }

    /// Sets or clears `mask`.
    #[inline]
    pub const fn set_flag(&mut self, mask: u8, on: bool) {
        self.flags = self.flags & !mask | if on { mask } else { 0 };
    }
}

/// A page's neighbours: on its queue, or among the pages found by their slots. Apart from the entries: who walks a long queue
/// waits for nothing but these, a third of the bytes, and they stay in the cache.
#[derive(Clone, Copy)]
struct Links {
    prev: PageId,
    next: PageId,
}

impl Links {
    const NONE: Self = Self {
        prev: PageId::NONE,
        next: PageId::NONE,
    };
}

#[cold]
fn forbidden(id: PageId, from: State, to: State) -> ! {
    panic!("{id:?}: {from:?} cannot become {to:?}");
}

/// Which pages a leaf describes, and what is kept of them in bits. Without padding.
#[repr(C, packed)]
struct Leaf {
    base: u64,
    /// See [`Pages::set_read`].
    read: u64,
    /// Of its pages, 0 to 64.
    used: u8,
}

/// All touched pages, found by number in constant expected time.
pub struct Pages {
    /// Never moved once made: growing the table in a fault must not copy it. Room for whole slabs, leaves
    /// as they are first needed: memory that is reserved and not written takes no RAM.
    slabs: Vec<Vec<PageEntry>>,
    /// The same room for the links.
    links: Vec<Vec<Links>>,
    /// And for the leaves.
    leaves: Vec<Vec<Leaf>>,
    /// Leaves made so far, in use or not.
    made: usize,
    free: Vec<u32>,
    directory: Directory,
    queues: [Ends; 7],
    /// The page behind the place that is kept on the inactive queue.
    place: PageId,
    place_at_end: bool,
    counts: [usize; STATES],
    /// Pages that occupy a frame: asked for several times an event.
    framed: usize,
    /// `None` where the body has none.
    bits: Option<Bits>,
    by_slot: BySlot,
}

impl Default for Pages {
    fn default() -> Self {
        Self::new()
    }
}

impl Pages {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        let ends = Ends {
            head: PageId::NONE,
            tail: PageId::NONE,
            pages: 0,
        };
        Self {
            slabs: Vec::new(),
            links: Vec::new(),
            leaves: Vec::new(),
            made: 0,
            free: Vec::new(),
            directory: Directory::new(),
            queues: [ends; 7],
            place: PageId::NONE,
            place_at_end: false,
            counts: [0; STATES],
            framed: 0,
            bits: None,
            by_slot: BySlot::default(),
        }
    }

    /// Makes room for `leaves` further leaves, so that the next touches allocate nothing.
    pub fn reserve(&mut self, leaves: usize) {
        self.directory.reserve(leaves);
        while self.free.len() + self.room() < leaves {
            self.slabs.push(Vec::with_capacity(SLAB_PAGES));
            self.links.push(Vec::with_capacity(SLAB_PAGES));
            self.leaves.push(Vec::with_capacity(SLAB_LEAVES));
            if let Some(bits) = &mut self.bits {
                bits.add_slab();
            }
        }
    }

    /// Leaves that the slabs have room for and that were never made.
    fn room(&self) -> usize {
        self.slabs.len() * SLAB_LEAVES - self.made
    }

    #[inline]
    fn leaf(&self, leaf: usize) -> &Leaf {
        &self.leaves[leaf / SLAB_LEAVES][leaf % SLAB_LEAVES]
    }

    #[inline]
    fn leaf_mut(&mut self, leaf: usize) -> &mut Leaf {
        &mut self.leaves[leaf / SLAB_LEAVES][leaf % SLAB_LEAVES]
    }

    #[inline]
    pub(crate) fn entry(&self, id: PageId) -> &PageEntry {
        &self.slabs[id.0 as usize / SLAB_PAGES][id.0 as usize % SLAB_PAGES]
    }

    #[inline]
    fn entry_mut(&mut self, id: PageId) -> &mut PageEntry {
        &mut self.slabs[id.0 as usize / SLAB_PAGES][id.0 as usize % SLAB_PAGES]
    }

    #[inline]
    fn link(&self, id: PageId) -> Links {
        self.links[id.0 as usize / SLAB_PAGES][id.0 as usize % SLAB_PAGES]
    }

    #[inline]
    fn link_mut(&mut self, id: PageId) -> &mut Links {
        &mut self.links[id.0 as usize / SLAB_PAGES][id.0 as usize % SLAB_PAGES]
    }

    /// Whether touches set bits.
    pub(crate) const fn has_bits(&self) -> bool {
        self.bits.is_some()
    }

    /// The page's id, if it has an entry.
    #[must_use]
    #[inline]
    pub fn find(&self, page: PageNo) -> Option<PageId> {
        let id = self.place(page)?;
        self.is_touched(id).then_some(id)
    }

    /// The id that the page has if it has an entry, which is not looked at; `None` where not even its
    /// leaf is there.
    #[inline]
    pub(crate) fn place(&self, page: PageNo) -> Option<PageId> {
        let leaf = self.directory.get(page.raw() >> LEAF_SHIFT)?;
        Some(PageId(
            leaf << LEAF_SHIFT | (page.raw() as u32 & (LEAF_PAGES as u32 - 1)),
        ))
    }

    #[inline]
    fn is_touched(&self, id: PageId) -> bool {
        self.entry(id).state != State::Untouched
    }

    /// The page `distance` pages further on in the same object, if it has an entry. Cheaper than
    /// [`Self::find`] where both are in one leaf.
    #[must_use]
    pub fn neighbour(&self, id: PageId, distance: i64) -> Option<PageId> {
        let offset = id.offset() as i64 + distance;
        if (0..LEAF_PAGES as i64).contains(&offset) {
            let id = PageId(id.0 & !(LEAF_PAGES as u32 - 1) | offset as u32);
            return self.is_touched(id).then_some(id);
        }
        let page = self.number(id);
        let other = if distance < 0 {
            page.checked_sub(distance.unsigned_abs())
        } else {
            page.checked_add(distance.unsigned_abs())
        };
        self.find(other?)
    }

    /// The page's state; `Untouched` when it has no entry.
    #[must_use]
    pub fn state_of(&self, page: PageNo) -> State {
        self.find(page)
            .map_or(State::Untouched, |id| self.state(id))
    }

    /// Gives an untouched page an entry in `state`.
    ///
    /// # Panics
    /// When the page already has an entry, or `state` cannot follow Untouched.
    pub fn create(&mut self, page: PageNo, state: State) -> PageId {
        let base = page.raw() >> LEAF_SHIFT;
        let leaf = self
            .directory
            .get(base)
            .unwrap_or_else(|| self.add_leaf(base));
        let id = PageId(leaf << LEAF_SHIFT | (page.raw() as u32 & (LEAF_PAGES as u32 - 1)));
        assert!(
            State::Untouched.may_become(state) && self.state(id) == State::Untouched,
            "page {page:?} created twice"
        );
        self.leaf_mut(leaf as usize).used += 1;
        self.put_state(id, State::Untouched, state);
        id
    }

    fn add_leaf(&mut self, base: u64) -> u32 {
        if self.free.is_empty() && self.room() == 0 {
            self.reserve(16);
        }
        let leaf = self.free.pop().unwrap_or_else(|| {
            let leaf = u32::try_from(self.made).expect("fewer than 2^26 leaves");
            let slab = self.made / SLAB_LEAVES;
            self.slabs[slab].extend([PageEntry::UNTOUCHED; LEAF_PAGES]);
            self.links[slab].extend([Links::NONE; LEAF_PAGES]);
            self.leaves[slab].push(Leaf {
                base,
                used: 0,
                read: 0,
            });
            self.made += 1;
            leaf
        });
        self.leaf_mut(leaf as usize).base = base;
        self.directory.insert(base, leaf);
        leaf
    }

    /// Drops the page's entry: it is untouched again.
    ///
    /// # Panics
    /// When the page is on a queue.
    pub fn forget(&mut self, id: PageId) {
        assert!(self.queue(id) == Queue::None, "forgotten page still queued");
        if self.has(id, READ_AHEAD) {
            self.clear_read_ahead(id);
        }
        let from = self.state(id);
        *self.put_state(id, from, State::Untouched) = PageEntry::UNTOUCHED;
        let leaf = self.leaf_mut(id.leaf());
        leaf.used -= 1;
        leaf.read &= !(1 << id.offset());
        if leaf.used == 0 {
            let base = leaf.base;
            leaf.base = u64::MAX;
            self.directory.remove(base);
            self.free.push(id.leaf() as u32);
        }
    }

    /// Whether the page came from its slot and was not mapped since.
    #[must_use]
    pub fn is_read(&self, id: PageId) -> bool {
        self.leaf(id.leaf()).read >> id.offset() & 1 != 0
    }

    /// Says so.
    #[inline]
    pub fn set_read(&mut self, id: PageId, on: bool) {
        let leaf = self.leaf_mut(id.leaf());
        leaf.read = leaf.read & !(1 << id.offset()) | u64::from(on) << id.offset();
    }

    /// Above every [`PageId::index`], until the next [`Self::reserve`].
    #[must_use]
    pub fn ids(&self) -> usize {
        self.slabs.len() * SLAB_PAGES
    }

    /// The page's number.
    #[must_use]
    #[inline]
    pub fn number(&self, id: PageId) -> PageNo {
        PageNo::from_raw(self.leaf(id.leaf()).base << LEAF_SHIFT | id.offset() as u64)
    }

    /// The page's state.
    #[must_use]
    #[inline]
    pub fn state(&self, id: PageId) -> State {
        self.entry(id).state
    }

    /// Takes the page to `state`.
    ///
    /// # Panics
    /// When the table of legal transitions forbids it.
    pub fn set_state(&mut self, id: PageId, state: State) {
        let from = self.state(id);
        let legal = State::LEGAL[usize::from(self.under_daemon())][state as usize];
        if legal >> from as usize & 1 == 0 {
            forbidden(id, from, state);
        }
        self.put_state(id, from, state);
    }

    /// Takes the page from one state, which is known, to another.
    ///
    /// # Panics
    /// When it is in another state, or the first table of legal transitions forbids it.
    #[expect(
        clippy::inline_always,
        reason = "callers name both states: nearly all of this folds"
    )]
    #[inline(always)]
    pub fn advance(&mut self, id: PageId, from: State, to: State) -> &mut PageEntry {
        if !from.may_become(to) {
            forbidden(id, from, to);
        }
        self.put_state(id, from, to)
    }

    #[expect(clippy::inline_always, reason = "as for `advance`")]
    #[inline(always)]
    fn put_state(&mut self, id: PageId, from: State, to: State) -> &mut PageEntry {
        match (by_slot::chains(from), by_slot::chains(to)) {
            (false, true) => self.chain(id),
            (true, false) => self.unchain(id),
            _ => {}
        }
        let count = |state: State| state as usize % STATES;
        self.counts[count(from)] = self.counts[count(from)].wrapping_sub(1);
        self.counts[count(to)] = self.counts[count(to)].wrapping_add(1);
        let frames = |state: State| FRAMED >> state as usize & 1;
        self.framed = self.framed + frames(to) - frames(from);
        let slab = &mut self.slabs[id.0 as usize / SLAB_PAGES];
        let entry = &mut slab[id.0 as usize % SLAB_PAGES];
        if entry.state as u8 != from as u8 {
            forbidden(id, entry.state, to);
        }
        entry.state = to;
        if let Some(bits) = &mut self.bits {
            bits.follow(id, from, to);
        }
        entry
    }

    /// Pages in `state`; meaningless for `Untouched`.
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        self.counts[state as usize]
    }

    /// Pages that occupy a frame.
    #[must_use]
    pub const fn framed(&self) -> usize {
        self.framed
    }

    /// Whether all of `mask` is set.
    #[must_use]
    #[inline]
    pub fn has(&self, id: PageId, mask: u8) -> bool {
        self.entry(id).has(mask)
    }

    /// Sets or clears `mask`.
    #[inline]
    pub fn set_flag(&mut self, id: PageId, mask: u8, on: bool) {
        self.entry_mut(id).set_flag(mask, on);
    }

    /// The page's slot, or `SlotNo::NONE`.
    #[must_use]
    #[inline]
    pub fn slot(&self, id: PageId) -> SlotNo {
        self.entry(id).slot
    }

    /// Gives the page, which is not found by its slot now, a slot (or none).
    #[inline]
    pub fn set_slot(&mut self, id: PageId, slot: SlotNo) {
        debug_assert!(!by_slot::chains(self.state(id)));
        self.entry_mut(id).slot = slot;
    }

    /// The hash of the page's last known content.
    #[must_use]
    #[inline]
    pub fn hash(&self, id: PageId) -> ContentHash {
        self.entry(id).hash
    }

    /// Remembers the hash of the page's content.
    #[cfg(test)]
    pub(crate) fn set_hash(&mut self, id: PageId, hash: ContentHash) {
        self.entry_mut(id).hash = hash;
    }

    /// Calls `visit` for each page of `range` that has an entry, ascending within a leaf.
    ///
    /// Costs the smaller of the range's leaves and all leaves.
    pub fn collect_range(&self, range: PageRange, visit: &mut dyn FnMut(PageId)) {
        let (first, last) = (
            range.start.raw() >> LEAF_SHIFT,
            (range.start.raw() + (range.pages.max(1) - 1)) >> LEAF_SHIFT,
        );
        let mut in_leaf = |leaf: u32| {
            for offset in 0..LEAF_PAGES as u32 {
                let id = PageId(leaf << LEAF_SHIFT | offset);
                if self.state(id) != State::Untouched && range.contains(self.number(id)) {
                    visit(id);
                }
            }
        };
        if last - first < self.made as u64 {
            (first..=last)
                .filter_map(|base| self.directory.get(base))
                .for_each(&mut in_leaf);
        } else {
            let inside = |l: &Leaf| l.used > 0 && (first..=last).contains(&{ l.base });
            (0..self.made)
                .filter(|&l| inside(self.leaf(l)))
                .for_each(|l| in_leaf(l as u32));
        }
    }

    /// Bytes of heap that the table has written to; room for further leaves is not.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.made * (LEAF_PAGES * (size_of::<PageEntry>() + size_of::<Links>()) + size_of::<Leaf>())
            + self.free.capacity() * 4
            + self.directory.cells.len() * size_of::<(u64, u32)>()
            + self.bits.as_ref().map_or(0, Bits::heap_bytes)
            + self.by_slot.heap_bytes()
    }
}

#[cfg(test)]
mod tests;
