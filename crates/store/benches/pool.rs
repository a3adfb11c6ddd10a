//! The pool of compressed pages, over pages of real heaps: `OUTPAGE_HEAPS=FILE` names what `tests/programs/heaps.py FILE` wrote.
//! Without it pages are generated: a hundredth zeroes, the others of pieces that repeat more or less often.
//!
//! Begins with a table of what each program's pages come to; times in it are the shortest of nine rounds, 16 pages at a time. Then one of
//! what it is after ten rounds in which as many pages as there are leave at random and others come in their place, with the limit so that the pool is 90 %
//! full, and with one that leaves no room at all.
#![allow(missing_docs, reason = "criterion's macros")]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use outpage_core::units::PAGE_BYTES;
use outpage_store::compressed::{Codec, Memory, Pool, Unkept};
use outpage_sys::map::{self, Area};
use outpage_sys::own::Fork;

type Page = [u8; PAGE_BYTES];

/// Memory as the engine has it.
struct Mapped(Area);

/// How often memory was given back.
static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

impl Memory for Mapped {
    fn capacity(&self) -> usize {
        self.0.len() / PAGE_BYTES
    }
    fn bytes(&self, start: usize, end: usize) -> &[u8] {
        self.0.bytes(start, end - start)
    }
    fn bytes_mut(&mut self, start: usize, end: usize) -> &mut [u8] {
        self.0.bytes_mut(start, end - start)
    }
    fn give_back(&mut self, first: usize, count: usize) {
        GIVEN_BACK.fetch_add(1, Ordering::Relaxed);
        map::release(self.0.start() + first * PAGE_BYTES, count * PAGE_BYTES).expect("not locked");
    }
}

struct Heap {
    name: String,
    pages: Vec<Page>,
}

/// The xorshift generator of Marsaglia's "Xorshift RNGs", 2003.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn page(&mut self) -> Page {
        let mut page = [0; PAGE_BYTES];
        for word in page.chunks_mut(8) {
            word.copy_from_slice(&self.next().to_ne_bytes());
        }
        page
    }

    /// Pieces of 16 bytes, `fresh` in 256 of them new and the others one of 32: what a heap of small objects looks like to LZ4.
    fn page_of_pieces(&mut self, fresh: u64) -> Page {
        let (mut page, pieces) = (self.page(), self.page());
        for (at, piece) in page.chunks_mut(16).enumerate() {
            let random = self.next();
            if random % 256 >= fresh && at > 0 {
                let from = (random >> 8) as usize % 32 * 16;
                piece.copy_from_slice(&pieces[from..from + 16]);
            }
        }
        page
    }
}

fn heaps() -> Vec<Heap> {
    let random = |mut random: Random| Heap {
        name: "(random)".to_owned(),
        pages: (0..1000).map(|_| random.page()).collect(),
    };
    let mut heaps = match std::env::var_os("OUTPAGE_HEAPS") {
        Some(file) => read(&std::fs::read(file).expect("OUTPAGE_HEAPS names a file")),
        None => vec![generated()],
    };
    // Size classes fill better when more pages share them.
    if heaps.len() > 1 {
        let pages = heaps.iter().flat_map(|heap| heap.pages.iter().copied());
        let pages = pages.collect();
        heaps.push(Heap {
            name: "(all)".to_owned(),
            pages,
        });
    }
    heaps.push(random(Random(1)));
    heaps
}

/// How many 256ths of a page's pieces are new, for a tenth of the pages each. A choice, from what hardly any program leaves to what
/// does not fit any more.
const FRESH: [u64; 10] = [4, 12, 24, 40, 60, 80, 100, 120, 150, 200];

fn generated() -> Heap {
    let mut random = Random(2);
    let mut page = |n: usize| match n % 100 {
        0 => [0; PAGE_BYTES],
        n => random.page_of_pieces(FRESH[n % 10]),
    };
    Heap {
        name: "generated".to_owned(),
        pages: (0..4000).map(&mut page).collect(),
    }
}

fn read(bytes: &[u8]) -> Vec<Heap> {
    let (pages, _) = bytes.as_chunks::<PAGE_BYTES>();
    let (mut heaps, mut at) = (Vec::new(), 0);
    while at < pages.len() {
        let line = String::from_utf8_lossy(&pages[at]);
        let mut fields = line.lines().next().unwrap_or("").split(' ');
        assert_eq!(
            fields.next(),
            Some("outpage-heap"),
            "of tests/programs/heaps.py"
        );
        let name = fields.next().expect("a name").to_owned();
        let count: usize = fields.next().and_then(|n| n.parse().ok()).expect("pages");
        heaps.push(Heap {
            name,
            pages: pages[at + 1..at + 1 + count].to_vec(),
        });
        at += 1 + count;
    }
    heaps
}

fn pool(codec: Codec, slots: usize) -> Pool<Mapped> {
    let frames = slots + slots / 4 + 64;
    let area = Area::new(frames * PAGE_BYTES, Fork::ParentOnly).expect("address space");
    let mut pool = Pool::new(Mapped(area), slots as u32, codec);
    pool.set_limit(frames);
    pool
}

fn filled(heap: &Heap, codec: Codec) -> Pool<Mapped> {
    let mut pool = pool(codec, heap.pages.len());
    for (slot, page) in heap.pages.iter().enumerate() {
        let _ = pool.put(slot as u32, page);
    }
    pool
}

/// Microseconds a page of `each`: the shortest of nine for every 16 pages, for other programs run at the same time.
fn shortest(pages: usize, mut each: impl FnMut(usize)) -> f64 {
    let mut best = vec![Duration::MAX; pages.div_ceil(16)];
    for _ in 0..9 {
        for (part, best) in best.iter_mut().enumerate() {
            let start = Instant::now();
            (part * 16..(part * 16 + 16).min(pages)).for_each(&mut each);
            *best = start.elapsed().min(*best);
        }
    }
    best.iter().sum::<Duration>().as_secs_f64() * 1e6 / pages as f64
}

fn table(heaps: &[Heap]) {
    println!("program    codec  filled  refused  ratio  put us  read us  take us  loss");
    for heap in heaps {
        for &codec in Codec::ALL {
            line(heap, codec);
        }
    }
}

fn line(heap: &Heap, codec: Codec) {
    let pages = heap.pages.len();
    let mut filled = filled(heap, codec);
    let (mut page, mut words, mut refused) = ([0; PAGE_BYTES], 0, 0);
    for (slot, whole) in heap.pages.iter().enumerate() {
        match filled.put(slot as u32, whole) {
            Ok(0) => words += 1,
            Ok(_) => {}
            Err(_) => refused += 1,
        }
    }
    let kept = filled.pages() - words;
    let bytes = filled.stored_bytes();
    let loss = loss(&filled);
    let read = shortest(pages, |slot| {
        let _ = black_box(filled.read(slot as u32, &mut page));
    });
    let mut to = pool(codec, pages);
    let put = shortest(pages, |slot| {
        let _ = black_box(to.put(slot as u32, &heap.pages[slot]));
    });
    let take = shortest_take(heap, codec);
    println!(
        "{:10} {:5} {:6.1}% {:7.1}% {:6.2} {put:7.2} {read:8.2} {take:8.2} {:4.1}%",
        heap.name,
        codec.name(),
        words as f64 * 100.0 / pages as f64,
        f64::from(refused) * 100.0 / pages as f64,
        (kept * PAGE_BYTES) as f64 / bytes.max(1) as f64,
        loss * 100.0,
    );
}

/// What part of its frames holds no compressed page.
fn loss(pool: &Pool<Mapped>) -> f64 {
    1.0 - pool.stored_bytes() as f64 / (pool.frames() * PAGE_BYTES).max(1) as f64
}

/// Microseconds to take a page, each once a round.
fn shortest_take(heap: &Heap, codec: Codec) -> f64 {
    let mut page = [0; PAGE_BYTES];
    let mut full = pool(codec, heap.pages.len());
    let rounds = (0..5).map(|_| {
        for (slot, page) in heap.pages.iter().enumerate() {
            let _ = full.put(slot as u32, page);
        }
        let start = Instant::now();
        for slot in 0..heap.pages.len() as u32 {
            let _ = black_box(full.take(slot, &mut page));
        }
        start.elapsed()
    });
    let best = rounds.min().unwrap_or_default();
    best.as_secs_f64() * 1e6 / heap.pages.len() as f64
}

fn churn_table(heaps: &[Heap]) {
    println!("program    codec  full  us/pair  given back/1000  no room  loss  after compaction");
    for heap in heaps.iter().filter(|heap| heap.name != "(random)") {
        for &codec in Codec::ALL {
            for full in [90, 100] {
                churn_line(heap, codec, full);
            }
        }
    }
}

/// `full`: percent of the limit that the pool has at first. At 100, 512 objects are moved every 20,000 pairs, as the engine
/// does at a tick of 100 ms.
fn churn_line(heap: &Heap, codec: Codec, full: usize) {
    let slots = heap.pages.len() as u64;
    let (mut pool, mut random, mut page) = (filled(heap, codec), Random(4), [0; PAGE_BYTES]);
    pool.set_limit(pool.frames() * 100 / full);
    let (mut no_room, given) = (0_u64, GIVEN_BACK.load(Ordering::Relaxed));
    let start = Instant::now();
    for pair in 0..slots * 10 {
        let (slot, from) = ((random.next() % slots) as u32, random.next() % slots);
        let _ = black_box(pool.take(slot, &mut page));
        let put = black_box(pool.put(slot, &heap.pages[from as usize]));
        no_room += u64::from(put == Err(Unkept::NoRoom));
        if full == 100 && pair % 20_000 == 9_999 {
            pool.compact(512);
        }
    }
    let pairs = (slots * 10) as f64;
    let us = start.elapsed().as_secs_f64() * 1e6 / pairs;
    let given = (GIVEN_BACK.load(Ordering::Relaxed) - given) as f64 * 1e3 / pairs;
    let (no_room, before) = (no_room as f64 * 100.0 / pairs, loss(&pool) * 100.0);
    pool.compact(usize::MAX);
    println!(
        "{:10} {:5} {full:4}% {us:8.2} {given:16.1} {no_room:7.2}% {before:4.1}% {:4.1}%",
        heap.name,
        codec.name(),
        loss(&pool) * 100.0
    );
}

fn main() {
    let heaps = heaps();
    table(&heaps);
    churn_table(&heaps);
    let mut criterion = Criterion::default().configure_from_args();
    for heap in &heaps {
        for &codec in Codec::ALL {
            benches(&mut criterion, heap, codec);
        }
    }
    criterion.final_summary();
}

fn benches(criterion: &mut Criterion, heap: &Heap, codec: Codec) {
    let slots = heap.pages.len();
    let mut group = criterion.benchmark_group(codec.name());
    group
        .sample_size(10)
        .throughput(Throughput::Elements(slots as u64));
    let id = |what| BenchmarkId::new(what, &heap.name);
    let mut page = [0; PAGE_BYTES];
    group.bench_function(id("put"), |b| {
        b.iter_batched_ref(
            || pool(codec, slots),
            |pool| {
                for (slot, page) in heap.pages.iter().enumerate() {
                    let _ = black_box(pool.put(slot as u32, page));
                }
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function(id("take"), |b| {
        b.iter_batched_ref(
            || filled(heap, codec),
            |pool| {
                for slot in 0..slots as u32 {
                    let _ = black_box(pool.take(slot, &mut page));
                }
            },
            BatchSize::PerIteration,
        );
    });
    let (mut full, mut random) = (filled(heap, codec), Random(3));
    group.throughput(Throughput::Elements(1));
    // Any page leaves, and any other one comes in its place.
    group.bench_function(id("churn"), |b| {
        b.iter(|| {
            let (slot, from) = (random.next() % slots as u64, random.next() % slots as u64);
            full.forget(slot as u32, slot as u32 + 1);
            black_box(full.put(slot as u32, &heap.pages[from as usize]))
        });
    });
    group.finish();
}
