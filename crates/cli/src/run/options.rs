//! The options of `outpage run`.

use std::ffi::OsString;
use std::path::PathBuf;

use outpage_core::reclaim;
use outpage_engine::config::{
    self, ClusterWindow, Config, Encrypt, Mechanism, ReadAhead, StoreFaults, StoreKind,
};

use crate::error::{CliError, code};

/// Options of `outpage run`. Sizes: 4G, 1.5GiB, 512m, "256 MiB" or a number of bytes; K, KB and KiB
/// are all 1024.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// RAM for the program and everything it starts, at least 8M [env: OUTPAGE_MEMORY]
    #[arg(long, short, value_name = "SIZE", value_parser = config::parse_memory)]
    memory: Option<u64>,
    /// Directory of the swap file: on a disk, not in RAM [default: /var/tmp] [env: OUTPAGE_SWAP]
    #[arg(long, value_name = "DIR")]
    swap: Option<PathBuf>,
    /// Most that the swap file may hold [default: the larger of 4G and 8 times the memory, as far as the disk has room]
    #[arg(long, value_name = "SIZE", value_parser = config::parse_swap_cap)]
    swap_cap: Option<u64>,
    /// Which pages leave
    #[arg(long, value_name = "NAME[:SETTING=VALUE,...]", value_parser = config::parse_reclaim, long_help = policies("Which pages leave, with the settings of each", config::reclaim_table()))]
    reclaim: Option<reclaim::Choice>,
    /// How pages are grouped for writing
    #[arg(long, value_name = "NAME", value_parser = config::parse_pageout, long_help = policies("How pages are grouped for writing", config::pageout_table()))]
    pageout: Option<&'static str>,
    /// Where in the swap file pages go
    #[arg(long, value_name = "NAME", value_parser = config::parse_slots, long_help = policies("Where in the swap file pages go", config::slots_table()))]
    slots: Option<&'static str>,
    /// What else is read with a page
    #[arg(long, value_name = "NAME[:SETTING=VALUE,...]", long_help = policies("What else is read with a page, with the settings of each", config::readahead_table()))]
    readahead: Option<ReadAhead>,
    /// Largest read-ahead window in pages, 1 to 256 [default: the policy's]
    #[arg(long, value_name = "PAGES", value_parser = config::parse_window)]
    window: Option<u32>,
    /// Largest write in pages, 1 to 1024 [default: the policy's]
    #[arg(long, value_name = "PAGES", value_parser = config::parse_chunk)]
    chunk: Option<u32>,
    /// Which neighbours of a victim go along: kernel (FreeBSD's aligned block) or paper (half of the buffer each way)
    #[arg(long, value_name = "NAME")]
    cluster_window: Option<ClusterWindow>,
    /// How pages leave the program: auto, move (Linux 6.8), write-protect (Linux 5.7)
    #[arg(long, value_name = "NAME")]
    mechanism: Option<Mechanism>,
    /// Who does the swap file's I/O: auto, uring, pool
    #[arg(long, value_name = "NAME")]
    store: Option<StoreKind>,
    /// Whether pages are encrypted in the swap file, with a key of this run alone: on, off, auto (on where the CPU has AES instructions)
    #[arg(long, value_name = "WHEN", num_args = 0..=1, default_missing_value = "on")]
    encrypt: Option<Encrypt>,
    /// Write all counters to this file as JSON, every 2 seconds and when the program has ended
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// No closing summary, and no word about a run that waits for its pages
    #[arg(long, short)]
    quiet: bool,
    /// Run a program whose memory cannot be managed (static, set-user-id ...) without a limit [env: OUTPAGE_ALLOW_UNMANAGED=1]
    #[arg(long)]
    allow_unmanaged: bool,
    /// Seeded store faults: seed=7,read=100,write=50 of 1000
    #[arg(long, hide = true, value_name = "RATES")]
    faults: Option<StoreFaults>,
    /// The program and its arguments, best after "--"
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

fn policies(what: &str, table: Vec<(&'static str, impl std::fmt::Display)>) -> String {
    let rows = table
        .iter()
        .map(|(name, summary)| format!("\n  {name:12} {summary}"));
    format!("{what}:{}", rows.collect::<String>())
}

impl Args {
    /// The program and its arguments.
    #[must_use]
    pub fn program(&self) -> &[OsString] {
        &self.program
    }

    /// Whether a program that cannot be managed may run.
    #[must_use]
    pub fn allow_unmanaged(&self) -> bool {
        self.allow_unmanaged
            || std::env::var_os("OUTPAGE_ALLOW_UNMANAGED").is_some_and(|value| value == "1")
    }

    /// The configuration: what the options say, else the environment, else the defaults.
    ///
    /// # Errors
    /// [`code::USAGE`].
    pub fn config(&self) -> Result<Config, CliError> {
        let variable = |name: &str| match (name, self.memory) {
            ("OUTPAGE_MEMORY", Some(bytes)) => Some(bytes.to_string().into()),
            _ => std::env::var_os(name),
        };
        let usage = |text: String| CliError::new(code::USAGE, text);
        let mut config = Config::from_env(variable)
            .map_err(|e| usage(e.to_string()))?
            .ok_or_else(|| {
                usage(
                    "no limit: say how much memory PROGRAM may use, for example --memory 4G".into(),
                )
            })?;
        set(&mut config.swap_dir, self.swap.clone());
        set(&mut config.reclaim, self.reclaim);
        set(&mut config.pageout, self.pageout);
        set(&mut config.slots, self.slots);
        set(&mut config.readahead, self.readahead.clone());
        set(&mut config.cluster_window, self.cluster_window);
        set(&mut config.mechanism, self.mechanism);
        set(&mut config.store, self.store);
        set(&mut config.encrypt, self.encrypt);
        config.swap_cap = self.swap_cap.or(config.swap_cap);
        config.window_pages = self.window.or(config.window_pages);
        config.chunk_pages = self.chunk.or(config.chunk_pages);
        config.stats = self.stats.clone().or(config.stats);
        config.faults = self.faults.or(config.faults);
        config.quiet |= self.quiet;
        (config.readahead_params(config.mechanism)).map_err(|e| usage(e.to_string()))?;
        Ok(config)
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}
