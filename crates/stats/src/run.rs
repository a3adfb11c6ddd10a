//! One run, read from outside.

use std::fmt;
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

use outpage_sys::raw::Errno;
use outpage_sys::shared::{self, Shareable, is_locked};

use crate::layout::{Board, Head, Ledger, MAGIC, MECHANISMS, MEMBERS_MAX, Member, State, VERSION};
use crate::liveness::{self, Identity, Seen};
use crate::{Counts, ObjectUses, Table, Waits, largest};

/// Memory objects of a run that are told apart, as in the JSON of `outpage run --stats`.
const OBJECTS_LISTED: usize = 16;

/// Why a file says nothing of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// The kernel refused.
    Os(Errno),
    /// Whoever made it has not written its head yet.
    NotBegun,
    /// It is no session, or one that a process of the program wrote over.
    NoSession,
    /// It was written on a machine that orders bytes the other way.
    Endianness,
    /// Another version of Outpage made it: its layout has this number.
    Version(u32),
    /// It ends early: it has so many bytes.
    Short(u64),
    /// It holds what no process of this version writes.
    Damaged(&'static str),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(errno) => write!(f, "the session cannot be read: {}", errno.text()),
            Self::NotBegun => write!(f, "the session is being made"),
            Self::NoSession => write!(
                f,
                "the session is damaged (its head): a process of the program wrote to its memory"
            ),
            Self::Endianness => write!(f, "the session has the byte order of another machine"),
            Self::Version(found) => write!(
                f,
                "the session belongs to another version of outpage (layout {found}, this one reads {VERSION})"
            ),
            Self::Short(bytes) => write!(f, "the session is cut short, to {bytes} bytes"),
            Self::Damaged(what) => write!(
                f,
                "the session is damaged ({what}): a process of the program wrote to its memory"
            ),
        }
    }
}

impl std::error::Error for Unreadable {}

/// The session of a run, opened for reading. It stays readable when the run has ended.
#[derive(Debug)]
pub struct Run {
    file: File,
}

/// The pid namespaces that numbers may belong to, by their inodes.
#[derive(Clone, Copy)]
struct Namespaces {
    own: u64,
    of_session: u64,
}

/// A process of a run.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number in its pid namespace; 0 while it is being forked.
    pub pid: u32,
    /// Whether that namespace is the caller's.
    pub here: bool,
    /// Whether it has a pager, fits as yet, or is being forked.
    pub state: State,
    /// False where it has ended and no other process has noticed.
    pub alive: bool,
    /// Frames of the limit that it was lent, in pages.
    pub held_pages: u64,
    /// What it counted.
    pub counts: Counts,
    /// How long its threads waited for faults.
    pub waits: Waits,
}

/// A run at one moment. Values that change meanwhile may be a few events apart.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The limit of the whole tree, in pages.
    pub limit_pages: u64,
    /// What the processes were lent of it, in pages.
    pub lent_pages: u64,
    /// The most that was lent at once, in pages.
    pub peak_pages: u64,
    /// How pages move, one of [`MECHANISMS`]; `auto` while no process has had to page.
    pub mechanism: &'static str,
    /// The program that was started, where this /proc still has it.
    pub program: Option<u32>,
    /// The keeper, where this /proc still has it.
    pub keeper: Option<u32>,
    /// The processes that have a part of the limit, in order of their entries.
    pub processes: Vec<Process>,
    /// The counters of all processes, those that are gone included.
    pub totals: Counts,
    /// How long the threads of all processes waited, those that are gone included.
    pub waits: Waits,
    /// What read-ahead did for the largest memory objects.
    pub objects: ObjectUses,
}

impl Run {
    /// The run whose session `file` is.
    ///
    /// # Errors
    /// [`Unreadable`]: the file may be anything.
    pub fn new(file: File) -> Result<Self, Unreadable> {
        let run = Self { file };
        run.head()?;
        Ok(run)
    }

    /// Reads the run as it is now.
    ///
    /// # Errors
    /// [`Unreadable`]: also where a process has spoiled the session since it was opened.
    pub fn look(&self) -> Result<Snapshot, Unreadable> {
        let head = self.head()?;
        let limit_pages = head.limit_pages.load(Relaxed);
        let lent_pages = head.reserved.word.load(Relaxed);
        if lent_pages > limit_pages {
            return Err(Unreadable::Damaged("the sum of what is lent"));
        }
        let mechanism = MECHANISMS.get(head.mechanism.load(Relaxed) as usize);
        let retired: Ledger = self.part(offset_of!(Board, retired), 0)?;
        let mut totals = retired.counters.read();
        let mut waits = retired.latencies.read();
        let mut tables = vec![self.part::<Table>(offset_of!(Board, retired_objects), 0)?];
        let mut processes = Vec::new();
        let spaces = Namespaces {
            own: liveness::pid_namespace(),
            of_session: head.keeper_namespace.load(Relaxed),
        };
        for index in 0..MEMBERS_MAX {
            if let Some(process) = self.process(index, spaces)? {
                totals.merge(
                    &process.counts,
                    process.alive && process.state == State::Live,
                );
                waits.merge(&process.waits);
                tables.push(self.part(offset_of!(Board, objects), index)?);
                processes.push(process);
            }
        }
        Ok(Snapshot {
            limit_pages,
            lent_pages,
            peak_pages: head.reserved_peak.word.load(Relaxed),
            mechanism: mechanism.ok_or(Unreadable::Damaged("its mechanism"))?,
            program: running(
                head.program_pid.load(Relaxed),
                head.program_started.load(Relaxed),
            ),
            keeper: running(
                head.keeper_pid.load(Relaxed).into(),
                head.keeper_started.load(Relaxed),
            ),
            processes,
            totals,
            waits,
            objects: largest(tables.iter(), OBJECTS_LISTED),
        })
    }

    /// The head, which is that of a session of this version.
    fn head(&self) -> Result<Head, Unreadable> {
        // Of a file that ends in the midst of the head its beginning tells more than its length.
        let mut head = Head::default();
        let whole = shared::copy_out(self.file.as_raw_fd(), 0, &mut head);
        let bytes = self.bytes();
        match head.magic.load(Relaxed) {
            MAGIC => {}
            other if other == MAGIC.swap_bytes() => return Err(Unreadable::Endianness),
            // Who condemns a session leaves its version.
            0 if whole.is_ok() && head.version.load(Relaxed) == 0 => {
                return Err(Unreadable::NotBegun);
            }
            _ => return Err(whole.map_or_else(|e| self.why(e), |()| Unreadable::NoSession)),
        }
        match head.version.load(Relaxed) {
            VERSION if bytes < size_of::<Board>() as u64 => Err(Unreadable::Short(bytes)),
            VERSION => whole.map(|()| head).map_err(|errno| self.why(errno)),
            _ if bytes < (offset_of!(Head, version) + size_of::<u32>()) as u64 => {
                Err(Unreadable::Short(bytes))
            }
            other => Err(Unreadable::Version(other)),
        }
    }

    /// The process at place `index`; `None` where there is none.
    fn process(&self, index: usize, spaces: Namespaces) -> Result<Option<Process>, Unreadable> {
        let member: Member = self.part(offset_of!(Board, members), index)?;
        let state = State::from_raw(member.state.load(Relaxed));
        let state = state.ok_or(Unreadable::Damaged("the state of an entry"))?;
        if state == State::Free {
            return Ok(None);
        }
        let ledger: Ledger = self.part(offset_of!(Board, ledgers), index)?;
        let namespace = match state {
            State::Direct => spaces.of_session,
            State::Free | State::Live | State::Forking => member.pid_namespace.load(Relaxed),
        };
        let here = namespace == spaces.own && namespace != 0;
        Ok(Some(Process {
            pid: member.pid.load(Relaxed),
            here,
            state,
            alive: self.is_alive(&member, state, index, here),
            held_pages: member.held_pages.load(Relaxed),
            counts: ledger.counters.read(),
            waits: ledger.latencies.read(),
        }))
    }

    /// Whether the process of an entry lives; where that is not known, it does.
    fn is_alive(&self, member: &Member, state: State, index: usize, here: bool) -> bool {
        match state {
            State::Live => is_locked(self.file.as_raw_fd(), index as u64) != Ok(false),
            State::Direct if here => !liveness::is_gone(Identity {
                pid: member.pid.load(Relaxed),
                started: member.since.load(Relaxed),
            }),
            State::Direct | State::Free | State::Forking => true,
        }
    }

    /// A copy of the `index`th of several `T` that begin at `offset`.
    fn part<T: Shareable + Default>(&self, offset: usize, index: usize) -> Result<T, Unreadable> {
        let mut copy = T::default();
        let at = (offset + index * size_of::<T>()) as u64;
        let copied = shared::copy_out(self.file.as_raw_fd(), at, &mut copy);
        copied.map(|()| copy).map_err(|errno| self.why(errno))
    }

    fn why(&self, errno: Errno) -> Unreadable {
        match errno {
            // Nobody can make a session shorter, but the file may be none.
            Errno::EINVAL => Unreadable::Short(self.bytes()),
            errno => Unreadable::Os(errno),
        }
    }

    fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.len())
    }
}

/// The process `pid` that began at `started`, unless this /proc has none such.
fn running(pid: u64, started: u64) -> Option<u32> {
    let pid = u32::try_from(pid).ok().filter(|&pid| pid != 0)?;
    (liveness::look(pid) == Seen::Running(Identity { pid, started })).then_some(pid)
}

#[cfg(test)]
mod tests;
