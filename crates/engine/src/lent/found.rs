//! Where the home's memory is mapped in this process, by the list of mappings.

use std::ops::ControlFlow;

use outpage_sys::map;
use outpage_sys::maps::{self, Kind, Mapping};
use outpage_sys::ram_file;
use outpage_sys::raw::Errno;

use crate::adopt::LIST_BYTES;
use crate::advice::MADV_COLD;
use crate::home::wire::Request;

/// A mapping of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The object's file ([`ram_file::id`]).
    pub(super) id: u64,
    pub(super) offset: u64,
}

impl Found {
    pub(super) const fn knows(&self) -> Request {
        Request::Knows {
            start: self.start as u64,
            end: self.end as u64,
            id: self.id,
            offset: self.offset,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.end - self.start
    }

    pub(super) const fn offset_end(&self) -> u64 {
        self.offset + self.len() as u64
    }
}

/// Numbers of files, ascending.
#[derive(Default)]
pub(super) struct Files(Vec<u64>);

impl Files {
    /// The home keeps this one.
    pub(super) fn note(&mut self, id: u64) {
        if let Err(at) = self.0.binary_search(&id) {
            self.0.insert(at, id);
        }
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    /// The home does not keep this one any more.
    pub(super) fn forget(&mut self, id: u64) {
        self.0.retain(|&other| other != id);
    }

    /// Whether this is a mapping of one of them.
    pub(super) fn keep(&self, mapping: &Mapping<'_>) -> bool {
        !self.0.is_empty() && may_be_kept(mapping) && self.has(id_of(mapping))
    }

    /// Only what is mapped is the home's, as far as this process is concerned.
    pub(super) fn only(&mut self, found: &[Found]) {
        self.0.retain(|&id| found.iter().any(|part| part.id == id));
    }

    /// Parts of `start..end` that are mappings of these, ascending.
    ///
    /// # Errors
    /// Those of reading the list.
    pub(super) fn found_in(&self, start: usize, end: usize) -> Result<Vec<Found>, Errno> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        found_by(start, end, |entry| self.has(id_of(entry)))
    }

    /// All parts that are mappings of files of RAM, whoever keeps them, ascending.
    ///
    /// # Errors
    /// Those of reading the list.
    pub(super) fn all(&self) -> Result<Vec<Found>, Errno> {
        found_by(0, usize::MAX, |entry| {
            self.has(id_of(entry)) || is_of_ram(entry)
        })
    }
}

/// Parts of `start..end` that are shared mappings and `wanted`, ascending.
///
/// # Errors
/// Those of reading the list.
pub(super) fn found_by(
    start: usize,
    end: usize,
    wanted: impl Fn(&Mapping<'_>) -> bool,
) -> Result<Vec<Found>, Errno> {
    let mut found = Vec::new();
    let mut look = |entry: &Mapping<'_>| {
        let (from, to) = (entry.start.max(start), entry.end.min(end));
        if from < to && may_be_kept(entry) && wanted(entry) {
            found.push(Found {
                start: from,
                end: to,
                id: id_of(entry),
                offset: entry.offset + (from - entry.start) as u64,
            });
        }
        ControlFlow::Continue(())
    };
    maps::for_each(&mut vec![0; LIST_BYTES], |entry| look(entry))?;
    Ok(found)
}

const fn id_of(mapping: &Mapping<'_>) -> u64 {
    ram_file::id(mapping.device.1, mapping.inode)
}

/// Whether it may be a mapping of a kept file, which may have got a name.
const fn may_be_kept(mapping: &Mapping<'_>) -> bool {
    mapping.shared && mapping.device.0 == 0
}

/// Whether it may be one of a file of RAM without a name.
fn is_of_ram(mapping: &Mapping<'_>) -> bool {
    mapping.kind() == Kind::SharedMemory || mapping.name.ends_with(b" (deleted)")
}

/// `EINVAL` where it is locked: as for advice that only has pages leave sooner (`can_madv_lru_vma` in mm/madvise.c, Linux 5.4).
pub(super) fn refuse_locked(part: &Found) -> Result<(), Errno> {
    map::madvise(part.start, part.len(), MADV_COLD)
}
