//! A hash join, and a merge of sorted runs.

use std::collections::VecDeque;

use outpage_core::units::PAGE_BYTES;
use serde::{Deserialize, Serialize};

use super::ns2::Random;
use super::order::{Order, Touch, mix, scaled};

const PAGE: u64 = PAGE_BYTES as u64;

/// Parameters of the join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JoinParams {
    /// Pages of both relations, a quarter each, and of the hash table.
    pub pages: u64,
    /// Bytes of a row and of a slot of the table, which has two for each row.
    pub row_bytes: u64,
    /// CPU time of a touch, nanoseconds.
    pub touch_ns: u32,
}

impl Default for JoinParams {
    /// 64 MiB. The time is what `outpage workload join` takes without a limit: 69 ms for building with
    /// 131,072 rows and probing with as many, two touches each.
    fn default() -> Self {
        Self {
            pages: 16_384,
            row_bytes: 128,
            touch_ns: 130,
        }
    }
}

/// First each row of one relation and its slot of the table, then of the other.
pub struct Join {
    params: JoinParams,
    nth: u64,
}

impl Join {
    /// The order with these parameters.
    ///
    /// # Panics
    /// With rows of no byte.
    #[must_use]
    pub fn new(params: JoinParams) -> Self {
        assert!(params.row_bytes > 0, "rows have bytes");
        Self { params, nth: 0 }
    }

    const fn relation_pages(&self) -> u64 {
        self.params.pages / 4
    }

    const fn rows(&self) -> u64 {
        self.relation_pages() * PAGE / self.params.row_bytes
    }

    /// The page of the slot of the row `row` of what the table is built from.
    const fn slot(&self, row: u64) -> u64 {
        let slot = scaled(mix(row + 1), 2 * self.rows());
        2 * self.relation_pages() + slot * self.params.row_bytes / PAGE
    }
}

impl Order for Join {
    const NAME: &'static str = "join";

    fn pages(&self) -> u64 {
        4 * self.relation_pages()
    }

    fn filled(&self) -> u64 {
        2 * self.relation_pages()
    }

    fn next(&mut self, touches: &mut VecDeque<Touch>) {
        let rows = self.rows();
        let (row, probes) = (self.nth % rows.max(1), self.nth >= rows);
        if self.nth >= 2 * rows {
            return;
        }
        self.nth += 1;
        let page = row * self.params.row_bytes / PAGE;
        if probes {
            let partner = scaled(mix(!row), rows);
            touches.push_back(Touch::read(self.relation_pages() + page));
            touches.push_back(Touch::read(self.slot(partner)));
        } else {
            touches.push_back(Touch::read(page));
            touches.push_back(Touch::write(self.slot(row)));
        }
    }
}

/// Parameters of the merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MergeParams {
    /// Pages of the runs, and as many of the result, together.
    pub pages: u64,
    /// Sorted runs.
    pub ways: u64,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// Seed of the records' order.
    pub seed: u64,
    /// CPU time of a touch, nanoseconds.
    pub touch_ns: u32,
}

impl Default for MergeParams {
    /// 64 MiB. The time is what `outpage workload merge` takes without a limit for eight of its words:
    /// 0.17 s for 4,194,304 of them, two touches each.
    fn default() -> Self {
        Self {
            pages: 16_384,
            ways: 64,
            record_bytes: 64,
            seed: 64,
            touch_ns: 160,
        }
    }
}

/// Always the next record of some run, each of those that have one as likely, to the end of the result.
pub struct Merge {
    params: MergeParams,
    random: Random,
    /// The next record and the end of each run that has one.
    runs: Vec<(u64, u64)>,
    merged: u64,
}

impl Merge {
    /// The order with these parameters.
    ///
    /// # Panics
    /// With no run or records of no byte.
    #[must_use]
    pub fn new(params: MergeParams) -> Self {
        assert!(params.record_bytes > 0, "records have bytes");
        let records = params.pages / 2 * PAGE / params.record_bytes / params.ways;
        let run = |at| (at * records, (at + 1) * records);
        Self {
            params,
            random: Random(params.seed | 1),
            runs: (0..params.ways)
                .map(run)
                .filter(|(next, end)| next < end)
                .collect(),
            merged: 0,
        }
    }
}

impl Order for Merge {
    const NAME: &'static str = "merge";

    fn pages(&self) -> u64 {
        2 * (self.params.pages / 2)
    }

    fn filled(&self) -> u64 {
        self.params.pages / 2
    }

    fn next(&mut self, touches: &mut VecDeque<Touch>) {
        if self.runs.is_empty() {
            return;
        }
        let at = self.random.below(self.runs.len() as u64) as usize;
        let (next, end) = &mut self.runs[at];
        let page = |record: u64| record * self.params.record_bytes / PAGE;
        touches.push_back(Touch::read(page(*next)));
        touches.push_back(Touch::write(self.params.pages / 2 + page(self.merged)));
        self.merged += 1;
        *next += 1;
        if next == end {
            self.runs.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use outpage_core::contract::Access::{Read, Write};

    use super::super::order::testing::{collapsed, pages};
    use super::*;

    #[test]
    fn a_join_reads_rows_in_order_and_finds_what_was_put_there() {
        let params = JoinParams {
            pages: 16,
            row_bytes: 100,
            touch_ns: 1,
        };
        let rows = 4 * 4096 / 100;
        let slot = |row: u64| 8 + scaled(mix(row + 1), 2 * rows) * 100 / 4096;
        let build = (0..rows).flat_map(|row| [(row * 100 / 4096, Read), (slot(row), Write)]);
        let probe = (0..rows).flat_map(|row| {
            let asked = slot(scaled(mix(!row), rows));
            [(4 + row * 100 / 4096, Read), (asked, Read)]
        });
        let naive = collapsed(build.chain(probe));
        assert_eq!(pages(Join::new(params)), naive);
        // The table is used evenly: each of its pages has rows.
        let used: std::collections::BTreeSet<u64> =
            (0..rows).map(slot).filter(|&page| page < 16).collect();
        assert_eq!(used.len(), 8);
    }

    #[test]
    fn a_merge_reads_each_run_in_order_to_its_end() {
        for (ways, record_bytes) in [(1, 64), (7, 100), (64, 64)] {
            let params = MergeParams {
                pages: 65,
                ways,
                record_bytes,
                ..MergeParams::default()
            };
            let records = 32 * 4096 / record_bytes / ways;
            let mut order = Merge::new(params);
            let (mut touches, mut taken) = (VecDeque::new(), BTreeMap::new());
            let (mut found, mut naive) = (Vec::new(), Vec::new());
            loop {
                let before = order.runs.clone();
                order.next(&mut touches);
                if touches.is_empty() {
                    break;
                }
                found.extend(touches.drain(..).map(|t| (t.page, t.access)));
                // Which run it was: the one that is a record further, or gone.
                let record = before.iter().find(|run| !order.runs.contains(run));
                let &(record, _) = record.expect("one run went on");
                let merged = naive.len() as u64 / 2;
                naive.push((record * record_bytes / 4096, Read));
                naive.push((32 + merged * record_bytes / 4096, Write));
                let next = taken.entry(record / records).or_insert(0);
                assert_eq!(record % records, *next, "in order");
                *next += 1;
            }
            assert_eq!(found, naive);
            assert_eq!(taken.len() as u64, ways);
            assert!(taken.values().all(|&count| count == records));
        }
    }

    #[test]
    fn every_run_goes_on_at_about_the_same_rate() {
        let mut order = Merge::new(MergeParams::default());
        let mut touches = VecDeque::new();
        for _ in 0..1 << 18 {
            order.next(&mut touches);
            touches.clear();
        }
        let records = (1 << 25) / 64 / 64;
        let done = order.runs.iter().map(|&(next, _)| next % records);
        let (least, most) = (done.clone().min().unwrap(), done.max().unwrap());
        // Half of 8192 on average, and six standard deviations of 64.
        assert!(least > 4096 - 400 && most < 4096 + 400, "{least} {most}");
        assert!(most - least > 100, "no lockstep");
    }
}
