//! What a run of the model is made of: policies, sizes, and how badly the world behaves.

use outpage_core::contract::Body;
use outpage_core::pager::Setup;
use outpage_core::readahead::Choice;
use outpage_core::record::Header;
use outpage_core::settings::Allowed;
use outpage_core::{discard, pageout, readahead, reclaim, slots, tier};

/// How soon actions are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// Inside the loop that polls, transfers too.
    AtOnce,
    /// Transfers late and in any order, the rest inside the loop that polls: the live body.
    TransfersLate,
    /// All of them late and in any order.
    Late,
}

/// The fixed part of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub reclaim: &'static str,
    pub pageout: usize,
    pub readahead: usize,
    pub slots: usize,
    pub tier: String,
    pub discard: &'static str,
    pub chunk: u32,
    /// The largest window, unless the policy allows less.
    pub window: u32,
    pub frames: usize,
    pub slots_max: u32,
    pub zero_around: u32,
    pub rescue_around: u32,
    pub answers: Answers,
    /// Of 1000 writes, how many fail.
    pub write_failures: u32,
    /// Of 1000 reads, how many fail or give something else, and pass when repeated.
    pub read_failures: u32,
    /// Of 1000 slots, how many can be written and never read.
    pub bad_slots: u32,
    /// Of 1000 pages to be mapped or detached, how many are refused for a passing reason.
    pub refusals: u32,
    pub seed: u64,
}

impl Plan {
    /// A well-behaved world.
    pub fn calm(pageout: &str, readahead: &str, frames: usize) -> Self {
        let pageout = pageout::REGISTRY.iter().position(|e| e.name == pageout);
        let readahead = readahead::REGISTRY.iter().position(|e| e.name == readahead);
        let (pageout, readahead) = (pageout.unwrap(), readahead.unwrap());
        Self {
            reclaim: "second-chance",
            pageout,
            readahead,
            slots: 0,
            tier: "none".to_owned(),
            discard: "none",
            chunk: pageout::REGISTRY[pageout].params().buffer_pages,
            window: Choice::plain(&readahead::REGISTRY[readahead]).max_window(),
            frames,
            slots_max: 1 << 16,
            zero_around: 16,
            rescue_around: 0,
            answers: Answers::TransfersLate,
            write_failures: 0,
            read_failures: 0,
            bad_slots: 0,
            refusals: 0,
            seed: 1,
        }
    }

    pub fn pageout_params(&self) -> pageout::Params {
        let params = pageout::REGISTRY[self.pageout].params();
        pageout::Params {
            buffer_pages: self.chunk,
            ..params
        }
    }

    /// Settings vary with the seed, as whatever is random does; a calm world has seed 1.
    pub fn readahead(&self) -> Choice {
        let entry = &readahead::REGISTRY[self.readahead];
        let arrival = match self.seed >> 8 & 3 {
            0 => None,
            1 => Some("mapped".to_owned()),
            _ => Some("staged".to_owned()),
        };
        let demand_first = (self.seed >> 10 & 3) * 4;
        let govern = ["off", "on"][(self.seed >> 12 & 1) as usize];
        let settings = entry.settings.iter().filter_map(|setting| {
            let value = match (setting.name, setting.allowed) {
                ("max", Allowed::Numbers(_, most)) => self.window.min(most).to_string(),
                ("window" | "step", _) => self.window.min(8).to_string(),
                ("arrival", _) => arrival.clone()?,
                ("demand-first", _) => demand_first.to_string(),
                ("govern", _) => govern.to_owned(),
                _ => return None,
            };
            Some(format!("{}={value}", setting.name))
        });
        let settings: Vec<_> = settings.collect();
        Choice::plain(entry).with(&settings.join(",")).unwrap()
    }

    /// `readahead` is what [`Self::readahead`] writes.
    pub fn header<'a>(&'a self, readahead: &'a str) -> Header<'a> {
        Header {
            reclaim: self.reclaim,
            pageout: pageout::REGISTRY[self.pageout].name,
            pageout_params: self.pageout_params(),
            readahead,
            slots: slots::REGISTRY[self.slots].name,
            tier: &self.tier,
            discard: self.discard,
            frames: self.frames as u64,
            measured: self.frames as u32,
            slots_max: self.slots_max,
            zero_around: self.zero_around,
            rescue_around: self.rescue_around,
        }
    }

    fn reclaim(&self) -> reclaim::Choice {
        reclaim::Choice::parse(self.reclaim, Body::default()).unwrap()
    }

    pub fn setup(&self) -> Setup {
        Setup {
            reclaim: self.reclaim().build(),
            pageout: (pageout::REGISTRY[self.pageout].build)(self.pageout_params()),
            readahead: self.readahead().build(),
            slots: slots::REGISTRY[self.slots].build,
            tier: tier::Choice::parse(&self.tier, tier::Written::Plain)
                .unwrap()
                .build(),
            discard: discard::Choice::parse(self.discard).unwrap().build(),
            frames: self.frames,
            slots_max: self.slots_max,
            zero_around: self.zero_around,
            rescue_around: self.rescue_around,
            body: Body::default(),
        }
    }
}

/// A small generator of repeatable pseudo-random numbers (xorshift64*).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((high * end as u64) >> 32) as usize
    }

    /// True `permille` times of 1000.
    pub fn happens(&mut self, permille: u32) -> bool {
        permille > 0 && self.below(1000) < permille as usize
    }
}
