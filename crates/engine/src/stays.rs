//! Pages that the kernel does not give up though they were to leave.
//!
//! Under write-protect a page leaves by `MADV_DONTNEED`, which the kernel refuses for memory that was locked, or sealed and
//! read-only, behind the hooks' back. Only then is it known, and the pager counts the page as paged out already. It is told of the
//! page anew, and the range holds no victims until less memory is locked than then.

use outpage_core::contract::Event;
use outpage_core::page::State;
use outpage_core::units::{PAGE_BYTES, PageNo};
use outpage_sys::proc;

use crate::live::Live;
use crate::world::World;

/// As many as one round of releases has, and some more; beyond that it grows.
const PAGES_MAX: usize = 1024;

/// Why a page stayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// It was found where it should not be.
    Found,
    /// The kernel refused to release it.
    Refused,
    /// The same, but had told before that it is being thrown away: if not for ourselves, then for the program.
    RefusedLate,
}

/// What stayed, and is to be told of.
pub(crate) struct Stays {
    pages: Vec<(PageNo, Why)>,
    /// The pager is being told. What stays in the course of it is told of next, for each may bring others with it.
    telling: bool,
    /// Memory that was locked when a range was last found to hold no victims; `None` where there is no such range.
    locked_bytes: Option<u64>,
}

impl Stays {
    pub(crate) fn new() -> Self {
        Self {
            pages: Vec::with_capacity(PAGES_MAX),
            telling: false,
            locked_bytes: None,
        }
    }
}

impl World {
    /// The page may be in the program, whatever the pager was told.
    pub(crate) fn stayed(&mut self, page: PageNo, why: Why) {
        self.stays.pages.push((page, why));
    }

    /// The pages leave again: what is known of how they stayed before is of no use.
    pub(crate) fn leave_again(&mut self, pages: &[PageNo]) {
        if !self.stays.pages.is_empty() {
            self.stays.pages.retain(|(page, _)| !pages.contains(page));
        }
    }

    pub(crate) fn any_stayed(&self) -> bool {
        !self.stays.telling && !self.stays.pages.is_empty()
    }

    /// Where the page is, if it is in the program.
    fn present_at(&self, page: PageNo) -> Option<usize> {
        let (address, _) = self.space.address(page)?;
        let empty = self.door.is_empty(address).ok()?;
        (!empty).then_some(address)
    }
}

impl Live {
    /// Tells the pager of the pages that stayed: they are in the program, as they are now. While mappings change it is not certain
    /// where, and all of it waits for the next time.
    pub(crate) fn keep_what_stayed(&mut self) {
        self.world.stays.telling = true;
        while !self.world.is_changing() {
            let Some((page, why)) = self.world.stays.pages.pop() else {
                break;
            };
            match (self.world.present_at(page), why) {
                (Some(address), _) => self.keep_page(page, address, why),
                (None, Why::RefusedLate) => self.thrown_away(page),
                // One that is not there was never refused: its mapping moved or went meanwhile.
                (None, _) => {}
            }
        }
        self.world.stays.telling = false;
    }

    /// The program threw the page away at the moment at which it was to leave.
    fn thrown_away(&mut self, page: PageNo) {
        if let Some((address, _)) = self.world.space.address(page) {
            self.drop_contents(address, address + PAGE_BYTES, Event::Discard);
        }
    }

    fn keep_page(&mut self, page: PageNo, address: usize, why: Why) {
        let end = address + PAGE_BYTES;
        let known = self.world.space.at(address).is_some_and(|r| r.stays);
        if why != Why::Found && !known {
            (self.world.space).change(address, PAGE_BYTES, |r| r.stays = true);
            self.world.stays.locked_bytes = Some(proc::locked_bytes().unwrap_or(0));
        }
        // Without a word to the kernel: the content stays, and is that of a page that was never paged out.
        self.drop_contents(address, end, Event::Discard);
        self.world.may_be_written(address);
        self.adopt(address, end);
        if self.pager.state(page) == State::Untouched && self.world.is_changing() {
            // It moved at this moment, and is adopted where it is.
            self.world.stayed(page, why);
        }
    }

    /// When memory was unlocked, it may have been what stayed: it is tried again.
    pub(crate) fn let_unlocked_leave(&mut self) {
        let Some(before) = self.world.stays.locked_bytes else {
            return;
        };
        let Ok(now) = proc::locked_bytes() else {
            return;
        };
        if now < before {
            self.world.stays.locked_bytes = None;
            (self.world.space).change(0, usize::MAX & !(PAGE_BYTES - 1), |r| r.stays = false);
        } else {
            // More may be locked since, and less again before the next look.
            self.world.stays.locked_bytes = Some(now);
        }
    }
}
