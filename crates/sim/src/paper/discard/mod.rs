//! The paper on discardable pages: Mach 2.5 on 24 MB, a compiler and a sort in ML under four configurations, and what it calls future work.

mod live;
mod setups;

pub use live::{LAZY, LIVE_PAGES, Live, LiveRun, SWAP, live_configurations, live_workloads};
pub(in crate::paper) use setups::setups;

use super::answers::Answers;
use super::claims::{Published, section};
use super::ensemble::samples;
use super::evaluation::{Evaluation, Ours};
use super::provenance;
use super::runs::Runs;
use super::spread::Spread;
use super::table::Table;
use super::verdict::{Class, Held};
use crate::world::Report;
use setups::{CONFIGURATIONS, MEMORY, TEXTURE, VARIATIONS, VARIED_SEEDS, WORKLOADS};

/// Below this part of each other times count as equal: the paper's 4:00 and 3:58 "are almost the same".
const EQUAL: f64 = 0.1;

/// A figure of a run: its name, what it rests on, and the figure.
type Figure = (&'static str, Class, fn(&Report) -> f64);

/// Those that the tables have.
const FIGURES: [Figure; 8] = [
    ("user", Class::Construction, |r| {
        r.programs
            .iter()
            .map(|p| (p.cpu_ns - p.fault_ns) as f64)
            .sum::<f64>()
            / 1e9
    }),
    ("system", Class::Derived, |r| {
        r.programs.iter().map(|p| p.fault_ns as f64).sum::<f64>() / 1e9
    }),
    ("elapsed", Class::Independent, Report::seconds),
    ("pagein_read", Class::Independent, |r| r.page_ins as f64),
    ("pagein_noread", Class::Independent, |r| {
        r.discards.filled as f64
    }),
    ("pageout_write", Class::Independent, |r| r.page_outs as f64),
    ("pageout_discard", Class::Independent, |r| {
        r.discards.dropped as f64
    }),
    ("pageout_flush", Class::Independent, |r| {
        r.discards.flushed as f64
    }),
];

/// What the runs show.
pub(in crate::paper) fn evaluation(runs: &Runs) -> Evaluation {
    let answers = Answers {
        runs,
        variations: VARIATIONS,
        answer,
        class,
        remark,
    };
    let mut claims = section("external_pager", &[]);
    // What must hold comes first.
    claims.sort_by_key(|claim| match claim.path[0].as_str() {
        "shape" => 0,
        "abstract" => 1,
        _ => 2,
    });
    let mut tables: Vec<Table> = WORKLOADS.map(|workload| table(runs, workload)).to_vec();
    tables.push(texture(runs));
    tables.extend(WORKLOADS.map(|workload| varied(runs, workload)));
    Evaluation {
        title: "Managing Discardable Pages with an External Pager (1991)",
        constants: constants(),
        provenance: provenance::table(&[]),
        rows: answers.rows(claims),
        tables,
        figures: Vec::new(),
        curves: Vec::new(),
        runs: runs.lines(),
    }
}

fn constants() -> Vec<String> {
    [
        "Simulated. Every figure is a median of 20 runs, with the least and the most in brackets; what nobody knows is drawn anew in each run, and is the \
         same for all configurations of a run.",
        "Programs: a copying generational collector after Appel (new, old and reserved regions, minor and major collections), written for this and run as \
         it is. Compile: an environment that stays and trees of units that are made anew five times, a quarter of which stay; sort: quicksort of a list by futures that take turns. \
         Each collection marks the pages that it leaves empty and asks for a flush, which only PagerUF follows; pages are taken back before they are \
         written.",
        "From the paper: 24 MB, the CPU times (all user times are by construction), 64 pages flushed with a victim, and how much is allocated: as many \
         pages as PagerUF fills with zeroes (that row is by construction, within what the collector copies). Nothing else of the tables goes into the runs.",
        "Drawn: 16 to 20 MB for programs; a heap of 24 to 36 MB of which the old region is collected at 33 to 50 %; 4 to 64 pages taken back at a time; \
         an environment of 3 to 6 MB; CPU times by 97 to 103 %; 0.1 to 0.3 ms a soft fault, 0.16 to 0.4 ms more for zeroes, 0.2 to 0.6 ms each for starting \
         and ending a transfer, 0.2 to 0.6 ms for a message to the pager and its answer.",
        "Disk: a DEC RZ of the time: 3,600 rpm, 13.5 to 17 ms average seek, 4 ms to the next track, 2 MB/s, 0.7 to 2 ms a command, no write cache; served \
         upwards from the last request.",
        "Kernel: FIFO with a second chance on the inactive queue, one page a write, nothing read ahead; an eighth of the memory inactive, where Mach 2.5 \
         has a tenth. Up to 8 writes are under way at once.",
        "NoPager pages in the kernel. The pager's own CPU time is in elapsed times, and neither user nor system. on-demand is in the kernel, as the \
         paper's section 5 has it.",
        "Classes of rows: by construction (user), derived from drawn costs and counts (system), independent (all others).",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// A figure of the runs of one configuration that came to their ends, with their seeds.
fn each(
    runs: &Runs,
    variant: &str,
    workload: &str,
    configuration: &str,
    figure: impl Fn(&Report) -> f64,
) -> Vec<f64> {
    let samples = samples(runs, variant, VARIED_SEEDS);
    let reports = samples.filter_map(|s| s.report(MEMORY, workload, configuration));
    reports.map(figure).collect()
}

/// The medians of a figure by that of `NoPager`, run by run.
fn by_no_pager(
    runs: &Runs,
    variant: &str,
    workload: &str,
    configuration: &str,
    figure: fn(&Report) -> f64,
) -> Option<Spread> {
    let of = |configuration| each(runs, variant, workload, configuration, figure);
    let (theirs, none) = (of(configuration), of("NoPager"));
    if theirs.len() != none.len() {
        return None;
    }
    Spread::of(theirs.iter().zip(&none).map(|(ours, none)| ours / none))
}

fn transfers(report: &Report) -> f64 {
    (report.page_ins + report.page_outs) as f64
}

fn answer(runs: &Runs, variant: &str, keys: &[&str]) -> Ours {
    found(runs, variant, keys).unwrap_or(Ours::None)
}

fn found(runs: &Runs, variant: &str, keys: &[&str]) -> Option<Ours> {
    let elapsed = |workload: &str, configuration: &str| {
        let seconds = each(runs, variant, workload, configuration, Report::seconds);
        Spread::of(seconds)
    };
    match keys {
        ["shape", "elapsed_order", workload] => order(|of| elapsed(workload, of), workload),
        ["shape", "pf_reads_and_writes_percent_of_nopager", workload] => {
            let part = by_no_pager(runs, variant, workload, "PagerPF", transfers)?;
            let most = if *workload == "compile" { 0.10 } else { 0.25 };
            let percent = part.map(|part| 100.0 * part);
            let holds = Held::once(part.median < most);
            Some(Ours::Text(percent.to_string(), Some(holds)))
        }
        ["shape", "elapsed_by_nopager", workload] => {
            let (mut texts, mut near) = (Vec::new(), true);
            for configuration in ["PagerNF", "PagerPF", "PagerUF"] {
                let part = by_no_pager(runs, variant, workload, configuration, Report::seconds)?;
                let published = published(workload, configuration, "elapsed")?
                    / published(workload, "NoPager", "elapsed")?;
                near &= (part.median / published - 1.0).abs() <= 0.25;
                texts.push(part.ratio());
            }
            Some(Ours::Text(texts.join(", "), Some(Held::once(near))))
        }
        ["abstract", "elapsed_factor_up_to"] => {
            let best = ["PagerPF", "PagerUF"].map(|of| {
                let part = by_no_pager(runs, variant, "sort", of, Report::seconds)?;
                Some(part.map(|part| 1.0 / part))
            });
            let best = best.into_iter().flatten();
            best.max_by(|a, b| a.median.total_cmp(&b.median))
                .map(Ours::Spread)
        }
        [workload, configuration, figure] => {
            let (_, _, of) = FIGURES.iter().find(|known| known.0 == *figure)?;
            Spread::of(each(runs, variant, workload, configuration, of)).map(Ours::Spread)
        }
        _ => None,
    }
}

/// Whether the configurations follow each other as published, in words.
fn order(elapsed: impl Fn(&str) -> Option<Spread>, workload: &str) -> Option<Ours> {
    let mut seconds = Vec::new();
    for (name, _) in &CONFIGURATIONS[..4] {
        seconds.push((*name, elapsed(name)?.median));
    }
    let [none, nf, pf, uf] = [0, 1, 2, 3].map(|at| seconds[at].1);
    let flushed = match workload {
        "compile" => pf < uf,
        _ => (pf / uf - 1.0).abs() <= EQUAL,
    };
    let holds = flushed && pf.max(uf) < nf && nf < none;
    seconds.sort_by(|a, b| a.1.total_cmp(&b.1));
    let words: Vec<_> = seconds
        .iter()
        .map(|(name, s)| format!("{name} {s:.0} s"))
        .collect();
    Some(Ours::Text(words.join(" < "), Some(Held::once(holds))))
}

fn published(workload: &str, configuration: &str, figure: &str) -> Option<f64> {
    let claims = section("external_pager", &[]);
    let claim = claims
        .iter()
        .find(|c| c.keys() == [workload, configuration, figure])?;
    match claim.published {
        Published::Number(number) => Some(number),
        Published::Text(_) => None,
    }
}

/// What a row rests on.
fn class(keys: &[&str]) -> Class {
    match keys {
        // In words what the tables have.
        ["shape" | "abstract", ..] => Class::Restated,
        // The amount of allocation was taken from it.
        [_, "PagerUF", "pagein_noread"] => Class::Construction,
        [_, _, figure] => FIGURES
            .iter()
            .find(|known| known.0 == *figure)
            .map_or(Class::Independent, |known| known.1),
        _ => Class::Independent,
    }
}

fn remark(keys: &[&str]) -> &'static str {
    match keys {
        [_, _, "system"] => "Derived from drawn costs: one for each fault and transfer.",
        _ => "",
    }
}

fn title(workload: &str) -> String {
    let number = if workload == "compile" { "3-3" } else { "3-4" };
    format!("Table {number}: {workload}; times in seconds, all else in pages")
}

/// Table 3-3 or 3-4, every row and column.
fn table(runs: &Runs, workload: &str) -> Table {
    let mut head = vec!["configuration".to_owned()];
    head.extend(
        FIGURES.map(|(name, class, _)| format!("{} ({})", name.replace('_', " "), class.name())),
    );
    let mut rows = Vec::new();
    for (configuration, _) in CONFIGURATIONS {
        let cell = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let mut ours = vec![configuration.to_owned()];
        let mut theirs = vec![format!("{configuration}, published")];
        for (name, _, figure) in FIGURES {
            let found = Spread::of(each(runs, "", workload, configuration, figure));
            ours.push(cell(found.map(|found| found.to_string())));
            let known = published(workload, configuration, name);
            theirs.push(cell(known.map(|known| known.to_string())));
        }
        rows.push(ours);
        if configuration != "on-demand" {
            rows.push(theirs);
        }
    }
    Table {
        title: title(workload),
        head,
        rows,
    }
}

const TEXTURE_TITLE: &str =
    "Texture synthesis (section 1), 27 matrices of 2 MB: not measured in the paper";

/// The texture synthesis, of which the paper has no figures.
fn texture(runs: &Runs) -> Table {
    let mut rows = Vec::new();
    for (configuration, _) in CONFIGURATIONS {
        let mut row = vec![configuration.to_owned()];
        let figures: [fn(&Report) -> f64; 4] = [
            Report::seconds,
            |r| r.page_ins as f64,
            |r| r.page_outs as f64,
            |r| {
                (r.discards.dropped + r.discards.dropped_clean + r.discards.dropped_in_slots) as f64
            },
        ];
        for figure in figures {
            let found = Spread::of(each(runs, "", TEXTURE, configuration, figure));
            row.push(found.map_or_else(|| "-".to_owned(), |found| found.to_string()));
        }
        rows.push(row);
    }
    let head = ["configuration", "elapsed, s", "read", "written", "dropped"];
    Table {
        title: TEXTURE_TITLE.to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows,
    }
}

/// What each variation makes of a workload's elapsed times.
fn varied(runs: &Runs, workload: &str) -> Table {
    let mut names = vec![String::new()];
    names.extend(VARIATIONS.iter().map(super::Variation::name));
    let rows = names.iter().map(|name| {
        let mut row = vec![if name.is_empty() { "as drawn" } else { name }.to_owned()];
        let none = Spread::of(each(runs, name, workload, "NoPager", Report::seconds));
        row.push(none.map_or_else(|| "-".to_owned(), |none| none.to_string()));
        for (configuration, _) in &CONFIGURATIONS[1..] {
            let part = by_no_pager(runs, name, workload, configuration, Report::seconds);
            row.push(part.map_or_else(|| "-".to_owned(), Spread::ratio));
        }
        row
    });
    let mut head = vec![String::new(), "NoPager, s".to_owned()];
    head.extend(
        CONFIGURATIONS[1..]
            .iter()
            .map(|(name, _)| format!("{name} by NoPager")),
    );
    Table {
        title: format!("What was varied: {workload}, elapsed times, 2 runs each"),
        head,
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::runs::testing::alike;

    #[test]
    fn every_published_figure_has_an_answer() {
        let runs = alike(setups());
        for claim in section("external_pager", &[]) {
            let ours = answer(&runs, "", &claim.keys());
            assert_ne!(ours, Ours::None, "{:?}", claim.path);
        }
    }

    #[test]
    fn runs_of_one_seed_differ_in_their_policy_alone() {
        let setups = setups();
        assert!(setups.len() >= 20 * 5 * 3);
        for of_seed in setups.chunks(CONFIGURATIONS.len()) {
            for (key, setup) in of_seed {
                assert_eq!(
                    (setup.frames, &setup.disk),
                    (of_seed[0].1.frames, &of_seed[0].1.disk)
                );
                assert_eq!(setup.programs, of_seed[0].1.programs, "{key:?}");
            }
        }
    }
}
