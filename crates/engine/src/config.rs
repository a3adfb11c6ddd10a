//! What a user can set, and how it travels from the launcher to the shim.
//!
//! Every setting has an environment variable, so that the shim works without the launcher:
//! `LD_PRELOAD=.../liboutpage_preload.so OUTPAGE_MEMORY=256M ./job`.
//!
//! [`SETTINGS`] declares them.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::path::PathBuf;

use outpage_core::{discard, reclaim, tier};

mod guest;
mod names;
mod readahead;
mod settings;
mod size;

pub use guest::{Guest, Machine};
use names::unknown;
pub use names::{
    pageout_names, pageout_table, parse_chunk, parse_discard, parse_pageout, parse_reclaim,
    parse_slots, parse_tier, parse_window, slots_names, slots_table,
};
pub use readahead::{parse_readahead, plain_readahead, readahead_table};
pub use settings::{SETTINGS, Setting, Value};
pub use size::{SizeError, format_size, parse_size};

/// The least memory that can work, in bytes.
///
/// The pager keeps a reserve of frames for reads, chunks being written and fault-around; below
/// 2048 frames the program would own too few to make progress with a few threads.
pub const MIN_LIMIT: u64 = 8 << 20;
/// The largest read-ahead window, in pages.
pub const WINDOW_MAX: u32 = 256;
/// The largest page-out chunk, in pages.
pub const CHUNK_MAX: u32 = 1024;
/// Where the swap file goes when nothing else is said: on disk, unlike `/tmp` on many systems.
pub const DEFAULT_SWAP_DIR: &str = "/var/tmp";
/// The page-out policy of a run that names none.
pub const DEFAULT_PAGEOUT: &str = "packed";
/// The discard policy of a run that names none: what allocators free stays until frames are wanted (docs/performance.md, "Freed memory").
pub const DEFAULT_DISCARD: &str = "on-demand";
/// The read-ahead policy of a run that names none.
pub const DEFAULT_READAHEAD: &str = "stream";

/// The slot allocator of a run that names none.
pub const DEFAULT_SLOTS: &str = "log";

/// The variable without which there is no limit.
const MEMORY: &str = "OUTPAGE_MEMORY";

/// The default swap cap is at least this, in bytes.
const SWAP_CAP_FLOOR: u64 = 4 << 30;
/// The default swap cap is this many times the memory limit.
const SWAP_CAP_FACTOR: u64 = 8;

/// A setting that cannot be used: which one, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The option or variable as the user wrote it, for example `--memory` or `OUTPAGE_MEMORY`.
    pub setting: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In one line, whatever was given.
        for part in [&self.setting, ": ", &self.reason] {
            for letter in part.chars() {
                match letter {
                    control if control.is_control() => write!(f, "{}", control.escape_default())?,
                    other => f.write_char(other)?,
                }
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// An enum whose values have names that users write.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every name that can be written.
            pub const NAMES: &'static [&'static str] = &[$($text),+];

            /// The name as users write it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            fn from_name(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::from_name(text).ok_or_else(|| unknown(text, Self::NAMES))
            }
        }
    };
}

named! {
    /// How pages leave the program.
    Mechanism {
        /// [`Mechanism::Move`] where the kernel has it, else [`Mechanism::WriteProtect`].
        #[default]
        Auto = "auto",
        /// `UFFDIO_MOVE`, Linux 6.8 and later.
        Move = "move",
        /// Write-protect, write, `MADV_DONTNEED`, `UFFDIO_COPY`; Linux 5.7 and later.
        WriteProtect = "write-protect",
    }
}

named! {
    /// Which neighbours of a victim a cluster looks at (`single`, `linux` have no clusters).
    ClusterWindow {
        /// FreeBSD's: the aligned block of the buffer's size, then on where it was not blocked.
        #[default]
        Kernel = "kernel",
        /// The papers': half of the buffer backward, half forward, then on.
        Paper = "paper",
    }
}

named! {
    /// Who does the swap file's I/O.
    StoreKind {
        /// [`StoreKind::Uring`] where the kernel permits it, else [`StoreKind::Pool`].
        #[default]
        Auto = "auto",
        /// io_uring.
        Uring = "uring",
        /// A pool of threads that call pread and pwrite.
        Pool = "pool",
    }
}

named! {
    /// Whether memory that is mapped shared is paged.
    SharedMemory {
        /// It is not.
        #[default]
        Off = "off",
        /// Anonymous memory is, as long as one process has it.
        On = "on",
        /// Anonymous memory is, whichever processes of the run have it.
        Tree = "tree",
    }
}

named! {
    /// Whether pages are encrypted in the swap file.
    Encrypt {
        /// [`Encrypt::On`] where the CPU has instructions for AES and RAM can be locked for the key, else [`Encrypt::Off`].
        #[default]
        Auto = "auto",
        /// They are, with a key of the run alone.
        On = "on",
        /// They are not.
        Off = "off",
    }
}

/// Declares the store faults: one field and one key each.
macro_rules! store_faults {
    ($($(#[$doc:meta])* $key:ident: $type:ty),+ $(,)?) => {
        /// Seeded store faults, for tests: how many of 1000 transfers fail, on average.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct StoreFaults { $($(#[$doc])* pub $key: $type),+ }

        impl StoreFaults {
            fn set(&mut self, key: &str, value: &str) -> Option<()> {
                match key {
                    $(stringify!($key) => self.$key = value.parse().ok()?,)+
                    _ => return None,
                }
                Some(())
            }
        }

        impl fmt::Display for StoreFaults {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(write!(f, concat!(stringify!($key), "={},"), self.$key)?;)+
                Ok(())
            }
        }
    };
}

store_faults! {
    /// Same seed and same transfers, same faults.
    seed: u64,
    /// Failed reads (`EIO`).
    read: u16,
    /// Failed writes (`EIO`).
    write: u16,
    /// Transfers cut short.
    short: u16,
    /// Reads of which one page fails (`EIO`).
    page: u16,
    /// Reads with one bit wrong.
    flip: u16,
    /// Writes that say they succeeded and did not, in part.
    torn: u16,
    /// Writes that find no space.
    full: u16,
}

impl std::str::FromStr for StoreFaults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            part.split_once('=').and_then(|(key, value)| faults.set(key, value)).ok_or_else(|| {
                format!("'{part}' is none of seed=N, read=N, write=N, short=N, page=N, flip=N, torn=N, full=N")
            })?;
        }
        Ok(faults)
    }
}

/// Everything that `outpage run` can set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// RAM for the whole process tree, in bytes.
    pub memory_bytes: u64,
    /// Directory of the swap file.
    pub swap_dir: PathBuf,
    /// Most the swap file may hold, in bytes; `None`: [`Config::swap_cap_bytes`] decides.
    pub swap_cap: Option<u64>,
    /// Which pages leave, and what is set of it.
    pub reclaim: reclaim::Choice,
    /// Which victims are kept compressed, and what is set of it.
    pub tier: tier::Choice,
    /// When pages are dropped that the program freed until it writes to them, and what is set of it.
    pub discard: discard::Choice,
    /// Page-out policy, a name of `outpage_core::pageout::REGISTRY`.
    pub pageout: &'static str,
    /// What else is read with a page, and what is set of it.
    pub readahead: outpage_core::readahead::Choice,
    /// Slot allocator, a name of `outpage_core::slots::REGISTRY`.
    pub slots: &'static str,
    /// Largest read-ahead window in pages, 1 to [`WINDOW_MAX`]; `None`: the policy's own.
    pub window_pages: Option<u32>,
    /// Largest page-out chunk in pages, 1 to [`CHUNK_MAX`]; `None`: the policy's own.
    pub chunk_pages: Option<u32>,
    /// Which neighbours of a victim a cluster looks at.
    pub cluster_window: ClusterWindow,
    /// How pages leave the program.
    pub mechanism: Mechanism,
    /// Who does the I/O.
    pub store: StoreKind,
    /// Whether pages are encrypted in the swap file.
    pub encrypt: Encrypt,
    /// Whether shared memory is paged.
    pub shared: SharedMemory,
    /// File that gets the counters as JSON.
    pub stats: Option<PathBuf>,
    /// The area by which a guest is told of what is paged out.
    pub notify: Option<PathBuf>,
    /// That guest.
    pub guest: Option<Guest>,
    /// Java virtual machines get the agent that frees what their collectors leave empty.
    pub jvm_discard: bool,
    /// Pagers live in processes of their own, where no tracer of the program stops them.
    pub debuggable: bool,
    /// No closing summary.
    pub quiet: bool,
    /// What cannot be managed runs without a limit.
    pub allow_unmanaged: bool,
    /// Seeded store faults, for tests.
    pub faults: Option<StoreFaults>,
    /// Each process traces its pager's events and actions to a new file: this path, a point and its number.
    pub record: Option<PathBuf>,
    /// A fault brings its page alone: no zero-fill and no rescue around it.
    pub record_each: bool,
}

impl Config {
    /// The defaults, with `memory_bytes` of RAM.
    #[must_use]
    pub fn new(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            swap_dir: PathBuf::from(DEFAULT_SWAP_DIR),
            swap_cap: None,
            reclaim: reclaim::Choice::default(),
            tier: tier::Choice::default(),
            discard: parse_discard(DEFAULT_DISCARD).expect("a policy of the registry"),
            pageout: DEFAULT_PAGEOUT,
            readahead: plain_readahead(DEFAULT_READAHEAD),
            slots: DEFAULT_SLOTS,
            window_pages: None,
            chunk_pages: None,
            cluster_window: ClusterWindow::Kernel,
            mechanism: Mechanism::Auto,
            store: StoreKind::Auto,
            encrypt: Encrypt::Auto,
            shared: SharedMemory::Off,
            stats: None,
            notify: None,
            guest: None,
            jvm_discard: false,
            debuggable: false,
            quiet: false,
            allow_unmanaged: false,
            faults: None,
            record: None,
            record_each: false,
        }
    }

    /// The limit in whole pages.
    #[must_use]
    pub fn limit_pages(&self) -> u64 {
        self.memory_bytes >> outpage_core::units::PAGE_SHIFT
    }

    /// Most the swap file may hold, in bytes: what was set, else the larger of 4 GiB and 8 times
    /// the memory. The launcher bounds it by the free space of the file system.
    #[must_use]
    pub fn swap_cap_bytes(&self) -> u64 {
        self.swap_cap.unwrap_or_else(|| {
            SWAP_CAP_FLOOR.max(self.memory_bytes.saturating_mul(SWAP_CAP_FACTOR))
        })
    }

    /// The variables that carry this configuration to the shim.
    #[must_use]
    pub fn to_env(&self) -> Vec<(&'static str, OsString)> {
        let set = |setting: &Setting| Some((setting.variable, setting.get(self)?));
        SETTINGS.iter().filter_map(set).collect()
    }

    /// Reads the configuration from variables; `Ok(None)` when `OUTPAGE_MEMORY` is not set.
    ///
    /// # Errors
    /// [`ConfigError`] names the variable and what it may hold.
    pub fn from_env(var: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, ConfigError> {
        // Empty counts as not set.
        let value = |variable: &str| var(variable).filter(|value| !value.is_empty());
        if value(MEMORY).is_none() {
            return Ok(None);
        }
        let mut config = Self::new(MIN_LIMIT);
        for setting in SETTINGS {
            let set = value(setting.variable).map_or(Ok(()), |v| setting.set(&mut config, &v));
            set.map_err(|reason| ConfigError {
                setting: setting.variable.to_owned(),
                reason,
            })?;
        }
        Ok(Some(config))
    }
}

/// A memory limit in bytes.
///
/// # Errors
/// No size, zero, or below [`MIN_LIMIT`].
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|e| e.to_string())?;
    if bytes >= MIN_LIMIT {
        return Ok(bytes);
    }
    let unit_forgotten = text.trim().bytes().all(|b| b.is_ascii_digit()) && bytes > 0;
    let hint = if unit_forgotten {
        format!(" (a plain number is bytes; did you mean {}M?)", text.trim())
    } else {
        String::new()
    };
    Err(format!(
        "'{text}' is below the minimum of {}{hint}",
        format_size(MIN_LIMIT)
    ))
}

/// A swap cap in bytes.
///
/// # Errors
/// No size, or less than one chunk of the largest size.
pub fn parse_swap_cap(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|e| e.to_string())?;
    let least = crate::session::EXTENT_BYTES;
    if bytes >= least {
        Ok(bytes)
    } else {
        Err(format!(
            "'{text}' is below the minimum of {}, one extent of the swap file",
            format_size(least)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_vars(vars: &[(&'static str, OsString)]) -> Result<Option<Config>, ConfigError> {
        Config::from_env(|name| {
            vars.iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| v.clone())
        })
    }

    #[test]
    fn every_setting_survives_the_environment() {
        let config = Config {
            memory_bytes: 300 << 20,
            swap_dir: "/var/lib/swap".into(),
            swap_cap: Some(9 << 30),
            reclaim: parse_reclaim("two-queue:in=30").unwrap(),
            tier: parse_tier("lz4:pool=40").unwrap(),
            discard: parse_discard("pf:pages=7").unwrap(),
            pageout: pageout_names()[0],
            readahead: parse_readahead("asp:step=4").unwrap(),
            slots: slots_names()[0],
            window_pages: Some(17),
            chunk_pages: Some(1024),
            cluster_window: ClusterWindow::Paper,
            mechanism: Mechanism::WriteProtect,
            store: StoreKind::Pool,
            encrypt: Encrypt::On,
            shared: SharedMemory::On,
            stats: Some("/tmp/stats.json".into()),
            notify: Some("/dev/shm/area".into()),
            guest: Some("4G,q35".parse().unwrap()),
            jvm_discard: true,
            debuggable: true,
            quiet: true,
            allow_unmanaged: true,
            faults: Some(StoreFaults {
                seed: 7,
                read: 3,
                write: 2,
                short: 1,
                ..StoreFaults::default()
            }),
            record: Some("/tmp/trace".into()),
            record_each: true,
        };
        assert_eq!(from_vars(&config.to_env()), Ok(Some(config)));
    }

    #[test]
    fn defaults_survive_the_environment() {
        let config = Config::new(64 << 20);
        assert_eq!(from_vars(&config.to_env()), Ok(Some(config)));
        assert_eq!(from_vars(&[]), Ok(None));
    }

    #[test]
    fn default_policies_are_registered() {
        assert_eq!(parse_pageout(DEFAULT_PAGEOUT), Ok(DEFAULT_PAGEOUT));
    }

    #[test]
    fn default_swap_cap_follows_the_memory() {
        assert_eq!(Config::new(64 << 20).swap_cap_bytes(), 4 << 30);
        assert_eq!(Config::new(1 << 30).swap_cap_bytes(), 8 << 30);
    }

    #[test]
    fn errors_name_the_variable_and_the_choice() {
        let memory = ("OUTPAGE_MEMORY", OsString::from("64M"));
        for (name, value, expect) in [
            ("OUTPAGE_PAGEOUT", "lifo", "mclustering"),
            ("OUTPAGE_READAHEAD", "psychic", "linux-slot"),
            ("OUTPAGE_SLOTS", "heap", "blist"),
            ("OUTPAGE_WINDOW", "257", "1 to 256"),
            ("OUTPAGE_CHUNK", "0", "1 to 1024"),
            ("OUTPAGE_MECHANISM", "magic", "write-protect"),
            ("OUTPAGE_STORE", "tape", "uring"),
            ("OUTPAGE_ENCRYPT", "rot13", "auto, on, off"),
            ("OUTPAGE_SHARED", "some", "off, on, tree"),
            ("OUTPAGE_QUIET", "maybe", "1"),
            ("OUTPAGE_GUEST", "512K", "1M to 4T"),
            ("OUTPAGE_FAULTS", "read", "seed=N"),
            ("OUTPAGE_SWAP_CAP", "1M", "16 MiB"),
        ] {
            let error = from_vars(&[memory.clone(), (name, value.into())]).expect_err(name);
            assert_eq!(error.setting, name);
            assert!(
                error.reason.contains(expect) && error.reason.contains(value),
                "{error}"
            );
        }
    }

    #[test]
    fn limits_below_the_minimum_say_the_minimum() {
        for text in ["0", "1", "8191K", "4M"] {
            assert!(
                parse_memory(text).expect_err(text).contains("8 MiB"),
                "{text}"
            );
        }
        assert!(parse_memory("256").expect_err("bytes").contains("256M"));
        assert_eq!(parse_memory("8M"), Ok(MIN_LIMIT));
    }
}
