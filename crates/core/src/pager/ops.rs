//! The unanswered actions.

use alloc::vec::Vec;
use core::mem;
use core::ops::{Index, IndexMut};

use crate::contract::ActionId;
use crate::page::PageId;
use crate::units::{Nanos, PageNo, PageRange, SlotNo, SlotRange};

/// What lists begin with: the largest window that is set by default.
const LIST_PAGES: usize = 128;

/// One unanswered action.
pub(super) struct Op {
    pub(super) kind: Kind,
    pub(super) run: PageRange,
    pub(super) slots: SlotRange,
    pub(super) pages: Vec<PageNo>,
    /// The same pages, so that nothing has to find them again. Nobody forgets a page that an action touches.
    pub(super) ids: Vec<PageId>,
    /// Times that this was tried before.
    pub(super) tries: u8,
    /// When it began.
    pub(super) began: Nanos,
}

impl Op {
    /// One of the pages.
    pub(super) fn page(&self, at: usize) -> (PageId, PageNo) {
        (self.ids[at], self.pages[at])
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Free,
    ZeroFill,
    Map,
    Detach,
    PageIn,
    PageOut,
    Release,
    Poison,
}

impl Kind {
    /// Whether such an action has a list of pages; the others are about a run.
    const fn lists(self) -> bool {
        matches!(self, Self::PageIn | Self::PageOut | Self::Release)
    }
}

/// The unanswered actions by number. A program of scattered accesses has hundreds of them at a time, nearly all
/// about a run: only those that need a list have one.
pub(super) struct Ops {
    all: Vec<Op>,
    free: Vec<u32>,
    lists: Vec<(Vec<PageNo>, Vec<PageId>)>,
    unanswered: usize,
}

impl Ops {
    /// None; room for 64 before anything is allocated.
    pub(super) fn new() -> Self {
        Self {
            all: Vec::with_capacity(64),
            free: Vec::with_capacity(64),
            lists: Vec::with_capacity(16),
            unanswered: 0,
        }
    }

    pub(super) const fn unanswered(&self) -> usize {
        self.unanswered
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
        if kind.lists() {
            (op.pages, op.ids) = self.lists.pop().unwrap_or_else(list);
        }
        ActionId(index)
    }

    #[inline]
    pub(super) fn finish(&mut self, id: ActionId) {
        let op = &mut self[id];
        let lists = op.kind.lists();
        op.kind = Kind::Free;
        if lists {
            let mut list = (mem::take(&mut op.pages), mem::take(&mut op.ids));
            list.0.clear();
            list.1.clear();
            self.lists.push(list);
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
            pages: Vec::new(),
            ids: Vec::new(),
            tries: 0,
            began: Nanos(0),
        });
        self.all.len() as u32 - 1
    }
}

#[cold]
fn list() -> (Vec<PageNo>, Vec<PageId>) {
    (
        Vec::with_capacity(LIST_PAGES),
        Vec::with_capacity(LIST_PAGES),
    )
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
