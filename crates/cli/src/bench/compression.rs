//! `outpage bench compression`: clustering beside swap compression on the papers' programs, simulated, by how far pages compress.

use std::fmt::Write as _;
use std::path::PathBuf;

use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::format_size;

use super::BenchError;
use super::adversaries::{failed, write_json};
use super::summary::markdown;
use crate::output;
use crate::sim::jobs::Line;
use crate::sim::machine::Machine;
use crate::sim::programs;
use crate::sim::table::Runs;
use crate::sim::{self, Output};
use crate::trace::load::Format;

/// The papers' programs, as their names say, in a quarter of the papers' memory or less: a run takes less than a second so.
const PROGRAMS: [&str; 4] = [
    "sor:n=4000,sweeps=5",
    "lu:n=4000",
    "moc:pages=98304",
    "ns2:pages=60000,setup-pages=6000",
];
/// Clustering, that of the kernel first: it is what the others are compared with.
const PAGEOUTS: [&str; 3] = ["bsd", "moc", "mclustering"];
/// Without compression first.
const TIERS: [&str; 4] = ["none", "lz4", "zstd", "cervera"];

/// Options of `outpage bench compression`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Programs of `outpage sim`, each by itself [default: those of the papers on clustering]
    #[arg(value_name = "PROGRAM")]
    programs: Vec<String>,
    /// RAM for the programs: sizes, or shares of what they touch
    #[arg(
        long,
        short,
        value_name = "SIZE",
        value_delimiter = ',',
        default_value = "50%,75%"
    )]
    memory: Vec<String>,
    /// Disks, as of `outpage sim`
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "barracuda-7200.9,nvme"
    )]
    disk: Vec<String>,
    /// How far pages compress, as of `outpage sim`
    #[arg(
        long,
        value_name = "RATIO",
        value_delimiter = ',',
        default_value = "1,1.5,2,3,4,6,8"
    )]
    ratio: Vec<String>,
    /// Write every run to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Runs at once [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

/// Runs every program under every policy and prints the tables.
///
/// # Errors
/// When a program or a setting is not known, or a run came to no end.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let texts = match options.programs.is_empty() {
        true => PROGRAMS.map(str::to_owned).to_vec(),
        false => options.programs.clone(),
    };
    let mut all = Vec::new();
    for text in &texts {
        all.push(compared(options, text)?);
    }
    output::print(&render(&all, &options.ratio))?;
    if let Some(file) = &options.json {
        write_json(file, "compression", &all)?;
    }
    sim::verdict(all.iter().flat_map(|runs| &runs.lines)).map_err(failed)?;
    Ok(())
}

/// One program under every policy. Slots and read-ahead are those of the kernel whose clustering the papers compare with.
fn compared(options: &Options, text: &str) -> Result<Runs, BenchError> {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let machine = Machine {
        memory: options.memory.clone(),
        disk: options.disk.clone(),
        // The nearest to the two lists of the kernels that the papers changed.
        reclaim: names(&["second-chance"]),
        pageout: names(&PAGEOUTS),
        tier: names(&TIERS),
        slots: names(&["blist"]),
        readahead: names(&["bsd"]),
        ratio: options.ratio.clone(),
        ..Machine::default()
    };
    let output = Output {
        json: None,
        csv: None,
        no_bounds: true,
        threads: options.threads,
    };
    let texts = [text.to_owned()];
    let sources =
        programs::parse_all(&texts, Format::Auto).map_err(|e| BenchError::Usage(e.to_string()))?;
    let lines = sim::lines(&machine, &sources, &output).map_err(failed)?;
    Ok(Runs { sources, lines })
}

/// One program on one machine.
struct Part<'a> {
    program: String,
    memory: u64,
    disk: &'a str,
    lines: Vec<&'a Line>,
}

fn parts(all: &[Runs]) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    for runs in all {
        let from = parts.len();
        for line in &runs.lines {
            let (memory, disk) = (line.job.setup.frames, line.job.disk.as_str());
            let same = |part: &&mut Part<'_>| part.memory == memory && part.disk == disk;
            match parts[from..].iter_mut().find(same) {
                Some(part) => part.lines.push(line),
                None => parts.push(Part {
                    program: runs.name(),
                    memory,
                    disk,
                    lines: vec![line],
                }),
            }
        }
    }
    parts
}

impl Part<'_> {
    fn memory(&self) -> String {
        format_size(self.memory * PAGE_BYTES as u64)
    }

    /// Seconds with these policies; without compression the ratio is of no matter.
    fn seconds(&self, pageout: &str, tier: &str, ratio: &str) -> Option<f64> {
        let is = |line: &&&Line| {
            let policies = &line.job.setup.policies;
            let ratio = tier == "none" || line.job.ratio() == ratio;
            policies.pageout == pageout && policies.tier == tier && ratio
        };
        Some(self.lines.iter().find(is)?.report.as_ref().ok()?.seconds())
    }

    /// Times what the kernel's clustering takes.
    fn relative(&self, pageout: &str, tier: &str, ratio: &str) -> Option<f64> {
        Some(self.seconds(pageout, tier, ratio)? / self.seconds(PAGEOUTS[0], TIERS[0], "")?)
    }

    /// What each page-out policy takes, times the kernel's clustering.
    fn cell(&self, tier: &str, ratio: &str) -> String {
        let text = |pageout: &&str| {
            let relative = self.relative(pageout, tier, ratio);
            relative.map_or_else(|| "no end".to_owned(), |times| format!("{times:.2}"))
        };
        PAGEOUTS.iter().map(text).collect::<Vec<_>>().join(" / ")
    }

    /// The better of the papers' clustering, without compression.
    fn clustering(&self) -> f64 {
        let of = |pageout: &&str| self.relative(pageout, TIERS[0], "");
        PAGEOUTS[1..]
            .iter()
            .filter_map(of)
            .fold(f64::INFINITY, f64::min)
    }

    /// The lowest ratio from which on `tier` with the kernel's clustering takes less than the papers' clustering does without it.
    fn wins_from(&self, tier: &str, ratios: &[String]) -> String {
        let wins = |ratio: &&String| {
            let relative = self.relative(PAGEOUTS[0], tier, ratio);
            relative.is_some_and(|times| times < self.clustering())
        };
        let from = ratios.iter().rev().take_while(wins).last();
        from.map_or_else(|| "-".to_owned(), Clone::clone)
    }

    /// What takes the least at `ratio`, and how much.
    fn best(&self, ratio: &str) -> String {
        let pairs = TIERS
            .iter()
            .flat_map(|tier| PAGEOUTS.map(|pageout| (pageout, *tier)));
        let timed = pairs.filter_map(|(pageout, tier)| {
            Some((self.relative(pageout, tier, ratio)?, pageout, tier))
        });
        // Of equals the first, which is the one with less to it.
        let best = timed.reduce(|best, next| if next.0 < best.0 { next } else { best });
        best.map_or_else(
            || "-".to_owned(),
            |(times, pageout, tier)| format!("{pageout}, {tier}: {times:.2}"),
        )
    }
}

/// A table for each disk and share of memory, and one of who wins.
fn render(all: &[Runs], ratios: &[String]) -> String {
    let parts = parts(all);
    let mut out = String::new();
    let mut head = vec!["program".to_owned(), "memory".into(), "tier".into()];
    head.extend(ratios.iter().cloned());
    let mut disks: Vec<&str> = Vec::new();
    for part in &parts {
        if !disks.contains(&part.disk) {
            disks.push(part.disk);
        }
    }
    for disk in disks {
        let mut cells = vec![head.clone()];
        for part in parts.iter().filter(|part| part.disk == disk) {
            for tier in TIERS {
                let mut row = vec![
                    format!("`{}`", part.program),
                    part.memory(),
                    tier.to_owned(),
                ];
                let once = if tier == TIERS[0] { 1 } else { ratios.len() };
                row.extend(ratios[..once].iter().map(|ratio| part.cell(tier, ratio)));
                row.resize(head.len(), "-".to_owned());
                cells.push(row);
            }
        }
        let _ = writeln!(
            out,
            "On `{disk}`, by ratio: {}, each times `{}` without compression\n",
            PAGEOUTS.map(|name| format!("`{name}`")).join(" / "),
            PAGEOUTS[0]
        );
        out += &markdown(&cells);
        out.push('\n');
    }
    out + &winners(&parts, ratios)
}

fn winners(parts: &[Part<'_>], ratios: &[String]) -> String {
    let mut head = vec!["program".to_owned(), "memory".into(), "disk".into()];
    head.push("clustering alone".into());
    head.extend(TIERS[1..].iter().map(|tier| format!("{tier} wins from")));
    head.extend(ratios.iter().map(|ratio| format!("best at {ratio}")));
    let mut cells = vec![head];
    for part in parts {
        let mut row = vec![
            format!("`{}`", part.program),
            part.memory(),
            part.disk.to_owned(),
        ];
        row.push(format!("{:.2}", part.clustering()));
        row.extend(TIERS[1..].iter().map(|tier| part.wins_from(tier, ratios)));
        row.extend(ratios.iter().map(|ratio| part.best(ratio)));
        cells.push(row);
    }
    format!(
        "From which ratio on compression with `{}` takes less than the better of `{}` without it, and what takes least\n\n{}",
        PAGEOUTS[0],
        PAGEOUTS[1..].join("` and `"),
        markdown(&cells)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wins_is_named_with_the_ratio_from_which_on() {
        let options = Options {
            programs: Vec::new(),
            memory: vec!["50%".to_owned()],
            disk: vec!["barracuda-7200.9".to_owned()],
            ratio: ["1", "4"].map(str::to_owned).to_vec(),
            json: None,
            threads: Some(1),
        };
        let runs = compared(&options, "moc:pages=8192").expect("a program");
        // Without compression a run for each way of clustering, with it one for each ratio too.
        assert_eq!(runs.lines.len(), 3 + 3 * 3 * 2);
        let text = render(&[runs], &options.ratio);
        assert!(text.contains("| none | 1.00 / "), "{text}");
        let won = text.lines().last().expect("a row");
        let cells: Vec<&str> = won.split(" | ").collect();
        // All fits into the pool at 4, and nothing at 1.
        assert_eq!(cells[4], "4", "{text}");
        assert!(cells[8].contains("lz4: 0."), "{text}");
    }
}
