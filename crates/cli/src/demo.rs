//! `outpage demo`: a bundled program with all its memory, then with half of it; same result?

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::{Config, DEFAULT_SWAP_DIR, Mechanism, format_size};
use outpage_stats::Counts;
use outpage_sys::fd::Fd;

use crate::error::{CliError, code};
use crate::output;
use crate::run::program;
use crate::run::report::Outcome;
use crate::run::start::{Plan, Running};
use crate::workload::Report;

/// Options of `outpage demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Memory that the program needs, in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(32..=1 << 20))]
    mib: u32,
    /// Directory of the swap file
    #[arg(long, value_name = "DIR", default_value = DEFAULT_SWAP_DIR)]
    swap: PathBuf,
    /// How pages leave the program: auto, move, write-protect
    #[arg(long, value_name = "NAME", default_value = Mechanism::Auto.name())]
    mechanism: Mechanism,
}

/// How often the live line is drawn.
const TICK: Duration = Duration::from_millis(200);

/// Runs the program twice and compares.
///
/// # Errors
/// What keeps it from running; [`code::FAILED`] when the results differ.
pub fn run(args: &Args, device: Option<Fd>) -> Result<ExitCode, CliError> {
    let own =
        std::env::current_exe().map_err(|e| CliError::os("find this program's own file", e))?;
    let program = program::find(own.as_os_str())?;
    if let Some(reason) = &program.unmanaged {
        let text = format!(
            "this copy of outpage {}: run the demo from a copy without that",
            reason.phrase()
        );
        return Err(CliError::new(code::CANNOT_EXECUTE, text));
    }
    let memory = u64::from(args.mib) << 20;
    let config = Config {
        swap_dir: args.swap.clone(),
        mechanism: args.mechanism,
        ..Config::new(memory / 2)
    };
    let arguments = [
        "workload",
        "sor",
        "--sweeps",
        "3",
        "--progress",
        "--mib",
        &args.mib.to_string(),
    ]
    .map(OsString::from);
    output::print_line(format_args!(
        "The program: SciMark2's SOR on a matrix of {}, three sweeps.",
        format_size(memory)
    ))?;
    let free = unlimited(&own, &arguments)?;
    output::print_line(format_args!(
        "Without a limit:  {:>6.2} s, checksum {}",
        free.seconds, free.report.checksum
    ))?;
    let plan = Plan::new(config.clone(), program, device)?;
    let (limited, outcome) = under_limit(&plan, &own, &arguments)?;
    output::print_line(format_args!(
        "Under {:>8}:   {:>6.2} s, checksum {}",
        format_size(config.memory_bytes),
        limited.seconds,
        limited.report.checksum
    ))?;
    output::print(&outcome.summary(&config))?;
    if limited.report.checksum != free.report.checksum {
        return Err(CliError::new(
            code::FAILED,
            "the results differ: memory was not kept exact",
        ));
    }
    if !outcome.paged() {
        return Err(CliError::new(
            code::FAILED,
            "nothing was paged, so the limit was not kept",
        ));
    }
    output::print_line(format_args!("The results are the same."))?;
    Ok(ExitCode::SUCCESS)
}

/// A finished run of the program.
struct Finished {
    report: Report,
    seconds: f64,
}

fn unlimited(own: &Path, arguments: &[OsString]) -> Result<Finished, CliError> {
    let mut command = Command::new(own);
    command.args(arguments);
    redirect(&mut command);
    let began = Instant::now();
    let mut child = command
        .spawn()
        .map_err(|e| CliError::os("start the program", e))?;
    let progress = Progress::follow(child.stderr.take());
    let bar = bar("no limit");
    while child
        .try_wait()
        .map_err(|e| CliError::os("wait for the program", e))?
        .is_none()
    {
        progress.show(&bar);
        thread::sleep(TICK);
    }
    bar.finish_and_clear();
    finish(&mut child, progress, began.elapsed())
}

fn under_limit(
    plan: &Plan,
    own: &Path,
    arguments: &[OsString],
) -> Result<(Finished, Outcome), CliError> {
    let began = Instant::now();
    let mut running = plan.start(own.as_os_str(), arguments, redirect)?;
    let progress = Progress::follow(running.child.stderr.take());
    let bar = bar("half of it");
    let mut before = (Counts::default(), began);
    while running
        .child
        .try_wait()
        .map_err(|e| CliError::os("wait for the program", e))?
        .is_none()
    {
        bar.set_message(live_line(&running, &mut before));
        progress.show(&bar);
        thread::sleep(TICK);
    }
    bar.finish_and_clear();
    let elapsed = began.elapsed();
    let outcome = Outcome::of(&running.session, elapsed);
    Ok((finish(&mut running.child, progress, elapsed)?, outcome))
}

fn redirect(command: &mut Command) {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
}

/// What the session's counters say now, and how fast bytes moved since `before`.
fn live_line(running: &Running, before: &mut (Counts, Instant)) -> String {
    let counts = running.session.totals();
    let moved = |c: &Counts| c.bytes_in + c.bytes_out;
    let bytes = moved(&counts).saturating_sub(moved(&before.0));
    let seconds = before.1.elapsed().as_secs_f64().max(0.001);
    *before = (counts, Instant::now());
    format!(
        "{} resident, {} paged out, {:.0} MB/s",
        format_size((counts.resident_pages + counts.staged_pages) * PAGE_BYTES as u64),
        format_size(counts.swap_slots_used * PAGE_BYTES as u64),
        bytes as f64 / seconds / 1e6
    )
}

/// The program's own account of where it is, read from its standard error.
struct Progress {
    /// In thousandths of the phase.
    done: Arc<AtomicU32>,
    reader: Option<thread::JoinHandle<String>>,
}

impl Progress {
    fn follow(stderr: Option<ChildStderr>) -> Self {
        let done = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&done);
        let reader = stderr.map(|stderr| thread::spawn(move || read_progress(stderr, &seen)));
        Self { done, reader }
    }

    fn show(&self, bar: &ProgressBar) {
        bar.set_position(u64::from(self.done.load(Relaxed)));
    }
}

/// Reads "phase fraction" lines; returns the other lines, which are words of trouble.
fn read_progress(stderr: impl Read, done: &AtomicU32) -> String {
    let mut others = String::new();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        match parse_progress(&line) {
            Some(thousandths) => done.store(thousandths, Relaxed),
            None => others += &format!("{line} "),
        }
    }
    others
}

fn parse_progress(line: &str) -> Option<u32> {
    let (phase, fraction) = line.rsplit_once(' ')?;
    let fraction: f64 = fraction.parse().ok()?;
    (!phase.contains(' ') && (0.0..=1.0).contains(&fraction)).then_some((fraction * 1000.0) as u32)
}

fn finish(child: &mut Child, progress: Progress, elapsed: Duration) -> Result<Finished, CliError> {
    let mut output = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout
            .read_to_string(&mut output)
            .map_err(|e| CliError::os("read the program's result", e))?;
    }
    let status = child
        .wait()
        .map_err(|e| CliError::os("wait for the program", e))?;
    let report = output
        .lines()
        .find_map(|line| serde_json::from_str(line).ok());
    match report {
        Some(report) if status.success() => Ok(Finished {
            report,
            seconds: elapsed.as_secs_f64(),
        }),
        _ => {
            let words = progress
                .reader
                .and_then(|reader| reader.join().ok())
                .unwrap_or_default();
            Err(CliError::new(
                code::FAILED,
                format!("the program failed: {status} {}", words.trim()),
            ))
        }
    }
}

fn bar(name: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(1000);
    let style = ProgressStyle::with_template("{prefix:10} {bar:30} {elapsed} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(name);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_lines_are_told_from_others() {
        assert_eq!(parse_progress("sweep 0.250"), Some(250));
        assert_eq!(parse_progress("sweep 1.000"), Some(1000));
        assert_eq!(parse_progress("sweep 1.5"), None);
        assert_eq!(parse_progress("outpage: it broke 0.5"), None);
        assert_eq!(parse_progress("alone"), None);
    }

    #[test]
    fn words_of_trouble_are_kept() {
        let done = AtomicU32::new(0);
        let others = read_progress("init 0.5\noh dear\nsweep 0.125\n".as_bytes(), &done);
        assert_eq!((others.as_str(), done.load(Relaxed)), ("oh dear ", 125));
    }
}
