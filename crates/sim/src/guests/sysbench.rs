//! Sysbench's memory test with one large block.
//!
//! `memory_init` fills the block with zeroes (`memset`), which its own clock does not count; then each request writes the block from its
//! first word to its last, until `--memory-total-size` is reached: by default `write`, `seq`, one thread and a block for all
//! (sysbench 0.4, `tests/memory/sb_memory.c`). Before that the guest's system has written its pages, which nobody touches again.

use outpage_core::contract::Access;
use outpage_core::units::{ObjectId, PageNo, PageRange};

use crate::programs::{Program, Step};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SysbenchParams {
    /// Pages that the guest's processes have written before.
    pub system_pages: u64,
    /// Pages of the block.
    pub block_pages: u64,
    /// Requests: how often the block is written after it was filled.
    pub requests: u64,
    /// Whether requests write the block (`--memory-oper`); they read it otherwise.
    pub writes: bool,
    /// CPU time to write a page, nanoseconds.
    pub page_ns: u32,
    /// CPU time of something else between the filling and the first request, nanoseconds.
    pub pause_ns: u64,
}

/// The generator.
pub(super) struct Sysbench {
    params: SysbenchParams,
    object: u32,
    at: u64,
}

impl Sysbench {
    pub const fn new(params: SysbenchParams, object: u32) -> Self {
        Self {
            params,
            object,
            at: 0,
        }
    }

    fn run(&self, from: u64, pages: u64) -> PageRange {
        PageRange::new(PageNo::new(ObjectId(self.object), from), pages)
    }
}

impl Program for Sysbench {
    fn name(&self) -> &'static str {
        "sysbench"
    }

    fn footprint(&self) -> u64 {
        self.params.system_pages + self.params.block_pages
    }

    fn step(&mut self) -> Step {
        let SysbenchParams {
            system_pages,
            block_pages,
            requests,
            writes,
            page_ns,
            pause_ns,
        } = self.params;
        let touch = |run, access| Step::Touch {
            run,
            access,
            page_ns,
        };
        let block = self.run(system_pages, block_pages);
        let access = if writes { Access::Write } else { Access::Read };
        self.at += 1;
        match self.at {
            1 => Step::Map(self.run(0, system_pages + block_pages)),
            2 => touch(self.run(0, system_pages), Access::Write),
            3 => Step::Phase("fill"),
            4 => touch(block, Access::Write),
            5 => Step::Compute(pause_ns),
            6 => Step::Phase("timed"),
            at if at <= 6 + requests => touch(block, access),
            _ => Step::End,
        }
    }
}
