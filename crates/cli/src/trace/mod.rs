//! `outpage trace`: records page references and events of real programs, and what is made of them.

mod convert;
mod events;
pub mod load;
mod logs;
mod record;
pub mod references;

use std::path::PathBuf;
use std::process::ExitCode;

use outpage_sys::fd::Fd;

use crate::error::CliError;

/// Options of `outpage trace`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    mode: Option<Mode>,
    #[command(flatten)]
    record: record::Options,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Mode {
    /// Turn a trace into another format
    Convert(convert::Options),
    /// Chart an event log: Perfetto trace, CSV, HTML
    Events(events::Options),
}

/// Does what is asked.
///
/// # Errors
/// What keeps the program from running, or a file from being read or written.
pub fn run(args: &Args, device: Option<Fd>) -> Result<ExitCode, CliError> {
    match &args.mode {
        Some(Mode::Convert(options)) => convert::run(options),
        Some(Mode::Events(options)) => events::run(options),
        None => record::run(&args.record, device),
    }
}

/// `path` with `more` at its end.
fn with_suffix(path: &std::path::Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(more);
    PathBuf::from(name)
}
