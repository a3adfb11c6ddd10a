//! A cache of computed pages in memory that is paged: which entry makes place for a new one?
//!
//! `cargo run --release -p outpage-engine --example lru` runs the same lookups three times. `overwrite` writes the new entry over the least recently used
//! one, which as a rule is paged out, so that it is read to be overwritten. `empty` throws that page away first. `subscribe` drops an entry that it
//! knows to be out, and one that it looks up and that is out it computes anew, where that takes less time than a read.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::{Config, Encrypt};
use outpage_engine::scope::{Scope, Subscription};
use outpage_sys::map;

#[global_allocator]
static ARENA: outpage_sys::arena::Arena = outpage_sys::arena::Arena::new();

/// Entries, a page each: 64 MiB, under a limit of 32.
const ENTRIES: usize = 16_384;
const LIMIT: u64 = 32 << 20;
/// Keys that are looked up, the lower ones more often.
const KEYS: f64 = 65_536.0;
const LOOKUPS: usize = 100_000;
const WORDS: usize = PAGE_BYTES / 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Overwrite,
    Empty,
    Subscribe,
}

struct Cache {
    start: usize,
    kind: Kind,
    scope: Scope,
    subscription: Option<Subscription>,
    /// Where a key's entry is.
    found: HashMap<u64, usize>,
    keys: Vec<u64>,
    /// Least recently used first, by entry and stamp; an entry stands here once for each use, and its last stamp counts.
    order: VecDeque<(usize, u64)>,
    stamps: Vec<u64>,
    now: u64,
    /// Entries that went out, oldest first.
    out: VecDeque<usize>,
    hits: usize,
    computed: usize,
}

impl Cache {
    fn page(&mut self, entry: usize) -> &mut [u64] {
        let at: *mut u64 = std::ptr::with_exposed_provenance_mut(self.start + entry * PAGE_BYTES);
        // SAFETY: mapped as long as the program runs, of whole words, and borrowed with the only value that knows it.
        unsafe { std::slice::from_raw_parts_mut(at, WORDS) }
    }

    fn compute(&mut self, entry: usize, key: u64) {
        self.computed += 1;
        for (i, word) in self.page(entry).iter_mut().enumerate() {
            *word = (key << 16 | i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn throw_away(&self, entry: usize) {
        let at = self.start + entry * PAGE_BYTES;
        let _ = self
            .scope
            .engine()
            .madvise(at, PAGE_BYTES, libc::MADV_DONTNEED);
    }

    fn is_out(&self, entry: usize) -> bool {
        let at = self.start + entry * PAGE_BYTES;
        self.subscription
            .as_ref()
            .is_some_and(|subscription| subscription.is_out(at))
    }

    fn used(&mut self, entry: usize) {
        self.now += 1;
        self.stamps[entry] = self.now;
        self.order.push_back((entry, self.now));
    }

    fn victim(&mut self) -> usize {
        if self.keys.len() < ENTRIES {
            self.keys.push(u64::MAX);
            return self.keys.len() - 1;
        }
        let (start, out) = (self.start, &mut self.out);
        if let Some(subscription) = &mut self.subscription {
            subscription.drain(|at, is_out| {
                if is_out {
                    out.push_back((at - start) / PAGE_BYTES);
                }
            });
        }
        while let Some(entry) = self.out.pop_front() {
            if self.is_out(entry) {
                return entry;
            }
        }
        loop {
            let (entry, stamp) = self.order.pop_front().expect("every entry was used");
            if self.stamps[entry] == stamp {
                return entry;
            }
        }
    }

    fn look_up(&mut self, key: u64) {
        let entry = match self.found.get(&key) {
            Some(&entry) if self.kind == Kind::Subscribe && self.is_out(entry) => {
                self.throw_away(entry);
                self.compute(entry, key);
                entry
            }
            Some(&entry) => {
                self.hits += 1;
                entry
            }
            None => {
                let entry = self.victim();
                let old = std::mem::replace(&mut self.keys[entry], key);
                self.found.remove(&old);
                if self.kind != Kind::Overwrite {
                    self.throw_away(entry);
                }
                self.compute(entry, key);
                self.found.insert(key, entry);
                entry
            }
        };
        self.used(entry);
        let last = self.page(entry)[WORDS - 1];
        assert_eq!(
            last,
            (key << 16 | (WORDS - 1) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            "key {key}"
        );
    }
}

fn run(kind: Kind) -> Result<(Cache, f64), Box<dyn std::error::Error>> {
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    let bytes = ENTRIES * PAGE_BYTES;
    let start = map::mmap(0, bytes, prot, flags, -1, 0).map_err(|error| error.to_string())?;
    let scope = Scope::open(
        Config {
            encrypt: Encrypt::Off,
            ..Config::new(LIMIT)
        },
        None,
    )?;
    scope
        .manage(start..start + bytes)
        .map_err(|error| error.to_string())?;
    let subscription = (kind == Kind::Subscribe).then(|| scope.subscribe(start..start + bytes));
    let subscription = subscription
        .transpose()
        .map_err(|error| error.to_string())?;
    let mut cache = Cache {
        start,
        kind,
        scope,
        subscription,
        found: HashMap::with_capacity(2 * ENTRIES),
        keys: Vec::with_capacity(ENTRIES),
        order: VecDeque::with_capacity(2 * LOOKUPS),
        stamps: vec![0; ENTRIES],
        now: 0,
        out: VecDeque::with_capacity(2 * ENTRIES),
        hits: 0,
        computed: 0,
    };
    let mut random = 0x1234_5678_9ABC_DEF1_u64;
    let began = Instant::now();
    for _ in 0..LOOKUPS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let part = (random >> 11) as f64 / (1_u64 << 53) as f64;
        cache.look_up((part * part * part * KEYS) as u64);
    }
    Ok((cache, began.elapsed().as_secs_f64()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{LOOKUPS} lookups, {ENTRIES} entries of a page under a limit of {} MiB",
        LIMIT >> 20
    );
    for (name, kind) in [
        ("overwrite", Kind::Overwrite),
        ("empty", Kind::Empty),
        ("subscribe", Kind::Subscribe),
    ] {
        let (cache, seconds) = run(kind)?;
        println!(
            "{name:10} {seconds:7.2} s, {} hits, {} computed",
            cache.hits, cache.computed
        );
        cache.scope.close().map_err(|error| error.to_string())?;
    }
    Ok(())
}
