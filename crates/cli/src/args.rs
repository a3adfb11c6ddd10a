//! The command line: one table for parsing, help, manual pages and completions.

use clap::{Parser, Subcommand};

use crate::error::EXIT_CODES;
use crate::{
    bench, decisions, demo, disk, doctor, pages, paper, replay, run, serve, sim, status, tables,
    trace, workload,
};

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
    ///
    /// Sizes are 4G, 1.5GiB, 512m, "256 MiB" or a number of bytes; K, KB and KiB are all 1024. An option wins over its
    /// variable.
    #[command(after_help = EXIT_CODES)]
    Run(Box<run::Args>),
    /// Page the memory objects of other programs, under one limit
    #[command(after_help = EXIT_CODES)]
    Serve(Box<serve::Args>),
    /// Look at the runs of this machine from outside
    Status(status::Args),
    /// Say what this machine lacks, and the remedy
    Doctor(doctor::Args),
    /// Run a bundled program under half of its memory and check its result
    Demo(demo::Args),
    /// Record a program's page references or its pager's events
    #[command(after_help = EXIT_CODES)]
    Trace(Box<trace::Args>),
    /// Run programs of the papers or traces in simulated memory
    #[command(after_help = EXIT_CODES)]
    Sim(Box<sim::Args>),
    /// Run a trace under other policies, memory and disks
    #[command(after_help = EXIT_CODES)]
    Replay(Box<replay::Args>),
    /// Print what the pager decides in 600 simulated runs, to compare two builds
    Decisions(decisions::Args),
    /// Run a paper's evaluation: published figures beside ours
    Paper(paper::Args),
    /// Fit the simulator's solid-state disk to this machine's
    Disk(disk::Args),
    /// Measure
    Bench(Box<bench::Args>),
    /// Write the manual pages, section 1
    Man(pages::ManArgs),
    /// Print what a shell needs to complete commands
    Completions(pages::CompletionsArgs),
    /// Compare the tables of the documents with the code
    #[command(hide = true)]
    Tables(tables::Args),
    /// Run one of the bundled programs
    #[command(hide = true)]
    Workload(workload::Args),
    /// A program of `paper discard --live`
    #[command(hide = true)]
    PaperClient(paper::discard::client::Args),
}
