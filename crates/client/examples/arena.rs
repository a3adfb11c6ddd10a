//! Regions of memory in a memory object, of which what was freed need not be kept: `cargo run -p outpage-client --example arena SOCKET`.
//!
//! A server answers requests. Each has a region that it fills and frees at its end; a cache stays. What a region leaves is marked, so that the server of `outpage serve`
//! drops it in place of writing it, and is taken back when the next region gets it.

use std::cell::{Cell, RefCell};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use outpage_client::{Client, Error, Object, Share};

/// Pages that a region gets at a time: a mark is a bit a page, taking back is a request.
const CHUNK: u64 = 64;
/// Words of a page, and of a chunk.
const WORDS: u64 = 512;
const CHUNK_WORDS: u64 = CHUNK * WORDS;

/// Where regions get their memory.
struct Arena {
    object: Object,
    /// Chunks that were used and freed: they are marked.
    free: RefCell<Vec<u64>>,
    /// The first chunk that was never used.
    next: Cell<u64>,
    /// Pages that were taken back, and of those the ones that were dropped.
    again: Cell<(u64, u64)>,
}

impl Arena {
    fn new(client: &Client, bytes: u64) -> Result<Self, Error> {
        Ok(Self {
            object: client.create(bytes)?,
            free: RefCell::default(),
            next: Cell::new(0),
            again: Cell::default(),
        })
    }

    const fn region(&self) -> Region<'_> {
        Region {
            arena: self,
            chunks: RefCell::new(Vec::new()),
            used: Cell::new(CHUNK_WORDS),
        }
    }

    /// A chunk. What is in it is anything: what was there before, or zeroes.
    fn chunk(&self) -> Result<u64, Error> {
        let Some(chunk) = self.free.borrow_mut().pop() else {
            let chunk = self.next.get();
            if (chunk + 1) * CHUNK > self.object.pages() {
                return Err(Error::Bounds);
            }
            self.next.set(chunk + 1);
            return Ok(chunk);
        };
        let lost = self.object.take_back(chunk * CHUNK, CHUNK)?;
        let (pages, dropped) = self.again.get();
        self.again.set((pages + CHUNK, dropped + lost.count()));
        Ok(chunk)
    }
}

/// Memory that is freed all at once.
struct Region<'a> {
    arena: &'a Arena,
    chunks: RefCell<Vec<u64>>,
    /// Words of the last chunk that are in use.
    used: Cell<u64>,
}

impl Region<'_> {
    /// So many words, at most a chunk; what is in them is anything.
    fn alloc(&self, words: u64) -> Result<&[AtomicU64], Error> {
        if words > CHUNK_WORDS {
            return Err(Error::Bounds);
        }
        if self.used.get() + words > CHUNK_WORDS {
            self.chunks.borrow_mut().push(self.arena.chunk()?);
            self.used.set(0);
        }
        let at = self.used.replace(self.used.get() + words);
        let chunk = self.chunks.borrow().last().copied().unwrap_or(0);
        let first = (chunk * CHUNK_WORDS + at) as usize;
        Ok(&self.arena.object.words()[first..first + words as usize])
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        for chunk in self.chunks.borrow_mut().drain(..) {
            self.arena.object.mark(chunk * CHUNK, CHUNK);
            self.arena.free.borrow_mut().push(chunk);
        }
    }
}

const fn content(of: u64, word: u64) -> u64 {
    (of << 32 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

fn fill(words: &[AtomicU64], of: u64) {
    for (word, at) in words.iter().zip(0..) {
        word.store(content(of, at), Ordering::Relaxed);
    }
}

fn check(words: &[AtomicU64], of: u64) {
    for (word, at) in words.iter().zip(0..) {
        let found = word.load(Ordering::Relaxed);
        assert_eq!(found, content(of, at), "word {at} of {of}");
    }
}

/// Answers some requests. Pages that were freed and used again, and of those the ones that had been dropped.
pub fn run(socket: &str) -> Result<(u64, u64), Error> {
    let client = Client::connect(socket, Share::default())?;
    let arena = Arena::new(&client, 64 << 20)?;
    let cache = arena.region();
    let mut cached = Vec::new();
    for request in 0..24 {
        // 2 to 14 MiB, in parts of 1 KiB.
        let region = arena.region();
        let parts = 2048 + request * 7919 % 12_288;
        let parts = (0..parts).map(|part| Ok((part, region.alloc(128)?)));
        let parts: Vec<_> = parts.collect::<Result<_, Error>>()?;
        for (part, words) in &parts {
            fill(words, request << 16 | part);
        }
        for (part, words) in &parts {
            check(words, request << 16 | part);
        }
        drop(parts);
        drop(region);
        let kept = cache.alloc(CHUNK_WORDS)?;
        fill(kept, 1 << 30 | request);
        cached.push((request, kept));
        // The cache is read: where it left memory, it comes back in the place of what was freed.
        for (request, kept) in &cached {
            check(kept, 1 << 30 | request);
        }
    }
    drop(cache);
    Ok(arena.again.get())
}

#[allow(dead_code)] // a test runs the rest
fn main() -> ExitCode {
    let Some(socket) = std::env::args().nth(1) else {
        eprintln!("usage: arena SOCKET");
        return ExitCode::from(64);
    };
    match run(&socket) {
        Ok((pages, dropped)) => {
            println!("{pages} pages were freed and used again, {dropped} of them had been dropped");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("arena: {error}");
            ExitCode::FAILURE
        }
    }
}
