//! What the tests of the stores share: frames, page contents, a place for swap files.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod stores;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use std::sync::Arc;

use outpage_core::units::{PAGE_BYTES, SlotNo, SlotRange};
use outpage_store::{
    Bounced, Cipher, Completion, Direction, Encryption, Frame, FrameArea, KEY_BYTES, Provide,
    Request, Store, SwapFile, Token,
};

/// One page of bytes.
pub type Page = [u8; PAGE_BYTES];

/// Frames for requests, zeroed at first.
pub struct Pages {
    base: *mut u8,
    layout: Layout,
    area: FrameArea,
}

impl Pages {
    pub fn new(count: u32) -> Self {
        let layout = Layout::from_size_align(count as usize * PAGE_BYTES, PAGE_BYTES).unwrap();
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        assert!(!base.is_null());
        // SAFETY: lives until drop, by when the tests have no request in flight; no references.
        let area = unsafe { FrameArea::new(base.expose_provenance(), count) };
        Self { base, layout, area }
    }

    /// New pages at each call, which are never freed: a request may be in flight at the end of a test.
    pub fn provider(count: u32) -> Provide {
        Box::new(move || Some(Self::leaked(count)))
    }

    fn leaked(count: u32) -> FrameArea {
        let pages = Self::new(count);
        let area = pages.area;
        std::mem::forget(pages);
        area
    }

    pub fn frame(&self, index: u32) -> Frame {
        self.area.frame(index)
    }

    pub fn frames(&self, indices: impl IntoIterator<Item = u32>) -> Vec<Frame> {
        indices.into_iter().map(|index| self.frame(index)).collect()
    }

    fn at(&self, index: u32) -> *mut Page {
        assert!(index < self.area.frames());
        self.base.wrapping_add(index as usize * PAGE_BYTES).cast()
    }

    pub fn set(&self, index: u32, page: &Page) {
        // SAFETY: within the area; the tests do not touch frames of requests in flight.
        unsafe { self.at(index).write(*page) }
    }

    pub fn get(&self, index: u32) -> Page {
        // SAFETY: as in `set`.
        unsafe { self.at(index).read() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base, self.layout) }
    }
}

/// `store`, encrypting, with a buffer of `buffer` pages if that is not 0 and an area of `area` pages.
pub fn encrypted<S: Store>(store: S, buffer: u32, area: u32) -> Bounced<S> {
    let provide: Provide = match buffer {
        0 => Box::new(|| None),
        pages => Pages::provider(pages),
    };
    let key: [u8; KEY_BYTES] = std::array::from_fn(|i| i as u8 ^ 0x5a);
    let encryption = Encryption {
        cipher: Arc::new(Box::new(Cipher::new(&key))),
        area: Pages::leaked(area),
    };
    Bounced::encrypted(store, provide, encryption)
}

/// Bytes that differ for each seed and each place in the page.
pub fn page(seed: u64) -> Page {
    let mut page = [0; PAGE_BYTES];
    for (index, word) in page.chunks_exact_mut(8).enumerate() {
        let mixed = (seed << 16 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&(mixed ^ mixed >> 29).to_le_bytes());
    }
    page
}

/// A directory on a disk; swap files have no name there.
pub fn directory() -> PathBuf {
    std::env::var_os("OUTPAGE_TEST_DIR")
        .map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from)
}

pub fn swap_file(slots: u32) -> SwapFile {
    SwapFile::create_in(&directory(), u64::from(slots) * PAGE_BYTES as u64).unwrap()
}

/// Says on the terminal, past the capture of test output, that something was not tested.
pub fn skip(what: &str) {
    std::io::stderr()
        .write_all(format!("SKIPPED: {what}\n").as_bytes())
        .unwrap();
}

pub fn slots(start: u32, count: u32) -> SlotRange {
    SlotRange::new(SlotNo(start), count)
}

pub fn request(token: u64, direction: Direction, start: u32, frames: &[Frame]) -> Request<'_> {
    let slots = slots(start, frames.len() as u32);
    Request {
        token: Token(token),
        direction,
        slots,
        frames,
        awaited: true,
    }
}

/// Waits for `count` completions. Fails when none comes for a minute: that is a hang.
pub fn collect<S: Store + ?Sized>(store: &mut S, count: usize) -> Vec<Completion> {
    let mut out = Vec::with_capacity(count);
    let give_up = Instant::now() + Duration::from_secs(60);
    while out.len() < count {
        store.wait(1_000_000_000);
        store.poll(&mut out);
        assert!(
            Instant::now() < give_up,
            "no completion in a minute, {out:?} so far"
        );
    }
    out
}

/// Carries one request out.
pub fn carry_out<S: Store + ?Sized>(
    store: &mut S,
    direction: Direction,
    start: u32,
    frames: &[Frame],
) -> Result<(), outpage_store::StoreError> {
    store
        .submit(&request(99, direction, start, frames))
        .unwrap();
    let completion = collect(store, 1)[0];
    assert_eq!(completion.token, Token(99));
    completion.result
}

/// Whether `poll(2)` finds the descriptor readable within `timeout_ms` milliseconds.
pub fn readable(fd: i32, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure, which lives through the call.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 }
}
