//! What `outpage bench programs` can be told, and what is compared.

use std::path::PathBuf;
use std::time::Duration;

use outpage_engine::config::parse_size;

use super::registry::Program;

/// Options of `outpage bench programs`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Programs [default: all that are installed]: perl-hash, python-dict, awk-array, gawk-array, node-objects, ruby-hash,
    /// lua-table, sqlite-zipf, redis-zipf, gcc-large, ld-objects, minisat, sort-pipeline, xz-9, numpy-gather
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = Program::parse)]
    pub(super) programs: Vec<&'static Program>,
    /// Memory limits, in percent of the most anonymous memory that a program has
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "50", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) at: Vec<u32>,
    /// How large the programs' data is, as a multiple of the usual
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, value_parser = parse_scale)]
    pub(super) scale: f64,
    /// Runs of each program under each system
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// What the programs are run under
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "unlimited,outpage,kernel,zram"
    )]
    pub(super) systems: Vec<Kind>,
    /// Options for `outpage run`, as in --run-args "--readahead none"; each time it is given stands for a system of its
    /// own, "" for Outpage as it is
    #[arg(long = "run-args", value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(super) run_args: Vec<String>,
    /// Part of the limit that Outpage is not given, for its own memory [default: what a run that does not count needs; without cgroups 4.5 MiB, an
    /// 80th of the peak, and 2 MiB for each process but one]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) reserve: Option<u64>,
    /// Kill a run that takes longer, in seconds; that is noted as a result, and not tried again
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) timeout: u64,
    /// Directory of the swap files and of the programs' input; its disk is the one that is measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(super) swap: PathBuf,
    /// Write every run and the summary to this file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Draw the medians, as SVG, to this file
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Go on after a run that failed; the exit status still tells
    #[arg(long)]
    pub(super) keep_going: bool,
}

/// What a program may be run under.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    /// No limit
    Unlimited,
    /// `outpage run`
    Outpage,
    /// Kernel swap to a file
    Kernel,
    /// Kernel swap on zram, compressed with lz4
    Zram,
}

/// A [`Kind`] with its name in the tables, and the options for `outpage run`.
#[derive(Clone, Debug)]
pub struct System {
    pub kind: Kind,
    pub name: String,
    pub(super) run_args: Vec<String>,
}

/// A scale, for clap.
fn parse_scale(text: &str) -> Result<f64, String> {
    // Beyond that, sizes are below what any program takes to start, or above what a run can end in.
    let scale = text.parse().ok();
    scale
        .filter(|scale| (0.01..=100.0).contains(scale))
        .ok_or_else(|| "a scale is a number from 0.01 to 100".into())
}

impl Options {
    /// What is compared, each thing once.
    pub fn systems(&self) -> Vec<System> {
        let mut systems: Vec<System> = Vec::new();
        let mut add = |kind, name: String, run_args| {
            if systems.iter().all(|known| known.name != name) {
                systems.push(System {
                    kind,
                    name,
                    run_args,
                });
            }
        };
        for &kind in &self.systems {
            match kind {
                Kind::Unlimited => add(kind, "unlimited".into(), Vec::new()),
                Kind::Kernel => add(kind, "kernel swap".into(), Vec::new()),
                Kind::Zram => add(kind, "zram".into(), Vec::new()),
                Kind::Outpage if self.run_args.is_empty() => {
                    add(kind, "outpage".into(), Vec::new());
                }
                Kind::Outpage => {
                    for text in &self.run_args {
                        let words = text.split_ascii_whitespace().map(str::to_owned);
                        add(
                            kind,
                            format!("outpage {text}").trim().into(),
                            words.collect(),
                        );
                    }
                }
            }
        }
        systems
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        options: Options,
    }

    fn names(line: &[&str]) -> Vec<String> {
        let options = Words::parse_from([&["programs"], line].concat()).options;
        options.systems().into_iter().map(|one| one.name).collect()
    }

    #[test]
    fn each_set_of_options_is_a_system_of_its_own() {
        assert_eq!(names(&[]), ["unlimited", "outpage", "kernel swap", "zram"]);
        let two = [
            "--systems",
            "outpage,zram",
            "--run-args",
            "--readahead none",
            "--run-args=",
            "--run-args",
            "--readahead none",
        ];
        assert_eq!(names(&two), ["outpage --readahead none", "outpage", "zram"]);
    }

    #[test]
    fn scales() {
        assert_eq!(parse_scale("0.5"), Ok(0.5));
        for bad in ["0", "-1", "nan", "1e9", "half"] {
            assert!(parse_scale(bad).is_err(), "{bad}");
        }
    }
}
