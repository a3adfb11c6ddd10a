//! What the kernel tests share.

#![allow(dead_code, reason = "each test file uses a part of it")]

use outpage_core::units::PAGE_BYTES;
use outpage_sys::fd;
use outpage_sys::map::{self, Area};
use outpage_sys::own::Fork;
use outpage_sys::pagemap::Pagemap;
use outpage_sys::say;
use outpage_sys::uffd::{Fault, Features, Mode, MoveMode, MoveOutcome, Uffd, Wanted};

/// Says that a test cannot run here, past the test runner, which hides what passing tests print.
pub fn skipped(why: &str) {
    say::say(&["SKIPPED: ", why]);
}

/// A userfaultfd with `required` features, or `None` after saying loudly what is missing.
pub fn uffd(required: Features) -> Option<Uffd> {
    let optional = Features::THREAD_ID.plus(Features::EXACT_ADDRESS);
    match Uffd::open(&Wanted {
        inherited: None,
        required,
        optional,
    }) {
        Ok(uffd) => Some(uffd),
        Err(error) => {
            skipped(&error.to_string());
            None
        }
    }
}

/// An area of `pages` pages.
pub fn area(pages: usize) -> Area {
    Area::new(pages * PAGE_BYTES, Fork::Inherited).unwrap()
}

/// Reads the first byte of a page through a volatile access, so that it happens.
pub fn peek(address: usize) -> u8 {
    // SAFETY: callers pass addresses inside areas that they keep alive.
    unsafe { (address as *const u8).read_volatile() }
}

/// Writes the first byte of a page.
pub fn poke(address: usize, value: u8) {
    // SAFETY: as above; no reference to the area exists meanwhile.
    unsafe { (address as *mut u8).write_volatile(value) }
}

/// Waits for the next message, which must be a fault.
pub fn next_fault(uffd: &Uffd) -> Fault {
    loop {
        let mut fds = [fd::PollFd {
            fd: uffd.fd(),
            events: fd::READABLE,
            revents: 0,
        }];
        fd::poll(&mut fds, None).unwrap();
        uffd.gather().unwrap();
        assert_eq!(uffd.next_change(), None, "not a fault");
        if let Some(fault) = uffd.next_fault() {
            assert_eq!(uffd.next_fault(), None, "one fault was expected");
            return fault;
        }
    }
}

/// The program's range and the pager's frames, as large, and what moves pages between them.
pub struct World {
    pub uffd: Uffd,
    pub pagemap: Pagemap,
    pub program: Area,
    pub frames: Area,
}

impl World {
    /// `pages` pages on each side, none of them there; `None` where the kernel cannot move.
    pub fn new(pages: usize) -> Option<Self> {
        Self::told_of(Features::NONE, pages)
    }

    /// The same, where the kernel tells of `changes` as well.
    pub fn told_of(changes: Features, pages: usize) -> Option<Self> {
        let uffd = uffd(Features::MOVE.plus(changes))?;
        let (program, frames) = (area(pages), area(pages));
        uffd.register(program.start(), program.len(), Mode::both())
            .unwrap();
        uffd.register(frames.start(), frames.len(), Mode::write_protect())
            .unwrap();
        Some(Self {
            uffd,
            pagemap: Pagemap::open().unwrap(),
            program,
            frames,
        })
    }

    /// Address of the program's page `index`.
    pub fn page(&self, index: usize) -> usize {
        self.program.start() + index * PAGE_BYTES
    }

    /// Address of frame `index`.
    pub fn frame(&self, index: usize) -> usize {
        self.frames.start() + index * PAGE_BYTES
    }

    /// Moves the program's pages `first..first + N` to the frames of the same index.
    pub fn out<const N: usize>(&self, first: usize) -> [MoveOutcome; N] {
        let mut report = [MoveOutcome::default(); N];
        self.uffd.move_run(
            self.frame(first),
            self.page(first),
            MoveMode::default(),
            &mut report,
            &self.pagemap,
        );
        report
    }

    /// Moves frames back to the program.
    pub fn back<const N: usize>(&self, first: usize) -> [MoveOutcome; N] {
        let mut report = [MoveOutcome::default(); N];
        self.uffd.move_run(
            self.page(first),
            self.frame(first),
            MoveMode::default(),
            &mut report,
            &self.pagemap,
        );
        report
    }

    /// Gives the program `pages` pages, each filled with its index + 1.
    pub fn fill(&self, pages: usize) {
        let source = area(1);
        for index in 0..pages {
            // SAFETY: inside `source`, to which there is no reference.
            unsafe { (source.start() as *mut u8).write_bytes(index as u8 + 1, PAGE_BYTES) };
            let how = outpage_sys::uffd::CopyMode::default();
            let copied = self
                .uffd
                .copy(self.page(index), source.start(), PAGE_BYTES, how);
            assert_eq!((copied.bytes, copied.stop), (PAGE_BYTES, None));
        }
        map::release(source.start(), PAGE_BYTES).unwrap();
    }
}
