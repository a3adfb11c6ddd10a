//! `outpage run`: a program under a memory limit.

mod check;
pub mod device;
mod options;
pub mod program;
pub mod report;
pub mod shim;
pub mod start;
pub mod wait;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use outpage_sys::fd::Fd;
use serde_json::Value;

use crate::error::{CliError, code};
pub use options::Args;
use program::Program;
use report::Outcome;
use start::Plan;

/// Runs the program and ends as it does.
///
/// # Errors
/// What keeps the program from starting, or its counters from being written.
pub fn run(args: &Args, device: Option<Fd>) -> Result<ExitCode, CliError> {
    let config = args.config()?;
    let program = program::find(&args.program()[0])?;
    admit(&program, args.allow_unmanaged())?;
    let plan = Plan::new(config.clone(), program, device)?;
    if !config.quiet {
        plan.warnings()
            .for_each(|warning| eprintln!("outpage: {warning}"));
    }
    let signals = wait::take_signals()?;
    let began = Instant::now();
    let allow = |command: &mut Command| {
        if args.allow_unmanaged() {
            command.env("OUTPAGE_ALLOW_UNMANAGED", "1");
        }
    };
    let mut running = plan.start(&args.program()[0], &args.program()[1..], allow)?;
    let status = wait::wait(&mut running.child, &signals)?;
    let outcome = Outcome::of(&running.session, began.elapsed());
    // Dying by a signal runs no destructors: the session must be let go before.
    drop(running);
    if !config.quiet {
        eprint!("{}", outcome.summary(&config));
    }
    if let Some(line) = outcome.ended_by_loss(&config, status) {
        eprintln!("outpage: {line}");
    }
    if let Some(file) = &config.stats {
        let words: Vec<String> = args
            .program()
            .iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect();
        // The program's own end matters more than its counters.
        if let Err(error) = write_json(file, &outcome.json(&config, &words, status)) {
            eprintln!("outpage: {error}");
        }
    }
    Ok(wait::end_like(status, signals))
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
    eprintln!("outpage: {what}; it runs without a limit");
    Ok(())
}

fn write_json(file: &Path, value: &Value) -> Result<(), CliError> {
    let written = std::fs::write(file, format!("{value:#}\n"));
    written.map_err(|e| {
        CliError::new(
            code::IO,
            format!("cannot write --stats {}: {e}", file.display()),
        )
    })
}
