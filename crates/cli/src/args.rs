//! The command line: one table for parsing and help.

use clap::{Parser, Subcommand};

use crate::error::EXIT_CODES;
use crate::{bench, demo, doctor, keeper, run, workload};

/// Runs a program in less RAM than it needs.
#[derive(Debug, Parser)]
#[command(name = "outpage", version, about, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program under a memory limit
    #[command(after_help = EXIT_CODES)]
    Run(Box<run::Args>),
    /// Say what this machine lacks, and the remedy
    Doctor(doctor::Args),
    /// Run a bundled program under half of its memory and check its result
    Demo(demo::Args),
    /// Measure
    Bench(Box<bench::Args>),
    /// Run one of the bundled programs
    #[command(hide = true)]
    Workload(workload::Args),
    /// Keep a session's descriptors open
    #[command(hide = true)]
    Keeper(keeper::Args),
}
