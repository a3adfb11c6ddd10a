//! What data bases do with more rows than memory: a hash join, and a merge of sorted runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::report::{Progress, Recorder};
use super::rng::{fold, mix};
use super::words::{expect, filled, word, words_of};
use super::{Args, Outcome, WorkloadError};

/// Words of a row: a key and what belongs to it, 128 bytes together.
const ROW_WORDS: usize = 16;
/// Slots of the hash table for each row in it.
const SLOTS_PER_ROW: usize = 2;

/// The row that is built from, and the row that is probed with, as they stand in their relations.
const BUILT: u64 = 1;
const PROBED: u64 = 2;

/// The key of row `row` of what is built: no two rows have the same one, and none is zero but by one
/// chance in 2^64.
const fn key(row: usize) -> u64 {
    mix(row as u64 + 1)
}

/// The row of what is built that row `row` of what is probed asks for.
const fn partner(row: usize, rows: usize) -> usize {
    ((mix(row as u64 ^ 0x005e_ed00) as u128 * rows as u128) >> 64) as usize
}

/// What stands at `index` of a relation whose rows have these keys.
fn cell(relation: u64, key: impl Fn(usize) -> u64, index: usize) -> u64 {
    if index.is_multiple_of(ROW_WORDS) {
        key(index / ROW_WORDS)
    } else {
        word(relation, index)
    }
}

/// An open-addressed table of whole rows; a key of zero is an empty slot.
struct Table {
    words: Vec<u64>,
}

impl Table {
    /// The first word of the slot that has `key`, or of the empty one where it belongs.
    fn find(&self, key: u64) -> usize {
        let slots = self.words.len() / ROW_WORDS;
        let mut slot = ((u128::from(mix(key)) * slots as u128) >> 64) as usize;
        loop {
            let found = self.words[slot * ROW_WORDS];
            if found == key || found == 0 {
                return slot * ROW_WORDS;
            }
            slot = (slot + 1) % slots;
        }
    }

    fn insert(&mut self, row: &[u64]) {
        let at = self.find(row[0]);
        self.words[at..at + ROW_WORDS].copy_from_slice(row);
    }
}

/// Rows of one relation go into a hash table, those of another ask it, both relations in order. A
/// quarter of `--mib` is each relation, half of it the table.
pub fn join(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let rows = words_of(args.mib) / ROW_WORDS / (2 + SLOTS_PER_ROW);
    let (built, probed) = recorder.phase("init", |progress| {
        let len = rows * ROW_WORDS;
        let built = filled(len, progress, |i| cell(BUILT, key, i));
        let asks = |row| key(partner(row, rows));
        (built, filled(len, progress, |i| cell(PROBED, asks, i)))
    });
    let table = recorder.phase("build", |progress| {
        let mut table = Table {
            words: vec![0; rows * ROW_WORDS * SLOTS_PER_ROW],
        };
        for (done, row) in built.chunks_exact(ROW_WORDS).enumerate() {
            table.insert(row);
            progress.at(done as u64, rows as u64);
        }
        table
    });
    let checksum = recorder.phase("probe", |progress| probe(&table, &probed, progress))?;
    Ok(Outcome {
        checksum,
        verified: rows as u64,
    })
}

/// Looks up every row of `probed` and compares what is found with what was built.
fn probe(table: &Table, probed: &[u64], progress: &mut Progress) -> Result<u64, WorkloadError> {
    let rows = probed.len() / ROW_WORDS;
    let mut sum = 0;
    for (row, asking) in probed.chunks_exact(ROW_WORDS).enumerate() {
        let wanted = partner(row, rows);
        let at = table.find(asking[0]);
        for (word, &asked) in asking.iter().enumerate() {
            let found = table.words[at + word];
            let expected = cell(BUILT, key, wanted * ROW_WORDS + word);
            expect("a row of the table", at + word, found, expected)?;
            let place = row * ROW_WORDS + word;
            let expected = cell(PROBED, |row| key(partner(row, rows)), place);
            expect("a row that asks", place, asked, expected)?;
            sum = fold(sum, found ^ asked.rotate_left(1));
        }
        progress.at(row as u64, rows as u64);
    }
    Ok(sum)
}

/// What sorted runs of the same length hold, one behind the other: ascending by gaps of a mean of 2^31,
/// each run from a start of its own, so that no two reach the end of a page together for long.
struct Sorted {
    run_words: usize,
    last: u64,
}

impl Sorted {
    const fn new(run_words: usize) -> Self {
        let last = 0;
        Self { run_words, last }
    }

    /// The value at `index`; those before it were asked for in order.
    const fn value(&mut self, index: usize) -> u64 {
        let (run, at) = (index / self.run_words, index % self.run_words);
        if at == 0 {
            // A page of gaps at most.
            self.last = mix(run as u64) >> 24;
        }
        self.last += 1 + (word(run as u64, at) >> 32);
        self.last
    }
}

/// Sorted runs, one behind the other in half of `--mib`, merged into the other half.
pub fn merge(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let ways = args.orders.ways as usize;
    let run_words = words_of(args.mib) / 2 / ways;
    let len = run_words * ways;
    let runs = recorder.phase("init", |progress| {
        let mut sorted = Sorted::new(run_words);
        filled(len, progress, |i| sorted.value(i))
    });
    let merged = recorder.phase("merge", |progress| merged(&runs, run_words, progress));
    let sum = |words: &[u64]| {
        words
            .iter()
            .fold(0, |sum: u64, &w| sum.wrapping_add(mix(w)))
    };
    let checksum = recorder.phase("check", |_| {
        if !merged.is_sorted() {
            return Err(WorkloadError(
                "wrong contents: what was merged is not sorted".into(),
            ));
        }
        let mut sorted = Sorted::new(run_words);
        let expected = (0..len).fold(0, |sum: u64, i| sum.wrapping_add(mix(sorted.value(i))));
        expect("the sum of what was merged", len, sum(&merged), expected)?;
        Ok(merged.iter().fold(0, |sum, &word| fold(sum, word)))
    })?;
    Ok(Outcome {
        checksum,
        verified: len as u64,
    })
}

/// Always the least of what the runs have next.
fn merged(runs: &[u64], run_words: usize, progress: &mut Progress) -> Vec<u64> {
    let mut merged = Vec::with_capacity(runs.len());
    let ways = runs.len().checked_div(run_words).unwrap_or(0);
    let mut next: BinaryHeap<Reverse<(u64, usize)>> = (0..ways)
        .map(|run| Reverse((runs[run * run_words], run * run_words)))
        .collect();
    while let Some(Reverse((value, at))) = next.pop() {
        merged.push(value);
        if !(at + 1).is_multiple_of(run_words) {
            next.push(Reverse((runs[at + 1], at + 1)));
        }
        progress.at(merged.len() as u64, runs.len() as u64);
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::super::testing::args;
    use super::*;

    #[test]
    fn every_row_finds_its_partner() {
        let outcome = join(&args("join --mib 1"), &mut Recorder::new(false)).unwrap();
        assert_eq!(outcome.verified, (1 << 20) / 128 / 4);
    }

    #[test]
    fn a_table_that_lost_a_row_is_found_out() {
        let rows = 64;
        let relation = |number, key: &dyn Fn(usize) -> u64| -> Vec<u64> {
            let cells = (0..rows * ROW_WORDS).map(|i| cell(number, key, i));
            cells.collect()
        };
        let built = relation(BUILT, &key);
        let probed = relation(PROBED, &|row| key(partner(row, rows)));
        let mut table = Table {
            words: vec![0; rows * ROW_WORDS * SLOTS_PER_ROW],
        };
        built
            .chunks_exact(ROW_WORDS)
            .for_each(|row| table.insert(row));
        let mut recorder = Recorder::new(false);
        let mut probe = |table: &Table| recorder.phase("probe", |p| probe(table, &probed, p));
        probe(&table).unwrap();
        let lost = table.find(key(partner(5, rows)));
        table.words[lost + 3] ^= 1 << 40;
        assert!(probe(&table).is_err());
        table.words[lost..lost + ROW_WORDS].fill(0);
        assert!(probe(&table).is_err());
    }

    #[test]
    fn few_runs_and_many_are_merged() {
        for ways in [1, 2, 7, 1024] {
            let args = args(&format!("merge --mib 1 --ways {ways}"));
            let outcome = merge(&args, &mut Recorder::new(false)).unwrap();
            assert_eq!(outcome.verified, (1 << 16) / ways * ways);
        }
    }

    #[test]
    fn merging_is_sorting() {
        let mut sorted = Sorted::new(12);
        let runs: Vec<u64> = (0..60).map(|i| sorted.value(i)).collect();
        let found = Recorder::new(false).phase("merge", |p| merged(&runs, 12, p));
        let mut expected = runs.clone();
        expected.sort_unstable();
        assert_eq!(found, expected);
        assert!(runs.chunks_exact(12).all(<[u64]>::is_sorted));
    }
}
