//! Runs, several at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use outpage_core::tier;
use outpage_sim::programs::Program;
use outpage_sim::world::{Report, Setup, World};

use super::bounds::{Bound, Bounds};
use super::programs::Source;
use crate::bar;

/// One machine to run the programs on.
#[derive(Clone, Debug)]
pub struct Job {
    /// The set of policies that it began from.
    pub system: String,
    /// The disk's label.
    pub disk: String,
    /// Everything; the programs are elsewhere.
    pub setup: Setup,
}

impl Job {
    /// Whether it has a pool of compressed pages.
    #[must_use]
    pub fn compresses(&self) -> bool {
        let choice = tier::Choice::parse(&self.setup.policies.tier, tier::Written::Compressed);
        choice.is_ok_and(|choice| !choice.entry().codec.is_empty())
    }

    /// How far its pages compress, as it is asked for; "-" where nothing is compressed.
    #[must_use]
    pub fn ratio(&self) -> String {
        match self.compresses() {
            true => self.setup.ratio.to_string(),
            false => "-".to_owned(),
        }
    }
}

/// A job and what became of it.
#[derive(Clone, Debug)]
pub struct Line {
    /// What ran.
    pub job: Job,
    /// The report, or why there is none.
    pub report: Result<Report, String>,
    /// What no policy can do better.
    pub bound: Option<Bound>,
}

/// Runs all `jobs`, on `threads` threads; results come in the order of the jobs.
#[must_use]
pub fn run_all(jobs: Vec<Job>, sources: &[Source], bounds: &Bounds, threads: usize) -> Vec<Line> {
    let bar = bar::steps("runs", jobs.len() as u64);
    let next = AtomicUsize::new(0);
    let reports = Mutex::new(vec![None; jobs.len()]);
    let alone = jobs.len() == 1;
    let work = || {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(job) = jobs.get(at) else { return };
            let told = |now_ns: u64| {
                if alone {
                    bar.set_message(format!("{} s of its time", now_ns / 1_000_000_000));
                }
            };
            let report = run(&job.setup, sources, told);
            reports.lock().expect("nobody panics with the lock")[at] = Some(report);
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let reports = reports.into_inner().expect("the threads are gone");
    let line = |(job, report): (Job, Option<Result<Report, String>>)| {
        let bound = bounds.at(job.setup.frames);
        Line {
            job,
            report: report.expect("every job ran"),
            bound,
        }
    };
    jobs.into_iter().zip(reports).map(line).collect()
}

/// One run; `told` is given the virtual time now and then.
///
/// # Errors
/// Why it cannot begin, or came to no end.
pub fn run(setup: &Setup, sources: &[Source], told: impl Fn(u64)) -> Result<Report, String> {
    let programs: Vec<Box<dyn Program>> = sources.iter().map(Source::build).collect();
    let world = World::with_programs(setup, programs).map_err(|e| e.to_string())?;
    let mut report = world
        .run(&mut |progress| told(progress.now_ns))
        .map_err(|e| e.to_string())?;
    for (program, source) in report.programs.iter_mut().zip(sources) {
        program.name.clone_from(&source.text);
    }
    Ok(report)
}
