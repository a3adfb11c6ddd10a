//! `outpage bench sim`: how fast the simulator is.

use std::path::PathBuf;
use std::time::Instant;

use outpage_core::contract::Access;
use outpage_core::units::{Nanos, ObjectId, PAGE_BYTES, PageNo, PageRange};
use outpage_sim::programs::{Program, Sor, SorParams, Step};
use outpage_sim::trace::{Header, Reader, Recorded, Reference, Writer};
use outpage_sim::world::{Report, Setup, World, speed};
use serde::Serialize;

use super::BenchError;
use super::summary::{Spread, table};
use crate::bar;
use crate::output;

/// Options of `outpage bench sim`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Rounds; the table has medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Version of the JSON's layout.
const SCHEMA: u32 = 1;

/// One measurement: its name, and a round of it, which gives things done and the seconds they took.
type Measurement = (&'static str, fn() -> Result<(u64, f64), BenchError>);

const MEASUREMENTS: [Measurement; 8] = [
    ("references a second, runs of pages", resident),
    ("references a second, rows of SOR", rows),
    ("faults a second, zero-fill", zero_fills),
    ("faults a second, paging page by page", page_by_page),
    ("the same under the daemon bsd-6.2", page_by_page_daemon),
    ("faults a second, windows of 8", windows),
    ("page-ins a second, live policies", streams),
    ("decoded references a second", decoding),
];

#[derive(Serialize)]
struct Rate {
    what: &'static str,
    per_second: Spread,
}

/// Measures on one thread and prints.
///
/// # Errors
/// When a simulated run fails or the JSON cannot be written.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let bar = bar::steps(
        "rounds",
        u64::from(options.rounds) * MEASUREMENTS.len() as u64,
    );
    let mut rates = Vec::new();
    for (what, round) in MEASUREMENTS {
        bar.set_message(what);
        let mut values = Vec::new();
        for _ in 0..options.rounds {
            let (done, seconds) = round()?;
            values.push(done as f64 / seconds);
            bar.inc(1);
        }
        let per_second = Spread::of(&values).expect("there is a round");
        rates.push(Rate { what, per_second });
    }
    bar.finish_and_clear();
    let mut out = vec![["", "median", "least", "most"].map(str::to_owned).to_vec()];
    for rate in &rates {
        let s = rate.per_second;
        let cells = [s.median, s.min, s.max].map(|v| format!("{:.2} million", v / 1e6));
        out.push(std::iter::once(rate.what.to_owned()).chain(cells).collect());
    }
    output::print(&table(&out))?;
    let Some(file) = &options.json else {
        return Ok(());
    };
    let value = serde_json::json!({"schema": SCHEMA, "rounds": options.rounds, "rates": rates});
    std::fs::write(file, format!("{value:#}\n"))
        .map_err(|e| BenchError::Failed(format!("cannot write {}: {e}", file.display())))
}

/// Passes over a range.
struct Passes {
    pages: u64,
    left: u32,
    step_pages: u64,
    at: u64,
    access: Access,
    mapped: bool,
}

impl Program for Passes {
    fn name(&self) -> &'static str {
        "passes"
    }

    fn footprint(&self) -> u64 {
        self.pages
    }

    fn step(&mut self) -> Step {
        let page = |index| PageNo::new(ObjectId(1), index);
        if !self.mapped {
            self.mapped = true;
            return Step::Map(PageRange::new(page(0), self.pages));
        }
        if self.left == 0 {
            return Step::End;
        }
        let run = PageRange::new(page(self.at), self.step_pages.min(self.pages - self.at));
        self.at += run.pages;
        if self.at == self.pages {
            (self.at, self.left) = (0, self.left - 1);
        }
        Step::Touch {
            run,
            access: self.access,
            page_ns: 1,
        }
    }
}

fn timed(setup: Setup, program: Box<dyn Program>) -> Result<(Report, f64), BenchError> {
    let setup = Setup {
        disk: speed::instant_disk(),
        ..setup
    };
    let failed = |why: String| BenchError::Failed(format!("a simulated run failed: {why}"));
    let world = World::with_programs(&setup, vec![program]).map_err(|e| failed(e.to_string()))?;
    let began = Instant::now();
    let report = world.run(&mut |_| {}).map_err(|e| failed(e.to_string()))?;
    Ok((report, began.elapsed().as_secs_f64()))
}

fn touches(report: &Report) -> u64 {
    report.programs.iter().map(|p| p.touches).sum()
}

/// Runs of 4096 pages that are all in memory, from the second pass on.
fn resident() -> Result<(u64, f64), BenchError> {
    let (pages, left) = (1 << 16, 4000);
    let program = Passes {
        pages,
        left,
        step_pages: 4096,
        at: 0,
        access: Access::Read,
        mapped: false,
    };
    let (report, seconds) = timed(Setup::live(2 * pages, Vec::new()), Box::new(program))?;
    Ok((touches(&report), seconds))
}

/// SOR with enough memory: three rows in step, page by page.
fn rows() -> Result<(u64, f64), BenchError> {
    let params = SorParams {
        n: 4000,
        sweeps: 40,
        init_ns: 1,
        sweep_ns: 1,
        ..SorParams::default()
    };
    let setup = Setup::live(1 << 16, Vec::new());
    let (report, seconds) = timed(setup, Box::new(Sor::new(params, 1)))?;
    Ok((touches(&report), seconds))
}

/// First touches of 2^20 pages, one fault for each.
fn zero_fills() -> Result<(u64, f64), BenchError> {
    let pages = 1 << 20;
    let program = Passes {
        pages,
        left: 1,
        step_pages: 1,
        at: 0,
        access: Access::Write,
        mapped: false,
    };
    let (report, seconds) = timed(speed::alone(2 * pages, "none"), Box::new(program))?;
    Ok((faults(&report), seconds))
}

/// Pages of a program that has frames for half of them, and its passes that are measured.
const PAGED: (u64, u32) = (1 << 16, 8);

/// Passes of writes over twice the memory, after a first one that is not measured: every page is
/// read once in each and written once. What `count` gives, and the seconds.
fn paged(setup: &Setup, count: fn(&Report) -> u64) -> Result<(u64, f64), BenchError> {
    let run = |left| {
        let program = Passes {
            pages: PAGED.0,
            left,
            step_pages: PAGED.0,
            at: 0,
            access: Access::Write,
            mapped: false,
        };
        timed(setup.clone(), Box::new(program))
    };
    let ((first, before), (all, seconds)) = (run(1)?, run(1 + PAGED.1)?);
    let pages = PAGED.0 * u64::from(PAGED.1);
    let (ins, outs) = (
        all.page_ins - first.page_ins,
        all.page_outs - first.page_outs,
    );
    // A run ends with some pages that are not written yet, and one that began earlier had as many.
    if ins < pages || outs.abs_diff(pages) > pages / 100 {
        let why = format!("{ins} page-ins and {outs} page-outs in passes over {pages} pages");
        return Err(BenchError::Failed(why));
    }
    Ok((count(&all) - count(&first), seconds - before))
}

fn faults(report: &Report) -> u64 {
    report.minor_faults + report.major_faults
}

/// A fault is one page read, one written and one released.
fn page_by_page() -> Result<(u64, f64), BenchError> {
    paged(&speed::alone(PAGED.0 / 2, "none"), faults)
}

fn page_by_page_daemon() -> Result<(u64, f64), BenchError> {
    let mut setup = Setup::bsd("6.2", "bsd", PAGED.0 / 2, Vec::new());
    "none".clone_into(&mut setup.policies.readahead);
    paged(&setup, faults)
}

/// Of eight faults one reads for all, and seven find their page staged.
fn windows() -> Result<(u64, f64), BenchError> {
    paged(&speed::alone(PAGED.0 / 2, "linux-slot"), faults)
}

/// Windows of 64 pages, mapped together: hardly a fault.
fn streams() -> Result<(u64, f64), BenchError> {
    paged(&Setup::live(PAGED.0 / 2, Vec::new()), |r| r.page_ins)
}

/// A trace of scattered references with gaps: nothing for runs or compression to find.
fn decoding() -> Result<(u64, f64), BenchError> {
    const REFERENCES: u64 = 1 << 21;
    let failed = |why: String| BenchError::Failed(format!("a trace failed: {why}"));
    let header = Header {
        page_bytes: PAGE_BYTES as u32,
        recorded: Recorded::Exact,
        program: "bench".into(),
    };
    let mut writer = Writer::new(Vec::new(), &header).map_err(|e| failed(e.to_string()))?;
    let mut state = 1_u64;
    for _ in 0..REFERENCES {
        // Knuth's MMIX generator.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let reference = Reference {
            page: PageNo::new(ObjectId(1), (state >> 40) % (1 << 16)),
            access: if state >> 63 == 1 {
                Access::Write
            } else {
                Access::Read
            },
            gap: Nanos((state >> 20) % 1000),
        };
        writer
            .reference(reference)
            .map_err(|e| failed(e.to_string()))?;
    }
    let bytes = writer.finish().map_err(|e| failed(e.to_string()))?;
    let began = Instant::now();
    let mut reader = Reader::new(bytes.as_slice()).map_err(|e| failed(e.to_string()))?;
    let mut sum = 0;
    while let Some(run) = reader.next_run().map_err(|e| failed(e.to_string()))? {
        sum += run.references().map(|r| r.page.raw() & 1).sum::<u64>();
    }
    std::hint::black_box(sum);
    Ok((REFERENCES, began.elapsed().as_secs_f64()))
}
