//! A memory object: the primary object and the attribute object, both memory files that client and server have mapped.
#![expect(unsafe_code)] // names pages of the primary object as I/O memory

use outpage_core::units::{ObjectId, PAGE_BYTES, PageNo, PageRange};
use outpage_store::Frame;
use outpage_sys::fd::{self, Fd};
use outpage_sys::raw::Errno;
use outpage_sys::shared::{self, Whole};
use outpage_wire::{Attributes, attribute_bytes};

/// An object as the server has it.
pub struct Object {
    id: ObjectId,
    pages: u64,
    file: Fd,
    content: Whole,
    marks: Whole,
    /// The attribute object's file, until it was sent.
    marks_file: Option<Fd>,
    /// How often bits had been set when the server looked last.
    seen: u64,
    /// Where the client has it mapped.
    address: Option<usize>,
    /// Pages that the file has and the client's mapping does not: a bit each.
    outside: Vec<u64>,
}

impl Object {
    /// A new one of `pages` pages, all zero and without frames.
    ///
    /// # Errors
    /// Those of memfd_create(2), ftruncate(2) and mmap(2).
    pub fn create(id: ObjectId, pages: u64) -> Result<Self, Errno> {
        let bytes = pages * PAGE_BYTES as u64;
        let file = shared::create(c"outpage-object", bytes)?;
        let content = Whole::new(file.number(), bytes as usize)?;
        let marks_bytes = attribute_bytes(pages);
        let marks_file = shared::create(c"outpage-attributes", marks_bytes)?;
        let marks = Whole::new(marks_file.number(), marks_bytes as usize)?;
        Ok(Self {
            id,
            pages,
            file,
            content,
            marks,
            marks_file: Some(marks_file),
            seen: 0,
            address: None,
            outside: vec![0; pages.div_ceil(64) as usize],
        })
    }

    /// All of its pages.
    pub fn range(&self) -> PageRange {
        PageRange::new(PageNo::new(self.id, 0), self.pages)
    }

    /// The files, to be sent to the client once: the primary object's and the attribute object's. `None` where no descriptor is left.
    pub fn files(&mut self) -> Option<[Fd; 2]> {
        let file = fd::copy(self.file.number()).ok()?;
        Some([file, self.marks_file.take()?])
    }

    /// The client has it mapped at `address`.
    pub const fn map_at(&mut self, address: usize) {
        self.address = Some(address);
    }

    /// Addresses of the client's mapping, half-open; `None` before there is one.
    pub fn span(&self) -> Option<(usize, usize)> {
        let bytes = self.content.bytes();
        self.address.map(|start| (start, start + bytes))
    }

    /// Where the client has page `index`; `None` before it is mapped.
    pub fn client_address(&self, index: u64) -> Option<usize> {
        self.address
            .map(|start| start + index as usize * PAGE_BYTES)
    }

    /// Page `index` as memory of transfers.
    pub fn frame(&self, index: u64) -> Frame {
        assert!(index < self.pages);
        let address = self.content.address() + index as usize * PAGE_BYTES;
        // SAFETY: a page of a mapping that stays as long as a transfer of it is under way (`Body::is_quiet`), and is looked at by `copy_page` only, whose atomic
        // reads are of pages under no transfer that fills them.
        unsafe { Frame::new(address) }
    }

    /// Copies page `index`.
    pub fn copy_page(&self, index: u64, out: &mut [u8; PAGE_BYTES]) {
        self.content.copy_page(index as usize, out);
    }

    /// Gives the file frames for `pages` pages from `index` on.
    ///
    /// # Errors
    /// Those of fallocate(2): no RAM.
    pub fn allocate(&self, index: u64, pages: u64) -> Result<(), Errno> {
        let (offset, bytes) = bytes_of(index, pages);
        fd::allocate(self.file.number(), offset, bytes)
    }

    /// Takes `pages` pages from `index` on from the file and every mapping.
    pub fn punch(&mut self, index: u64, pages: u64) {
        let (offset, bytes) = bytes_of(index, pages);
        // It fails of nothing but interruption, and frees what it came to.
        while fd::punch(self.file.number(), offset, bytes) == Err(Errno::EINTR) {}
        (index..index + pages).for_each(|index| self.set_outside(index, false));
    }

    /// Frames that the file has, as the kernel counts them.
    pub fn frames(&self) -> u64 {
        fd::allocated(self.file.number()).unwrap_or(0) / PAGE_BYTES as u64
    }

    /// Whether the file has page `index` and the client's mapping does not.
    pub fn is_outside(&self, index: u64) -> bool {
        self.outside[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    /// Says so, or that it is not so.
    pub fn set_outside(&mut self, index: u64, outside: bool) {
        let (word, bit) = (&mut self.outside[(index / 64) as usize], 1 << (index % 64));
        *word = if outside { *word | bit } else { *word & !bit };
    }

    /// Whether pages were given up since [`Self::take_marks`].
    pub fn has_marks(&self) -> bool {
        self.attributes().count() != self.seen
    }

    /// Calls `run` with what was given up since the last time.
    pub fn take_marks(&mut self, mut run: impl FnMut(PageRange)) {
        self.seen = self.attributes().count();
        let id = self.id;
        self.attributes()
            .take(|first, pages| run(PageRange::new(PageNo::new(id, first), pages)));
    }

    /// Forgets that pages were given up of which the server does not know.
    pub fn clear_marks(&self, range: PageRange) {
        self.attributes().clear(range.start.index(), range.pages);
    }

    fn attributes(&self) -> Attributes<'_> {
        Attributes::new(self.marks.words(), self.pages)
    }
}

const fn bytes_of(index: u64, pages: u64) -> (u64, u64) {
    (index * PAGE_BYTES as u64, pages * PAGE_BYTES as u64)
}
