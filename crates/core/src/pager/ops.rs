//! The unanswered actions.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use core::ops::{Index, IndexMut};

use crate::contract::{Action, ActionId, PageList};
use crate::page::{ContentHash, PageId};
use crate::units::{Nanos, PageNo, PageRange, SlotNo, SlotRange};

/// What lists of transfers with the store begin with: the largest window that is set by default.
const STORE_PAGES: usize = 128;
/// What other lists begin with. What goes to the pool and out of it are single pages or a few neighbours, in dozens of actions at a time; a list
/// that has grown stays so.
const FEW_PAGES: usize = 8;

/// One unanswered action.
pub(super) struct Op {
    pub(super) kind: Kind,
    pub(super) run: PageRange,
    pub(super) slots: SlotRange,
    /// Of an action that has them.
    lists: Option<Box<Lists>>,
    /// Times that this was tried before.
    pub(super) tries: u8,
    /// When it began.
    pub(super) began: Nanos,
}

/// The pages of an action.
#[derive(Default)]
pub(super) struct Lists {
    /// While they are gathered.
    pages: Vec<PageNo>,
    hashes: Vec<ContentHash>,
    /// What the action carries, from then on.
    told: PageList,
    /// The same pages, so that nothing has to find them again. Nobody forgets a page that an action touches.
    pub(super) ids: Vec<PageId>,
}

impl Op {
    fn lists(&self) -> &Lists {
        self.lists.as_ref().expect("an action with pages")
    }

    /// Where the pages are gathered.
    fn gathered(&mut self) -> &mut Lists {
        self.lists.as_mut().expect("an action with pages")
    }

    /// The action is about this page, too.
    pub(super) fn add(&mut self, id: PageId, page: PageNo) {
        let lists = self.gathered();
        lists.pages.push(page);
        lists.ids.push(id);
    }

    /// Its content must have this hash.
    pub(super) fn must_have(&mut self, hash: ContentHash) {
        self.gathered().hashes.push(hash);
    }

    /// The pages of an action that was handed out.
    pub(super) fn pages(&self) -> &PageList {
        &self.lists().told
    }

    /// The ids, to be given back by [`Self::return_ids`].
    pub(super) fn lend_ids(&mut self) -> Vec<PageId> {
        mem::take(&mut self.gathered().ids)
    }

    pub(super) fn return_ids(&mut self, ids: Vec<PageId>) {
        self.gathered().ids = ids;
    }

    /// How many pages it has.
    pub(super) fn count(&self) -> usize {
        self.lists.as_ref().map_or(0, |lists| lists.ids.len())
    }

    /// One of the pages.
    pub(super) fn page(&self, at: usize) -> (PageId, PageNo) {
        let lists = self.lists();
        (lists.ids[at], lists.told[at])
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Free,
    ZeroFill,
    Map,
    /// A map of what is needed soon.
    MapNeeded,
    Detach,
    /// A detach of discardable pages that are to be dropped.
    Flush,
    /// A detach of pages that leave before others.
    Cold,
    /// Of freed pages, unless they were written.
    Drop,
    PageIn,
    /// A page-in of what is needed soon: all of it is mapped.
    Needed,
    PageOut,
    Compress,
    Decompress,
    /// A decompression of what is to go to the store.
    Demote,
    Release,
    Dead,
    /// Places of the pool are dead whose pages the store has, so that the pool makes way.
    Cede,
    Poison,
}

impl Kind {
    /// Where the lists of such an action come from; the others are about a run.
    const fn shelf(self) -> Option<Shelf> {
        match self {
            Self::PageIn | Self::Needed | Self::PageOut => Some(Shelf::Store),
            Self::Compress | Self::Decompress | Self::Demote => Some(Shelf::Pool),
            Self::Release => Some(Shelf::Release),
            _ => None,
        }
    }
}

/// Lists that were made for one kind of action and are used again for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shelf {
    Store,
    Pool,
    Release,
}

impl Shelf {
    const COUNT: usize = 3;

    /// Pages that there is room for from the start.
    const fn pages(self) -> usize {
        match self {
            Self::Store => STORE_PAGES,
            Self::Pool | Self::Release => FEW_PAGES,
        }
    }

    /// Whether there is a hash for each page.
    const fn hashed(self) -> bool {
        !matches!(self, Self::Release)
    }
}

/// The unanswered actions by number. A program of scattered accesses has hundreds of them at a time, nearly all
/// about a run: only those that need a list have one.
pub(super) struct Ops {
    all: Vec<Op>,
    free: Vec<u32>,
    /// Lists to be used again, by [`Shelf`].
    #[expect(clippy::vec_box, reason = "an action takes the box, and gives it back")]
    spare: [Vec<Box<Lists>>; Shelf::COUNT],
    unanswered: usize,
    /// The last release, as long as it is unanswered: what takes frames waits for it.
    last_release: Option<ActionId>,
    /// The last that told slots dead, as long as it is unanswered: what writes to slots waits for it.
    last_dead: Option<ActionId>,
    /// Those that are unanswered and of which no frame could come.
    dead: usize,
}

impl Ops {
    /// None; room for 64 before anything is allocated.
    pub(super) fn new() -> Self {
        Self {
            all: Vec::with_capacity(64),
            free: Vec::with_capacity(64),
            spare: core::array::from_fn(|_| Vec::with_capacity(16)),
            unanswered: 0,
            last_release: None,
            last_dead: None,
            dead: 0,
        }
    }

    pub(super) const fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Whether none is under way that a page or a frame could come of.
    pub(super) const fn at_rest(&self) -> bool {
        self.unanswered == self.dead
    }

    /// All places, those without an action too, whose kind is [`Kind::Free`].
    pub(super) fn iter(&self) -> impl Iterator<Item = &Op> {
        self.all.iter()
    }

    /// The numbers of those that have an action for which `wanted` holds.
    #[cfg(test)]
    pub(super) fn of(&self, wanted: impl Fn(Kind) -> bool) -> Vec<ActionId> {
        (0..self.all.len() as u32)
            .map(ActionId)
            .filter(|&id| wanted(self[id].kind))
            .collect()
    }

    /// The place of that number, if there is one.
    pub(super) fn get(&self, id: ActionId) -> Option<&Op> {
        self.all.get(id.0 as usize)
    }

    #[inline]
    pub(super) fn start(&mut self, kind: Kind, run: PageRange, now: Nanos) -> ActionId {
        self.unanswered += 1;
        let index = self.free.pop().unwrap_or_else(|| self.add());
        let op = &mut self.all[index as usize];
        (op.kind, op.run, op.tries, op.began) = (kind, run, 0, now);
        if let Some(shelf) = kind.shelf() {
            let mut lists = self.spare[shelf as usize].pop().unwrap_or_default();
            lists.ids.clear();
            lists.ids.reserve(shelf.pages());
            (lists.pages, lists.hashes) = lists.told.take(shelf.pages(), shelf.hashed());
            op.lists = Some(lists);
        }
        ActionId(index)
    }

    /// The pages of the action are complete: what it carries.
    pub(super) fn told(&mut self, id: ActionId) -> PageList {
        let lists = self[id].gathered();
        let (pages, hashes) = (mem::take(&mut lists.pages), mem::take(&mut lists.hashes));
        lists.told.put(pages, hashes);
        lists.told.clone()
    }

    /// The release that whatever takes frames has to wait for.
    pub(super) const fn release(&self) -> Option<ActionId> {
        self.last_release
    }

    /// The pages of a release are complete.
    pub(super) fn releases(&mut self, id: ActionId) -> Action {
        let after = self.last_release.replace(id);
        let pages = self.told(id);
        Action::Release { id, pages, after }
    }

    /// The action that whatever writes to slots has to wait for.
    pub(super) const fn dead(&self) -> Option<ActionId> {
        self.last_dead
    }

    /// Tells that `slots` are dead.
    pub(super) fn tells_dead(&mut self, id: ActionId, slots: SlotRange) -> Action {
        self.all[id.0 as usize].slots = slots;
        let after = self.last_dead.replace(id);
        self.dead += usize::from(self[id].kind == Kind::Dead);
        Action::Dead { id, slots, after }
    }

    #[inline]
    pub(super) fn finish(&mut self, id: ActionId) {
        let op = &mut self.all[id.0 as usize];
        let kind = mem::replace(&mut op.kind, Kind::Free);
        if let (Some(lists), Some(shelf)) = (op.lists.take(), kind.shelf()) {
            self.spare[shelf as usize].push(lists);
        }
        if self.last_release == Some(id) {
            self.last_release = None;
        }
        if matches!(kind, Kind::Dead | Kind::Cede) {
            self.dead -= usize::from(kind == Kind::Dead);
            self.last_dead = self.last_dead.filter(|&last| last != id);
        }
        self.free.push(id.0);
        self.unanswered -= 1;
    }

    #[cold]
    fn add(&mut self) -> u32 {
        self.all.push(Op {
            kind: Kind::Free,
            run: PageRange::new(PageNo::from_raw(0), 0),
            slots: SlotRange::new(SlotNo(0), 0),
            lists: None,
            tries: 0,
            began: Nanos(0),
        });
        self.all.len() as u32 - 1
    }
}

impl Index<ActionId> for Ops {
    type Output = Op;

    fn index(&self, id: ActionId) -> &Op {
        &self.all[id.0 as usize]
    }
}

impl IndexMut<ActionId> for Ops {
    fn index_mut(&mut self, id: ActionId) -> &mut Op {
        &mut self.all[id.0 as usize]
    }
}
