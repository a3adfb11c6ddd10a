//! Early eviction, for loops: what came last leaves first, as long as older pages are worth as much.
//!
//! A program that goes round in a circle larger than memory wants next the page that was away for the longest time, and after it the oldest
//! of those that are there. So what came last leaves first, and what stays is found there in each round. A page that is used again while
//! it is staged stays.
//!
//! EELRU evicts early while pages that left early would not have been used sooner than old ones. Here some victims are old pages in any case: of
//! these it is counted how many are touched, staged or after they left, and of those that left early how many are read back. Where old
//! pages are of less use, more of the victims are old.

use alloc::boxed::Box;

use super::marks::{Left, Marks};
use super::{Entry, Mapped, Policy, Reclaim};
use crate::page::{PageId, Pages, Queue};

pub(super) const ENTRY: Entry = Entry {
    name: "early",
    summary: "for loops larger than memory: the page that came last leaves first, unless it is used again at once",
    source: "Smaragdakis, Kaplan and Wilson, EELRU, SIGMETRICS 1999: early eviction",
    needs_referenced: false,
    settings: &[],
    build: |_| Policy::Driven(Box::new(Early::default())),
};

/// Of so many victims one is an old page, at most and at least. With fewer nothing is learned of them.
const OLD_MOST: u32 = 32;
const OLD_LEAST: u32 = 2;

/// Pages that were to leave, and how many of them were wanted again.
#[derive(Clone, Copy, Default)]
struct Account {
    left: u32,
    wanted: u32,
}

impl Account {
    fn halve(&mut self) {
        self.left /= 2;
        self.wanted /= 2;
    }

    /// Whether fewer than three quarters as many of its pages were wanted as of another's.
    fn below(self, other: Self) -> bool {
        let rate = |own: Self, against: Self| u64::from(own.wanted) * u64::from(against.left);
        4 * rate(self, other) < 3 * rate(other, self)
    }
}

/// The policy: `Active` has pages as they came, and gives them from its end; `Second` has those that were rescued.
pub(super) struct Early {
    /// One of so many victims is old.
    old: u32,
    /// Victims since the last old one.
    victims: u32,
    /// Whose turn it is to give an old page.
    rescued: bool,
    /// Of pages that came last, and of old ones.
    accounts: [Account; 2],
    marks: Marks,
}

impl Default for Early {
    fn default() -> Self {
        Self {
            old: OLD_MOST,
            victims: 0,
            rescued: false,
            accounts: [Account::default(); 2],
            marks: Marks::default(),
        }
    }
}

impl Early {
    /// The oldest page of a queue, of both by turns.
    fn oldest(&mut self, pages: &mut Pages) -> Option<PageId> {
        self.rescued = !self.rescued;
        let rescued = pages.head(Queue::Second);
        let came = pages.head(Queue::Active);
        let id = if self.rescued {
            rescued.or(came)
        } else {
            came.or(rescued)
        }?;
        pages.unqueue(id);
        self.marks.set_old(id);
        self.accounts[1].left += 1;
        Some(id)
    }

    /// A page is touched that was to leave, or left.
    fn wanted(&mut self, pages: &Pages, id: PageId, how: Mapped) {
        let from = match how {
            Mapped::Rescued => self.marks.take_old(id).then_some(Left::Second),
            _ => self.marks.recall_from(id, 2 * pages.framed()),
        };
        if let Some(from) = from {
            self.accounts[from as usize].wanted += 1;
        }
    }

    /// Sets the share of old victims, once there is enough to go by.
    fn learn(&mut self, pages: &Pages) {
        let [came, old] = self.accounts;
        if came.left as usize + old.left as usize <= pages.framed() / 8 || old.left < 8 {
            return;
        }
        self.old = match old.below(came) {
            true => (self.old / 2).max(OLD_LEAST),
            false => (self.old * 2).min(OLD_MOST),
        };
        self.accounts.iter_mut().for_each(Account::halve);
    }
}

impl Reclaim for Early {
    fn reserve(&mut self, ids: usize) {
        self.marks.reserve(ids);
    }

    fn heap_bytes(&self) -> usize {
        self.marks.heap_bytes()
    }

    fn marks(&mut self) -> Option<&mut Marks> {
        Some(&mut self.marks)
    }

    fn mapped(&mut self, pages: &mut Pages, id: PageId, how: Mapped) {
        match how {
            Mapped::Fresh => self.marks.forget(id),
            Mapped::PagedIn | Mapped::Rescued => self.wanted(pages, id, how),
            Mapped::Along | Mapped::Refused => {}
        }
        match how {
            Mapped::Fresh | Mapped::PagedIn | Mapped::Along => pages.push(Queue::Active, id),
            Mapped::Rescued | Mapped::Refused => pages.push(Queue::Second, id),
        }
    }

    fn victim(&mut self, pages: &mut Pages) -> Option<PageId> {
        self.victims += 1;
        if self.victims >= self.old {
            self.victims = 0;
            return self.oldest(pages);
        }
        let came = pages.last(Queue::Active);
        let id = came.or_else(|| pages.head(Queue::Second))?;
        pages.unqueue(id);
        Some(id)
    }

    fn left(&mut self, pages: &Pages, id: PageId) {
        if self.marks.take_old(id) {
            self.marks.leaves_from(id, Left::Second);
        } else {
            self.accounts[0].left += 1;
            self.marks.leaves_from(id, Left::First);
        }
        self.learn(pages);
    }
}
