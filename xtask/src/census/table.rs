//! The tables themselves, as TOML has them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

/// Where the tables are; every one but [`EXCEPTIONS`] has rows.
const DIRECTORY: &str = "docs/census";
const EXCEPTIONS: &str = "exceptions.toml";
/// The families, in the order in which they are shown.
const FAMILIES: &[&str] = &[
    "memory.toml",
    "processes.toml",
    "descriptors.toml",
    "others.toml",
];

/// How Outpage comes to know of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Seen {
    /// libc's function and its number are patched.
    Hooked,
    /// The kernel tells the pager, whoever made the call.
    Event,
    /// A check of the process finds it at the next tick.
    Tick,
    /// Nothing has to be known.
    Harmless,
    /// The call fails.
    Refused,
    /// Nobody sees it: an exception says what comes of it.
    Unseen,
}

/// Calls, or flags of one call, about which the same is true.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// `NAME NUMBER` each.
    #[serde(default)]
    pub calls: Vec<String>,
    /// The calls that take the flags.
    pub of: Option<String>,
    /// Names; a `*` at the end stands for any end.
    #[serde(default)]
    pub flags: Vec<String>,
    /// What it does to memory, address spaces, processes or descriptors.
    pub does: String,
    /// How Outpage comes to know of it.
    pub seen: Vec<Seen>,
    /// What follows.
    pub how: String,
    /// libc's functions that are patched for it.
    #[serde(default)]
    pub hooks: Vec<String>,
    /// Names of the calls that `syscall(2)` passes to the shim.
    #[serde(default)]
    pub numbers: Vec<String>,
    /// Tests that hold the row.
    #[serde(default)]
    pub tests: Vec<String>,
    /// Keys of exceptions.
    #[serde(default)]
    pub exceptions: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FamilyFile {
    family: String,
    row: Vec<Row>,
}

/// The rows of one file.
#[derive(Debug)]
pub struct Family {
    /// What they are about.
    pub title: String,
    /// In order.
    pub rows: Vec<Row>,
}

/// What is not as without Outpage: a row of the first table of the chapter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// By which rows name it.
    pub key: String,
    /// The first column.
    pub what: String,
    /// The second.
    pub under: String,
    /// Tests that hold it.
    #[serde(default)]
    pub tests: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExceptionFile {
    exception: Vec<Exception>,
}

/// The whole census.
#[derive(Debug)]
pub struct Census {
    /// By family.
    pub families: Vec<Family>,
    /// In the chapter's order.
    pub exceptions: Vec<Exception>,
}

impl Census {
    /// Reads the tables of the repository at `root`.
    ///
    /// # Errors
    /// When a file cannot be read or is no table; the message names it.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut families = Vec::new();
        for name in FAMILIES {
            let FamilyFile { family, row } = parse(root, name)?;
            families.push(Family {
                title: family,
                rows: row,
            });
        }
        let ExceptionFile { exception } = parse(root, EXCEPTIONS)?;
        Ok(Self {
            families,
            exceptions: exception,
        })
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.families.iter().flat_map(|family| &family.rows)
    }

    /// Name and number of each system call, as they stand; a number that is none is `None`.
    pub fn calls(&self) -> impl Iterator<Item = (&str, Option<u32>)> {
        self.rows().flat_map(|row| &row.calls).map(|call| {
            let (name, number) = call.split_once(' ').unwrap_or((call, ""));
            (name, number.parse().ok())
        })
    }

    /// Every flag, those that stand for several as they are written.
    pub fn flags(&self) -> impl Iterator<Item = &str> {
        self.rows().flat_map(|row| &row.flags).map(String::as_str)
    }

    /// What is wrong with the tables in themselves.
    pub fn flaws(&self) -> Vec<String> {
        let mut flaws = Vec::new();
        let mut times: BTreeMap<&str, u32> = BTreeMap::new();
        for (name, number) in self.calls() {
            *times.entry(name).or_default() += 1;
            if number.is_none() {
                flaws.push(format!("{name}: write its number behind it"));
            }
        }
        for flag in self.flags() {
            *times.entry(flag).or_default() += 1;
        }
        let keys = self.exceptions.iter().map(|e| e.key.as_str());
        flaws.extend(keys.clone().zip(1..).filter_map(|(key, next)| {
            let again = keys.clone().skip(next).any(|other| other == key);
            again.then(|| format!("the exception {key} stands there twice"))
        }));
        let twice = times.into_iter().filter(|(_, times)| *times > 1);
        flaws.extend(twice.map(|(name, _)| format!("{name} stands there twice")));
        flaws.extend(self.rows().flat_map(|row| self.flaws_of(row)));
        flaws
    }

    fn flaws_of(&self, row: &Row) -> Vec<String> {
        let name = row.name();
        let mut flaws = Vec::new();
        if row.calls.is_empty() == row.flags.is_empty() || row.flags.is_empty() != row.of.is_none()
        {
            flaws.push(format!("{name}: name calls, or flags and what takes them"));
        }
        let is = |seen| row.seen.contains(&seen);
        if row.seen.is_empty() || is(Seen::Harmless) && row.seen.len() > 1 {
            flaws.push(format!("{name}: say how it is seen"));
        }
        if is(Seen::Unseen) && row.exceptions.is_empty() {
            flaws.push(format!("{name}: what is unseen is a named exception"));
        }
        let held = is(Seen::Hooked) || is(Seen::Event) || is(Seen::Tick) || is(Seen::Refused);
        if held && row.tests.is_empty() {
            flaws.push(format!("{name}: no test holds that"));
        }
        let known = |key: &String| self.exceptions.iter().any(|e| e.key == *key);
        let unknown = row.exceptions.iter().filter(|key| !known(key));
        flaws.extend(unknown.map(|key| format!("{name}: there is no exception {key}")));
        flaws
    }
}

impl Row {
    /// Its first call or flag.
    pub fn name(&self) -> &str {
        let first = self.calls.first().or(self.flags.first());
        first.map_or("a row", |name| name.split(' ').next().unwrap_or(name))
    }
}

fn parse<T: serde::de::DeserializeOwned>(root: &Path, name: &str) -> io::Result<T> {
    let path = format!("{DIRECTORY}/{name}");
    let text = fs::read_to_string(root.join(&path))
        .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
    toml::from_str(&text)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn census(row: &str) -> Census {
        let FamilyFile { family, row } =
            toml::from_str(&format!("family = \"x\"\n[[row]]\n{row}")).expect("TOML");
        let exception = "[[exception]]\nkey = \"raw\"\nwhat = \"a\"\nunder = \"b\"\n";
        let ExceptionFile { exception } = toml::from_str(exception).expect("TOML");
        Census {
            families: vec![Family {
                title: family,
                rows: row,
            }],
            exceptions: exception,
        }
    }

    #[test]
    fn rows_that_say_too_little_are_told() {
        let good = "calls = [\"a 1\"]\ndoes = \"\"\nseen = [\"unseen\"]\nhow = \"\"\nexceptions = [\"raw\"]";
        assert_eq!(census(good).flaws(), Vec::<String>::new());
        let bad = [
            "calls = [\"a\"]\ndoes = \"\"\nseen = [\"harmless\"]\nhow = \"\"",
            "calls = [\"a 1\", \"a 2\"]\ndoes = \"\"\nseen = [\"harmless\"]\nhow = \"\"",
            "calls = [\"a 1\"]\ndoes = \"\"\nseen = [\"unseen\"]\nhow = \"\"",
            "calls = [\"a 1\"]\ndoes = \"\"\nseen = [\"hooked\"]\nhow = \"\"",
            "calls = [\"a 1\"]\ndoes = \"\"\nseen = [\"harmless\", \"event\"]\nhow = \"\"\ntests = [\"t\"]",
            "flags = [\"A\"]\ndoes = \"\"\nseen = [\"harmless\"]\nhow = \"\"",
            "calls = [\"a 1\"]\ndoes = \"\"\nseen = [\"unseen\"]\nhow = \"\"\nexceptions = [\"none\"]",
        ];
        for row in bad {
            assert_eq!(census(row).flaws().len(), 1, "{row}");
        }
    }
}
