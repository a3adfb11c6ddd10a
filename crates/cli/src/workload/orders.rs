//! Orders of whole pages in which reading ahead goes wrong now and then: forward and back, runs that end
//! without notice, and phases of different orders.

use super::data::Data;
use super::pages::{Model, PAGES_PER_MIB};
use super::report::Recorder;
use super::rng::Rng;
use super::{Args, Outcome, WorkloadError};

/// Settings of the workloads whose order is what they are about.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// column: bytes of a row
    #[arg(long, value_name = "BYTES", default_value_t = 24_000, value_parser = clap::value_parser!(u32).range(8..=1 << 30))]
    pub row_bytes: u32,
    /// column: bytes from a word that is walked to the next one of its row
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=1 << 30))]
    pub step_bytes: u32,
    /// column: with 2, what is read in one array is added to another one, in the order of that
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    pub arrays: u32,
    /// column, zigzag: write what is read
    #[arg(long)]
    pub writes: bool,
    /// transpose: words of a tile's side [default: row by row, without tiles]
    #[arg(long, value_name = "WORDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub tile: Option<u32>,
    /// fft: stage by stage over the whole array instead of each half through all its stages
    #[arg(long)]
    pub breadth: bool,
    /// fft: bring the spectrum into its natural order and back
    #[arg(long)]
    pub reversal: bool,
    /// merge: sorted runs that are merged at once
    #[arg(long, value_name = "RUNS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub ways: u32,
    /// runs: pages of the longest run
    #[arg(long, value_name = "PAGES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub longest: u32,
    /// phases: touches before the order changes
    #[arg(long, value_name = "TOUCHES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub phase: u32,
}

/// Passes over all pages by turns forward and back, each page read.
pub fn zigzag(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let passes = u64::from(args.passes.unwrap_or(4));
    touch(args, recorder, passes * pages_of(args), |nth| {
        let (pass, at) = (nth / pages_of(args), nth % pages_of(args));
        let page = if pass % 2 == 0 {
            pages_of(args) - 1 - at
        } else {
            at
        };
        (page, args.orders.writes)
    })
}

/// Runs of 1 to `--longest` pages, each length as likely, at random places; of each run all pages are
/// read, of every other run written as well.
pub fn runs(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let mut rng = Rng::new(64);
    let (pages, longest) = (pages_of(args), u64::from(args.orders.longest));
    let (mut at, mut left, mut write) = (0, 0, false);
    touch(args, recorder, args.touches, |_| {
        if left == 0 {
            left = 1 + rng.below(longest.min(pages) as usize) as u64;
            at = rng.below((pages - left + 1) as usize) as u64;
            write = rng.next() & 1 == 0;
        }
        left -= 1;
        at += 1;
        (at - 1, write)
    })
}

/// Pages between two touches of a phase with a stride.
const STRIDE_PAGES: u64 = 16;

/// The order of a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// One page behind the other, from where the last such phase ended.
    Sequential,
    /// Any page.
    Random,
    /// Every 16th page, and from the end on those beside them.
    Strided,
}

impl Order {
    /// The orders by turns; what has no order lies between what has.
    const ALL: [Self; 4] = [Self::Sequential, Self::Random, Self::Strided, Self::Random];

    /// The `nth` page of all touches in this order.
    fn page(self, nth: u64, pages: u64, rng: &mut Rng) -> u64 {
        match self {
            Self::Sequential => nth % pages,
            Self::Random => rng.below(pages as usize) as u64,
            Self::Strided => {
                let columns = (pages / STRIDE_PAGES).max(1);
                (nth % columns * STRIDE_PAGES + nth / columns % STRIDE_PAGES) % pages
            }
        }
    }
}

/// Phases of `--phase` touches: in order, at random, every 16th page, at random, and again. A quarter of
/// the touches are writes.
pub fn phases(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let mut rng = Rng::new(16);
    let phase = u64::from(args.orders.phase);
    let mut done = [0; Order::ALL.len()];
    touch(args, recorder, args.touches, |nth| {
        let turn = (nth / phase) as usize % Order::ALL.len();
        let page = Order::ALL[turn].page(done[turn], pages_of(args), &mut rng);
        done[turn] += 1;
        (page, rng.next() & 3 == 0)
    })
}

/// Pages of the region.
fn pages_of(args: &Args) -> u64 {
    u64::from(args.mib) * PAGES_PER_MIB as u64
}

/// Writes all pages in order, touches the pages that `next` names, and whether to write them, and
/// checks all.
fn touch(
    args: &Args,
    recorder: &mut Recorder,
    touches: u64,
    mut next: impl FnMut(u64) -> (u64, bool),
) -> Result<Outcome, WorkloadError> {
    let mut model = Model::written(args.mib, Data::Incompressible, recorder)?;
    recorder.phase("touches", |progress| {
        for nth in 0..touches {
            let (page, write) = next(nth);
            model.touch(page as usize, write)?;
            progress.at(nth, touches);
        }
        Ok(())
    })?;
    model.check(recorder)
}

#[cfg(test)]
mod tests {
    use super::super::testing::args;
    use super::*;

    #[test]
    fn all_orders_hold_what_they_wrote() {
        let recorder = || Recorder::new(false);
        let args = |text: &str| args(&format!("{text} --mib 1 --touches 3000"));
        zigzag(&args("zigzag --writes --passes 3"), &mut recorder()).unwrap();
        runs(&args("runs --longest 1000"), &mut recorder()).unwrap();
        let outcome = phases(&args("phases --phase 100"), &mut recorder()).unwrap();
        assert_eq!(outcome.verified, 3000 + 256);
    }

    #[test]
    fn a_strided_phase_visits_every_page_once() {
        let mut rng = Rng::new(1);
        let mut pages: Vec<u64> = (0..64)
            .map(|nth| Order::Strided.page(nth, 64, &mut rng))
            .collect();
        assert_eq!(pages[..6], [0, 16, 32, 48, 1, 17]);
        pages.sort_unstable();
        assert!(pages.into_iter().eq(0..64));
        assert!((0..99).all(|nth| Order::Strided.page(nth, 7, &mut rng) < 7));
    }
}
