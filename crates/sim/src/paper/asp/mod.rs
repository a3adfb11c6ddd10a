//! The ASP paper, its part on read-ahead: three guests with Java heaps on a host with too little
//! memory.

mod figures;
mod orders;
mod setups;

pub(in crate::paper) use setups::setups;

use super::answers::Answers;
use super::claims::section;
use super::draw::RANGES;
use super::ensemble::{Sample, samples};
use super::evaluation::{Against, Evaluation, Ours};
use super::provenance;
use super::runs::Runs;
use super::spread::Spread;
use super::table::short;
use super::verdict::Class;
use crate::world::Report;
use setups::{ASP, EVERY_FIND, FIXED_WORK, OF_ASP, SCHEDULERS, VARIED, key, variations};

/// What the runs show.
pub(in crate::paper) fn evaluation(runs: &Runs) -> Evaluation {
    let variations = variations();
    let answers = Answers {
        runs,
        variations: &variations,
        answer,
        class,
        remark,
    };
    let claims = section("asp", &[]);
    let joint = answers.joint_table(&claims);
    Evaluation {
        title: "Improving Host Swapping Using Adaptive Prefetching and Paging Notifier (2010): ASP",
        constants: constants(),
        provenance: provenance::table(provenance::ASP),
        rows: answers.rows(claims),
        tables: [joint].into_iter().chain(figures::tables(runs)).collect(),
        figures: Vec::new(),
        curves: figures::curves(runs),
        runs: runs.lines(),
    }
}

fn constants() -> Vec<String> {
    [
        "Guests: three of 320 MB, each with a Java heap of 230 MB, as generators (program jvm) calibrated to the \
         collector's log of workloads/jbb, which stands in for SPECjbb. Each runs for two minutes, as SPECjbb2000 does; its score is what it did. They have \
         no swap of their own, as in the paper.",
        "Host: victims in access order (page-out linux, 32 pages), slots one behind the other (log), second-chance \
         queues; pages read along wait unmapped in the swap cache. The kernel's own memory is not counted.",
        "Memory: 512 MB for the guests' 960 MB, the only host memory that the paper names (section 4.2, for its other \
         experiments); its own for this one is not published. 45 to 65 % of the guests' is swept (above that hardly \
         anything is paged).",
        "Read-ahead: linux-slot with block=fixed (Linux before 3.14), page-cluster 3, 4, 5; the paper's rows of ASP are judged by asp2, its improved \
         design of section 3.1.3, at its constants, an entry for each guest, windows from the multiple of 8 at or below the target. asp, of section 3.1.2, stands \
         beside it; windows from the target itself and around it are variations.",
        "Disk: 320 GB SATA, 7200 rpm, write cache on; CFQ and anticipatory at the kernel's defaults. Table 2 under CFQ.",
        "One CPU for all guests, where the host had four: the guests' transactions are varied to a third of their time.",
        "Scores are compared by their ratios to Linux under CFQ; totals of swap-ins by their ratios to page-cluster 3, windows of ASP by their shares.",
        RANGES,
        "Drawn besides: how often a collection looks into a page, 2 to 6 times, which the recording that it was fitted to does not tell apart. Variations have the \
         first five draws, and are compared with these.",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The runs of one variant and one draw.
#[derive(Clone, Copy)]
struct Point<'a>(Sample<'a>);

/// A figure of every draw whose runs came to their ends.
fn each_draw(runs: &Runs, variant: &str, figure: impl Fn(Point) -> Option<f64>) -> Vec<f64> {
    let points = samples(runs, variant, VARIED).map(Point);
    points.filter_map(figure).collect()
}

fn spread(runs: &Runs, variant: &str, figure: impl Fn(Point) -> Option<f64>) -> Option<Spread> {
    Spread::of(each_draw(runs, variant, figure))
}

impl<'a> Point<'a> {
    /// The run of a read-ahead policy; under a variation of ASP alone, Linux is as it is.
    fn report(self, scheduler: &str, reader: &str) -> Option<&'a Report> {
        let Sample {
            runs,
            variant,
            draw,
        } = self.0;
        let own = OF_ASP.iter().find(|of| of.0.name() == variant);
        let (reader, variant) = match own {
            Some(&(_, own)) if reader == ASP => (own, ""),
            Some(_) => (reader, ""),
            None if self.counts_finds() => (reader, ""),
            None => (reader, variant),
        };
        runs.get(&key(scheduler, reader).varied(variant).seeded(draw))
    }

    /// Transactions a second. Guests run for a fixed time: their own rates, added, as SPECjbb's scores. With fixed work: of all
    /// guests together, from the first one's timed part to the last one's end, as a guest that had memory to itself while the
    /// others starved, and then left it to them, would count for too much.
    fn score(self, scheduler: &str, reader: &str) -> Option<f64> {
        let report = self.report(scheduler, reader)?;
        let timed = || report.phases.iter().filter(|phase| phase.name == "timed");
        let done = |program: usize| report.programs[program].done as f64;
        if self.0.variant != FIXED_WORK.name() {
            let rates = timed()
                .map(|p| done(p.program) * 1e9 / p.to_ns.saturating_sub(p.from_ns).max(1) as f64);
            return Some(rates.sum());
        }
        let from = timed().map(|phase| phase.from_ns).min()?;
        let to = timed().map(|phase| phase.to_ns).max()?;
        let done: f64 = timed().map(|phase| done(phase.program)).sum();
        Some(done * 1e9 / to.saturating_sub(from).max(1) as f64)
    }

    /// By how much the second run's score is above the first's, percent.
    fn gain(self, first: [&str; 2], second: [&str; 2]) -> Option<f64> {
        let [first, second] = [first, second].map(|[s, r]| self.score(s, r));
        Some(100.0 * (second? / first? - 1.0))
    }

    fn asp_gain(self, scheduler: &str) -> Option<f64> {
        self.gain([scheduler, "page-cluster 3"], [scheduler, ASP])
    }

    fn anticipatory_gain(self, reader: &str) -> Option<f64> {
        let [cfq, other] = SCHEDULERS.map(|scheduler| [scheduler, reader]);
        self.gain(cfq, other)
    }

    fn counts_finds(self) -> bool {
        EVERY_FIND.name() == self.0.variant
    }

    /// Percent, under CFQ.
    fn hit_rate(self, reader: &str) -> Option<f64> {
        let report = self.report("cfq", reader)?;
        if !self.counts_finds() {
            return report.hit_rate_percent();
        }
        let finds = report.minor_faults.saturating_sub(report.zero_fills);
        (report.read_ahead > 0).then(|| 100.0 * finds as f64 / report.read_ahead as f64)
    }

    /// Under CFQ.
    fn swap_ins(self, reader: &str) -> Option<f64> {
        Some(self.report("cfq", reader)?.major_faults as f64)
    }

    /// Pages read by a page-in under CFQ; `None` where there is no page-in.
    fn pages_a_swap_in(self, reader: &str) -> Option<f64> {
        let report = self.report("cfq", reader)?;
        (report.major_faults > 0).then(|| report.page_ins as f64 / report.major_faults as f64)
    }

    /// Swap-ins with a window of `size` slots, percent of all, under CFQ.
    fn share(self, reader: &str, size: u32) -> Option<f64> {
        let report = self.report("cfq", reader)?;
        let these = report.windows.iter().filter(|w| w.0 == size);
        let these: u64 = these.map(|w| w.1).sum();
        (report.major_faults > 0).then(|| 100.0 * these as f64 / report.major_faults as f64)
    }
}

/// The name of a run for one of the tables' rows.
fn reader(row: &str) -> String {
    match row {
        "kvm" => "page-cluster 3".to_owned(),
        "asp" => ASP.to_owned(),
        row => row.replace("page_cluster_", "page-cluster "),
    }
}

fn answer(runs: &Runs, variant: &str, keys: &[&str]) -> Ours {
    let over = |figure: &dyn Fn(Point) -> Option<f64>| spread(runs, variant, figure);
    let answered = match keys {
        ["score", scheduler, row] => scores(runs, variant, scheduler, row),
        ["gain_percent", "asp_over_kvm", scheduler] => {
            over(&|p| p.asp_gain(scheduler)).map(Ours::Spread)
        }
        ["gain_percent", "anticipatory_over_cfq", row] => {
            over(&|p| p.anticipatory_gain(&reader(row))).map(Ours::Spread)
        }
        ["gain_percent", "abstract_factor"] => largest_gain(runs, variant),
        ["swap_cache", row, "hit_rate_percent"] => {
            over(&|p| p.hit_rate(&reader(row))).map(Ours::Spread)
        }
        ["swap_cache", row, "total"] => total(runs, variant, row),
        ["swap_cache", row, "swapins", size] => windows(runs, variant, row, size),
        _ => None,
    };
    answered.unwrap_or(Ours::None)
}

/// Published values that rows are compared with by their ratio: Table 1, Table 2.
fn published(keys: &[&str]) -> Option<f64> {
    Some(match keys {
        ["cfq", "kvm"] => 3417.0,
        ["cfq", "asp"] => 4045.0,
        ["anticipatory", "kvm"] => 3632.0,
        ["anticipatory", "asp"] => 4287.0,
        ["page_cluster_3"] => 15_642.0,
        ["page_cluster_4"] => 18_031.0,
        ["page_cluster_5"] => 21_852.0,
        ["asp"] => 18_770.0,
        _ => return None,
    })
}

/// A figure, its ratio to that of a base, and the published ratio.
fn ratio(figure: Spread, unit: &str, of_base: Spread, published: f64) -> Ours {
    let text = format!(
        "{}{unit}, {:.2} of the base (published: {published:.2})",
        short(figure.median),
        of_base.median
    );
    Ours::Against(Against {
        text,
        spread: of_base,
        published,
        points: false,
    })
}

fn scores(runs: &Runs, variant: &str, scheduler: &str, row: &str) -> Option<Ours> {
    let own = |p: Point| p.score(scheduler, &reader(row));
    let of_base = |p: Point| Some(own(p)? / p.score("cfq", "page-cluster 3")?);
    let published = published(&[scheduler, row])? / published(&["cfq", "kvm"])?;
    let figure = spread(runs, variant, |p| own(p).map(f64::round))?;
    let of_base = spread(runs, variant, of_base)?;
    Some(ratio(figure, " transactions/s", of_base, published))
}

fn total(runs: &Runs, variant: &str, row: &str) -> Option<Ours> {
    let own = |p: Point| p.swap_ins(&reader(row));
    let of_base = |p: Point| {
        let base = p.swap_ins("page-cluster 3").filter(|base| *base > 0.0)?;
        Some(own(p)? / base)
    };
    let published = published(&[row])? / published(&["page_cluster_3"])?;
    let (figure, of_base) = (spread(runs, variant, own)?, spread(runs, variant, of_base)?);
    Some(ratio(figure, "", of_base, published))
}

fn windows(runs: &Runs, variant: &str, row: &str, size: &str) -> Option<Ours> {
    let slots = size.parse().ok()?;
    let ours = spread(runs, variant, |p| p.share(&reader(row), slots))?;
    let published = match (row, size) {
        ("asp", "8") => 39.9,
        ("asp", "16") => 33.5,
        ("asp", "24") => 10.8,
        ("asp", "32") => 15.8,
        // By the definition of page-cluster.
        _ => 100.0,
    };
    let text = format!(
        "{:.1} % of swap-ins (published: {published:.1} %)",
        ours.median
    );
    Some(Ours::Against(Against {
        text,
        spread: ours,
        published,
        points: true,
    }))
}

/// The abstract's factor, against the larger gain of the two schedulers.
fn largest_gain(runs: &Runs, variant: &str) -> Option<Ours> {
    let largest = spread(runs, variant, |p| {
        let [cfq, other] = SCHEDULERS.map(|scheduler| p.asp_gain(scheduler));
        Some(1.0 + cfq?.max(other?) / 100.0)
    })?;
    Some(Ours::Against(Against {
        text: format!("{:.2} at most", largest.median),
        spread: largest,
        published: 1.4,
        points: false,
    }))
}

/// What a row rests on. Scores have no unit in common with the paper's: there are three ratios, and four gains.
fn class(keys: &[&str]) -> Class {
    match keys {
        // The bases of the ratios, and windows that have one size by definition.
        ["score", "cfq", "kvm"] | ["swap_cache", "page_cluster_3", "total"] => Class::Construction,
        ["swap_cache", row, "swapins", _] if *row != "asp" => Class::Construction,
        ["score", ..] => Class::Restated,
        // From the other three; from the other shares.
        ["gain_percent", "anticipatory_over_cfq", "asp"] => Class::Derived,
        ["swap_cache", "asp", "swapins", "32"] => Class::Derived,
        _ => Class::Independent,
    }
}

/// What is said besides the variations.
fn remark(keys: &[&str]) -> &'static str {
    match keys {
        ["gain_percent", "abstract_factor"] => "No table of the paper shows it: Table 1 has 1.18.",
        _ => "",
    }
}

fn head(names: &[&str]) -> Vec<String> {
    names.iter().map(|&n| n.to_owned()).collect()
}

/// Runs of small guests, for tests: at every point, two draws each.
#[cfg(test)]
pub(in crate::paper) fn small_runs() -> Runs {
    Runs::run(
        setups::setups_of(tests::small(), 2),
        super::runs::testing::quietly(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::claims::Published;
    use crate::paper::draw::DRAWS;
    use crate::paper::runs::RunKey;
    use crate::paper::runs::testing::quietly;
    use crate::programs::{JvmParams, Spec};
    use outpage_core::readahead;
    use setups::setups_of;
    use std::collections::BTreeMap;

    /// Small guests with little beside the heap, so that they page at 80 % too.
    pub(super) fn small() -> JvmParams {
        JvmParams {
            memory_pages: 1_200,
            heap_pages: 1_152,
            warehouse_pages: 96,
            warehouse_pages_max: 120,
            transactions: 3_000,
            timed_ms: 2_000,
            ..JvmParams::default()
        }
    }

    #[test]
    fn every_published_figure_has_an_answer() {
        let runs = small_runs();
        assert_eq!(runs.failures().next(), None);
        let target = OF_ASP[0].0.name();
        for claim in section("asp", &[]) {
            for variant in ["", &target] {
                let ours = answer(&runs, variant, &claim.keys());
                assert_ne!(ours, Ours::None, "{:?} {variant}", claim.path);
            }
        }
        let evaluation = evaluation(&runs);
        assert!(evaluation.tables.len() >= 2 && evaluation.curves.len() >= 3);
        assert!(evaluation.markdown().contains("page-cluster 5"));
        let orders = evaluation.tables.last().expect("there are tables");
        let swept = setups::by_memory().len();
        let besides = variations().len() - (swept - 1);
        assert_eq!(orders.rows.len(), swept + besides);
        for cell in orders.rows.iter().flat_map(|row| &row[2..]) {
            assert!(cell == "-" || cell.ends_with(" of 2"), "{cell}");
        }
    }

    #[test]
    fn every_point_is_run_at_every_draw_and_no_run_comes_twice() {
        let mut points: BTreeMap<RunKey, Vec<u64>> = BTreeMap::new();
        for (key, setup) in setups() {
            for program in &setup.programs {
                let Spec::Jvm(guest) = program else {
                    panic!("a guest");
                };
                assert_eq!(guest.seed, key.seed, "{key:?}");
            }
            let seed = key.seed;
            points.entry(key.seeded(0)).or_default().push(seed);
        }
        for (key, seeds) in points {
            let expected = if key.variant.is_empty() {
                DRAWS
            } else {
                VARIED
            };
            assert_eq!(seeds, expected.collect::<Vec<_>>(), "{key:?}");
        }
    }

    /// Both forget where they read: the second place is never remembered, as with one.
    #[test]
    fn two_slots_that_forget_their_places_do_what_one_does() {
        let mut setups = setups_of(small(), 1);
        setups.retain(|(key, _)| ["asp", "asp2", "asp2, all reset"].contains(&key.policy.as_str()));
        let runs = Runs::run(setups, quietly());
        let of = |reader: &str| runs.get(&key("cfq", reader).seeded(1)).expect("it ran");
        assert_eq!(of("asp2, all reset"), of("asp"));
        assert_ne!(of("asp2"), of("asp"));
    }

    #[test]
    fn what_is_compared_by_ratio_is_what_was_published() {
        for claim in section("asp", &[]) {
            let Published::Number(number) = claim.published else {
                panic!("{:?} is a number", claim.path);
            };
            let ours = match claim.keys()[..] {
                ["score", scheduler, row] => published(&[scheduler, row]),
                ["swap_cache", row, "total"] => published(&[row]),
                _ => continue,
            };
            assert_eq!(ours, Some(number), "{:?}", claim.path);
        }
    }

    #[test]
    fn the_policies_run_at_the_papers_constants() {
        for name in ["asp", "asp2"] {
            let plain = readahead::Choice::plain(readahead::find(name).expect("registered"));
            let ours = ["mdis", "window", "step", "max"].map(|name| plain.values().of(name));
            assert_eq!(ours, [8, 8, 8, 32], "{name}");
        }
    }

    #[test]
    fn the_host_has_512_mb_and_the_sweep_is_around_it() {
        for (key, setup) in setups().iter().filter(|s| s.0.variant.is_empty()) {
            assert!(setup.frames.abs_diff(131_072) <= 1_310, "{key:?}");
            assert_eq!(setup.programs.len(), 3);
        }
        let places = setups::by_memory();
        assert!(places.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(places.iter().any(|place| place.1.is_empty()));
    }
}
