//! `outpage bench adversaries`: every read-ahead policy on the orders that reading ahead gets wrong,
//! simulated, beside the bound that no policy goes below.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use outpage_core::readahead::REGISTRY;
use serde_json::json;

use super::BenchError;
use super::summary::markdown;
use crate::error::{CliError, code};
use crate::output;
use crate::run::report::grouped;
use crate::sim::jobs::Line;
use crate::sim::machine::Machine;
use crate::sim::programs::{self, Source};
use crate::sim::table::Runs;
use crate::sim::{self, Output, table};
use crate::trace::load::Format;

/// The orders, as `--workloads` takes them: shapes around what fits half of 64 MiB are among them (rows of
/// 9104, 8192 and 7448 bytes are 0.9, 1 and 1.1 times as many as it has pages).
pub const ADVERSARIES: [&str; 22] = [
    "column",
    "column:arrays=2",
    "column:row-bytes=4096:step-bytes=1024",
    "column:row-bytes=7448:step-bytes=392",
    "column:row-bytes=8192:step-bytes=512",
    "column:row-bytes=9104:step-bytes=560",
    "column:row-bytes=65536:writes",
    "column:row-bytes=200000:step-bytes=4000",
    "transpose",
    "transpose:tile=64",
    "transpose:tile=512",
    "fft",
    "fft:breadth",
    "zigzag",
    "zigzag:writes",
    "join",
    "merge",
    "merge:ways=1024",
    "runs:longest=8",
    "runs",
    "runs:longest=512",
    "phases",
];

/// What reading ahead may cost beside reading nothing ahead: times its pages ...
pub const PAGES_RATIO_MAX: f64 = 1.5;
/// ... and times its time.
pub const TIME_RATIO_MAX: f64 = 1.05;

/// The policy that the others are compared with.
const BASELINE: &str = "none";

/// Options of `outpage bench adversaries`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Programs of `outpage sim`, trace:FILE among them, each by itself [default: those of `bench readahead`]
    #[arg(value_name = "PROGRAM")]
    programs: Vec<String>,
    /// RAM for the programs: sizes, or shares of what they touch
    #[arg(
        long,
        short,
        value_name = "SIZE",
        value_delimiter = ',',
        default_value = "25%,50%,75%,90%"
    )]
    memory: Vec<String>,
    /// Disks, as of `outpage sim`
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "nvme"
    )]
    disk: Vec<String>,
    /// Read-ahead policies, as of `outpage sim` [default: all, as `run` has them and as their sources have them]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    readahead: Vec<String>,
    /// Write every run to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Runs at once [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

/// A workload as the simulator names it: `column:arrays=2:writes` is `column:arrays=2,writes=true`.
fn program(label: &str) -> String {
    let (name, options) = label.split_once(':').unwrap_or((label, ""));
    let setting = |option: &str| match option {
        "" => String::new(),
        flag if !flag.contains('=') => format!("{flag}=true"),
        option => option.to_owned(),
    };
    let settings: Vec<String> = options.split(':').map(setting).collect();
    format!("{name}:{}", settings.join(","))
        .trim_end_matches(':')
        .to_owned()
}

/// The machines and policies that are asked for.
fn machine(options: &Options, readahead: Vec<String>) -> Machine {
    Machine {
        memory: options.memory.clone(),
        disk: options.disk.clone(),
        readahead,
        ..Machine::default()
    }
}

/// Policies that are compared in tables of their own.
struct Group {
    heading: &'static str,
    readahead: Vec<String>,
}

/// The groups that are asked for: without a choice, every policy as `run` has it and as its source has it.
fn groups(options: &Options) -> Vec<Group> {
    let all = |setting: &str| {
        let policies = REGISTRY.iter().map(|entry| match entry.name {
            BASELINE => BASELINE.to_owned(),
            name => format!("{name}{setting}"),
        });
        policies.collect()
    };
    if !options.readahead.is_empty() {
        return vec![Group {
            heading: "",
            readahead: options.readahead.clone(),
        }];
    }
    vec![
        Group {
            heading: "As `run` has them: governed\n\n",
            readahead: all(":govern=on"),
        },
        Group {
            heading: "\nAs their sources have them\n\n",
            readahead: all(""),
        },
    ]
}

/// Runs every program under every policy and prints the tables.
///
/// # Errors
/// When a program or a setting is not known, or a run came to no end.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let texts: Vec<String> = if options.programs.is_empty() {
        ADVERSARIES.iter().map(|label| program(label)).collect()
    } else {
        options.programs.clone()
    };
    let mut all = Vec::new();
    for group in groups(options) {
        let runs = compared(options, &texts, group.readahead)?;
        output::print(&format!("{}{}", group.heading, render(&runs)))?;
        all.extend(runs);
    }
    if let Some(file) = &options.json {
        write_json(file, "adversaries", &all)?;
    }
    sim::verdict(all.iter().flat_map(|runs| &runs.lines)).map_err(failed)?;
    Ok(())
}

/// Stores the runs of `benchmark` as JSON.
pub(super) fn write_json(file: &Path, benchmark: &str, all: &[Runs]) -> Result<(), BenchError> {
    let runs: Vec<_> = all.iter().map(table::json).collect();
    let value = json!({"benchmark": benchmark, "programs": runs});
    std::fs::write(file, format!("{value:#}\n"))
        .map_err(|e| BenchError::Failed(format!("cannot write {}: {e}", file.display())))
}

/// What the simulator refused, as a benchmark's error.
pub(super) fn failed(error: CliError) -> BenchError {
    let text = error.to_string();
    match error.code {
        code::USAGE => BenchError::Usage(text),
        _ => BenchError::Failed(text),
    }
}

/// The programs under the policies.
fn compared(
    options: &Options,
    texts: &[String],
    readahead: Vec<String>,
) -> Result<Vec<Runs>, BenchError> {
    let machine = machine(options, readahead);
    let output = Output {
        json: None,
        csv: None,
        no_bounds: false,
        threads: options.threads,
    };
    let runs = texts.iter().map(|text| {
        let sources: Vec<Source> = programs::parse_all(std::slice::from_ref(text), Format::Auto)
            .map_err(|e| BenchError::Usage(e.to_string()))?;
        let lines = sim::lines(&machine, &sources, &output).map_err(failed)?;
        Ok(Runs { sources, lines })
    });
    runs.collect()
}

/// The runs of one program on one machine, under each policy.
struct Row<'a> {
    program: String,
    /// Its memory, and the disk if there are several.
    memory: String,
    lines: Vec<&'a Line>,
}

/// What differs between runs that are compared: the policy, and nothing else.
fn policy(line: &Line) -> String {
    line.job.setup.policies.readahead_text()
}

fn rows(all: &[Runs]) -> Vec<Row<'_>> {
    let mut disks: Vec<&str> = all
        .iter()
        .flat_map(|runs| runs.lines.iter().map(|line| line.job.disk.as_str()))
        .collect();
    disks.sort_unstable();
    disks.dedup();
    let machine = |line: &Line| match disks[..] {
        [_] => table::memory(&line.job),
        _ => format!("{}, {}", table::memory(&line.job), line.job.disk),
    };
    let mut rows: Vec<Row<'_>> = Vec::new();
    for runs in all {
        let from = rows.len();
        for line in &runs.lines {
            let memory = machine(line);
            match rows[from..].iter_mut().find(|row| row.memory == memory) {
                Some(row) => row.lines.push(line),
                None => rows.push(Row {
                    program: runs.name(),
                    memory,
                    lines: vec![line],
                }),
            }
        }
    }
    rows
}

/// Pages read and seconds.
fn figures(line: &Line) -> Option<[f64; 2]> {
    let report = line.report.as_ref().ok()?;
    Some([report.page_ins as f64, report.seconds()])
}

impl Row<'_> {
    /// Of a run, its pages and seconds over those of the baseline; `None` without a baseline.
    fn ratios(&self, line: &Line) -> Option<[f64; 2]> {
        let baseline = self.lines.iter().find(|line| policy(line) == BASELINE)?;
        let ([pages, seconds], [of, beside]) = (figures(line)?, figures(baseline)?);
        // Of no page at all, one more is as many times as there are.
        Some([pages / of.max(1.0), seconds / beside])
    }
}

/// The limits of what is compared: pages, then time.
const RATIOS_MAX: [f64; 2] = [PAGES_RATIO_MAX, TIME_RATIO_MAX];

fn render(all: &[Runs]) -> String {
    let rows = rows(all);
    let Some(first) = rows.first() else {
        return String::new();
    };
    let policies: Vec<String> = first.lines.iter().map(|line| policy(line)).collect();
    let mut out = String::new();
    let tables = ["Pages read", "Seconds"];
    for (which, title) in tables.into_iter().enumerate() {
        let bound = ["no policy below", "floor"][which];
        let mut cells = vec![vec!["program".to_owned(), "memory".into(), bound.into()]];
        cells[0].extend(policies.iter().cloned());
        cells.extend(rows.iter().map(|row| cells_of(row, which)));
        let _ = writeln!(
            out,
            "{title}; bold: beyond {} times `none`'s.\n",
            RATIOS_MAX[which]
        );
        out += &markdown(&cells);
        out.push('\n');
    }
    out + &summary(&rows, &policies)
}

fn cells_of(row: &Row<'_>, which: usize) -> Vec<String> {
    let text = |value: f64| match which {
        0 => grouped(value as u64),
        _ => format!("{value:.3}"),
    };
    let bound = row.lines.first().and_then(|line| match which {
        0 => Some(line.bound?.floor.page_ins as f64),
        _ => table::floor_seconds(line),
    });
    let mut cells = vec![row.program.clone(), row.memory.clone()];
    cells.push(bound.map_or_else(|| "-".into(), text));
    for line in &row.lines {
        let over = row
            .ratios(line)
            .is_some_and(|r| r[which] > RATIOS_MAX[which]);
        cells.push(match figures(line) {
            Some(figures) if over => format!("**{}**", text(figures[which])),
            Some(figures) => text(figures[which]),
            None => "no end".into(),
        });
    }
    cells
}

/// A line for each policy: how often it is beyond a limit, and where it is worst.
fn summary(rows: &[Row<'_>], policies: &[String]) -> String {
    let mut cells = vec![
        [
            "policy",
            "more pages",
            "longer",
            "most pages",
            "at",
            "longest",
            "at",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for name in policies.iter().filter(|name| *name != BASELINE) {
        let ratios = rows.iter().flat_map(|row| {
            let of = row.lines.iter().filter(|line| policy(line) == *name);
            of.filter_map(move |line| Some((row, row.ratios(line)?)))
        });
        let ratios: Vec<(&Row<'_>, [f64; 2])> = ratios.collect();
        let over = |which: usize| {
            ratios
                .iter()
                .filter(|r| r.1[which] > RATIOS_MAX[which])
                .count()
        };
        let mut line = vec![format!("`{name}`")];
        line.extend([0, 1].map(|which| format!("{} of {}", over(which), ratios.len())));
        for which in [0, 1] {
            let worst = ratios
                .iter()
                .max_by(|a, b| a.1[which].total_cmp(&b.1[which]));
            line.extend(worst.map_or(["-".into(), "-".into()], |(row, ratio)| {
                [
                    format!("{:.2}", ratio[which]),
                    format!("{}, {}", row.program, row.memory),
                ]
            }));
        }
        cells.push(line);
    }
    format!(
        "How often each policy reads more than {PAGES_RATIO_MAX} times `none`'s pages or takes more than {TIME_RATIO_MAX} times its \
         time.\n\n{}",
        markdown(&cells)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::launch::Spec;

    #[test]
    fn every_adversary_is_a_workload_and_a_program() {
        for label in ADVERSARIES {
            Spec::parse(label).unwrap();
            programs::parse_all(&[program(label)], Format::Auto).unwrap();
        }
        assert_eq!(program("sor"), "sor");
        assert_eq!(program("a:b=1:c"), "a:b=1,c=true");
    }

    #[test]
    fn a_policy_that_reads_in_vain_is_marked_and_named() {
        let options = Options {
            programs: Vec::new(),
            memory: vec!["50%".into()],
            disk: vec!["nvme".into()],
            readahead: Vec::new(),
            json: None,
            threads: Some(1),
        };
        let policies = ["none", "bsd", "stream"].map(str::to_owned).to_vec();
        let text = "runs:pages=2000,longest=1,touches=4000".to_owned();
        let text = render(&compared(&options, &[text], policies).unwrap());
        let bsd = text
            .lines()
            .find(|line| line.starts_with("| `bsd`"))
            .unwrap();
        assert!(bsd.contains("1 of 1"), "{text}");
        assert!(text.contains("**") && text.contains("longest=1"), "{text}");
    }

    #[test]
    fn a_wrong_setting_is_told_as_such() {
        let options = |disk: &str, policy: &str| Options {
            programs: vec!["runs:pages=2000,longest=1,touches=4000".into()],
            memory: vec!["50%".into()],
            disk: vec![disk.into()],
            readahead: vec![policy.into()],
            json: None,
            threads: Some(1),
        };
        for wrong in [
            options("nvme", "stream:govern=perhaps"),
            options("no-such-disk", "none"),
        ] {
            let error = run(&wrong).unwrap_err();
            assert!(matches!(error, BenchError::Usage(_)), "{error:?}");
        }
    }

    #[test]
    fn without_a_choice_every_policy_is_compared_with_none_twice() {
        let options = Options {
            programs: Vec::new(),
            memory: Vec::new(),
            disk: Vec::new(),
            readahead: Vec::new(),
            json: None,
            threads: None,
        };
        for group in groups(&options) {
            assert_eq!(group.readahead.len(), REGISTRY.len());
            assert_eq!(group.readahead[0], BASELINE);
        }
    }
}
