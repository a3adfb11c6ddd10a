//! Policies for each region: as many pagers as there are kinds of memory, each with a limit and policies of its own.
//!
//! An index is looked up at random, some of it again and again, while records are added to a log and read through. `cargo run -p outpage-lib --example policies`
//! tells what the index reads where both share one pager, and where each has its own.
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

/// Looks the index up, and reads on in the log after each lookup: pages that the pager of the index read meanwhile.
fn work(pager: &Pager, index: &mut Region<u64>, log: &mut Region<u64>) -> Result<u64, Error> {
    index.iter_mut().for_each(|word| *word = 1);
    log.iter_mut().for_each(|word| *word = 2);
    let before = pager.stats()?.page_ins;
    let mut random = 0x1234_5678_9ABC_DEF1_u64;
    for at in 0..LOOKUPS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Nine in ten are for a third of it.
        let reach = if random.is_multiple_of(10) {
            INDEX
        } else {
            INDEX / 3
        };
        let found = index[(random >> 8) as usize % reach];
        let read = log[at * A_PAGE / 4 % LOG];
        assert_eq!((found, read), (1, 2));
    }
    Ok(pager.stats()?.page_ins - before)
}

fn main() -> Result<(), Error> {
    let open = |limit, reclaim, readahead| {
        let builder = Pager::builder(limit).set("reclaim", reclaim);
        builder.set("readahead", readahead).open()
    };
    let both = open(LIMIT, "second-chance", "stream")?;
    let (mut index, mut log) = (both.zeros(INDEX)?, both.zeros(LOG)?);
    let shared = work(&both, &mut index, &mut log)?;
    drop((index, log, both));
    let of_index = open(LIMIT - OF_LOG, "lirs", "none")?;
    let of_log = open(OF_LOG, "fifo", "stream")?;
    let (mut index, mut log) = (of_index.zeros(INDEX)?, of_log.zeros(LOG)?);
    let own = work(&of_index, &mut index, &mut log)?;
    println!(
        "pages read: {shared} for both by one pager; {own} for the index by its own, {} for the log",
        of_log.stats()?.page_ins
    );
    Ok(())
}
