//! The HSN paper, its part on the notifier: guests that page on a host that pages them.

mod figures;
mod setups;

pub(in crate::paper) use setups::setups;
#[cfg(test)]
pub(in crate::paper) use setups::small_setups;

use super::answers::Answers;
use super::claims::section;
use super::evaluation::{Against, Evaluation, Ours};
use super::provenance;
use super::runs::Runs;
use super::spread::Spread;
use super::verdict::{Class, Held};
use crate::guests::Report;
use setups::{DRAWS, Draw, JAVA, RANGES, SYSBENCH, TWO, key};

/// What the runs show.
pub(in crate::paper) fn evaluation(runs: &Runs) -> Evaluation {
    let answers = Answers {
        runs,
        variations: &[],
        answer,
        class,
        remark,
    };
    Evaluation {
        title: "Improving Host Swapping Using Adaptive Prefetching and Paging Notifier (2010): HSN",
        constants: constants(),
        provenance: provenance::table(&[]),
        rows: answers.rows(section("hsn", &[])),
        tables: figures::tables(runs),
        figures: figures::figures(runs),
        curves: figures::curves(runs),
        runs: runs.lines(),
    }
}

fn constants() -> Vec<String> {
    [
        "Two levels: each guest has a pager, a virtual CPU and a program of its own; the host's pager has the guests' frames as its pages. Both are \
         the pager of this project with the policies of the ASP paper's evaluation (page-out linux, slots log, second-chance queues, linux-slot with page-cluster 3), \
         and the notifier of docs/notify.md between them.",
        "KVM-1200, KVM-768, HSN-768: guests of 1200, 768 and 768 MB on a host of 512 MB, the first without swap space; two guests of 300 MB for the last rows of Table 3. \
         Sizes are the paper's; MB are of 2^20 bytes. balloon-768 has a balloon from the beginning that leaves the guest what the host has for it.",
        "Sysbench fills its block with zeroes (memory_init) and writes it once, in order: one request of memory-total-size. The paper names no option but \
         the block's size, so that it writes (memory-oper) by default; the default of memory-total-size, 100 GB, would be a hundred requests and cannot have been. \
         That it reads is shown beside.",
        RANGES,
        "Not published, and chosen: SpecJBB's guest has 768 MB as the other one-guest runs; transactions of the program jvm, which stands in for it, for seven edens.",
        "Disk: 320 GB SATA, 7200 rpm, write cache on, for the host's and the guests' swap spaces. The guests' disks go past the host's page cache; a transfer touches the guest's frames \
         one after the other in a thread of the host's, so that a frame that the host has paged out is read back first.",
        "A page-in of the host is double paging when nobody waits for its pages but a guest's page-out. Counted read by read, with the pages that the read brings along.",
        "Figures are medians of 21 runs, with the least and the most in brackets. What compares runs compares those of equal draws.",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The runs of one draw.
#[derive(Clone, Copy)]
struct Point<'a> {
    runs: &'a Runs,
    seed: u64,
    /// Which of the workloads with one Sysbench.
    sysbench: &'static str,
}

impl<'a> Point<'a> {
    const fn new(runs: &'a Runs, seed: u64) -> Self {
        Self {
            runs,
            seed,
            sysbench: SYSBENCH,
        }
    }
}

fn each_draw(runs: &Runs, figure: impl Fn(Point) -> Option<f64>) -> Vec<f64> {
    let points = (1..=DRAWS).map(|seed| Point::new(runs, seed));
    points.filter_map(figure).collect()
}

fn spread(runs: &Runs, figure: impl Fn(Point) -> Option<f64>) -> Option<Spread> {
    Spread::of(each_draw(runs, figure))
}

/// Pages as MB.
const fn mb(pages: u64) -> f64 {
    pages as f64 / 256.0
}

/// What is recorded on the host's side: Figure 3, and the guests' part of it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Quantity {
    DiskOut,
    HostOut,
    DiskIn,
    HostIn,
    Double,
}

impl Quantity {
    /// The four of the figure.
    const FIGURE: [(Self, &'static str); 4] = [
        (Self::DiskOut, "Disk-out"),
        (Self::HostOut, "the host's of it"),
        (Self::DiskIn, "Disk-in"),
        (Self::HostIn, "the host's of it"),
    ];

    /// MB.
    fn of(self, report: &Report) -> f64 {
        let guests = |pages: fn(&crate::guests::GuestReport) -> u64| -> u64 {
            report.guests.iter().map(pages).sum()
        };
        mb(match self {
            Self::HostOut => report.page_outs,
            Self::HostIn => report.page_ins,
            Self::DiskOut => report.page_outs + guests(|guest| guest.page_outs),
            Self::DiskIn => report.page_ins + guests(|guest| guest.page_ins),
            Self::Double => report.causes.page_out_pages,
        })
    }
}

impl<'a> Point<'a> {
    fn report(self, workload: &str, configuration: &str) -> Option<&'a Report> {
        self.runs.guests(&key(workload, configuration, self.seed))
    }

    fn quantity(self, quantity: Quantity, configuration: &str) -> Option<f64> {
        Some(quantity.of(self.report(self.sysbench, configuration)?))
    }

    /// What the second configuration has of the first one's, percent.
    fn share(self, quantity: Quantity, first: &str, second: &str) -> Option<f64> {
        let of = self.quantity(quantity, first).filter(|of| *of > 0.0)?;
        Some(100.0 * self.quantity(quantity, second)? / of)
    }

    /// Seconds of a guest's Sysbench, by the clock that was drawn.
    fn seconds(self, workload: &str, configuration: &str, guest: usize) -> Option<f64> {
        let report = self.report(workload, configuration)?.guests.get(guest)?;
        let own_clock = Draw::of(self.seed).own_clock;
        let ns = report.since(if own_clock { "timed" } else { "fill" })?;
        Some(ns as f64 / 1e9)
    }

    /// How many times as fast the second configuration is.
    fn times(self, workload: &str, names: [&str; 2], guest: usize) -> Option<f64> {
        let [first, second] = names.map(|name| self.seconds(workload, name, guest));
        Some(first? / second?)
    }

    /// Time that the notifier saves Sysbench in one guest, percent.
    fn saved(self) -> Option<f64> {
        let times = self.times(self.sysbench, ["KVM-768", "HSN-768"], 0)?;
        Some(100.0 * (1.0 - 1.0 / times))
    }

    /// Transactions a second.
    fn score(self, configuration: &str) -> Option<f64> {
        let guest = self.report(JAVA, configuration)?.guests.first()?;
        Some(Draw::of(self.seed).transactions() as f64 * 1e9 / guest.since("timed")? as f64)
    }

    fn score_gain(self) -> Option<f64> {
        Some(100.0 * (self.score("HSN")? / self.score("KVM")? - 1.0))
    }
}

/// A row's name here, by the claims' name and how many guests there are.
fn configuration<'a>(row: &str, guests: usize) -> &'a str {
    match (row, guests) {
        ("kvm", 1) => "KVM-768",
        ("hsn", 1) => "HSN-768",
        ("kvm", _) => "KVM",
        _ => "HSN",
    }
}

fn answer(runs: &Runs, _: &str, keys: &[&str]) -> Ours {
    let over = |figure: &dyn Fn(Point) -> Option<f64>| spread(runs, figure).map(Ours::Spread);
    let answered = match keys {
        ["shape"] => shape(runs),
        ["gain", "sysbench_percent"] => over(&|p| p.saved()),
        ["gain", "specjbb_percent"] => over(&|p| p.score_gain()),
        ["gain", "abstract_factor"] => over(&|p| p.times(TWO, ["KVM", "HSN"], 0)),
        ["one_guest", "sysbench_seconds", row] => {
            over(&|p| p.seconds(SYSBENCH, configuration(row, 1), 0))
        }
        ["one_guest", "specjbb_score", row] => scores(runs, row),
        ["two_guests", "guest_1_seconds", row] => {
            over(&|p| p.seconds(TWO, configuration(row, 2), 0))
        }
        ["two_guests", "guest_2_seconds", row] => {
            over(&|p| p.seconds(TWO, configuration(row, 2), 1))
        }
        _ => None,
    };
    answered.unwrap_or(Ours::None)
}

/// Scores are compared by their ratio to KVM's.
fn scores(runs: &Runs, row: &str) -> Option<Ours> {
    let own = |p: Point| p.score(configuration(row, 2));
    let figure = spread(runs, |p| own(p).map(f64::round))?;
    let of_kvm = spread(runs, |p| Some(own(p)? / p.score("KVM")?))?;
    let published = if row == "kvm" { 1.0 } else { 5492.0 / 4364.0 };
    let text = format!(
        "{figure} transactions/s, {} of KVM (published: {published:.2})",
        of_kvm.ratio()
    );
    Some(Ours::Against(Against {
        text,
        spread: of_kvm,
        published,
        points: false,
    }))
}

/// What a row rests on.
fn class(keys: &[&str]) -> Class {
    match keys {
        ["gain", ..] => Class::Restated,
        // The base of the ratio.
        ["one_guest", "specjbb_score", "kvm"] => Class::Construction,
        _ => Class::Independent,
    }
}

/// Disk-out of HSN-768 is near that of KVM-1200 (5 %), that of KVM-768 far above (a quarter).
fn shape(runs: &Runs) -> Option<Ours> {
    let of = |name| spread(runs, |p| p.share(Quantity::DiskOut, "KVM-1200", name));
    let (kvm, hsn) = (of("KVM-768")?, of("HSN-768")?);
    let near = each_draw(runs, |p| {
        let of = |name| p.share(Quantity::DiskOut, "KVM-1200", name);
        let holds = (of("HSN-768")? - 100.0).abs() <= 5.0 && of("KVM-768")? >= 125.0;
        Some(f64::from(u8::from(holds)))
    });
    let held = Held {
        held: near.iter().sum::<f64>() as u32,
        of: near.len() as u32,
    };
    let text =
        format!("Disk-out of HSN-768 is {hsn} % of that of KVM-1200, that of KVM-768 {kvm} %");
    Some(Ours::Text(text, Some(held)))
}

/// What is said of a deviating claim.
fn remark(keys: &[&str]) -> &'static str {
    match keys {
        ["gain", "sysbench_percent"] | ["one_guest", "sysbench_seconds", ..] => {
            "Nothing that was drawn, nor that Sysbench reads, brings what is saved near 36 % (by what was drawn, below); a cap on hidden pages \
             of 40 % of the frames does (the sweep). The seconds are those of more transfers than the paper's disk makes in its seconds: what it wrote and read \
             is not published in figures."
        }
        ["gain", "abstract_factor"] | ["two_guests", ..] => {
            "The scheduler decides it (by what was drawn, below): under CFQ writes starve, both guests wait for frames, and pages come back alone."
        }
        ["gain", "specjbb_percent"] | ["one_guest", "specjbb_score", ..] => {
            "Neither the heap nor the number of warehouses is published. In no draw of them does the guest page enough by itself: the host moves as much with the \
             notifier as without."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::{Setup, Work};
    use crate::paper::runs::RunKey;
    use crate::paper::runs::testing::quietly;

    /// The same runs at an eighth of all sizes.
    fn small() -> Vec<(RunKey, Setup)> {
        let mut all = setups();
        all.retain(|(key, _)| key.seed <= 2 && key.workload != setups::SWEEP);
        for (_, setup) in &mut all {
            setup.frames /= 8;
            for guest in &mut setup.guests {
                (guest.frames, guest.balloon) = (guest.frames / 8, guest.balloon / 8);
                match &mut guest.work {
                    Work::Sysbench(work) => {
                        work.system_pages /= 8;
                        work.block_pages /= 8;
                    }
                    Work::Jvm(work) => {
                        work.memory_pages /= 8;
                        work.heap_pages /= 8;
                        work.warehouse_pages /= 8;
                        work.warehouse_pages_max /= 8;
                        work.transactions = 2_000;
                    }
                }
            }
        }
        all
    }

    #[test]
    fn every_published_figure_has_an_answer() {
        let runs = Runs::run_guests(&small(), quietly());
        for claim in section("hsn", &[]) {
            let ours = answer(&runs, "", &claim.keys());
            assert_ne!(ours, Ours::None, "{:?}", claim.path);
        }
        let evaluation = evaluation(&runs);
        assert_eq!(evaluation.rows.len(), 1 + 3 + 4 + 4);
        assert!(evaluation.runs.values().all(Result::is_ok));
        let figure = evaluation.figures.first().expect("Figure 3");
        assert!(
            figure
                .chart
                .series
                .iter()
                .flat_map(|s| &s.values)
                .all(Option::is_some)
        );
        assert!(evaluation.markdown().contains("Disk-out"));
        let p = Point::new(&runs, 1);
        let double = |name| p.quantity(Quantity::Double, name).expect("a run");
        assert!(double("HSN-768") < double("KVM-768") / 10.0);
        assert_eq!([double("KVM-1200"), double("balloon-768")], [0.0, 0.0]);
    }
}
