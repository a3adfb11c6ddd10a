//! The memory of one client: its objects, and how their pages come and go.
//!
//! The third mechanism beside *move* and *write-protect*. A page that leaves is write-protected in the client and stays in the file, where it cannot change but through
//! what no pager sees (pins); it is written from the server's own mapping, and its release is a hole in the file, which takes it from every mapping. A page that
//! comes is read into the file, where a touch of it is a minor fault until it is mapped (`UFFDIO_CONTINUE`): nobody sees it half.
//! A read of a page that is write-protected is no fault, so a rescue is a write, or the first touch of what was read ahead.
//!
//! **What a client can do.** It can have the userfaultfd serve other memory than it said, write to the file behind its mapping, punch holes in it and change pages under
//! protection through pins. All of this changes what it reads back itself: such a page may be poisoned, for its content differs from what was written.
//! Calls that fail as they cannot for an honest client end the connection.

use outpage_core::contract::{PageList, PageOutcome, Refusal};
use outpage_core::units::{ObjectId, PAGE_BYTES, PageNo, PageRange};
use outpage_engine::hash::{Hasher, is_zero};
use outpage_store::{Frame, PageBits};
use outpage_sys::raw::{self, Errno};
use outpage_sys::uffd::{FaultKind, Message, Remote, Stop};

use crate::object::Object;

/// Why a client cannot be served any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fatal {
    /// Its process is gone.
    Gone,
    /// It did what no client of the library does.
    Violation(&'static str),
    /// The store is full, and nothing of its can leave.
    StoreFull,
    /// None of its pages can leave.
    NoVictims,
}

/// Calls that the kernel refuses because the client's mappings change, in a row, before the client counts as having them change for ever: the library has it told of no change, so
/// that there is nothing to wait for.
const CHANGES_MAX: u32 = 1000;

/// Objects and the userfaultfd that their faults come by.
pub struct Memory {
    uffd: Remote,
    /// By number; `None` for those destroyed.
    objects: Vec<Option<Object>>,
    /// What mapping woke since [`Self::forget_wakes`].
    woken: Vec<PageRange>,
    fatal: Option<Fatal>,
}

impl Memory {
    /// None yet.
    pub const fn new(uffd: Remote) -> Self {
        Self {
            uffd,
            objects: Vec::new(),
            woken: Vec::new(),
            fatal: None,
        }
    }

    /// Why the client cannot be served any more, if it cannot.
    pub const fn fatal(&self) -> Option<Fatal> {
        self.fatal
    }

    /// It cannot be served any more; the first reason counts.
    pub fn fail(&mut self, why: Fatal) {
        self.fatal.get_or_insert(why);
    }

    /// The number of its userfaultfd.
    pub const fn uffd(&self) -> i32 {
        self.uffd.fd()
    }

    /// Reads messages that wait. How many.
    pub fn read(&mut self, messages: &mut [Message]) -> usize {
        self.uffd.read(messages).unwrap_or_else(|_| {
            self.fail(Fatal::Violation("its userfaultfd cannot be read"));
            0
        })
    }

    /// All objects.
    pub fn objects(&mut self) -> impl Iterator<Item = &mut Object> {
        self.objects.iter_mut().flatten()
    }

    /// The object of this number.
    pub fn object(&mut self, number: u32) -> Option<&mut Object> {
        self.objects.get_mut(number as usize)?.as_mut()
    }

    /// How many objects there are, and pages of all of them.
    pub fn size(&self) -> (usize, u64) {
        let all = || self.objects.iter().flatten();
        (
            all().count(),
            all().map(|object| object.range().pages).sum(),
        )
    }

    /// Frames that the files have.
    pub fn frames(&self) -> u64 {
        self.objects.iter().flatten().map(Object::frames).sum()
    }

    /// A new object.
    ///
    /// # Errors
    /// Those of [`Object::create`].
    pub fn create(&mut self, pages: u64) -> Result<u32, Errno> {
        let free = self.objects.iter().position(Option::is_none);
        let number = free.unwrap_or(self.objects.len());
        let object = Object::create(ObjectId(number as u32), pages)?;
        if number == self.objects.len() {
            self.objects.push(None);
        }
        self.objects[number] = Some(object);
        Ok(number as u32)
    }

    /// Destroys an object, of which nothing is under way.
    pub fn destroy(&mut self, number: u32) {
        if let Some(mut object) = self.objects[number as usize].take() {
            object.punch(0, object.range().pages);
        }
    }

    /// Whether `start..end` overlaps an object that is mapped.
    pub fn is_taken(&self, start: usize, end: usize) -> bool {
        let mut spans = self.objects.iter().flatten().filter_map(Object::span);
        spans.any(|(from, to)| start < to && from < end)
    }

    /// The page at an address of the client's, and all pages of its object.
    pub fn find(&self, address: usize) -> Option<(PageNo, PageRange)> {
        let holds = |object: &&Object| {
            let span = object.span();
            span.is_some_and(|(start, end)| (start..end).contains(&address))
        };
        let object = self.objects.iter().flatten().find(holds)?;
        let index = (address - object.span()?.0) / PAGE_BYTES;
        let all = object.range();
        Some((all.start.checked_add(index as u64)?, all))
    }

    /// The object of `run` and where the client has its first page.
    fn place(&mut self, run: PageRange) -> Option<(&mut Object, usize)> {
        let object = self.object(run.start.object().0)?;
        let address = object.client_address(run.start.index())?;
        Some((object, address))
    }

    /// What a call that stopped says of the page that it stopped at; `None` to make it again.
    fn refusal(&mut self, stop: Stop, changes: &mut u32) -> Option<PageOutcome> {
        match stop {
            Stop::Again if *changes < CHANGES_MAX => {
                *changes += 1;
                raw::yield_now();
                return None;
            }
            Stop::Exists => return Some(PageOutcome::Refused(Refusal::Present)),
            Stop::Gone => self.fail(Fatal::Gone),
            // The touch comes again, and with it another try.
            Stop::NoMemory => {}
            // The client unmaps an object before it has it destroyed: nobody touches it there any more.
            Stop::NoSource => {}
            _ => self.fail(Fatal::Violation(
                "its mapping is gone, or not the one that it said",
            )),
        }
        Some(PageOutcome::Refused(Refusal::Gone))
    }

    /// Maps zeroes at `run`, of which the files have nothing.
    pub fn zero(&mut self, run: PageRange, out: &mut Vec<PageOutcome>) {
        let Some((_, address)) = self.place(run) else {
            out.extend((0..run.pages).map(|_| PageOutcome::Refused(Refusal::Gone)));
            return;
        };
        let (pages, mut changes) = (run.pages as usize, 0);
        let end = out.len() + pages;
        while out.len() < end {
            let at = address + (pages - (end - out.len())) * PAGE_BYTES;
            let outcome = self.uffd.zero(at, (end - out.len()) * PAGE_BYTES);
            out.extend((0..outcome.bytes / PAGE_BYTES).map(|_| PageOutcome::Done));
            let Some(stop) = outcome.stop.filter(|_| outcome.bytes == 0) else {
                continue;
            };
            if let Some(refused) = self.refusal(stop, &mut changes) {
                // What the client put into the file itself is mapped as it is.
                let _ = self.uffd.map(at, PAGE_BYTES);
                out.push(refused);
            }
        }
        self.woken.push(run);
    }

    /// Has the client read and write the staged pages of `run`.
    pub fn map(&mut self, run: PageRange, out: &mut Vec<PageOutcome>) {
        let (mut at, end) = (run.start.index(), run.start.index() + run.pages);
        while at < end {
            let first = PageNo::new(run.start.object(), at);
            let Some((object, address)) = self.place(PageRange::one(first)) else {
                out.push(PageOutcome::Refused(Refusal::Gone));
                at += 1;
                continue;
            };
            let outside = object.is_outside(at);
            let alike = |&i: &u64| object.is_outside(i) == outside;
            let pages = (at..end).take_while(alike).count() as u64;
            if outside {
                (at..at + pages).for_each(|i| object.set_outside(i, false));
                self.map_outside(address, PageRange::new(first, pages), out);
            } else {
                let outcome = self.protect(address, pages, false);
                out.extend((0..pages).map(|_| outcome));
            }
            at += pages;
        }
        self.woken.push(run);
    }

    fn map_outside(&mut self, address: usize, run: PageRange, out: &mut Vec<PageOutcome>) {
        let (mut done, mut changes) = (0, 0);
        while done < run.pages as usize {
            let at = address + done * PAGE_BYTES;
            let outcome = self.uffd.map(at, (run.pages as usize - done) * PAGE_BYTES);
            out.extend((0..outcome.bytes / PAGE_BYTES).map(|_| PageOutcome::Done));
            done += outcome.bytes / PAGE_BYTES;
            let Some(stop) = outcome.stop.filter(|_| outcome.bytes == 0) else {
                continue;
            };
            if stop == Stop::Other(Errno::EFAULT) {
                // The client punched a hole there: it reads zeroes, as it would without a server.
                let page = PageNo::from_raw(run.start.raw() + done as u64);
                self.zero(PageRange::one(page), out);
                done += 1;
            } else if let Some(refused) = self.refusal(stop, &mut changes) {
                let _ = self.uffd.write_protect(at, PAGE_BYTES, false);
                out.push(refused);
                done += 1;
            }
        }
    }

    /// Sets or takes off the protection of `pages` pages, all of them or none.
    fn protect(&mut self, address: usize, pages: u64, on: bool) -> PageOutcome {
        let mut changes = 0;
        loop {
            let outcome = self
                .uffd
                .write_protect(address, pages as usize * PAGE_BYTES, on);
            let Some(stop) = outcome.stop else {
                return PageOutcome::Done;
            };
            // No page tables are left through which it could be written: it leaves as it is, until the object is destroyed.
            if on && stop == Stop::NoSource {
                return PageOutcome::Done;
            }
            if let Some(refused) = self.refusal(stop, &mut changes) {
                return refused;
            }
        }
    }

    /// Has the pages of `run` change no more, and says what is in them.
    pub fn detach(&mut self, hasher: Hasher, run: PageRange, out: &mut Vec<PageOutcome>) {
        let every = |outcome| (0..run.pages).map(move |_| outcome);
        let Some((_, address)) = self.place(run) else {
            return out.extend(every(PageOutcome::Refused(Refusal::Absent)));
        };
        if self.protect(address, run.pages, true) != PageOutcome::Done {
            return out.extend(every(PageOutcome::Refused(Refusal::Busy)));
        }
        let Some((object, _)) = self.place(run) else {
            return;
        };
        let mut content = [0; PAGE_BYTES];
        for page in run.iter() {
            object.copy_page(page.index(), &mut content);
            out.push(PageOutcome::Detached {
                hash: hasher.page(&content),
                zero: is_zero(&content),
            });
        }
    }

    /// Punches holes where `pages` are.
    pub fn release(&mut self, pages: &[PageNo]) {
        for run in runs(pages) {
            if let Some(object) = self.object(run[0].object().0) {
                object.punch(run[0].index(), run.len() as u64);
            }
        }
    }

    /// Has whoever touches the page, which was lost, get a signal.
    pub fn poison(&mut self, page: PageNo) {
        let Some((object, address)) = self.place(PageRange::one(page)) else {
            return;
        };
        object.punch(page.index(), 1);
        match self.uffd.poison(address).stop {
            None | Some(Stop::Exists | Stop::NoSource) => {}
            Some(Stop::Gone) => self.fail(Fatal::Gone),
            Some(_) => self.fail(Fatal::Violation("its page was lost, and cannot be told so")),
        }
    }

    /// What was woken before may wait again.
    pub fn forget_wakes(&mut self) {
        self.woken.clear();
    }

    /// Lets whoever waits for the page go on, unless mapping it just did.
    pub fn wake(&mut self, page: PageNo) {
        if self.woken.iter().any(|run| run.contains(page)) {
            return;
        }
        if let Some((_, address)) = self.place(PageRange::one(page)) {
            self.wake_at(address);
        }
    }

    /// Lets whoever waits at an address go on.
    pub fn wake_at(&self, address: usize) {
        let _ = self.uffd.wake(address, PAGE_BYTES);
    }

    /// A touch of a page that the client has, as far as the pager knows: the message is old, or the client threw its own mapping of the page away, or the page.
    pub fn restore(&mut self, page: PageNo, address: usize, kind: FaultKind) {
        if kind == FaultKind::WriteProtect {
            let _ = self.uffd.write_protect(address, PAGE_BYTES, false);
            return;
        }
        let mapped = self.uffd.map(address, PAGE_BYTES).stop;
        if mapped == Some(Stop::Other(Errno::EFAULT)) {
            let mut outcomes = Vec::new();
            self.zero(PageRange::one(page), &mut outcomes);
        }
        self.wake_at(address);
    }

    /// Frames for pages that are read; false, and none, where there is no RAM for all.
    pub fn allocate(&mut self, pages: &[PageNo]) -> bool {
        for run in runs(pages) {
            let object = self.object(run[0].object().0);
            let made = object
                .is_some_and(|object| object.allocate(run[0].index(), run.len() as u64).is_ok());
            if !made {
                self.release(pages);
                return false;
            }
        }
        true
    }

    /// The frames of pages, as memory of transfers.
    ///
    /// # Panics
    /// When there is no such object: one with transfers is not destroyed.
    pub fn frames_of(&self, pages: &[PageNo]) -> Vec<Frame> {
        let frame = |&page: &PageNo| {
            let object = self.objects[page.object().0 as usize].as_ref();
            object.expect("an object of a transfer").frame(page.index())
        };
        pages.iter().map(frame).collect()
    }

    /// Keeps the pages that were read and are what was written, for the client to be mapped; the frames of others are free.
    pub fn stage_intact(
        &mut self,
        hasher: Hasher,
        pages: &PageList,
        failed: &PageBits,
        out: &mut Vec<PageOutcome>,
    ) {
        let mut content = [0; PAGE_BYTES];
        for (i, (&page, &hash)) in (0..).zip(pages.iter().zip(pages.hashes())) {
            let object = self.object(page.object().0);
            let object = object.expect("an object of a transfer");
            let refused = if failed.contains(i) {
                Some(Refusal::Unread)
            } else {
                object.copy_page(page.index(), &mut content);
                (hasher.page(&content) != hash).then_some(Refusal::Damaged)
            };
            out.push(if let Some(why) = refused {
                object.punch(page.index(), 1);
                PageOutcome::Refused(why)
            } else {
                object.set_outside(page.index(), true);
                PageOutcome::Done
            });
        }
    }
}

/// Pages that are neighbours, in their order.
fn runs(pages: &[PageNo]) -> impl Iterator<Item = &[PageNo]> {
    pages.chunk_by(|a, b| a.raw() + 1 == b.raw())
}
