//! Shared memory that is managed: which pages of it are mapped, and the pager's own mapping of them.
//!
//! The pages belong to a file that has no name. What the program unmaps of it stays there as long as anybody maps the file, and the view does:
//! so it is punched out, and the view ends with the last of the program's mappings.

use outpage_core::units::{PAGE_BYTES, PageNo, PageRange};
use outpage_sys::raw::Errno;
use outpage_sys::view::View;

/// Which view a region has: [`Views::at`]. 0 for private memory.
pub(crate) type ViewNumber = u32;

/// Shared memory that was mapped by one call.
pub(crate) struct Shared {
    view: View,
    /// The page at the view's beginning.
    first: PageNo,
    /// Pages of it that the program has mapped.
    mapped: u64,
    /// Pages of it that have a frame, as far as they were counted. Those that the program emptied unseen are found at their next touch.
    frames: u64,
}

impl Shared {
    fn offset(&self, page: PageNo) -> usize {
        (page.raw() - self.first.raw()) as usize * PAGE_BYTES
    }

    /// Has `run`, all of which is there, be copied without a fault.
    pub(crate) fn open(&self, run: PageRange) {
        let len = run.pages as usize * PAGE_BYTES;
        self.view.open(self.offset(run.start), len);
    }

    /// Ends that: `run` stays.
    pub(crate) fn close(&self, run: PageRange) {
        let len = run.pages as usize * PAGE_BYTES;
        self.view.close(self.offset(run.start), len);
    }

    /// Copies `page`, which is there.
    pub(crate) fn copy(&self, page: PageNo, to: &mut [u8]) {
        let to = to.first_chunk_mut().expect("a page");
        self.view.copy_page(self.offset(page), to);
    }

    /// Whether each page from `first` on is there.
    pub(crate) fn there(&self, first: PageNo, out: &mut [bool]) -> Result<(), Errno> {
        self.view.there(self.offset(first), out)
    }

    /// Takes the pages of `run` from the program; `there` of them have a frame.
    pub(crate) fn punch(&mut self, run: PageRange, there: u64) -> Result<(), Errno> {
        let len = run.pages as usize * PAGE_BYTES;
        self.view.punch(self.offset(run.start), len)?;
        self.frames = self.frames.saturating_sub(there);
        Ok(())
    }

    /// So many pages more have a frame.
    pub(crate) fn filled(&mut self, pages: u64) {
        self.frames += pages;
    }

    /// A page that counted had no frame.
    pub(crate) fn found_empty(&mut self) {
        self.frames = self.frames.saturating_sub(1);
    }

    /// How many pages of `run` have a frame.
    fn count(&self, run: PageRange) -> u64 {
        const LOOK_PAGES: u64 = 512;
        let (mut count, mut at) = (0, run.start.raw());
        let end = at + run.pages;
        while at < end {
            let mut there = [false; LOOK_PAGES as usize];
            let pages = (end - at).min(LOOK_PAGES);
            let there = &mut there[..pages as usize];
            if self.there(PageNo::from_raw(at), there).is_ok() {
                count += there.iter().filter(|&&there| there).count() as u64;
            }
            at += pages;
        }
        count
    }
}

/// All views.
#[derive(Default)]
pub(crate) struct Views {
    /// By number less 1.
    all: Vec<Option<Shared>>,
}

impl Views {
    /// `view` shows `pages`, all of which are mapped.
    pub(crate) fn add(&mut self, view: View, pages: PageRange) -> ViewNumber {
        let free = self.all.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.all[index] = Some(Shared {
            view,
            first: pages.start,
            mapped: pages.pages,
            frames: 0,
        });
        index as ViewNumber + 1
    }

    /// The view of this number.
    ///
    /// # Panics
    /// When a region has it that has none.
    pub(crate) fn at(&mut self, number: ViewNumber) -> &mut Shared {
        let index = number as usize - 1;
        self.all[index].as_mut().expect("a region has this view")
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.iter().all(Option::is_none)
    }

    /// Empties `run`, which stays mapped.
    ///
    /// # Errors
    /// Those of [`View::punch`].
    pub(crate) fn empty(&mut self, number: ViewNumber, run: PageRange) -> Result<(), Errno> {
        let shared = self.at(number);
        let there = shared.count(run);
        shared.punch(run, there)
    }

    /// The program has unmapped `run`, which nobody wants any more. The view ends when nothing of it is mapped.
    pub(crate) fn unmapped(&mut self, number: ViewNumber, run: PageRange) {
        let shared = self.at(number);
        let there = shared.count(run);
        // A file that cannot be punched keeps its pages until all of it is unmapped.
        let _ = shared.punch(run, there);
        self.forget(number, run.pages);
    }

    /// So many pages are the program's alone from now on.
    pub(crate) fn given_back(&mut self, number: ViewNumber, run: PageRange) {
        let shared = self.at(number);
        shared.frames = shared.frames.saturating_sub(shared.count(run));
        self.forget(number, run.pages);
    }

    fn forget(&mut self, number: ViewNumber, pages: u64) {
        let shared = self.at(number);
        shared.mapped -= pages;
        if shared.mapped == 0 {
            self.all[number as usize - 1] = None;
        }
    }

    /// Frames of all.
    pub(crate) fn frames(&self) -> u64 {
        self.all.iter().flatten().map(|shared| shared.frames).sum()
    }
}
