//! A guest whose memory is mostly a Java heap: the ASP paper's SPECjbb, replaced.
//!
//! Modelled after `workloads/jbb` under the serial collector of a 64-bit OpenJDK, with
//! `-Xms230m -Xmx230m` and its log of collections. The heap has HotSpot's parts: eden, which
//! transactions fill in order; two survivor spaces; and the tenured generation, where the warehouses
//! are. Beside it lies the guest's system: written once, and mostly cold. Services among it wake
//! up in turn. Guest pages stand in the order of the heap's addresses: a guest that has just booted
//! hands out its frames in long runs.

use std::collections::VecDeque;

use outpage_core::contract::Access;
use outpage_core::units::PAGE_BYTES;
use serde::{Deserialize, Serialize};

use super::ns2::Random;
use super::{Program, Step, run};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JvmParams {
    /// Pages of the guest.
    pub memory_pages: u64,
    /// Of them, pages of the heap.
    pub heap_pages: u64,
    /// Warehouses.
    pub warehouses: u64,
    /// Live pages of a warehouse after set-up.
    pub warehouse_pages: u64,
    /// Live pages of a warehouse at the most: orders and payments fill up.
    pub warehouse_pages_max: u64,
    /// Transactions in the timed part.
    pub transactions: u64,
    /// Instead of so many transactions, as many as are done in this time: milliseconds; 0 for `transactions`.
    pub timed_ms: u32,
    /// CPU time of a transaction, nanoseconds.
    pub transaction_ns: u32,
    /// Bytes that a transaction allocates.
    pub transaction_bytes: u64,
    /// What a collection of the young generation promotes, percent of eden.
    pub promoted_percent: u64,
    /// How often a collection follows references into a page: of the young generation, and of all
    /// when it marks.
    pub visits: u64,
    /// Of eden in use when the timed part begins, percent: when the first collection comes.
    pub eden_percent: u64,
    /// CPU time between two wake-ups of services, microseconds; 0 for no services.
    pub service_period_us: u32,
    /// Of the random numbers.
    pub seed: u64,
}

impl Default for JvmParams {
    /// The paper's sizes: 320 MB and 230 MB, MB of 2^20 bytes. The rest was measured with `java
    /// -XX:+UseSerialGC -Xms230m -Xmx230m -Xlog:gc* Jbb --warehouses 5 --transactions 60000`: 19.6
    /// MB a warehouse after set-up and 25 MB in the end, seven edens of 61 MB and a part for
    /// 300,000 transactions, 7.5 MB promoted by each. 50 us a transaction are 8.7 s on two shared
    /// CPUs, rounded down.
    ///
    /// `visits` was fitted to a recording of that program (100,000 transactions, `outpage trace
    /// --memory 64M`): of its references 169,092 miss 112 MiB under LRU, in runs of neighbours of 1.55
    /// pages on average. With 2, 3, 4 and 6 visits here 168,473, 171,892, 172,762 and 173,185 do, in runs
    /// of 1.99, 1.95, 1.94 and 1.93; a collector that went through memory in order gave 188,561, in
    /// runs of 2.83. At 56 MiB it is 930,739 against 322,048 with 4, in runs of 1.24 and 1.47: so
    /// small a memory this model does not tell. The recording tells 2 from 6 by nothing, so that `paper asp` draws it from there.
    ///
    /// Five warehouses and a service every 100 ms are choices; others are shown.
    fn default() -> Self {
        Self {
            memory_pages: 81_920,
            heap_pages: 58_880,
            warehouses: 5,
            warehouse_pages: 5_017,
            warehouse_pages_max: 6_400,
            transactions: 300_000,
            timed_ms: 0,
            transaction_ns: 50_000,
            transaction_bytes: 1_500,
            promoted_percent: 12,
            visits: 4,
            eden_percent: 0,
            service_period_us: 100_000,
            seed: 1,
        }
    }
}

impl JvmParams {
    /// Whether such a guest can be.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |what: &str, value: u64, allowed: String| {
            Err(format!("{what} is {value}, but must be {allowed}"))
        };
        if !(512..self.memory_pages).contains(&self.heap_pages) {
            let allowed = "512 or more, and less than memory-pages".to_owned();
            return refuse("heap-pages", self.heap_pages, allowed);
        }
        let parts = Parts::of(self);
        let (room, eden) = (parts.tenured_pages(), parts.eden_pages() * PAGE);
        let most = room / self.warehouses.max(1);
        if self.warehouses == 0 || most == 0 {
            return refuse("warehouses", self.warehouses, format!("1 to {room}"));
        }
        if !(self.warehouse_pages.max(1)..=most).contains(&self.warehouse_pages_max) {
            let allowed = format!("warehouse-pages to {most}, a share of the tenured generation");
            return refuse("warehouse-pages-max", self.warehouse_pages_max, allowed);
        }
        if self.warehouse_pages == 0 {
            return refuse("warehouse-pages", 0, "1 or more".to_owned());
        }
        if self.transaction_bytes > eden {
            let allowed = format!("at most {eden}, which is eden");
            return refuse("transaction-bytes", self.transaction_bytes, allowed);
        }
        if self.eden_percent > 100 {
            return refuse("eden-percent", self.eden_percent, "0 to 100".to_owned());
        }
        if !(1..=64).contains(&self.visits) {
            return refuse("visits", self.visits, "1 to 64".to_owned());
        }
        if self.promoted_percent > 100 {
            return refuse(
                "promoted-percent",
                self.promoted_percent,
                "0 to 100".to_owned(),
            );
        }
        Ok(())
    }
}

/// In how many parts a young collection is told: fine enough that what it writes in order and what
/// it looks up are mixed.
const PARTS: u64 = 64;
/// CPU time of the collector, nanoseconds a page and pass: a full collection of 105 MB in four passes
/// took 405 ms, one of 61 MB of eden 108 to 131 ms (the same run).
const FULL_NS: u32 = 3_700;
const YOUNG_NS: u32 = 7_000;
/// Of eden, percent: what a young collection has to find free in the tenured generation, or else
/// all is collected. HotSpot asks for the mean that was promoted before; in the run above a
/// collection turned full when 35 of 61 MB were left.
const GUARANTEE_PERCENT: u64 = 60;
/// What a collection during set-up promotes, percent of eden: 39 of 61 MB (the same run).
const SETUP_PERCENT: u64 = 60;
/// Services, and the pages that each touches when it wakes up, in four runs: 4 MB in all, a guess.
const SERVICES: u64 = 8;
const SERVICE_RUNS: u64 = 4;
const SERVICE_RUN_PAGES: u64 = 32;
/// Of a warehouse's pages, percent: stock, then customers; orders and payments are the rest.
/// Guesses from the fields of `Jbb.java`.
const STOCK_PERCENT: u64 = 60;
const CUSTOMER_PERCENT: u64 = 25;
/// Kinds of stock and customers of a warehouse, as in `Jbb.java` and SPECjbb2005.
const STOCK: u64 = 20_000;
const CUSTOMERS: u64 = 6_000;
/// CPU time to fill a page at boot or during set-up, nanoseconds: a few bytes a nanosecond.
const FILL_NS: u32 = 2_000;

const PAGE: u64 = PAGE_BYTES as u64;

/// The parts of a guest's memory: half-open ranges of pages, the heap's behind the system's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Parts {
    system: u64,
    eden: (u64, u64),
    survivors: [(u64, u64); 2],
    tenured: (u64, u64),
}

impl Parts {
    /// HotSpot's defaults: a third is young (NewRatio 2), a tenth of that each survivor space
    /// (SurvivorRatio 8), all in multiples of 64 KiB.
    fn of(params: &JvmParams) -> Self {
        let whole = |pages: u64| pages / 16 * 16;
        let system = params.memory_pages - params.heap_pages;
        let young = whole(params.heap_pages / 3);
        let survivor = whole(young / 10);
        let eden = young - 2 * survivor;
        let first = system + eden;
        Self {
            system,
            eden: (system, first),
            survivors: [
                (first, first + survivor),
                (first + survivor, first + 2 * survivor),
            ],
            tenured: (system + young, params.memory_pages),
        }
    }

    const fn eden_pages(&self) -> u64 {
        self.eden.1 - self.eden.0
    }

    const fn tenured_pages(&self) -> u64 {
        self.tenured.1 - self.tenured.0
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Boot,
    Build,
    Timed,
    End,
}

/// The generator.
pub struct Jvm {
    params: JvmParams,
    parts: Parts,
    object: u32,
    random: Random,
    state: State,
    steps: VecDeque<Step>,
    /// Bytes of eden in use.
    eden_bytes: u64,
    /// Pages of the tenured generation in use, and those of them that live.
    used: u64,
    live: u64,
    /// The survivor space that is filled next.
    to: usize,
    done: u64,
    service: u64,
    /// CPU time since the last wake-up of a service, nanoseconds.
    since_service: u64,
}

impl Jvm {
    /// The guest in memory object `object`.
    ///
    /// # Panics
    /// With parameters that [`JvmParams::check`] refuses.
    #[must_use]
    pub fn new(params: JvmParams, object: u32) -> Self {
        if let Err(why) = params.check() {
            panic!("{why}");
        }
        let parts = Parts::of(&params);
        // Spread by the golden ratio, so that guests draw unlike numbers from the first on.
        let seed = (params.seed << 32 | u64::from(object)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self {
            params,
            parts,
            object,
            random: Random(seed | 1),
            state: State::Boot,
            steps: VecDeque::new(),
            eden_bytes: 0,
            used: 0,
            live: 0,
            to: 0,
            done: 0,
            service: 0,
            since_service: 0,
        }
    }

    fn touch(&mut self, from: u64, to: u64, access: Access, page_ns: u32) {
        if from < to {
            self.steps.push_back(Step::Touch {
                run: run(self.object, from, to - from),
                access,
                page_ns,
            });
        }
    }

    /// Writes the next `bytes` of eden; a collection comes first when it is full.
    fn allocate(&mut self, bytes: u64) {
        if self.eden_bytes + bytes > self.parts.eden_pages() * PAGE {
            self.collect();
        }
        let first = self.parts.eden.0 + self.eden_bytes / PAGE;
        self.eden_bytes += bytes;
        let end = self.parts.eden.0 + self.eden_bytes.div_ceil(PAGE);
        self.touch(first, end, Access::Write, 0);
    }

    fn collect(&mut self) {
        self.eden_bytes = 0;
        let eden = self.parts.eden_pages();
        let room = self.parts.tenured_pages() - self.used;
        let promoted = self.params.promoted_percent * eden / 100;
        let most = self.params.warehouses * self.params.warehouse_pages_max;
        self.live = (self.live + promoted).min(most);
        if room * 100 < GUARANTEE_PERCENT * eden {
            self.collect_all();
        } else {
            self.collect_young(promoted.min(room));
        }
    }

    /// The collector follows references through a part: each page `visits` times, in no order.
    fn walk(&mut self, part: (u64, u64), visits: u64, access: Access, page_ns: u32) {
        self.look_up(part, (part.1 - part.0) * visits, access, page_ns);
    }

    /// Looks `times` times at some page of a part. CPU time as if each page were seen once.
    fn look_up(&mut self, part: (u64, u64), times: u64, access: Access, page_ns: u32) {
        let visit_ns = page_ns / self.params.visits.max(1) as u32;
        for _ in 0..times {
            let at = part.0 + self.random.below(part.1 - part.0);
            self.touch(at, at + 1, access, visit_ns);
        }
    }

    /// What lives of eden and one survivor space is copied to the other one and to the end of the
    /// tenured generation, in the order of references.
    fn collect_young(&mut self, promoted: u64) {
        let Parts {
            eden,
            survivors,
            tenured,
            ..
        } = self.parts;
        let (from, to) = (survivors[1 - self.to], survivors[self.to]);
        let end = tenured.0 + self.used;
        // Where objects go is filled in order, while those left behind are looked up anywhere.
        for part in 0..PARTS {
            let of = |(from, to): (u64, u64)| {
                let at = |n: u64| from + (to - from) * n / PARTS;
                (at(part), at(part + 1))
            };
            let (to, promoted) = (of(to), of((end, end + promoted)));
            self.touch(to.0, to.1, Access::Write, YOUNG_NS);
            self.touch(promoted.0, promoted.1, Access::Write, 0);
            for space in [eden, from] {
                let times = (space.1 - space.0) * self.params.visits / PARTS;
                self.look_up(space, times, Access::Read, YOUNG_NS);
            }
        }
        self.used += promoted;
        self.to = 1 - self.to;
    }

    /// Mark, forward, adjust, move: HotSpot's four passes, the first three writing headers or
    /// references. Marking follows references; the others go through memory in its order.
    fn collect_all(&mut self) {
        let Parts { eden, tenured, .. } = self.parts;
        let (used, live) = (tenured.0 + self.used, tenured.0 + self.live);
        self.walk(
            (tenured.0, used),
            self.params.visits,
            Access::Write,
            FULL_NS,
        );
        self.walk(eden, self.params.visits, Access::Write, FULL_NS);
        for _ in 0..2 {
            self.touch(tenured.0, used, Access::Write, FULL_NS);
            self.touch(eden.0, eden.1, Access::Write, FULL_NS);
        }
        self.touch(tenured.0, live, Access::Write, FULL_NS);
        self.touch(eden.0, eden.1, Access::Read, 0);
        self.used = self.live;
    }

    /// The page of entry `entry` of `entries`, which fill a share of a warehouse.
    fn entry(&self, warehouse: u64, entry: u64, entries: u64, share: (u64, u64)) -> u64 {
        let pages = self.live / self.params.warehouses;
        let (from, all) = (share.0 * pages / 100, (share.1 - share.0) * pages / 100);
        let page = warehouse * pages + from + entry * all / entries;
        self.parts.tenured.0 + page.min(self.live - 1)
    }

    /// TPC-C's NURand: some are picked more often than others.
    fn pick(&mut self, a: u64, n: u64) -> u64 {
        ((self.random.below(a + 1) | self.random.below(n)) + 7) % n
    }

    fn customer(&mut self, warehouse: u64, access: Access) {
        let customer = self.random.below(10) * (CUSTOMERS / 10) + self.pick(255, CUSTOMERS / 10);
        let share = (STOCK_PERCENT, STOCK_PERCENT + CUSTOMER_PERCENT);
        let page = self.entry(warehouse, customer, CUSTOMERS, share);
        self.touch(page, page + 1, access, 0);
    }

    fn stock(&mut self, warehouse: u64, entries: u64, access: Access) {
        for _ in 0..entries {
            let stock = self.pick(8191, STOCK);
            let page = self.entry(warehouse, stock, STOCK, (0, STOCK_PERCENT));
            self.touch(page, page + 1, access, 0);
        }
    }

    fn orders(&mut self, warehouse: u64, orders: u64, access: Access) {
        for _ in 0..orders {
            let order = self.random.below(CUSTOMERS);
            let share = (STOCK_PERCENT + CUSTOMER_PERCENT, 100);
            let page = self.entry(warehouse, order, CUSTOMERS, share);
            self.touch(page, page + 1, access, 0);
        }
    }

    /// One of `Jbb.java`'s, in its shares of 10, 10, 10, 1, 1, 1 of 33.
    fn transaction(&mut self) {
        let at = self.random.below(self.params.warehouses);
        self.allocate(self.params.transaction_bytes);
        match self.random.below(33) {
            0..10 => {
                self.customer(at, Access::Read);
                let lines = 5 + self.random.below(11);
                self.stock(at, lines, Access::Write);
            }
            10..20 => self.customer(at, Access::Write),
            20..30 => {
                self.customer(at, Access::Read);
                self.orders(at, 2, Access::Read);
            }
            30 => {
                self.customer(at, Access::Read);
                self.orders(at, 1, Access::Read);
            }
            31 => self.orders(at, 10, Access::Write),
            _ => {
                self.orders(at, 20, Access::Read);
                self.stock(at, 20, Access::Read);
            }
        }
        let ns = u64::from(self.params.transaction_ns);
        self.steps.push_back(Step::Compute(ns));
        self.since_service += ns;
        self.done += 1;
    }

    /// The next service touches its pages, spread over the system's part.
    fn serve(&mut self) {
        self.since_service = 0;
        let apart = self.parts.system / (SERVICES * SERVICE_RUNS);
        for place in 0..SERVICE_RUNS {
            let from = (place * SERVICES + self.service) * apart;
            let end = from + SERVICE_RUN_PAGES.min(apart);
            self.touch(from, end, Access::Write, 1_000);
        }
        self.service = (self.service + 1) % SERVICES;
    }

    /// One eden of set-up.
    fn build(&mut self) {
        let (eden, tenured) = (self.parts.eden, self.parts.tenured);
        self.touch(eden.0, eden.1, Access::Write, FILL_NS);
        let all = self.params.warehouses * self.params.warehouse_pages;
        let more = (SETUP_PERCENT * self.parts.eden_pages() / 100).min(all - self.used);
        self.walk(eden, self.params.visits, Access::Read, YOUNG_NS);
        let end = tenured.0 + self.used;
        self.touch(end, end + more, Access::Write, 0);
        self.used += more;
        self.live = self.used;
        if self.used == all {
            self.eden_bytes = eden.1.abs_diff(eden.0) * PAGE * self.params.eden_percent / 100;
            self.steps.push_back(Step::Phase("timed"));
            if self.params.timed_ms > 0 {
                let ns = u64::from(self.params.timed_ms) * 1_000_000;
                self.steps.push_back(Step::Until(ns));
            }
            self.state = State::Timed;
        }
    }

    fn more(&mut self) {
        match self.state {
            State::Boot => {
                let memory = run(self.object, 0, self.params.memory_pages);
                self.steps.push_back(Step::Map(memory));
                self.steps.push_back(Step::Phase("set-up"));
                self.touch(0, self.parts.system, Access::Write, FILL_NS);
                self.state = State::Build;
            }
            State::Build => self.build(),
            State::Timed if self.params.timed_ms == 0 && self.done == self.params.transactions => {
                self.state = State::End;
            }
            State::Timed => {
                let period = u64::from(self.params.service_period_us) * 1_000;
                if period > 0 && self.since_service >= period {
                    self.serve();
                }
                self.transaction();
            }
            State::End => self.steps.push_back(Step::End),
        }
    }
}

impl Program for Jvm {
    fn name(&self) -> &'static str {
        "jvm"
    }

    fn footprint(&self) -> u64 {
        self.params.memory_pages
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn step(&mut self) -> Step {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return step;
            }
            self.more();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn steps(params: JvmParams, object: u32) -> Vec<Step> {
        let mut jvm = Jvm::new(params, object);
        let steps = std::iter::repeat_with(|| jvm.step());
        steps.take_while(|&step| step != Step::End).collect()
    }

    /// Few transactions, each filling a tenth of eden.
    fn short() -> JvmParams {
        JvmParams {
            transactions: 120,
            transaction_bytes: 6 << 20,
            ..JvmParams::default()
        }
    }

    #[test]
    fn the_parts_are_those_that_hotspot_prints() {
        // DefNew eden 62848K, from and to 7808K each, tenured 157056K.
        let parts = Parts::of(&JvmParams::default());
        let kib = |part: (u64, u64)| (part.1 - part.0) * 4;
        assert_eq!(kib(parts.eden), 62_848);
        assert_eq!(parts.survivors.map(kib), [7_808, 7_808]);
        assert_eq!(kib(parts.tenured), 157_056);
        assert_eq!(parts.tenured.1 - parts.system, 230 << 8);
        assert_eq!(parts.tenured.1, 320 << 8);
    }

    #[test]
    fn the_same_parameters_give_the_same_steps_and_guests_differ() {
        let own = steps(short(), 1);
        assert_eq!(own, steps(short(), 1));
        let starts = |steps: &[Step]| -> Vec<u64> {
            let touches = steps.iter().filter_map(|s| match s {
                Step::Touch { run, .. } => Some(run.start.index()),
                _ => None,
            });
            touches.collect()
        };
        assert_ne!(starts(&own), starts(&steps(short(), 2)));
    }

    #[test]
    fn it_stays_in_its_memory_and_both_kinds_of_collections_happen() {
        let params = short();
        let parts = Parts::of(&params);
        let (mut seen, mut computed, mut young, mut full) = (HashSet::new(), 0, 0, 0);
        for step in steps(params, 3) {
            match step {
                Step::Touch {
                    run,
                    access,
                    page_ns,
                } => {
                    assert!(run.start.index() + run.pages <= params.memory_pages);
                    seen.extend(run.start.index()..run.start.index() + run.pages);
                    let from = run.start.index();
                    let survivor = parts.survivors.iter().any(|part| part.0 == from);
                    young += u32::from(survivor && access == Access::Write);
                    full += u32::from(from == parts.eden.0 && page_ns == FULL_NS);
                }
                Step::Compute(_) => computed += 1,
                _ => {}
            }
        }
        assert_eq!(computed, 120);
        // Ten transactions an eden. After set-up 14,179 pages are free; three young collections leave
        // 8,524 of them, less than three fifths of eden. The other eight have three passes in order each,
        // the last of which does not write eden.
        assert_eq!((young, full), (3, 2 * 8));
        // The system, eden, survivors and 125 MB of warehouses: nearly all of the guest.
        let live = params.warehouses * params.warehouse_pages_max;
        let rest = parts.tenured_pages() - live;
        assert!(
            seen.len() as u64 >= params.memory_pages - rest,
            "{}",
            seen.len()
        );
    }
}
