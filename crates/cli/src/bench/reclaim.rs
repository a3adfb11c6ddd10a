//! `outpage bench reclaim`: every reclaim policy of a live pager on recorded programs and on strings beside them, simulated, with the
//! page-ins that no policy can save.

use std::fmt::Write as _;
use std::path::PathBuf;

use outpage_core::contract::Body;
use outpage_core::reclaim;
use outpage_sim::neighbours;

use super::BenchError;
use super::adversaries::{failed, write_json};
use super::summary::markdown;
use crate::output;
use crate::run::report::grouped;
use crate::sim::jobs::Line;
use crate::sim::machine::Machine;
use crate::sim::programs::Source;
use crate::sim::table::Runs;
use crate::sim::{self, Output, table};
use crate::trace::load::{self, Format};

/// The policy that learns, which is held against the others.
const LEARNS: &str = "auto";
/// The simplest with which read-ahead works well: what all others are held against.
const PLAIN: &str = "second-chance";
/// Where no policy reads more pages than this, chance decides: the line is shown, and not counted.
const PAGES_MIN: u64 = 1000;

/// Options of `outpage bench reclaim`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Traces, as `tests/programs/reclaim.sh` records them
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// RAM: sizes, or shares of what is touched
    #[arg(
        long,
        short,
        value_name = "SIZE",
        value_delimiter = ',',
        default_value = "25%,50%,75%"
    )]
    memory: Vec<String>,
    /// Leave out the strings that need no recording
    #[arg(long)]
    no_neighbours: bool,
    /// Write every run to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Runs at once [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

/// Runs everything under every policy and prints the tables.
///
/// # Errors
/// When a trace cannot be read, or a run came to no end.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let mut all = Vec::new();
    for source in sources(options)? {
        all.push(compared(options, source?)?);
    }
    output::print(&render(&all))?;
    if let Some(file) = &options.json {
        write_json(file, "reclaim", &all)?;
    }
    sim::verdict(all.iter().flat_map(|runs| &runs.lines)).map_err(failed)?;
    Ok(())
}

/// The programs, read one after the other: recorded ones may be large.
fn sources(
    options: &Options,
) -> Result<impl Iterator<Item = Result<Source, BenchError>>, BenchError> {
    if options.traces.is_empty() && options.no_neighbours {
        let text = "no trace is named, and the strings are left out";
        return Err(BenchError::Usage(text.to_owned()));
    }
    let recorded = options.traces.iter().map(|trace| {
        let recorded = load::trace(trace, Format::Auto).map_err(failed)?;
        let name = trace.file_stem().unwrap_or(trace.as_os_str());
        Source::recorded(&name.to_string_lossy(), &recorded).map_err(failed)
    });
    let strings = match options.no_neighbours {
        true => Vec::new(),
        false => neighbours::all(),
    };
    let strings = strings
        .into_iter()
        .map(|string| Source::recorded(string.name, &string.runs.into()).map_err(failed));
    Ok(recorded.chain(strings))
}

/// One program under every policy at every size. Nothing is read ahead: replacement alone decides.
fn compared(options: &Options, source: Source) -> Result<Runs, BenchError> {
    let policies = reclaim::offered(Body::default());
    let machine = Machine {
        memory: options.memory.clone(),
        disk: vec!["nvme".to_owned()],
        reclaim: policies.map(|entry| entry.name.to_owned()).collect(),
        readahead: vec!["none".to_owned()],
        ..Machine::default()
    };
    let output = Output {
        json: None,
        csv: None,
        no_bounds: false,
        threads: options.threads,
    };
    let sources = vec![source];
    let lines = sim::lines(&machine, &sources, &output).map_err(failed)?;
    Ok(Runs { sources, lines })
}

/// One program at one size.
struct Row<'a> {
    program: String,
    lines: Vec<&'a Line>,
}

fn rows(all: &[Runs]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for runs in all {
        let from = rows.len();
        for line in &runs.lines {
            let frames = |row: &Row<'_>| row.lines[0].job.setup.frames;
            let same = |row: &&mut Row<'_>| frames(row) == line.job.setup.frames;
            match rows[from..].iter_mut().find(same) {
                Some(row) => row.lines.push(line),
                None => rows.push(Row {
                    program: runs.name(),
                    lines: vec![line],
                }),
            }
        }
    }
    rows
}

fn policy(line: &Line) -> &str {
    &line.job.setup.policies.reclaim
}

fn page_ins(line: &Line) -> Option<u64> {
    Some(line.report.as_ref().ok()?.page_ins)
}

impl Row<'_> {
    /// What was read under a policy.
    fn of(&self, name: &str) -> Option<u64> {
        page_ins(self.lines.iter().find(|line| policy(line) == name)?)
    }

    /// The fewest that a policy by itself read.
    fn best(&self) -> Option<u64> {
        let alone = self.lines.iter().filter(|line| policy(line) != LEARNS);
        alone.filter_map(|line| page_ins(line)).min()
    }

    /// Whether its figures are more than chance.
    fn counts(&self) -> bool {
        let most = self.lines.iter().filter_map(|line| page_ins(line)).max();
        most.is_some_and(|most| most >= PAGES_MIN)
    }

    /// Page-ins of `name` by those of the best policy; one is added to both, so that none is by nothing.
    fn above_best(&self, name: &str) -> Option<f64> {
        Some((self.of(name)? + 1) as f64 / (self.best()? + 1) as f64)
    }
}

fn render(all: &[Runs]) -> String {
    let rows = rows(all);
    let Some(first) = rows.first() else {
        return String::new();
    };
    let names: Vec<&str> = first.lines.iter().map(|line| policy(line)).collect();
    let mut cells = vec![vec![
        "program".to_owned(),
        "memory".into(),
        "optimum".into(),
    ]];
    cells[0].extend(names.iter().map(|name| format!("`{name}`")));
    cells[0].push("`auto` by the best".into());
    cells.extend(rows.iter().map(|row| cells_of(row, &names)));
    let mut out = "Page-ins; bold: the fewest of a policy by itself.\n\n".to_owned();
    out += &markdown(&cells);
    out + &summary(&rows, &names)
}

fn cells_of(row: &Row<'_>, names: &[&str]) -> Vec<String> {
    let line = row.lines[0];
    let bound = line.bound.map(|bound| grouped(bound.floor.page_ins));
    let mut cells = vec![row.program.clone(), table::memory(&line.job)];
    cells.push(bound.unwrap_or_else(|| "-".to_owned()));
    for &name in names {
        let best = name != LEARNS && row.of(name) == row.best();
        cells.push(match row.of(name) {
            Some(pages) if best => format!("**{}**", grouped(pages)),
            Some(pages) => grouped(pages),
            None => "no end".to_owned(),
        });
    }
    let above = row.above_best(LEARNS).filter(|_| row.counts());
    cells.push(above.map_or_else(|| "-".to_owned(), |above| format!("{above:.2}")));
    cells
}

fn geometric_mean(ratios: &[f64]) -> f64 {
    let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (sum / ratios.len().max(1) as f64).exp()
}

/// A line for each policy: how far it is above the best one, and beside the default.
fn summary(rows: &[Row<'_>], names: &[&str]) -> String {
    let rows: Vec<&Row<'_>> = rows.iter().filter(|row| row.counts()).collect();
    let head = [
        "policy",
        "median by the best",
        "three quarters below",
        "nine tenths below",
        "worst",
        "at",
        "geometric mean by the best",
        "by `second-chance`",
    ];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    for &name in names {
        let above = |row: &&Row<'_>| Some((row.above_best(name)?, row.program.clone()));
        let mut above: Vec<(f64, String)> = rows.iter().filter_map(above).collect();
        above.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some((worst, at)) = above.last().cloned() else {
            continue;
        };
        let part =
            |parts: usize, of: usize| format!("{:.3}", above[(above.len() - 1) * parts / of].0);
        let ratios: Vec<f64> = above.iter().map(|(ratio, _)| *ratio).collect();
        let beside = |row: &&Row<'_>| Some(row.above_best(name)? / row.above_best(PLAIN)?);
        let beside: Vec<f64> = rows.iter().filter_map(beside).collect();
        cells.push(vec![
            format!("`{name}`"),
            part(1, 2),
            part(3, 4),
            part(9, 10),
            format!("{worst:.2}"),
            at,
            format!("{:.3}", geometric_mean(&ratios)),
            format!("{:.3}", geometric_mean(&beside)),
        ]);
    }
    let mut out = String::new();
    let _ = writeln!(
        out,
        "\nOf {} lines with {} page-ins or more under some policy:\n",
        rows.len(),
        grouped(PAGES_MIN)
    );
    out + &markdown(&cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(traces: Vec<PathBuf>, memory: &str) -> Options {
        Options {
            traces,
            memory: vec![memory.to_owned()],
            no_neighbours: true,
            json: None,
            threads: Some(1),
        }
    }

    #[test]
    fn every_policy_of_a_live_pager_is_in_the_table_beside_the_optimum() {
        let string = neighbours::all().swap_remove(0);
        let source = Source::recorded(string.name, &string.runs.into()).unwrap();
        let text = render(&[compared(&options(Vec::new(), "75%"), source).unwrap()]);
        let head = text.lines().nth(2).unwrap();
        for entry in reclaim::offered(Body::default()) {
            assert!(head.contains(&format!("`{}`", entry.name)), "{text}");
        }
        assert!(
            text.contains("| loop | 24 MiB |") && text.contains("Of 1 lines"),
            "{text}"
        );
        // Belady's optimum on a loop of 8,192 pages in 6,144 frames, and the default, which misses all.
        assert!(text.contains("| 22,5") && text.contains("90,112"), "{text}");
    }

    #[test]
    fn what_cannot_be_compared_is_told() {
        for (traces, usage) in [(Vec::new(), true), (vec!["no-such.trace".into()], false)] {
            let error = run(&options(traces, "50%")).unwrap_err();
            assert_eq!(matches!(error, BenchError::Usage(_)), usage, "{error:?}");
        }
    }

    #[test]
    fn means_are_geometric() {
        assert!((geometric_mean(&[0.5, 2.0, 1.0]) - 1.0).abs() < 1e-12);
        assert!((geometric_mean(&[]) - 1.0).abs() < 1e-12);
    }
}
