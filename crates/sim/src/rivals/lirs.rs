//! LIRS: frames go to the pages whose last two references lay close together.

use super::links::{Links, List};
use super::{Entry, Rival, Size};

pub(super) const ENTRY: Entry = Entry {
    name: "lirs",
    summary: "pages with a short distance between references stay; all others pass a small queue",
    source: "Jiang and Zhang, LIRS, SIGMETRICS 2002, section 3.3; Lhirs 1 % of the frames \
             (section 4)",
    build: |size| Box::new(Lirs::new(size)),
};

/// The stack S is bounded by the number of pages only, as in section 3.3: no limit is set on
/// the non-resident pages in it.
struct Lirs {
    /// The most pages with LIR status: the frames less `hirs`.
    lirs_max: u32,
    /// The frames of resident HIR pages: 1 % of all, at least one.
    hirs: u32,
    lirs: u32,
    stack_links: Links,
    /// S: its top is the end of the list, its bottom the first page.
    stack: List,
    queue_links: Links,
    /// Q: resident HIR pages, the next victim first.
    queue: List,
    pages: Vec<Page>,
}

#[derive(Clone, Copy, Default)]
struct Page {
    lir: bool,
    resident: bool,
    in_stack: bool,
}

impl Lirs {
    fn new(size: Size) -> Self {
        let hirs = (size.frames / 100).max(1);
        Self {
            lirs_max: size.frames - hirs,
            hirs,
            lirs: 0,
            stack_links: Links::new(size.pages),
            stack: List::EMPTY,
            queue_links: Links::new(size.pages),
            queue: List::EMPTY,
            pages: vec![Page::default(); size.pages as usize],
        }
    }

    /// Puts `page` on the top of S.
    fn raise(&mut self, page: u32) {
        if self.pages[page as usize].in_stack {
            self.stack.renew(&mut self.stack_links, page);
        } else {
            self.stack.push(&mut self.stack_links, page);
            self.pages[page as usize].in_stack = true;
        }
    }

    /// Stack pruning: HIR pages leave the bottom, so that a LIR page lies there.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.first()
            && !self.pages[bottom as usize].lir
        {
            self.stack.remove(&mut self.stack_links, bottom);
            self.pages[bottom as usize].in_stack = false;
        }
    }

    /// The page was referenced while it was in the stack as HIR: it trades places with the LIR
    /// page at the bottom.
    fn promote(&mut self, page: u32) {
        self.pages[page as usize].lir = true;
        let Some(bottom) = self.stack.pop(&mut self.stack_links) else {
            return;
        };
        let bottom_page = &mut self.pages[bottom as usize];
        bottom_page.lir = false;
        bottom_page.in_stack = false;
        self.queue.push(&mut self.queue_links, bottom);
        self.prune();
    }

    fn hit(&mut self, page: u32) {
        let Page { lir, in_stack, .. } = self.pages[page as usize];
        self.raise(page);
        match (lir, in_stack) {
            (true, _) => self.prune(),
            (false, true) => {
                self.queue.remove(&mut self.queue_links, page);
                self.promote(page);
            }
            (false, false) => {
                self.queue.renew(&mut self.queue_links, page);
                // Without LIR pages nothing keeps the stack up.
                if self.lirs_max == 0 {
                    self.prune();
                }
            }
        }
    }

    fn miss(&mut self, page: u32) {
        self.pages[page as usize].resident = true;
        if self.lirs < self.lirs_max {
            // At first all pages get LIR status, until their share is used up.
            self.lirs += 1;
            self.pages[page as usize].lir = true;
            self.raise(page);
            return;
        }
        if self.queue.len() == self.hirs
            && let Some(victim) = self.queue.pop(&mut self.queue_links)
        {
            self.pages[victim as usize].resident = false;
        }
        let in_stack = self.pages[page as usize].in_stack;
        self.raise(page);
        if in_stack {
            self.promote(page);
        } else {
            self.queue.push(&mut self.queue_links, page);
            if self.lirs_max == 0 {
                self.prune();
            }
        }
    }
}

impl Rival for Lirs {
    fn reference(&mut self, page: u32) -> bool {
        let resident = self.pages[page as usize].resident;
        if resident {
            self.hit(page);
        } else {
            self.miss(page);
        }
        resident
    }
}
