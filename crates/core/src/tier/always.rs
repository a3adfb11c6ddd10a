//! Every victim that compresses goes to the pool.

use alloc::boxed::Box;

use super::{Entry, Tier, Written};
use crate::settings::{Allowed, Setting, Values};
use crate::units::PageNo;

pub(super) const LZ4: Entry = Entry {
    name: "lz4",
    summary: "every victim that LZ4 makes small enough is kept in the pool, the oldest leave for the store",
    source: "Linux 3.11 mm/zswap.c: a pool before the store, written back in order of age",
    codec: "lz4",
    written: Written::Plain,
    settings: SETTINGS,
    build,
};

pub(super) const ZSTD: Entry = Entry {
    name: "zstd",
    summary: "as lz4, by Zstandard: three times the CPU for half to two thirds of the size",
    codec: "zstd",
    ..LZ4
};

/// What can be set where there is a pool.
pub(super) const SETTINGS: &[&Setting] = &[&Setting {
    name: "pool",
    summary: "the most that the pool takes, in percent of the frames",
    allowed: Allowed::Numbers(5, 90),
    default: 75,
}];

fn build(values: &Values) -> Option<Box<dyn Tier>> {
    Some(Box::new(Always {
        percent: values.of("pool"),
    }))
}

struct Always {
    percent: u32,
}

impl Tier for Always {
    fn pools(&mut self, _victim: PageNo) -> bool {
        true
    }

    fn pool_frames(&self, frames: usize) -> usize {
        frames * self.percent as usize / 100
    }
}
