//! How long single touches take: the program's view of a page fault.

use std::time::Instant;

use super::pages::{PAGES_PER_MIB, Region, all_pages};
use super::report::{Latencies, Recorder};
use super::rng::Rng;
use super::{Args, Outcome, WorkloadError};

/// A touch of a mapped page takes less than this, in ns: a miss of every cache and of the TLB 0.3 us,
/// and a fault that asks nobody above 0.5 us. A fault that another process answers takes 5 us and more.
const MAPPED_NS: u64 = 2_000;

/// Passes over the hot set before touches are timed: what was paged out comes back.
const WARM_UP: usize = 3;

/// Writes all pages, then reads a word of `--touches` random ones, each touch timed; with `--hot-mib`
/// of the first so many MiB, which were all read before. Touches of mapped pages are left out of the
/// percentiles.
pub fn touches(
    args: &Args,
    recorder: &mut Recorder,
) -> Result<(Outcome, Latencies), WorkloadError> {
    let pages = all_pages(args.mib);
    let mut region = Region::new(args.mib as usize * PAGES_PER_MIB);
    recorder.phase("init", |progress| {
        for (done, &page) in pages.iter().enumerate() {
            region.write(page as usize, 1);
            progress.at(done as u64, pages.len() as u64);
        }
    });
    let mut rng = Rng::new(4);
    // Written before, so that the list itself takes no fault while touches are timed.
    let mut times = vec![1_u64; args.touches as usize];
    let mut sum = 0_u64;
    let hot = args.hot_mib.map_or(pages.len(), |mib| {
        (mib as usize * PAGES_PER_MIB).clamp(1, pages.len())
    });
    if args.hot_mib.is_some() {
        for page in (0..WARM_UP).flat_map(|_| 0..hot) {
            sum = sum.wrapping_add(region.page(page)[0]);
        }
    }
    recorder.phase("touches", |progress| {
        let count = times.len() as u64;
        for (done, time) in times.iter_mut().enumerate() {
            let page = rng.below(hot);
            let start = Instant::now();
            sum = sum.wrapping_add(region.page(page)[0]);
            *time = start.elapsed().as_nanos() as u64;
            progress.at(done as u64, count);
        }
    });
    times.retain(|&time| time >= MAPPED_NS);
    let latencies = Latencies::of(&mut times);
    for page in 0..hot {
        region.verify(page, 1)?;
    }
    let outcome = Outcome {
        checksum: sum,
        verified: hot as u64,
    };
    Ok((outcome, latencies))
}
