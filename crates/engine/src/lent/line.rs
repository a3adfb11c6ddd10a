//! A process's connection to the home.

use outpage_stats::liveness;
use outpage_sys::fd::Fd;
use outpage_sys::map;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{Features, Mode, SEAT_FEATURES, Uffd, Wanted};

use super::found::{Files, Found, found_by};
use crate::home::wire::{self, NoAnswer, Request};

/// What the home says of mappings.
#[derive(Default)]
pub(super) struct Told {
    /// It does not know them, though they are there still.
    pub(super) unknown: Vec<Found>,
    /// Their file is no object any more.
    pub(super) given_up: Vec<Found>,
}

/// A connection to the home.
pub(super) struct Line {
    pub(super) socket: Fd,
    /// Kept open beside the home's copy, so that the home's end alone opens no hole to zeroes.
    uffd: Uffd,
}

impl Line {
    /// By `socket`, with a userfaultfd of this process's.
    pub(super) fn begin(socket: Fd, inherited: Option<i32>) -> Result<Self, NoAnswer> {
        let uffd = Uffd::open(&Wanted {
            inherited,
            required: SEAT_FEATURES,
            optional: Features::POISON.plus(Features::EXACT_ADDRESS),
        });
        let uffd = uffd.map_err(|_| Errno::EOPNOTSUPP)?;
        let namespace = liveness::pid_namespace();
        wire::ask(socket.number(), Request::Sit { namespace }, Some(uffd.fd()))?;
        Ok(Self { socket, uffd })
    }

    pub(super) fn ask(&self, request: Request) -> Result<(u64, Option<Fd>), NoAnswer> {
        wire::ask(self.socket.number(), request, None)
    }

    /// Maps an object, and puts it in the place of what is at `addr` once the home serves it: somebody may touch it there at once.
    pub(super) fn place(
        &self,
        addr: usize,
        len: usize,
        prot: i32,
        (id, file): (u64, &Fd),
    ) -> Result<(), NoAnswer> {
        let prot = prot & (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
        let start = map::mmap(0, len, prot, libc::MAP_SHARED, file.number(), 0)?;
        let found = Found {
            start,
            end: start + len,
            id,
            offset: 0,
        };
        let placed = self.hand_over(found).and_then(|_| {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            map::mremap(start, len, len, flags, addr)?;
            Ok(())
        });
        if placed.is_err() {
            let _ = map::munmap(start, len);
        }
        placed
    }

    /// What the home says of `found`.
    pub(super) fn told_of<'a>(
        &self,
        found: impl Iterator<Item = &'a Found>,
        files: &Files,
    ) -> Result<Told, NoAnswer> {
        let is_unknown = |part: Found| match self.ask(part.knows()) {
            Ok((0, _)) => Ok(Some(true)),
            Err(NoAnswer::Refused(Errno::ENOENT)) if files.has(part.id) => Ok(None),
            Ok(_) | Err(NoAnswer::Refused(_)) => Ok(Some(false)),
            Err(gone) => Err(gone),
        };
        let there = |part: Found| found_by(part.start, part.end, |_| true);
        let is_there = |part: Found| there(part).is_ok_and(|now| now == [part]);
        let mut told = Told::default();
        for &part in found {
            // The list may be older than what the home knows.
            match is_unknown(part)? {
                Some(true) if is_there(part) && is_unknown(part)? == Some(true) => {
                    told.unknown.push(part);
                }
                None => told.given_up.push(part),
                Some(_) => {}
            }
        }
        Ok(told)
    }

    /// Has the home serve the faults of what is mapped there; false where it does not keep that file, or not any more.
    pub(super) fn hand_over(&self, found: Found) -> Result<bool, NoAnswer> {
        let (start, len) = (found.start, found.len());
        map::no_huge_pages(start, len)?;
        map::not_in_children(start, len)?;
        self.uffd.register(start, len, Mode::both())?;
        let told = self.ask(Request::Mapped {
            start: start as u64,
            end: found.end as u64,
            id: found.id,
            offset: found.offset,
        });
        let (served, keeps) = match told {
            Ok((served, _)) => ((served as usize).min(len), true),
            Err(NoAnswer::Refused(Errno::ENOENT)) => (0, false),
            Err(error) => return Err(error),
        };
        if served < len {
            // Whoever touches it gets a signal, and nobody waits for what becomes of it.
            self.uffd.unregister(start + served, len - served)?;
        }
        Ok(keeps)
    }
}
