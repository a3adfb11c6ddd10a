//! Every setting of `outpage run`, declared once: its option, its variable, its values, what it means and what holds
//! without it. The options, their help, the documents and the way to the shim come from here.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::names::{
    discard_table, pageout_table, parse_flag, reclaim_table, slots_table, tier_table,
};
use super::{Config, readahead_table};

/// A setting.
pub struct Setting {
    /// Its variable, which the shim reads without the launcher too.
    pub variable: &'static str,
    /// Its long option.
    pub option: Option<&'static str>,
    /// Its short option.
    pub short: Option<char>,
    /// Whether it is for tests and other commands only.
    pub hidden: bool,
    /// What the option is followed by.
    pub value: Value,
    /// What it means.
    pub meaning: &'static str,
    /// What values there are, where they are not told one by one.
    pub range: &'static str,
    /// What holds where it is not set and [`Config::new`] has no value of it.
    pub unset: &'static str,
    set: fn(&mut Config, &OsStr) -> Result<(), String>,
    get: fn(&Config) -> Option<OsString>,
}

/// What an option is followed by.
#[derive(Clone, Copy)]
pub enum Value {
    /// Nothing: the variable is 1.
    Flag,
    /// A text, called so in the help.
    Text(&'static str),
    /// The path of a directory.
    Directory,
    /// The path of a file.
    File,
    /// One of these words; behind each what it needs or does.
    Words(&'static [(&'static str, &'static str)]),
    /// One of these words, or none, which stands for the first.
    WordsOrNone(&'static [(&'static str, &'static str)]),
    /// The name of a policy, called so in the help.
    Policy(&'static str, fn() -> Vec<(&'static str, String)>),
}

impl Value {
    /// How the help calls it; `None` where there is no value.
    #[must_use]
    pub const fn placeholder(self) -> Option<&'static str> {
        match self {
            Self::Flag => None,
            Self::Text(name) | Self::Policy(name, _) => Some(name),
            Self::Directory => Some("DIR"),
            Self::File => Some("FILE"),
            Self::Words(_) => Some("NAME"),
            Self::WordsOrNone(_) => Some("WHEN"),
        }
    }

    /// The words that it can be and what each means; none where it is something else.
    #[must_use]
    pub fn words(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Words(words) | Self::WordsOrNone(words) => words
                .iter()
                .map(|(word, what)| (*word, (*what).to_owned()))
                .collect(),
            Self::Policy(_, table) => table(),
            Self::Flag | Self::Text(_) | Self::Directory | Self::File => Vec::new(),
        }
    }
}

impl Setting {
    /// Sets it in `config`.
    ///
    /// # Errors
    /// Says what is wrong with `value`, and what may be.
    pub fn set(&self, config: &mut Config, value: &OsStr) -> Result<(), String> {
        (self.set)(config, value)
    }

    /// Its value in `config`; `None` where it is not set.
    #[must_use]
    pub fn get(&self, config: &Config) -> Option<OsString> {
        (self.get)(config)
    }

    /// Whether `value` can be used.
    ///
    /// # Errors
    /// As [`Setting::set`].
    pub fn check(&self, value: &OsStr) -> Result<(), String> {
        self.set(&mut Config::new(super::MIN_LIMIT), value)
    }

    /// What holds without it, as a user would write it or as a few words.
    #[must_use]
    pub fn default(&self) -> String {
        let own = || (self.get)(&Config::new(super::MIN_LIMIT)).filter(|_| self.unset.is_empty());
        own().map_or_else(
            || self.unset.to_owned(),
            |value| value.to_string_lossy().into_owned(),
        )
    }
}

/// Text that is read by `$parse` into a field.
macro_rules! read {
    ($field:ident, $parse:expr) => {
        |config, value| {
            let text = value.to_str().ok_or("it is not valid UTF-8")?;
            config.$field = $parse(text)?;
            Ok(())
        }
    };
}

/// The same, into a field that may be empty.
macro_rules! read_some {
    ($field:ident, $parse:expr) => {
        read!($field, |text| $parse(text).map(Some))
    };
}

/// A path, into a field that may be empty.
macro_rules! path {
    ($field:ident) => {
        |config, value| {
            config.$field = Some(PathBuf::from(value));
            Ok(())
        }
    };
}

fn flag(on: bool) -> Option<OsString> {
    on.then(|| "1".into())
}

fn text(value: Option<impl ToString>) -> Option<OsString> {
    value.map(|value| value.to_string().into())
}

const MEMORY: Setting = Setting {
    variable: "OUTPAGE_MEMORY",
    option: Some("memory"),
    short: Some('m'),
    hidden: false,
    value: Value::Text("SIZE"),
    meaning: "RAM for the program and everything it starts",
    range: "at least 8M",
    unset: "none: must be given",
    set: read!(memory_bytes, super::parse_memory),
    get: |config| text(Some(config.memory_bytes)),
};

const NONE: Setting = Setting {
    variable: "",
    option: None,
    short: None,
    hidden: false,
    value: Value::Flag,
    meaning: "",
    range: "",
    unset: "",
    set: |_, _| Ok(()),
    get: |_| None,
};

/// Every setting, in the order of the help.
pub const SETTINGS: &[Setting] = &[
    MEMORY,
    Setting {
        variable: "OUTPAGE_SWAP",
        option: Some("swap"),
        value: Value::Directory,
        meaning: "Directory of the swap file: on a local disk, not in RAM",
        set: |config, value| {
            config.swap_dir = PathBuf::from(value);
            Ok(())
        },
        get: |config| Some(config.swap_dir.clone().into_os_string()),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_SWAP_CAP",
        option: Some("swap-cap"),
        value: Value::Text("SIZE"),
        meaning: "Most that the swap file may hold, used in extents of 16M",
        range: "at least 16M; of more than 1T, 1T is used",
        unset: "the larger of 4G and 8 times the memory, as far as the disk has room and `ulimit -f` allows",
        set: read_some!(swap_cap, super::parse_swap_cap),
        get: |config| text(config.swap_cap),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_RECLAIM",
        option: Some("reclaim"),
        value: Value::Policy("NAME[:SETTING=VALUE,...]", reclaim_table),
        meaning: "Which pages leave, as in s3-fifo:small=20",
        set: read!(reclaim, super::parse_reclaim),
        get: |config| text(Some(config.reclaim)),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_PAGEOUT",
        option: Some("pageout"),
        value: Value::Policy("NAME", || owned(pageout_table())),
        meaning: "How pages are grouped for writing",
        set: read!(pageout, super::parse_pageout),
        get: |config| text(Some(config.pageout)),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_TIER",
        option: Some("tier"),
        value: Value::Policy("NAME[:SETTING=VALUE,...]", tier_table),
        meaning: "Which pages are kept compressed in RAM, as in lz4:pool=50",
        set: read!(tier, super::parse_tier),
        get: |config| text(Some(config.tier)),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_DISCARD",
        option: Some("discard"),
        value: Value::Policy("NAME[:SETTING=VALUE,...]", discard_table),
        meaning: "When pages go that the program gave up by MADV_FREE, where the kernel has no swap; with none at once",
        set: read!(discard, super::parse_discard),
        get: |config| text(Some(config.discard)),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_JVM_DISCARD",
        option: Some("jvm-discard"),
        meaning: "Have Java's serial and parallel collectors say which pages they leave empty, by an agent in JAVA_TOOL_OPTIONS",
        unset: "no agent",
        set: read!(jvm_discard, parse_flag),
        get: |config| flag(config.jvm_discard),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_SLOTS",
        option: Some("slots"),
        value: Value::Policy("NAME", || owned(slots_table())),
        meaning: "Where in the swap file pages go",
        set: read!(slots, super::parse_slots),
        get: |config| text(Some(config.slots)),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_READAHEAD",
        option: Some("readahead"),
        value: Value::Policy("NAME[:SETTING=VALUE,...]", readahead_table),
        meaning: "What else is read with a page, as in asp:window=8,max=32",
        set: read!(readahead, super::parse_readahead),
        get: |config| text(Some(config.readahead)),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_WINDOW",
        option: Some("window"),
        value: Value::Text("PAGES"),
        meaning: "Largest read-ahead window",
        range: "1 to 256 pages",
        unset: "the policy's",
        set: read_some!(window_pages, super::parse_window),
        get: |config| text(config.window_pages),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_CHUNK",
        option: Some("chunk"),
        value: Value::Text("PAGES"),
        meaning: "Largest write",
        range: "1 to 1024 pages",
        unset: "the policy's",
        set: read_some!(chunk_pages, super::parse_chunk),
        get: |config| text(config.chunk_pages),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_CLUSTER_WINDOW",
        option: Some("cluster-window"),
        value: Value::Words(&[
            ("kernel", "FreeBSD's aligned block"),
            ("paper", "half of the buffer each way"),
        ]),
        meaning: "Which neighbours of a victim go along",
        set: read!(cluster_window, str::parse),
        get: |config| text(Some(config.cluster_window.name())),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_MECHANISM",
        option: Some("mechanism"),
        value: Value::Words(&[
            ("auto", "move where the kernel has it"),
            ("move", "Linux 6.8 or later"),
            ("write-protect", "Linux 5.7 or later"),
        ]),
        meaning: "How pages leave the program",
        set: read!(mechanism, str::parse),
        get: |config| text(Some(config.mechanism.name())),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_STORE",
        option: Some("store"),
        value: Value::Words(&[
            ("auto", "uring where it is permitted"),
            ("uring", "io_uring"),
            ("pool", "threads"),
        ]),
        meaning: "Who does the swap file's I/O",
        set: read!(store, str::parse),
        get: |config| text(Some(config.store.name())),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_ENCRYPT",
        option: Some("encrypt"),
        value: Value::WordsOrNone(&[
            ("on", "also without a word"),
            ("off", "as they are in RAM"),
            (
                "auto",
                "on where the CPU has AES instructions and RAM can be locked for the key",
            ),
        ]),
        meaning: "Whether pages are encrypted in the swap file, with a key of this run alone",
        set: read!(encrypt, str::parse),
        get: |config| text(Some(config.encrypt.name())),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_DEBUGGABLE",
        option: Some("debuggable"),
        meaning: "Have each pager in a process of its own, so that a debugger can attach to a program that pages",
        unset: "a thread of the program, unless it is traced when it begins to page",
        set: read!(debuggable, parse_flag),
        get: |config| flag(config.debuggable),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_SHARED",
        option: Some("shared"),
        value: Value::Words(&[
            ("off", "only private memory is"),
            (
                "on",
                "anonymous memory that one process has mapped; Linux 5.19 or later",
            ),
            (
                "tree",
                "anonymous memory, memfds and files of tmpfs without a name, whichever processes of the run have them mapped; Linux 6.10 or later",
            ),
        ]),
        meaning: "Whether memory that is mapped shared is paged, and part of the limit",
        set: read!(shared, str::parse),
        get: |config| text(Some(config.shared.name())),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_STATS",
        option: Some("stats"),
        value: Value::File,
        meaning: "Write all counters to this file as JSON, every 2 seconds and when the program has ended",
        unset: "no file",
        set: path!(stats),
        get: |config| config.stats.clone().map(PathBuf::into_os_string),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_NOTIFY",
        option: Some("notify"),
        value: Value::File,
        meaning: "Tell the guest of a virtual machine by this file which of its pages are paged out",
        unset: "no guest is told",
        set: path!(notify),
        get: |config| config.notify.clone().map(PathBuf::into_os_string),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_GUEST",
        option: Some("guest"),
        value: Value::Text("SIZE[,MACHINE]"),
        meaning: "RAM and machine (pc or q35) of the guest that --notify tells, as in 4G,q35",
        range: "1M to 4T",
        unset: "as the command line of QEMU says",
        set: read_some!(guest, str::parse),
        get: |config| text(config.guest),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_QUIET",
        option: Some("quiet"),
        short: Some('q'),
        meaning: "No closing summary, no warnings about the swap file, no word about a run that waits",
        unset: "a summary on standard error",
        set: read!(quiet, parse_flag),
        get: |config| flag(config.quiet),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_ALLOW_UNMANAGED",
        option: Some("allow-unmanaged"),
        meaning: "Run what cannot be managed or paged without a limit: a program that is static, set-user-id and so on, \
                  and a process whose pager cannot start",
        unset: "such a program is refused, such a process ends",
        set: read!(allow_unmanaged, parse_flag),
        get: |config| flag(config.allow_unmanaged),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_FAULTS",
        option: Some("faults"),
        hidden: true,
        value: Value::Text("RATES"),
        meaning: "Seeded store faults: seed=7,read=100,write=50 of 1000",
        unset: "none",
        set: read_some!(faults, str::parse),
        get: |config| text(config.faults),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_RECORD",
        hidden: true,
        value: Value::File,
        meaning: "Each process traces its pager to PATH.PID, for replay; where there is one, as that of a program that \
                  executed another, to PATH.PID.1 and so on",
        unset: "no trace",
        set: path!(record),
        get: |config| config.record.clone().map(PathBuf::into_os_string),
        ..NONE
    },
    Setting {
        variable: "OUTPAGE_RECORD_EACH",
        hidden: true,
        meaning: "A fault brings its page alone, so that a trace has as many references as can be had",
        unset: "pages around come along",
        set: read!(record_each, parse_flag),
        get: |config| flag(config.record_each),
        ..NONE
    },
];

fn owned(table: Vec<(&'static str, &'static str)>) -> Vec<(&'static str, String)> {
    let rows = table.into_iter();
    rows.map(|(name, what)| (name, what.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{ClusterWindow, Encrypt, Mechanism, SharedMemory, StoreKind};
    use super::*;

    #[test]
    fn every_setting_is_told_once_and_whole() {
        for setting in SETTINGS {
            let same = SETTINGS
                .iter()
                .filter(|other| other.variable == setting.variable);
            assert_eq!(same.count(), 1, "{}", setting.variable);
            assert!(
                !setting.meaning.is_empty() && !setting.default().is_empty(),
                "{}",
                setting.variable
            );
            // A variable and its option have one name.
            let name = setting
                .option
                .map(|option| option.to_uppercase().replace('-', "_"));
            assert!(name.is_none_or(|name| setting.variable == format!("OUTPAGE_{name}")));
        }
    }

    #[test]
    fn the_words_that_are_told_are_those_that_are_read() {
        let told = |variable: &str| {
            let setting = SETTINGS.iter().find(|setting| setting.variable == variable);
            let setting = setting.expect(variable);
            let mut words: Vec<_> = setting
                .value
                .words()
                .into_iter()
                .map(|(word, _)| word)
                .collect();
            for word in &words {
                assert_eq!(setting.check(OsStr::new(word)), Ok(()), "{word}");
            }
            words.sort_unstable();
            words
        };
        for (variable, names) in [
            ("OUTPAGE_CLUSTER_WINDOW", ClusterWindow::NAMES),
            ("OUTPAGE_MECHANISM", Mechanism::NAMES),
            ("OUTPAGE_STORE", StoreKind::NAMES),
            ("OUTPAGE_ENCRYPT", Encrypt::NAMES),
            ("OUTPAGE_SHARED", SharedMemory::NAMES),
        ] {
            let mut names = names.to_vec();
            names.sort_unstable();
            assert_eq!(told(variable), names);
        }
        for variable in ["OUTPAGE_PAGEOUT", "OUTPAGE_SLOTS", "OUTPAGE_READAHEAD"] {
            assert!(told(variable).len() > 2, "{variable}");
        }
    }

    #[test]
    fn ranges_end_where_values_are_refused() {
        let takes = |variable: &str, value: &str| {
            let setting = SETTINGS.iter().find(|setting| setting.variable == variable);
            setting.expect(variable).check(OsStr::new(value)).is_ok()
        };
        for (variable, least, below) in [
            ("OUTPAGE_MEMORY", "8M", "8191K"),
            ("OUTPAGE_SWAP_CAP", "16M", "16383K"),
            ("OUTPAGE_WINDOW", "1", "0"),
            ("OUTPAGE_WINDOW", "256", "257"),
            ("OUTPAGE_CHUNK", "1", "0"),
            ("OUTPAGE_CHUNK", "1024", "1025"),
        ] {
            assert!(
                takes(variable, least) && !takes(variable, below),
                "{variable}"
            );
        }
    }
}
