//! The ASP paper, its part on read-ahead: three guests with Java heaps on a host with too little
//! memory.

mod figures;
mod setups;

pub(in crate::paper) use setups::setups;

use super::claims::section;
use super::evaluation::{Answers, Evaluation, Ours, short};
use super::runs::Runs;
use crate::programs::JvmParams;
use crate::world::Report;
use setups::{SCHEDULERS, TARGET, VARIATIONS, key};

/// Transactions that each guest makes in the timed part.
fn transactions() -> f64 {
    JvmParams::default().transactions as f64
}

/// Runs everything.
pub(in crate::paper) fn evaluate(threads: usize, progress: &(dyn Fn(usize) + Sync)) -> Evaluation {
    evaluation(&Runs::run(setups(), threads, progress))
}

fn evaluation(runs: &Runs) -> Evaluation {
    let answers = Answers {
        runs,
        variations: VARIATIONS,
        answer,
        remark,
    };
    Evaluation {
        title: "Improving Host Swapping Using Adaptive Prefetching and Paging Notifier (2010): ASP",
        constants: constants(),
        rows: answers.rows(section("asp", &[])),
        tables: figures::tables(runs),
        figures: Vec::new(),
        curves: figures::curves(runs),
        runs: runs.all().map(|(k, o)| (k.clone(), o.clone())).collect(),
    }
}

fn constants() -> Vec<String> {
    [
        "Guests: three of 320 MB, each with a Java heap of 230 MB, as generators (program jvm) calibrated to the \
         collector's log of workloads/jbb, which stands in for SPECjbb; 300,000 transactions each. They have no swap \
         of their own, as in the paper.",
        "Host: victims in access order (page-out linux, 32 pages), slots one behind the other (log), second-chance \
         queues; pages read along wait unmapped in the swap cache. The kernel's own memory is not counted.",
        "Memory: 512 MB for the guests' 960 MB, the only host memory that the paper names (section 4.2, for its other \
         experiments); its own for this one is not published. 45 to 80 % of the guests' is swept, and nothing was chosen \
         to meet a figure.",
        "Read-ahead: linux-slot with block=fixed (Linux before 3.14), page-cluster 3, 4, 5; asp and asp2 at the paper's \
         constants, an entry for each guest, windows from the multiple of 8 at or below the target; from the target \
         itself and around it as variations.",
        "Disk: 320 GB SATA, 7200 rpm, write cache on; CFQ and anticipatory at the kernel's defaults. Table 2 under CFQ.",
        "One CPU for all guests, where the host had four: the guests' transactions are varied to a third of their time.",
        "A score is the guests' transactions together by the time that all of them took: SPECjbb's is over a fixed time, \
         ours over fixed work. Scores are compared by their ratios to Linux under CFQ.",
        "One run each. Near the size where the guests begin to page together, which of them starves is chance: the \
         other seed and the neighbouring sizes show how far figures there depend on it.",
        "Table 2 counts swap-ins from the start to the end of a run. The paper counts those of a run of unknown length: \
         totals are compared by their ratios to page-cluster 3, windows of ASP by their shares.",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The run of a variant; one that varies ASP alone has Linux as it is.
fn report<'a>(runs: &'a Runs, variant: &str, scheduler: &str, reader: &str) -> Option<&'a Report> {
    let moved = variant == TARGET && reader.starts_with("asp");
    let reader = if moved {
        format!("{reader}, target")
    } else {
        reader.to_owned()
    };
    let variant = if variant == TARGET { "" } else { variant };
    runs.get(&key(scheduler, &reader).varied(variant))
}

/// Transactions a second of all guests together, from the first one's timed part to the last one's
/// end. Not the sum of the guests' own rates: one that had memory to itself while the others starved,
/// and then left it to them, would count for too much.
fn score(report: &Report) -> f64 {
    let timed = || report.phases.iter().filter(|phase| phase.name == "timed");
    let from = timed().map(|phase| phase.from_ns).min().unwrap_or(0);
    let to = timed().map(|phase| phase.to_ns).max().unwrap_or(0);
    timed().count() as f64 * transactions() * 1e9 / to.saturating_sub(from).max(1) as f64
}

/// By how much the second score is above the first, percent.
fn gain(first: &Report, second: &Report) -> f64 {
    100.0 * (score(second) / score(first) - 1.0)
}

fn asp_gain(runs: &Runs, variant: &str, scheduler: &str) -> Option<f64> {
    let linux = report(runs, variant, scheduler, "page-cluster 3")?;
    Some(gain(linux, report(runs, variant, scheduler, "asp")?))
}

/// The name of a run for one of the tables' rows.
fn reader(row: &str) -> String {
    match row {
        "kvm" => "page-cluster 3".to_owned(),
        row => row.replace("page_cluster_", "page-cluster "),
    }
}

/// Swap-ins with a window of `size` slots, percent of all.
fn share(report: &Report, size: u32) -> f64 {
    let these = report.windows.iter().filter(|w| w.0 == size);
    let these: u64 = these.map(|w| w.1).sum();
    100.0 * these as f64 / report.major_faults.max(1) as f64
}

fn answer(runs: &Runs, variant: &str, keys: &[&str]) -> Ours {
    let answered = match keys {
        ["score", scheduler, row] => scores(runs, variant, scheduler, row),
        ["gain_percent", "asp_over_kvm", scheduler] => {
            asp_gain(runs, variant, scheduler).map(Ours::Number)
        }
        ["gain_percent", "anticipatory_over_cfq", row] => {
            let [cfq, other] = SCHEDULERS.map(|s| report(runs, variant, s, &reader(row)));
            cfq.zip(other)
                .map(|(cfq, other)| Ours::Number(gain(cfq, other)))
        }
        ["gain_percent", "abstract_factor"] => largest_gain(runs, variant),
        ["swap_cache", row, "hit_rate_percent"] => report(runs, variant, "cfq", &reader(row))
            .and_then(Report::hit_rate_percent)
            .map(Ours::Number),
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

/// A value, its ratio to a base, and the published ratio; nothing to agree with for the base itself.
fn ratio(value: f64, unit: &str, base: f64, published: f64) -> Ours {
    let ours = value / base;
    let agrees = (published != 1.0).then(|| (ours / published - 1.0).abs() <= 0.1);
    let text = format!(
        "{}{unit}, {ours:.2} of the base (published: {published:.2})",
        short(value.round())
    );
    Ours::Text(text, agrees)
}

fn scores(runs: &Runs, variant: &str, scheduler: &str, row: &str) -> Option<Ours> {
    let base = score(report(runs, variant, "cfq", "page-cluster 3")?);
    let value = score(report(runs, variant, scheduler, &reader(row))?);
    let published = published(&[scheduler, row])? / published(&["cfq", "kvm"])?;
    Some(ratio(value, " transactions/s", base, published))
}

fn total(runs: &Runs, variant: &str, row: &str) -> Option<Ours> {
    let swapins = |row: &str| {
        let report = report(runs, variant, "cfq", &reader(row))?;
        Some(report.major_faults as f64)
    };
    let published = published(&[row])? / published(&["page_cluster_3"])?;
    Some(ratio(
        swapins(row)?,
        "",
        swapins("page_cluster_3")?,
        published,
    ))
}

fn windows(runs: &Runs, variant: &str, row: &str, size: &str) -> Option<Ours> {
    let report = report(runs, variant, "cfq", &reader(row))?;
    let ours = share(report, size.parse().ok()?);
    let published = match (row, size) {
        ("asp", "8") => 39.9,
        ("asp", "16") => 33.5,
        ("asp", "24") => 10.8,
        ("asp", "32") => 15.8,
        // By the definition of page-cluster.
        _ => 100.0,
    };
    let agrees = (row == "asp").then_some((ours - published).abs() <= 10.0);
    let text = format!("{ours:.1} % of swap-ins (published: {published:.1} %)");
    Some(Ours::Text(text, agrees))
}

/// The abstract's factor, against the larger gain of the two schedulers.
fn largest_gain(runs: &Runs, variant: &str) -> Option<Ours> {
    let [cfq, other] = SCHEDULERS.map(|scheduler| asp_gain(runs, variant, scheduler));
    let largest = cfq?.max(other?);
    let factor = 1.0 + largest / 100.0;
    Some(Ours::Text(
        format!("{factor:.2} at most"),
        Some((factor / 1.4 - 1.0).abs() <= 0.1),
    ))
}

/// What is said besides the variations.
fn remark(keys: &[&str]) -> &'static str {
    match keys {
        ["gain_percent", "abstract_factor"] => "No table of the paper shows it: Table 1 has 1.18.",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::claims::Published;
    use outpage_core::readahead;
    use setups::setups_of;

    /// Small guests with little beside the heap, so that they page at 80 % too.
    fn small() -> JvmParams {
        JvmParams {
            memory_pages: 1_200,
            heap_pages: 1_152,
            warehouse_pages: 96,
            warehouse_pages_max: 120,
            transactions: 3_000,
            ..JvmParams::default()
        }
    }

    #[test]
    fn every_published_figure_has_an_answer() {
        let runs = Runs::run(setups_of(small()), 2, &|_| {});
        assert_eq!(runs.failures().next(), None);
        for claim in section("asp", &[]) {
            let ours = answer(&runs, "", &claim.keys());
            assert_ne!(ours, Ours::None, "{:?}", claim.path);
            let ours = answer(&runs, TARGET, &claim.keys());
            assert_ne!(ours, Ours::None, "{:?} {TARGET}", claim.path);
        }
        assert!(VARIATIONS.iter().any(|v| v.name() == TARGET));
        let evaluation = evaluation(&runs);
        assert!(evaluation.tables.len() >= 2 && evaluation.curves.len() >= 3);
        assert!(evaluation.markdown().contains("page-cluster 5"));
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
            let params = readahead::find(name).expect("registered").params();
            let ours = [params.mdis, params.window, params.step, params.max_window];
            assert_eq!(ours, [8, 8, 8, 32], "{name}");
        }
    }

    #[test]
    fn the_host_has_512_mb_and_the_sweep_is_around_it() {
        for (key, setup) in setups().iter().filter(|s| s.0.variant.is_empty()) {
            assert_eq!(setup.frames, 131_072, "{key:?}");
            assert_eq!(setup.programs.len(), 3);
        }
        let places = setups::by_memory();
        assert!(places.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(places.iter().any(|place| place.1.is_empty()));
    }
}
