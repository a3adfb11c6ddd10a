//! `outpage bench plot`: the picture of a stored result of `outpage bench kernel`.

use std::fs;
use std::path::PathBuf;

use outpage_sim::paper::{Chart, Series};
use serde::Deserialize;

use super::BenchError;
use super::kernel_report::Side;
use crate::error::{CliError, code};

/// Options of `outpage bench plot`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Result of `outpage bench kernel --json`
    #[arg(value_name = "FILE")]
    result: PathBuf,
    /// Picture to write, as SVG
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Phases to draw, in this order, as in "sor sweeps,random touches" [default: all]
    #[arg(long, value_name = "PHASES", value_delimiter = ',')]
    phases: Vec<String>,
}

/// What of a result is drawn.
#[derive(Deserialize)]
struct Stored {
    limit_bytes: u64,
    footprint_mib: u32,
    rounds: u32,
    summary: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    workload: String,
    phase: String,
    sides: Vec<SideTimes>,
}

#[derive(Deserialize)]
struct SideTimes {
    side: Side,
    seconds: Option<Median>,
}

#[derive(Deserialize)]
struct Median {
    median: f64,
}

/// Draws the picture.
///
/// # Errors
/// When the result cannot be read or is none of `outpage bench kernel`, when it does not have a phase, or
/// when the picture cannot be written.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let text =
        fs::read_to_string(&options.result).map_err(|e| CliError::no_text(&options.result, e))?;
    let stored: Stored = serde_json::from_str(&text).map_err(|error| {
        let file = options.result.display();
        let text = format!("{file} is no result of outpage bench kernel --json: {error}");
        CliError::new(code::DATA, text)
    })?;
    let svg = chart(&stored, &options.phases)?.svg();
    // Pages are dark at times, and what is drawn is black.
    let svg = svg.replacen("<svg ", "<svg style=\"background:#fff\" ", 1);
    fs::write(&options.out, svg).map_err(|e| CliError::unwritten(&options.out, e))?;
    Ok(())
}

/// Bars of every side for the phases that are `wanted`, or for all.
fn chart(stored: &Stored, wanted: &[String]) -> Result<Chart, BenchError> {
    let name = |line: &Line| format!("{} {}", line.workload, line.phase);
    let lines: Vec<&Line> = if wanted.is_empty() {
        stored.summary.iter().collect()
    } else {
        let find = |phase: &String| {
            let found = stored.summary.iter().find(|line| name(line) == *phase);
            found.ok_or_else(|| {
                let known: Vec<String> = stored.summary.iter().map(name).collect();
                let known = known.join(", ");
                BenchError::Usage(format!(
                    "the result has no phase '{phase}'; it has {known} (--phases)"
                ))
            })
        };
        wanted.iter().map(find).collect::<Result<_, _>>()?
    };
    let mut sides: Vec<Side> = Vec::new();
    for times in lines.iter().flat_map(|line| &line.sides) {
        if !sides.contains(&times.side) {
            sides.push(times.side);
        }
    }
    let series = sides.into_iter().map(|side| {
        let seconds = lines.iter().map(|line| {
            let times = line.sides.iter().find(|times| times.side == side)?;
            times.seconds.as_ref().map(|seconds| seconds.median)
        });
        Series::ours(&legend(side), seconds.collect())
    });
    Ok(Chart {
        title: "Outpage beside kernel swap".to_owned(),
        unit: format!(
            "seconds, medians of {} rounds; {} MiB touched, a limit of {} MiB",
            stored.rounds,
            stored.footprint_mib,
            stored.limit_bytes >> 20
        ),
        categories: lines.iter().map(|line| name(line)).collect(),
        series: series.collect(),
        whole: true,
    })
}

fn legend(side: Side) -> String {
    match side {
        Side::Outpage => "Outpage".to_owned(),
        Side::Kernel(_) => format!("kernel swap, {side}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Stored {
        let text = r#"{"limit_bytes": 134217728, "footprint_mib": 256, "rounds": 5, "summary": [
            {"workload": "sor", "phase": "sweeps", "sides": [
                {"side": "outpage", "seconds": {"median": 1.0}},
                {"side": {"kernel": 3}, "seconds": {"median": 4.0}}]},
            {"workload": "graph", "phase": "search", "sides": [
                {"side": "outpage", "seconds": {"median": 2.0}},
                {"side": {"kernel": 3}, "seconds": null}]}]}"#;
        serde_json::from_str(text).expect("a result")
    }

    #[test]
    fn a_side_has_a_bar_for_each_phase_and_a_gap_where_no_run_finished() {
        let chart = chart(&stored(), &[]).expect("a chart");
        assert_eq!(chart.categories, ["sor sweeps", "graph search"]);
        assert_eq!(chart.series[0].name, "Outpage");
        assert_eq!(chart.series[0].values, [Some(1.0), Some(2.0)]);
        assert_eq!(chart.series[1].name, "kernel swap, page-cluster 3");
        assert_eq!(chart.series[1].values, [Some(4.0), None]);
        assert!(
            chart
                .unit
                .contains("5 rounds; 256 MiB touched, a limit of 128 MiB")
        );
    }

    #[test]
    fn phases_are_drawn_in_the_order_that_is_asked_for() {
        let wanted = ["graph search".to_owned(), "sor sweeps".to_owned()];
        let chart = chart(&stored(), &wanted).expect("a chart");
        assert_eq!(chart.categories, wanted);
        let missing = super::chart(&stored(), &["lu build".to_owned()]);
        let text = missing.expect_err("no such phase").to_string();
        assert!(text.contains("'lu build'") && text.contains("sor sweeps, graph search"));
    }
}
