//! `outpage bench encrypt`: what encrypting the swap file costs a program that pages.

use std::ffi::OsString;
use std::fmt;
use std::hint::black_box;
use std::time::Instant;

use outpage_core::units::{PAGE_BYTES, SlotNo};
use outpage_store::{Cipher, KEY_BYTES};
use serde::Serialize;
use serde_json::json;

use super::guard::Guard;
use super::launch::{OutpageRun, Spec};
use super::machine::Machine;
use super::pairs::{Bench, Pairs, render};
use super::summary::Spread;
use super::{BenchError, Common, parse_spec, read_stats, stats_file, verdict};

use crate::output;

/// Footprint as a multiple of the limit: every pass pages.
const FOOTPRINT: f64 = 2.0;

/// Options of `outpage bench encrypt`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Pairs of runs, one with --encrypt off and one with --encrypt on
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Workloads, as of `bench kernel`
    #[arg(long, value_delimiter = ',', value_parser = parse_spec, default_value = "sor,random,moc4,lu")]
    workloads: Vec<Spec>,
}

/// Runs the pairs, prints the table and writes the JSON.
///
/// # Errors
/// When a run failed or its contents were wrong.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let common = &options.common;
    let machine = Machine::look(&common.runs.swap);
    output::print(&machine.describe())?;
    let pages = Alone::measure();
    output::print_line(format_args!("{pages}"))?;
    let mut guard = Guard::start()?;
    let stats = stats_file(&mut guard)?;
    let bench = Bench {
        common,
        pairs: options.pairs,
        workloads: &options.workloads,
        footprint: FOOTPRINT,
        ways: ["unencrypted", "encrypted"],
    };
    let mut problems = Vec::new();
    let commands = |plain: Vec<OsString>| {
        let way = |how: &str| {
            let mut all = common.runs.run_args.clone();
            all.extend(["--encrypt".to_owned(), how.to_owned()]);
            let outpage = OutpageRun {
                limit_bytes: common.memory,
                swap: &common.runs.swap,
                options: &all,
                stats: &stats,
            };
            outpage.wrap(plain.clone())
        };
        Ok([way("off")?, way("on")?])
    };
    let mut shares = Vec::new();
    let after = |pairs: &Pairs| shares.extend(Share::of_latest(&stats, pairs, &pages));
    let results = bench.run(commands, after, &mut problems)?;
    if shares.len() < results.len() {
        problems.push("a run was not encrypted, or nothing was paged".into());
    }
    output::print(&render(&results, ["unencrypted", "encrypted"]))?;
    for share in &shares {
        output::print_line(format_args!("{share}"))?;
    }
    let results = json!({"benchmark": "encrypt", "machine": machine, "limit_bytes": common.memory,
        "run_args": common.runs.run_args, "page": pages, "workloads": results, "shares": shares, "problems": problems});
    let written = common.runs.write_json(&results);
    verdict(&problems).and(guard.finish()).and(written)
}

/// Nanoseconds that a page takes by itself.
#[derive(Clone, Debug, Serialize)]
struct Alone {
    aes_instructions: bool,
    encrypt_ns: Spread,
    decrypt_ns: Spread,
    copy_ns: Spread,
}

impl Alone {
    /// As many pages as go through a huge page.
    const PAGES: usize = 512;
    const ROUNDS: usize = 21;

    fn measure() -> Self {
        let cipher = Cipher::new(&std::array::from_fn::<u8, KEY_BYTES, _>(|i| i as u8));
        let mut pages = vec![[7_u8; PAGE_BYTES]; Self::PAGES];
        let other = vec![[9_u8; PAGE_BYTES]; Self::PAGES];
        let slots = || (0..).map(SlotNo);
        let encrypt_ns = Self::each(|| {
            let pairs = pages.iter_mut().zip(slots());
            pairs.for_each(|(page, slot)| cipher.seal_page(page, slot));
        });
        let decrypt_ns = Self::each(|| {
            let pairs = pages.iter_mut().zip(slots());
            pairs.for_each(|(page, slot)| cipher.open_page(page, slot));
        });
        let copy_ns = Self::each(|| black_box(&mut pages).copy_from_slice(black_box(&other)));
        Self {
            aes_instructions: Cipher::is_fast(),
            encrypt_ns,
            decrypt_ns,
            copy_ns,
        }
    }

    /// Nanoseconds a page of rounds over all pages.
    fn each(mut round: impl FnMut()) -> Spread {
        let rounds: Vec<f64> = (0..Self::ROUNDS)
            .map(|_| {
                let began = Instant::now();
                round();
                began.elapsed().as_nanos() as f64 / Self::PAGES as f64
            })
            .collect();
        Spread::of(&rounds).expect("some rounds")
    }
}

impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = |spread: &Spread| {
            format!(
                "{:.0} ns [{:.0}-{:.0}]",
                spread.median, spread.min, spread.max
            )
        };
        write!(
            f,
            "A page by itself, {} AES instructions: encrypting {}, decrypting {}; copying {}",
            if self.aes_instructions {
                "with"
            } else {
                "without"
            },
            ns(&self.encrypt_ns),
            ns(&self.decrypt_ns),
            ns(&self.copy_ns)
        )
    }
}

/// What the pages of a run take by themselves. The pairs show the whole price, but no better than to their noise.
#[derive(Clone, Debug, Serialize)]
struct Share {
    workload: String,
    page_outs: u64,
    page_ins: u64,
    seconds: f64,
    /// Median CPU seconds of the runs without encryption.
    of_cpu_seconds: f64,
    elapsed_seconds: [Spread; 2],
}

impl Share {
    /// Of the run that was counted last; `None` where nothing was paged, or the last encrypted run was not encrypted.
    fn of_latest(stats: &std::path::Path, pairs: &Pairs, pages: &Alone) -> Option<Self> {
        let stats = read_stats(stats)?;
        let count = |name: &str| stats[name].as_u64().filter(|&count| count > 0);
        let (page_outs, page_ins) = (count("page_outs")?, count("page_ins")?);
        // The last pair ends with either way.
        let asked = stats["config"]["encrypt"] == "on";
        (stats["encrypted"] == asked).then_some(())?;
        let ns =
            page_outs as f64 * pages.encrypt_ns.median + page_ins as f64 * pages.decrypt_ns.median;
        Some(Self {
            workload: pairs.workload().to_owned(),
            page_outs,
            page_ins,
            seconds: ns / 1e9,
            of_cpu_seconds: pairs.cpu_of_first()?,
            elapsed_seconds: [pairs.elapsed(0)?, pairs.elapsed(1)?],
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [off, on] = &self.elapsed_seconds;
        write!(
            f,
            "{}: elapsed {off} s unencrypted, {on} s encrypted; {} pages out and {} in take {:.0} ms by themselves, {:.1} % of a run's CPU time",
            self.workload,
            self.page_outs,
            self.page_ins,
            self.seconds * 1e3,
            self.seconds / self.of_cpu_seconds * 100.0
        )
    }
}
