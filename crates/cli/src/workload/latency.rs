//! How long single touches take: the program's view of a page fault.

use std::hint::black_box;
use std::time::Instant;

use super::pages::{PAGES_PER_MIB, Region, all_pages};
use super::report::{Latencies, Recorder};
use super::rng::Rng;
use super::{Args, Outcome, WorkloadError};

/// A touch of a mapped page takes less than this, in ns: a miss of every cache and of the TLB 0.3 us,
/// and a fault that asks nobody above 0.5 us. A fault that another process answers takes 5 us and more.
const MAPPED_NS: u64 = 2_000;

/// The part of the hot set that is read of the cold stream before each pass over the hot set. The
/// pager stages at least as many pages as it takes frames, and by its watermarks an eighth of all:
/// with a hot set of half the frames, 1/32 of it is an eighth of what is staged, so no hot page is
/// staged long enough to be released before the pass that touches it.
const COLD_PART: usize = 32;

/// Rounds before touches are timed. A round sends 1/24 of the mapped pages through the stage; after
/// 32 of them each hot page was staged, all lie in the pager's queue in the order of the passes, and
/// each round stages as many.
const WARM_UP: usize = 32;

/// What came of timed touches.
pub struct Measured {
    pub outcome: Outcome,
    pub latencies: Latencies,
    /// Touches that were not timed and must have read their page.
    pub untimed_reads: u64,
}

/// Writes all pages, then times `--touches` touches of pages that are not mapped: of random ones, or
/// with `--hot-mib` of staged ones.
pub fn touches(args: &Args, recorder: &mut Recorder) -> Result<Measured, WorkloadError> {
    let pages = all_pages(args.mib);
    let mut region = Region::holding(args.data, args.mib as usize * PAGES_PER_MIB);
    recorder.phase("init", |progress| {
        for (done, &page) in pages.iter().enumerate() {
            region.write(page as usize, 1);
            progress.at(done as u64, pages.len() as u64);
        }
    });
    let count = args.touches as usize;
    let mut touches = Touches {
        region,
        // Written before, so that the list itself takes no fault while touches are timed.
        times: vec![1_u64; count],
        timed: 0,
    };
    let hot = args.hot_mib.map(|mib| mib as usize * PAGES_PER_MIB);
    let (outcome, untimed_reads) = recorder.phase("touches", |_| match hot {
        Some(hot) if (1..pages.len()).contains(&hot) => touches.staged(hot, pages.len()),
        Some(_) => Err(WorkloadError("the hot set must be less than --mib".into())),
        None => touches.random(count, pages.len()),
    })?;
    touches.times.truncate(touches.timed);
    Ok(Measured {
        outcome,
        latencies: Latencies::of(&mut touches.times),
        untimed_reads,
    })
}

struct Touches {
    region: Region,
    /// Of touches that took longer than that of a mapped page; room for all.
    times: Vec<u64>,
    timed: usize,
}

impl Touches {
    fn read(&mut self, page: usize) -> u64 {
        black_box(self.region.page(page)[0])
    }

    /// Reads a word of the page, and notes the time if the page was not mapped.
    fn time(&mut self, page: usize) -> u64 {
        let start = Instant::now();
        let word = self.read(page);
        let took = start.elapsed().as_nanos() as u64;
        if took >= MAPPED_NS && self.timed < self.times.len() {
            self.times[self.timed] = took;
            self.timed += 1;
        }
        word
    }

    fn random(&mut self, touches: usize, pages: usize) -> Result<(Outcome, u64), WorkloadError> {
        let mut rng = Rng::new(4);
        let mut outcome = Outcome::default();
        for _ in 0..touches {
            let page = rng.below(pages);
            // The few that a pool does not keep are read or filled with zeroes: touches of another kind.
            if !self.region.is_usual(page) {
                continue;
            }
            outcome.checksum = outcome.checksum.wrapping_add(self.time(page));
            self.region.verify(page, 1)?;
            outcome.verified += 1;
        }
        Ok((outcome, 0))
    }

    /// Reads pages of a cold stream, which takes frames, so that the pages that were mapped longest are
    /// staged, hot ones among them; then times a touch of each page of the hot set, always in the same
    /// order, which is random. That is the order of the pager's queue, so neighbours are not staged
    /// together, and a hot page that was staged is touched in the same round.
    fn staged(&mut self, hot: usize, pages: usize) -> Result<(Outcome, u64), WorkloadError> {
        let order = shuffled(hot);
        let batch = (hot / COLD_PART).max(1);
        let mut cold = (hot..pages).cycle();
        let mut untimed = hot as u64;
        // Each round stages more hot pages than it reads cold ones; with as few as half, it ends.
        let rounds = WARM_UP + 2 * self.times.len().div_ceil(batch);
        for round in 0..rounds {
            for page in cold.by_ref().take(batch) {
                self.read(page);
            }
            untimed += batch as u64;
            for &page in &order {
                if round < WARM_UP {
                    self.read(page);
                } else {
                    self.time(page);
                }
            }
            if self.timed == self.times.len() {
                break;
            }
        }
        let mut outcome = Outcome::default();
        for page in 0..hot {
            outcome.checksum = outcome.checksum.wrapping_add(self.read(page));
            self.region.verify(page, 1)?;
            outcome.verified += 1;
        }
        Ok((outcome, untimed))
    }
}

/// The numbers below `count`, in a fixed disorder (Fisher and Yates).
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut rng = Rng::new(5);
    for at in (1..count).rev() {
        order.swap(at, rng.below(at + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_hot_set_has_each_page_once_and_few_neighbours() {
        let order = shuffled(4096);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..4096));
        let neighbours = order.windows(2).filter(|w| w[0].abs_diff(w[1]) == 1);
        assert!(neighbours.count() < 16, "2 are to be expected");
    }
}
