//! `outpage`: runs programs in less RAM than they need.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod bar;
mod bench;
mod container;
mod decisions;
mod demo;
mod disk;
mod doctor;
mod error;
mod home;
mod keeper;
mod message;
mod output;
mod pages;
mod paper;
mod replay;
mod run;
mod serve;
// Visible for the fuzz targets, which read settings files through them.
pub mod sim;
mod status;
mod tables;
pub mod trace;
mod workload;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use error::CliError;

/// Bytes of stack that any command gets by with: what Rust gives to a thread. Reading the arguments alone needs more than 64 KiB.
const STACK_BYTES: usize = 2 << 20;

fn main() -> ExitCode {
    // What the user may no longer do is given up by the thread that all others come from.
    let device = run::device::open_privileged();
    let small = outpage_sys::kernel::stack().is_ok_and(|limit| limit.soft < STACK_BYTES as u64);
    if !small {
        return command(device);
    }
    // The program gets the limit as it is: only what is Outpage's own goes on elsewhere.
    let elsewhere = std::thread::Builder::new().stack_size(STACK_BYTES);
    match elsewhere.spawn(|| command(device)) {
        Ok(thread) => thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(error) => {
            message::line(format_args!(
                "outpage: cannot get a stack of 2 MiB ({error}): raise `ulimit -s` or `ulimit -v`"
            ));
            ExitCode::from(error::code::OS)
        }
    }
}

/// Carries out what the arguments say.
fn command(device: Option<outpage_sys::fd::Fd>) -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            let written = error.print().and_then(|()| std::io::stdout().flush());
            return match output::judged(written) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => report(&error),
            };
        }
        Err(error) => {
            let words = std::env::args_os().skip(1);
            return report(&error::usage_line(&error, Cli::command(), words));
        }
    };
    let done = match cli.command {
        Command::Run(args) => run::run(&args, device),
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Doctor(args) => doctor::run(&args, device.as_ref()),
        Command::Demo(args) => demo::run(&args, device),
        Command::Sim(args) => sim::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Trace(args) => trace::run(&args, device),
        Command::Decisions(args) => decisions::run(&args),
        Command::Paper(args) => paper::run(&args),
        Command::Disk(args) => disk::run(&args),
        Command::Bench(args) => bench::run(&args)
            .map(|()| ExitCode::SUCCESS)
            .map_err(CliError::from),
        Command::Man(args) => pages::man(&args, Cli::command()),
        Command::Completions(args) => pages::completions(&args, &Cli::command()),
        Command::Tables(args) => tables::run(&args),
        Command::PaperClient(args) => paper::discard::client::run(&args),
        Command::Workload(args) => workload::run(&args)
            .map_err(CliError::from)
            .and_then(|report| output::print_line(format_args!("{}", report.to_json())))
            .map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| report(&error))
}

fn report(error: &CliError) -> ExitCode {
    message::line(format_args!("outpage: {error}"));
    ExitCode::from(error.code)
}
