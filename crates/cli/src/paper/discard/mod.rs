//! `outpage paper discard --live`: the paper's programs in real memory, of a server and of the kernel's own.

pub mod client;
mod contents;
mod steps;

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outpage_core::units::PAGE_BYTES;
use outpage_server::{Options, ServeError, Server, listen};
use outpage_sim::paper::{LAZY, LIVE_PAGES, Live, LiveRun, live_configurations, live_workloads};

use crate::bench::BenchError;
use crate::bench::guard::{Guard, Undo};
use crate::bench::kernel_swap::Kernel;
use crate::bench::launch::{Ending, Run, Speaks, launch_as, this_program};
use crate::error::{CliError, code};
use crate::{message, output};

/// What the kernel's runs may have beside the pages of the heap: the program itself, which its limit counts as well. A choice, twice what such a process has.
const PROGRAM_BYTES: u64 = 2 << 20;
/// Swap of the kernel's runs: more than the largest program has, 54 MiB.
const SWAP_BYTES: u64 = 128 << 20;
/// The kernel's own `vm.page-cluster`.
const PAGE_CLUSTER: u32 = 3;
/// A run takes seconds; one that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(900);

/// What is run, and where.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// Rounds, in each of which every configuration has its turn.
    pub rounds: u32,
    /// Directory of the swap files.
    pub swap_dir: &'a Path,
    /// One workload only.
    pub only: Option<&'a str>,
}

/// What the runs need on this machine.
struct Bench {
    guard: Guard,
    /// Steps, reports and sockets; the guard removes it.
    directory: PathBuf,
    swap_dir: PathBuf,
    /// Where kernel swap can be had.
    kernel: Option<Kernel>,
}

impl Bench {
    fn prepare(swap_dir: &Path) -> Result<Self, CliError> {
        let mut guard = Guard::start()?;
        let directory = swap_dir.join(format!(".outpage-paper-{}", std::process::id()));
        guard.note(&Undo::Remove(directory.clone()))?;
        std::fs::create_dir(&directory).map_err(|e| CliError::unwritten(&directory, e))?;
        let kernel = match Kernel::prepare(swap_dir, SWAP_BYTES, &mut guard) {
            Ok(kernel) => Some(kernel),
            Err(BenchError::Lacks(why)) => {
                message::line(format_args!(
                    "SKIPPED: kernel swap beside the server: {why}"
                ));
                None
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            guard,
            directory,
            swap_dir: swap_dir.to_owned(),
            kernel,
        })
    }

    /// This program again, as a client.
    fn command(&self, more: &[OsString]) -> Result<Vec<OsString>, CliError> {
        let mut command = vec![this_program()?.into_os_string(), "paper-client".into()];
        for (option, name) in [("--steps", "steps"), ("--report", "report")] {
            command.extend([option.into(), self.directory.join(name).into_os_string()]);
        }
        command.extend_from_slice(more);
        Ok(command)
    }

    /// One run with a server of `policy`, or without; `None` where the kernel ended it for want of memory.
    fn run(
        &mut self,
        configuration: &str,
        policy: Option<&str>,
    ) -> Result<Option<LiveRun>, CliError> {
        let run = match policy {
            Some(policy) => self.served(policy)?,
            None => self.swapped(configuration == LAZY)?,
        };
        match run.ending {
            Ending::Finished { .. } => {}
            Ending::TimedOut => return Err(wrong(configuration, "it hangs")),
            Ending::OomKilled { .. } => return Ok(None),
            Ending::Failed { what } => return Err(wrong(configuration, &what)),
        }
        let file = self.directory.join("report");
        let text = std::fs::read_to_string(&file).map_err(|e| CliError::unread(&file, e))?;
        let _ = std::fs::remove_file(&file);
        let report: client::Report = serde_json::from_str(&text)
            .map_err(|error| wrong(configuration, &error.to_string()))?;
        Ok(Some(LiveRun {
            seconds: report.seconds,
            read: report.read,
            filled: report.filled,
            written: report.written,
            dropped: report.dropped,
            flushed: report.flushed,
            dropped_unwritten: report.dropped_unwritten,
        }))
    }

    fn served(&self, policy: &str) -> Result<Run, CliError> {
        let mut options = Options::new(LIVE_PAGES);
        policy.clone_into(&mut options.discard);
        options.swap_dir.clone_from(&self.swap_dir);
        let socket = self.directory.join("socket");
        let failed = |error: ServeError| CliError::new(code::OS, error.to_string());
        let mut server = Server::new(options, listen(&socket).map_err(failed)?).map_err(failed)?;
        let command = self.command(&["--socket".into(), socket.into_os_string()])?;
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let serve = || -> Result<(), CliError> {
                while !ended.load(Ordering::Relaxed) {
                    server.round().map_err(failed)?;
                }
                Ok(())
            };
            let serving = scope.spawn(serve);
            let run = launch_as(&command, None, TIMEOUT, Speaks::Anything);
            ended.store(true, Ordering::Relaxed);
            serving.join().expect("the server does not panic")?;
            Ok(run?)
        })
    }

    fn swapped(&mut self, lazy: bool) -> Result<Run, CliError> {
        let lazy = if lazy { vec!["--lazy".into()] } else { vec![] };
        let command = self.command(&lazy)?;
        let limit = LIVE_PAGES * PAGE_BYTES as u64 + PROGRAM_BYTES;
        let kernel = self.kernel.as_mut().expect("looked at before");
        let how = (&command[..], Speaks::Anything);
        Ok(kernel
            .run(how, limit, Some(PAGE_CLUSTER), TIMEOUT, &mut self.guard)?
            .run)
    }
}

fn wrong(configuration: &str, what: &str) -> CliError {
    CliError::new(code::FAILED, format!("live, {configuration}: {what}"))
}

/// The machine's load, as it says itself.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace()
        .next()
        .unwrap_or("?")
        .to_owned()
}

/// Runs the programs under each configuration, by turns; says the load on the way.
///
/// # Errors
/// A run that came to no end or found wrong contents; what the machine lacks, but for kernel swap.
pub fn live(how: How<'_>) -> Result<Vec<Live>, CliError> {
    let mut bench = Bench::prepare(how.swap_dir)?;
    let mut all = Vec::new();
    let workloads = live_workloads().into_iter();
    for (workload, spec) in workloads.filter(|(name, _)| how.only.is_none_or(|only| only == *name))
    {
        let file = bench.directory.join("steps");
        let unwritten = |error| CliError::unwritten(&file, error);
        let mut out = BufWriter::new(File::create(&file).map_err(unwritten)?);
        steps::write(spec.build(1).as_mut(), &mut out).map_err(unwritten)?;
        out.flush().map_err(unwritten)?;
        let mut names = live_configurations();
        names.retain(|(_, policy)| policy.is_some() || bench.kernel.is_some());
        let mut found: Vec<Live> = names
            .iter()
            .map(|(name, _)| Live {
                workload: workload.to_owned(),
                configuration: (*name).to_owned(),
                runs: Vec::new(),
            })
            .collect();
        for round in 1..=how.rounds {
            output::print_line(format_args!(
                "live: {workload}, round {round} of {}, load {}",
                how.rounds,
                load()
            ))?;
            for (runs, (name, policy)) in found.iter_mut().zip(&names) {
                runs.runs.push(bench.run(name, *policy)?);
            }
        }
        all.extend(found);
    }
    bench.guard.finish()?;
    Ok(all)
}
