//! `outpage paper-client`: a program of the paper in live memory, of a server or of the kernel's own.

use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use outpage_client::{Client, Object, Share};
use outpage_core::units::PAGE_BYTES;
use outpage_sys::libc::MADV_FREE;
use outpage_sys::map;
use outpage_sys::shared::Whole;
use serde::{Deserialize, Serialize};

use super::contents::Contents;
use super::steps::{Act, Step, Steps};
use crate::error::{CliError, code};

/// Options of the hidden command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What is done
    #[arg(long, value_name = "FILE")]
    steps: PathBuf,
    /// Where the figures go
    #[arg(long, value_name = "FILE")]
    report: PathBuf,
    /// The server; without one it is memory of the kernel's
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The kernel is told what is given up
    #[arg(long)]
    lazy: bool,
}

/// What the run came to: pages, but for the time.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Elapsed from the first step to the last, in seconds.
    pub seconds: f64,
    /// Pages that were compared, those at the end included.
    pub verified: u64,
    /// Read from the store or from swap.
    pub read: u64,
    /// Filled with zeroes because they had been dropped; 0 where nobody counts it.
    pub filled: u64,
    /// Written.
    pub written: u64,
    /// Dropped in place of being written; of the kernel's all that were dropped.
    pub dropped: u64,
    /// Dropped ahead of need.
    pub flushed: u64,
    /// Dropped clean, or in the store.
    pub dropped_unwritten: u64,
}

/// Where a program runs.
enum Memory {
    Served(Client, Object),
    Kernel { whole: Whole, lazy: bool },
}

impl Memory {
    fn new(args: &Args, bytes: u64) -> Result<Self, CliError> {
        let os = |error: &dyn std::fmt::Display| CliError::new(code::OS, error.to_string());
        let Some(socket) = &args.socket else {
            let whole = Whole::anonymous(bytes as usize).map_err(|error| os(&error))?;
            return Ok(Self::Kernel {
                whole,
                lazy: args.lazy,
            });
        };
        let client = Client::connect(socket, Share::default());
        let client = client.map_err(|error| CliError::new(code::UNAVAILABLE, error.to_string()))?;
        let object = client.create(bytes).map_err(|error| os(&error))?;
        Ok(Self::Served(client, object))
    }

    fn words(&self) -> &[std::sync::atomic::AtomicU64] {
        match self {
            Self::Served(_, object) => object.words(),
            Self::Kernel { whole, .. } => whole.words(),
        }
    }

    /// What is counted so far.
    fn counts(&self) -> Result<Report, CliError> {
        match self {
            Self::Served(client, _) => {
                let stats = client.stats().map_err(failed)?;
                Ok(Report {
                    read: stats.paged_in,
                    filled: stats.filled_for_dropped,
                    written: stats.paged_out,
                    dropped: stats.dropped_for_write,
                    flushed: stats.flushed,
                    dropped_unwritten: stats.dropped_clean + stats.dropped_in_slots,
                    ..Report::default()
                })
            }
            Self::Kernel { .. } => {
                let vmstat = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
                let count = |name| crate::bench::cgroup::keyed(&vmstat, name).unwrap_or(0);
                Ok(Report {
                    read: count("pswpin"),
                    written: count("pswpout"),
                    dropped: count("pglazyfreed"),
                    ..Report::default()
                })
            }
        }
    }
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::new(code::FAILED, error.to_string())
}

/// Does one step.
fn step(memory: &Memory, contents: &mut Contents<'_>, step: Step) -> Result<(), CliError> {
    let range: Range<usize> = step.first as usize..step.first as usize + step.pages as usize;
    let (first, pages) = (u64::from(step.first), u64::from(step.pages));
    match (step.act, memory) {
        (Act::Read, _) => range
            .into_iter()
            .try_for_each(|page| contents.read(page))
            .map_err(failed),
        (Act::Write, _) => range
            .into_iter()
            .try_for_each(|page| contents.write(page))
            .map_err(failed),
        (Act::Mark, Memory::Served(_, object)) => {
            contents.mark(range);
            object.mark(first, pages);
            Ok(())
        }
        (Act::Mark, Memory::Kernel { lazy: false, .. }) | (Act::Flush, Memory::Kernel { .. }) => {
            Ok(())
        }
        (Act::Mark, Memory::Kernel { whole, .. }) => {
            let start = whole.address() + range.start * PAGE_BYTES;
            let bytes = range.len() * PAGE_BYTES;
            contents.mark(range);
            map::madvise(start, bytes, MADV_FREE).map_err(failed)
        }
        (Act::TakeBack, Memory::Served(_, object)) => {
            let lost = object.take_back(first, pages).map_err(failed)?;
            contents.take_back(range, Some(&|index| lost.contains(index as u64)));
            Ok(())
        }
        (Act::TakeBack, Memory::Kernel { .. }) => {
            contents.take_back(range, None);
            Ok(())
        }
        (Act::Flush, Memory::Served(_, object)) => object.flush(first, pages).map_err(failed),
    }
}

/// Runs the steps, compares every page that is still wanted, and writes the report.
///
/// # Errors
/// [`code::FAILED`] for wrong contents; [`code::UNAVAILABLE`] where the machine lacks what a client needs; files.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let unread = |error| CliError::unread(&args.steps, error);
    let file = File::open(&args.steps).map_err(unread)?;
    let steps = Steps::new(BufReader::new(file)).map_err(unread)?;
    let memory = Memory::new(args, steps.pages * PAGE_BYTES as u64)?;
    let mut contents = Contents::new(memory.words());
    let before = memory.counts()?;
    let began = Instant::now();
    for each in steps {
        step(&memory, &mut contents, each.map_err(unread)?)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let after = memory.counts()?;
    contents.check_all().map_err(failed)?;
    let report = Report {
        seconds,
        verified: contents.verified,
        read: after.read - before.read,
        filled: after.filled - before.filled,
        written: after.written - before.written,
        dropped: after.dropped - before.dropped,
        flushed: after.flushed - before.flushed,
        dropped_unwritten: after.dropped_unwritten - before.dropped_unwritten,
    };
    let text = serde_json::to_string(&report).expect("numbers");
    std::fs::write(&args.report, text).map_err(|e| CliError::unwritten(&args.report, e))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    use outpage_server::{Options, Server, listen};
    use outpage_sim::programs::{MlParams, Spec};

    /// Pages of the programs' heap, of which a server has less than half.
    const HEAP: u32 = 700;
    const LIMIT: u64 = 300;

    fn steps_in(directory: &Path) -> PathBuf {
        let file = directory.join("steps");
        let spec = Spec::Ml(MlParams {
            heap_pages: HEAP,
            allocated_pages: 3_000,
            environment_pages: 90,
            ..MlParams::default()
        });
        let mut out = File::create(&file).unwrap();
        super::super::steps::write(spec.build(1).as_mut(), &mut out).unwrap();
        file
    }

    fn report(args: &Args) -> Report {
        run(args).unwrap();
        let text = std::fs::read_to_string(&args.report).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_program_runs_in_memory_of_the_kernels_with_and_without_its_being_told() {
        let directory = tempfile::tempdir().unwrap();
        let steps = steps_in(directory.path());
        for lazy in [false, true] {
            let report = report(&Args {
                steps: steps.clone(),
                report: directory.path().join("report"),
                socket: None,
                lazy,
            });
            assert!(report.verified > 3_000, "{report:?}");
        }
    }

    #[test]
    fn a_server_drops_what_its_policy_says() {
        if let Err(outpage_client::Error::Uffd(why)) =
            Client::connect("/nowhere/socket", Share::default())
        {
            eprintln!("SKIPPED: {why}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let steps = steps_in(directory.path());
        let reports = ["none", "nf", "pf:pages=64", "uf", "on-demand"].map(|policy| {
            let socket = directory.path().join("socket");
            let mut options = Options::new(LIMIT);
            policy.clone_into(&mut options.discard);
            let mut server = Server::new(options, listen(&socket).unwrap()).unwrap();
            let ended = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        server.round().unwrap();
                    }
                });
                let found = report(&Args {
                    steps: steps.clone(),
                    report: directory.path().join("report"),
                    socket: Some(socket),
                    lazy: false,
                });
                ended.store(true, Ordering::Relaxed);
                found
            })
        });
        let dropped = |r: &Report| r.dropped + r.dropped_unwritten + r.flushed;
        let [none, rest @ ..] = &reports;
        assert!(
            none.written > 0 && none.read > 0 && dropped(none) == 0,
            "{none:?}"
        );
        for found in rest {
            assert!(
                dropped(found) > 0 && found.written < none.written,
                "{reports:?}"
            );
        }
    }
}
