//! Policies for each region: as many pagers as there are kinds of memory, each with a limit and policies of its own.
//!
//! An index is looked up at random, a part of it again and again, while a log is read through. `cargo run -p outpage-lib --example policies` tells how many pages of each
//! came back, where both share one pager, and where each has its own.
#![forbid(unsafe_code)]

use outpage::{Error, Pager, Region};

/// For both together.
const LIMIT: u64 = 32 << 20;
/// Of these, what the log needs: a few windows of read-ahead.
const OF_LOG: u64 = 8 << 20;
const A_PAGE: usize = outpage::PAGE_BYTES / 8;
/// 48 MiB and 64 MiB.
const INDEX: usize = 6 << 20;
const LOG: usize = 8 << 20;
const LOOKUPS: usize = 60_000;

/// Looks the index up, and reads on in the log after each lookup: pages of either that came back meanwhile.
fn work(index: &mut Region<u64>, log: &mut Region<u64>) -> Result<[u64; 2], Error> {
    let _told = [index.subscribe()?, log.subscribe()?];
    log.iter_mut().for_each(|word| *word = 2);
    index.iter_mut().for_each(|word| *word = 1);
    let before = [came_back(index)?, came_back(log)?];
    let mut random = 0x1234_5678_9ABC_DEF1_u64;
    for at in 0..LOOKUPS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Nine in ten are for a third of it.
        let often = !random.is_multiple_of(10);
        let reach = if often { INDEX / 3 } else { INDEX };
        let found = index[(random >> 8) as usize % reach];
        let read = log[at * A_PAGE / 4 % LOG];
        assert_eq!((found, read), (1, 2));
    }
    Ok([came_back(index)? - before[0], came_back(log)? - before[1]])
}

fn came_back(region: &Region<u64>) -> Result<u64, Error> {
    let traffic = region.stats()?.traffic;
    Ok(traffic.map_or(0, |traffic| traffic.back))
}

fn main() -> Result<(), Error> {
    let open = |limit, reclaim, readahead| {
        let builder = Pager::builder(limit).set("reclaim", reclaim);
        builder.set("readahead", readahead).open()
    };
    let both = open(LIMIT, "second-chance", "stream")?;
    let (mut index, mut log) = (both.zeros(INDEX)?, both.zeros(LOG)?);
    let shared = work(&mut index, &mut log)?;
    drop((index, log, both));
    let of_index = open(LIMIT - OF_LOG, "lirs", "none")?;
    let of_log = open(OF_LOG, "fifo", "stream")?;
    let (mut index, mut log) = (of_index.zeros(INDEX)?, of_log.zeros(LOG)?);
    let own = work(&mut index, &mut log)?;
    println!(
        "pages of the index and of the log that came back: {shared:?} with one pager, {own:?} with two"
    );
    Ok(())
}
