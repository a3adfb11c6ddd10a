//! How long single touches of a memory object take: `cargo run --release -p outpage-client --example latency SOCKET MIB HOT_MIB`, against a server with a third
//! of MIB, as `outpage bench faults` measures programs under `outpage run`: reads of random pages, then writes to staged pages of a hot set.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use outpage_client::{Client, Error, Object, Share};

/// Words of a page, and pages of a MiB.
const WORDS: usize = 512;
const MIB_PAGES: u64 = 256;
/// Touches that are timed of each kind.
const TOUCHES: usize = 20_000;
/// A touch of a mapped page takes less than this, in ns, as in `outpage bench faults`.
const MAPPED_NS: u64 = 2_000;
/// The part of the hot set that is read of other pages before each pass over it, and passes that are not timed, as there.
const COLD_PART: u64 = 32;
const WARM_UP: usize = 32;

struct Touches {
    object: Object,
    times: Vec<u64>,
    seed: u64,
}

impl Touches {
    fn below(&mut self, end: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.seed >> 33) % end
    }

    /// Reads the page's first word, and writes it as it was where `writes`.
    fn touch(&mut self, page: u64, writes: bool, timed: bool) {
        let word = &self.object.words()[page as usize * WORDS];
        let begun = Instant::now();
        let value = if writes {
            word.swap(page + 1, Ordering::Relaxed)
        } else {
            word.load(Ordering::Relaxed)
        };
        let took = begun.elapsed().as_nanos() as u64;
        assert_eq!(value, page + 1, "page {page} is not as it was written");
        if timed && took >= MAPPED_NS && self.times.len() < TOUCHES {
            self.times.push(took);
        }
    }

    fn report(&mut self, what: &str) {
        self.times.sort_unstable();
        let at = |percent: usize| self.times[(self.times.len() - 1) * percent / 100] as f64 / 1e3;
        let [p10, p50, p90, p99] = [10, 50, 90, 99].map(at);
        println!(
            "{what}: {} touches, p10 {p10:.1}, p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1} us",
            self.times.len()
        );
        self.times.clear();
    }
}

fn run(socket: &str, mib: u64, hot_mib: u64) -> Result<(), Error> {
    let client = Client::connect(socket, Share::default())?;
    let (pages, hot) = (mib * MIB_PAGES, hot_mib * MIB_PAGES);
    let object = client.create(pages * 4096)?;
    let mut touches = Touches {
        object,
        times: Vec::with_capacity(TOUCHES),
        seed: 4,
    };
    for page in 0..pages {
        touches.object.words()[page as usize * WORDS].store(page + 1, Ordering::Relaxed);
    }
    let before = client.stats()?;
    for _ in 0..TOUCHES {
        let page = touches.below(pages);
        touches.touch(page, false, true);
    }
    let after = client.stats()?;
    println!(
        "{} read, {} minor",
        after.major_faults - before.major_faults,
        after.minor_faults - before.minor_faults
    );
    touches.report("random reads");

    let mut order: Vec<u64> = (0..hot).collect();
    for at in (1..order.len()).rev() {
        let other = touches.below(at as u64 + 1) as usize;
        order.swap(at, other);
    }
    let batch = (hot / COLD_PART).max(1);
    let mut cold = (hot..pages).cycle();
    let mut before = client.stats()?;
    for round in 0..WARM_UP + 4000 {
        for page in cold.by_ref().take(batch as usize) {
            touches.touch(page, false, false);
        }
        if round == WARM_UP {
            before = client.stats()?;
        }
        for &page in &order {
            touches.touch(page, true, round >= WARM_UP);
        }
        if touches.times.len() == TOUCHES {
            break;
        }
    }
    let after = client.stats()?;
    println!(
        "{} read, {} minor",
        after.major_faults - before.major_faults,
        after.minor_faults - before.minor_faults
    );
    touches.report("writes to staged pages");
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|text| text.parse().ok());
    let (Some(socket), Some(mib), Some(hot)) = (words.first(), number(1), number(2)) else {
        eprintln!("usage: latency SOCKET MIB HOT_MIB");
        return ExitCode::from(64);
    };
    if hot == 0 || hot >= mib {
        eprintln!("latency: HOT_MIB must be more than 0 and less than MIB");
        return ExitCode::from(64);
    }
    match run(socket, mib, hot) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("latency: {error}");
            ExitCode::FAILURE
        }
    }
}
