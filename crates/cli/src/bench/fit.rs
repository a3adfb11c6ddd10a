//! `outpage bench fit`: what Outpage costs a program that fits its limit.

use serde::Serialize;
use serde_json::json;

use super::guard::Guard;
use super::launch::{OutpageRun, Spec, launch};
use super::machine::{Machine, load_average};
use super::progress::Steps;
use super::summary::{Interval, Spread, table};
use super::{BenchError, Common, parse_spec, problem, reference, stats_file, verdict};

/// Part of the limit that the workloads use: they fit with room for allocator slack.
const FOOTPRINT: f64 = 0.25;

/// Options of `outpage bench fit`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Pairs of runs, one with and one without Outpage
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Workloads, as of `bench kernel`
    #[arg(long, value_delimiter = ',', value_parser = parse_spec, default_value = "alloc,compute")]
    workloads: Vec<Spec>,
}

/// CPU and elapsed seconds of a pair.
#[derive(Clone, Copy, Debug, Serialize)]
struct Pair {
    load_average: f64,
    plain_cpu_seconds: f64,
    outpage_cpu_seconds: f64,
    plain_wall_seconds: f64,
    outpage_wall_seconds: f64,
}

/// All pairs of one workload.
#[derive(Clone, Debug, Serialize)]
struct Fit {
    workload: String,
    pairs: Vec<Pair>,
    /// CPU time with Outpage over CPU time without.
    cpu_ratio: Option<Interval>,
    wall_ratio: Option<Interval>,
}

/// Runs the pairs, prints the table and writes the JSON.
///
/// # Errors
/// When a run failed or its contents were wrong.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let machine = Machine::look(&options.common.swap);
    print!("{}", machine.describe());
    let mut guard = Guard::start()?;
    let stats = stats_file(&mut guard)?;
    let outpage = OutpageRun {
        limit_bytes: options.common.memory,
        swap: &options.common.swap,
        options: &options.common.run_args,
        stats: &stats,
    };
    let mut steps = Steps::new(options.workloads.len() * (1 + 2 * options.pairs as usize));
    let mut problems = Vec::new();
    let mut fits = Vec::new();
    for spec in &options.workloads {
        fits.push(measure(options, spec, &outpage, &mut steps, &mut problems)?);
        if !problems.is_empty() && !options.common.keep_going {
            break;
        }
    }
    drop(steps);
    print!("{}", render(&fits));
    let results = json!({"benchmark": "fit", "machine": machine, "limit_bytes": options.common.memory,
        "run_args": options.common.run_args, "workloads": fits, "problems": problems});
    let written = options.common.write_json(&results);
    verdict(&problems).and(guard.finish()).and(written)
}

fn measure(
    options: &Options,
    spec: &Spec,
    outpage: &OutpageRun<'_>,
    steps: &mut Steps,
    problems: &mut Vec<String>,
) -> Result<Fit, BenchError> {
    let mib = options.common.footprint_mib(FOOTPRINT)?;
    steps.begin(&format!("{}, first run", spec.label));
    let reference = reference(spec, mib, options.common.timeout())?;
    let plain = spec.command(mib)?;
    let under = outpage.wrap(plain.clone())?;
    let mut pairs = Vec::new();
    for pair in 0..options.pairs {
        let load_average = load_average();
        let mut runs = [None, None];
        // Which one goes first alternates.
        for side in [pair % 2, 1 - pair % 2].map(|side| side as usize) {
            let name = ["without", "with"][side];
            steps.begin(&format!(
                "pair {} of {}: {} {name} Outpage",
                pair + 1,
                options.pairs,
                spec.label
            ));
            let run = launch([&plain, &under][side], None, options.common.timeout())?;
            if let Some(wrong) = problem(&run.ending, &reference) {
                problems.push(format!(
                    "{} {name} Outpage, pair {}: {wrong}",
                    spec.label,
                    pair + 1
                ));
            }
            runs[side] = Some(run);
        }
        if !problems.is_empty() && !options.common.keep_going {
            break;
        }
        if let [Some(plain), Some(under)] = runs {
            pairs.push(Pair {
                load_average,
                plain_cpu_seconds: plain.cpu_seconds,
                outpage_cpu_seconds: under.cpu_seconds,
                plain_wall_seconds: plain.wall_seconds,
                outpage_wall_seconds: under.wall_seconds,
            });
        }
    }
    let ratios = |ratio: fn(&Pair) -> f64| {
        Interval::bootstrap(&pairs.iter().map(ratio).collect::<Vec<f64>>())
    };
    Ok(Fit {
        workload: spec.label.clone(),
        cpu_ratio: ratios(|pair| pair.outpage_cpu_seconds / pair.plain_cpu_seconds),
        wall_ratio: ratios(|pair| pair.outpage_wall_seconds / pair.plain_wall_seconds),
        pairs,
    })
}

fn render(fits: &[Fit]) -> String {
    let head = [
        "workload",
        "CPU s without",
        "CPU s with",
        "mean ratio [95 %]",
        "median ratio",
        "elapsed ratio [95 %]",
        "pairs",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for fit in fits {
        let seconds = |value: fn(&Pair) -> f64| {
            let values: Vec<f64> = fit.pairs.iter().map(value).collect();
            Spread::of(&values).map_or_else(|| "-".into(), |spread| spread.to_string())
        };
        let interval = |interval: Option<Interval>| {
            interval.map_or_else(
                || "-".into(),
                |i| format!("{:.4} [{:.4}-{:.4}]", i.mean, i.low, i.high),
            )
        };
        rows.push(vec![
            fit.workload.clone(),
            seconds(|pair| pair.plain_cpu_seconds),
            seconds(|pair| pair.outpage_cpu_seconds),
            interval(fit.cpu_ratio),
            fit.cpu_ratio
                .map_or_else(|| "-".into(), |i| format!("{:.4}", i.median)),
            interval(fit.wall_ratio),
            fit.pairs.len().to_string(),
        ]);
    }
    format!(
        "\nCPU seconds, user and system, of the whole command: median [least-most].\n{}",
        table(&rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_shows_the_ratio_with_its_interval() {
        let pair = Pair {
            load_average: 0.0,
            plain_cpu_seconds: 2.0,
            outpage_cpu_seconds: 2.02,
            plain_wall_seconds: 2.0,
            outpage_wall_seconds: 2.1,
        };
        let ratio = Interval::bootstrap(&[1.01; 15]);
        let fit = Fit {
            workload: "alloc".into(),
            pairs: vec![pair; 15],
            cpu_ratio: ratio,
            wall_ratio: None,
        };
        let text = render(&[fit]);
        assert!(
            text.contains("1.0100 [1.0100-1.0100]") && text.contains("2.02 [2.02-2.02]"),
            "{text}"
        );
    }
}
