//! A pager, and what it is made of.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use bytemuck::Pod;
use outpage_engine::StartError;
use outpage_engine::config::{self, Config, MIN_LIMIT, SETTINGS};
use outpage_engine::scope::Scope;
use outpage_sys::raw::Errno;

use crate::error::{Ended, Error};
use crate::memory::{Memory, TRIES};
use crate::region::{Region, bytes_of};
use crate::shared::Shared;
use crate::stats::Stats;

/// What can be set of a pager, by the names of the options of `outpage run`.
const NAMES: [&str; 15] = [
    "swap",
    "swap-cap",
    "reclaim",
    "pageout",
    "tier",
    "discard",
    "slots",
    "readahead",
    "window",
    "chunk",
    "cluster-window",
    "mechanism",
    "store",
    "encrypt",
    // For tests: transfers that fail.
    "faults",
];

/// Bytes of a file that are read at once: a read costs microseconds beside the pages that it fills.
const READ_BYTES: usize = 1 << 20;

/// A limit of RAM, a swap file, policies, and a thread that serves the faults of its regions.
///
/// A handle: clones are the same pager, which ends when the last one and all of its regions were dropped.
///
/// ```no_run
/// let pager = outpage::Pager::builder(64 << 20)
///     .set("swap", "/var/tmp")
///     .set("reclaim", "lirs")
///     .open()?;
/// assert_eq!(pager.limit(), 64 << 20);
/// # Ok::<(), outpage::Error>(())
/// ```
#[derive(Clone)]
pub struct Pager(Shared);

/// Settings of a pager that is not there yet.
#[must_use = "nothing is done before `open`"]
#[derive(Debug)]
pub struct Builder {
    config: Config,
    wrong: Option<String>,
}

impl Builder {
    /// Sets `name`, an option of `outpage run` without its dashes: `swap` (the directory of the swap file), `swap-cap`, `reclaim`, `pageout`, `tier`,
    /// `discard`, `slots`, `readahead`, `window`, `chunk`, `cluster-window`, `mechanism`, `store`, `encrypt`. `docs/policies.md` has
    /// their values. The first error is told by [`Self::open`]. What is not set is as under `outpage run`.
    pub fn set(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        let result = self.try_set(name, value.as_ref());
        self.wrong = self.wrong.or(result.err());
        self
    }

    fn try_set(&mut self, name: &str, value: &OsStr) -> Result<(), String> {
        let known = NAMES.contains(&name);
        let setting = SETTINGS.iter().find(|s| known && s.option == Some(name));
        let setting = setting.ok_or_else(|| {
            format!(
                "there is no setting '{name}': {}",
                NAMES[..NAMES.len() - 1].join(", ")
            )
        })?;
        let set = setting.set(&mut self.config, value);
        set.map_err(|reason| format!("{name}: {reason}"))
    }

    /// Starts the pager. It takes RAM as regions are touched.
    ///
    /// # Errors
    /// [`Error::Setting`], [`Error::Userfaultfd`], [`Error::Swap`], [`Error::Os`].
    pub fn open(self) -> Result<Pager, Error> {
        let Self { config, wrong } = self;
        if let Some(wrong) = wrong {
            return Err(Error::Setting(wrong));
        }
        let limit = config.memory_bytes;
        if limit < MIN_LIMIT {
            let text = format!("a limit of {limit} bytes is below the least, {MIN_LIMIT}");
            return Err(Error::Setting(text));
        }
        if is_of_valgrind(std::env::var_os("LD_PRELOAD").as_deref()) {
            let text = "valgrind runs one thread at a time, and one that waits for a page lets no pager run: start the program without it";
            return Err(Error::Userfaultfd(text.to_owned()));
        }
        let mut tries = 0;
        let scope = loop {
            tries += 1;
            match Scope::open(config.clone(), None) {
                // `outpage run` takes over new memory that no hook of its saw, before this pager could.
                Err(StartError::Os(_, Errno::EBUSY)) if tries < TRIES => {}
                result => break result?,
            }
        };
        Ok(Pager(Shared::new(scope, limit)))
    }
}

/// Whether a program with this `LD_PRELOAD` runs under valgrind, which puts libraries of its own there (valgrind 3, `vgpreload_*.so`).
fn is_of_valgrind(preload: Option<&OsStr>) -> bool {
    preload.is_some_and(|list| list.to_string_lossy().contains("/vgpreload_"))
}

impl Pager {
    /// With `limit` bytes of RAM for all of its regions, at least 8 MiB, and its swap file in `/var/tmp`. Beside the limit a pager needs 2 MiB and 36 bytes
    /// a touched page.
    ///
    /// # Errors
    /// Those of [`Builder::open`].
    pub fn new(limit: u64) -> Result<Self, Error> {
        Self::builder(limit).open()
    }

    /// The same, with settings.
    pub fn builder(limit: u64) -> Builder {
        Builder {
            config: Config::new(limit),
            wrong: None,
        }
    }

    /// A region of `len` values, all zero. It takes RAM where it is touched.
    ///
    /// # Errors
    /// [`Error::Os`] where there is no address space; [`Error::Ended`], [`Error::Forked`].
    pub fn zeros<T: Pod>(&self, len: usize) -> Result<Region<T>, Error> {
        Ok(Region::of(self.memory(bytes_of::<T>(len)?)?))
    }

    /// A region with the values that the file at `path` holds now, or that come up to the end of what tells no length (a pipe, a file of /proc) or too large a one
    /// (a file of /sys, one that is cut short meanwhile), in the byte order of this machine. The file is read through once; nothing is written to it.
    ///
    /// # Errors
    /// [`Error::Io`], by `InvalidData` where its length is no multiple of a value's; those of [`Self::zeros`].
    pub fn from_file<T: Pod>(&self, path: impl AsRef<Path>) -> Result<Region<T>, Error> {
        let mut file = File::open(path)?;
        let told = file.metadata()?;
        if told.len() == 0 && !told.is_dir() {
            return self.read_to_end(file);
        }
        let bytes = usize::try_from(told.len());
        let bytes = bytes.map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let mut region = self.zeros::<T>(values_in::<T>(bytes)?)?;
        let into = bytemuck::cast_slice_mut::<T, u8>(&mut region);
        let filled = fill(&mut file, into)?;
        if filled < bytes {
            region.resize(values_in::<T>(filled)?)?;
        }
        Ok(region)
    }

    /// A region with all that can be read.
    fn read_to_end<T: Pod>(&self, mut stream: impl Read) -> Result<Region<T>, Error> {
        let mut region = self.zeros::<T>(0)?;
        let mut filled = 0;
        loop {
            if filled == region.len() * size_of::<T>() {
                let more = READ_BYTES.max(filled).div_ceil(size_of::<T>().max(1));
                region.resize(region.len() + more)?;
            }
            let into = &mut bytemuck::cast_slice_mut::<T, u8>(&mut region)[filled..];
            let (room, count) = (into.len(), fill(&mut stream, into)?);
            filled += count;
            if count < room {
                break;
            }
        }
        region.resize(values_in::<T>(filled)?)?;
        Ok(region)
    }

    /// `bytes` bytes, all zero, for unsafe code.
    ///
    /// # Errors
    /// Those of [`Self::zeros`].
    pub fn memory(&self, bytes: usize) -> Result<Memory, Error> {
        Memory::new(self.0.clone(), bytes)
    }

    /// Its limit in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit()
    }

    /// What was counted since it was opened.
    ///
    /// # Errors
    /// [`Error::Ended`], [`Error::Forked`], [`Error::Os`].
    pub fn stats(&self) -> Result<Stats, Error> {
        let counts = self.0.counts().map_err(Error::of("read counters"))?;
        Ok(Stats::new(&counts, self.limit()))
    }

    /// Why it ended by itself, if it did.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.0.ended().map(Ended::from)
    }
}

impl fmt::Debug for Pager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pager({} bytes)", self.limit())
    }
}

/// Bytes of a size as people write it: `2G`, `1.5GiB`, `512m`, `1048576`. Suffixes are powers of 1024.
///
/// # Errors
/// [`Error::Setting`].
pub fn parse_size(text: &str) -> Result<u64, Error> {
    config::parse_size(text).map_err(|error| Error::Setting(error.to_string()))
}

/// Reads into `room` until it is full or the stream has ended. The bytes read.
fn fill(stream: &mut impl Read, room: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < room.len() {
        let len = (room.len() - filled).min(READ_BYTES);
        match stream.read(&mut room[filled..filled + len]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// How many values `bytes` bytes of a file are.
fn values_in<T>(bytes: usize) -> Result<usize, Error> {
    if size_of::<T>() == 0 || !bytes.is_multiple_of(size_of::<T>()) {
        let text = "the file does not hold a whole number of values";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text).into());
    }
    Ok(bytes / size_of::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valgrind_is_told_by_its_own_libraries() {
        let seen = |list: &str| is_of_valgrind(Some(OsStr::new(list)));
        let core = "/usr/libexec/valgrind/vgpreload_core-amd64-linux.so";
        let second = format!("/usr/lib/other.so:{core}");
        assert!(seen(core) && seen(&second));
        assert!(!seen("") && !seen("/usr/lib/libfakeroot-sysv.so") && !is_of_valgrind(None));
    }
}
