//! `outpage run`: a program under a memory limit.

mod check;
pub mod device;
mod guest;
mod options;
pub mod program;
pub mod report;
mod sanitizer;
pub mod shim;
pub mod start;
mod stats;
pub mod wait;
mod watch;

use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use outpage_engine::config::Config;
use outpage_sys::fd::Fd;
use outpage_sys::launch::Signals;

use crate::error::{CliError, code};
use crate::message;
pub use options::Args;
use program::Program;
use report::Outcome;
use start::{Plan, Running};
use stats::StatsFile;
use watch::Watch;

/// Runs the program and ends as it does.
///
/// # Errors
/// What keeps the program from starting, or its counters from being written.
pub fn run(args: &Args, device: Option<Fd>) -> Result<ExitCode, CliError> {
    let mut config = args.config()?;
    let program = program::find(&args.program()[0])?;
    admit(&program, config.allow_unmanaged)?;
    guest::prepare(&mut config, args.program())?;
    let plan = Plan::new(config.clone(), program, device)?;
    if !config.quiet {
        plan.warnings()
            .for_each(|warning| message::line(format_args!("outpage: {warning}")));
    }
    let stats = Stats::begin(args, &config, plan.encrypts())?;
    let signals = wait::take_signals()?;
    let began = Instant::now();
    let adjust = |command: &mut Command| signals.inherit(command);
    let mut running = plan.start(&args.program()[0], &args.program()[1..], adjust)?;
    let (status, watch) = attend(&mut running, &signals, began, &stats)?;
    conclude(running, signals, &stats, (status, began.elapsed()), &watch)
}

/// Says what there is to say of a program that has ended with a status after some time, and ends like it.
///
/// Apart from [`run`]: what it takes of the stack the launcher does without while the program runs.
#[inline(never)]
fn conclude(
    running: Running,
    signals: Signals,
    stats: &Stats<'_>,
    (status, took): (ExitStatus, Duration),
    watch: &Watch,
) -> Result<ExitCode, CliError> {
    let config = stats.config;
    watch::await_pagers(&running.session);
    let outcome = Outcome::of(&running.session, took).beside(watch.unpaged());
    let outcome = outcome.ended(status);
    if let Err(error) = running.session.check() {
        message::line(format_args!(
            "outpage: {error}; what it counted may be wrong"
        ));
    }
    // Dying by a signal runs no destructors: the session must be let go before.
    drop(running);
    if !config.quiet {
        message::text(format_args!("{}", outcome.summary(config)));
    }
    if let Some(line) = guest::untold(config).filter(|_| !config.quiet) {
        message::line(format_args!("outpage: {line}"));
    }
    if let Some(line) = outcome.ended_by_loss(config, status) {
        message::line(format_args!("outpage: {line}"));
    }
    // A pipe waits for its reader, who may never come: from here on a signal is the launcher's own.
    let signals = stats.is_rewritable().then_some(signals);
    // The program's own end matters more than its counters.
    if let Err(error) = stats.write(&outcome, Some(status)) {
        message::line(format_args!("outpage: {error}"));
    }
    drop(signals);
    Ok(wait::end_like(status))
}

/// Waits for the end of the program, and looks at it meanwhile.
// As `conclude`.
#[inline(never)]
fn attend<'a>(
    running: &mut Running,
    signals: &Signals,
    began: Instant,
    stats: &Stats<'a>,
) -> Result<(ExitStatus, Watch), CliError> {
    let Running { child, session, .. } = running;
    let config = stats.config;
    let mut watch = Watch::new(child.id(), began, config.memory_bytes, !config.quiet);
    let status = wait::wait_looking(child, signals, || {
        Some(watch.look(session, |unpaged| {
            if stats.is_rewritable() {
                let outcome = Outcome::of(session, began.elapsed()).beside(*unpaged);
                // A disk that is full now may have room at the end, where it counts.
                let _ = stats.write(&outcome, None);
            }
        }))
    })?;
    Ok((status, watch))
}

/// The counters' file, if one was asked for, and what goes into it beside the counters.
struct Stats<'a> {
    file: Option<StatsFile>,
    config: &'a Config,
    words: Vec<String>,
}

impl<'a> Stats<'a> {
    /// Writes the first counters, all zero: whoever ends the launcher at once finds them, and what keeps
    /// them from being written is said now.
    // As `conclude`.
    #[inline(never)]
    fn begin(args: &Args, config: &'a Config, encrypts: bool) -> Result<Self, CliError> {
        let words = args.program().iter();
        let file = config.stats.as_deref().map(StatsFile::new).transpose()?;
        let this = Self {
            file,
            config,
            words: words.map(|a| a.to_string_lossy().into_owned()).collect(),
        };
        if this.is_rewritable() {
            this.write(&Outcome::before(encrypts), None)?;
        }
        Ok(this)
    }

    fn is_rewritable(&self) -> bool {
        self.file.as_ref().is_some_and(StatsFile::is_rewritable)
    }

    fn write(&self, outcome: &Outcome, status: Option<ExitStatus>) -> Result<(), CliError> {
        let value = || outcome.json(self.config, &self.words, status);
        self.file
            .as_ref()
            .map_or(Ok(()), |file| file.write(&value()))
    }
}

/// Says in one line that a program's memory cannot be managed, and refuses it unless that is allowed.
pub fn admit(program: &Program, allowed: bool) -> Result<(), CliError> {
    let Some(reason) = &program.unmanaged else {
        return Ok(());
    };
    let what = format!(
        "{} {}: its memory cannot be managed",
        program.path.display(),
        reason.phrase()
    );
    if !allowed {
        let remedy = "--allow-unmanaged runs it without a limit";
        return Err(CliError::new(
            code::CANNOT_EXECUTE,
            format!("{what}; {remedy}"),
        ));
    }
    message::line(format_args!("outpage: {what}; it runs without a limit"));
    Ok(())
}
