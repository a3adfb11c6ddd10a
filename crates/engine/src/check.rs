//! The kernel's list of mappings, held against the pager's.
//!
//! What is unmapped, moved or emptied the kernel tells (`changes`). It says nothing of memory that is new and of protections;
//! the hooks do, for every call through libc. A bare `syscall` instruction, or a library with calls of its own, is seen here, a
//! tick later: memory is managed from then on, and what may be done to a range is put right.

use std::ops::ControlFlow;

use outpage_core::units::Nanos;
use outpage_sys::maps::{Kind, List, Mapping};
use outpage_sys::raw::Errno;
use outpage_sys::{clock, map, own};

use crate::adopt::{LIST_BYTES, MAPPING_BYTES, parts_of_program};
use crate::door::Door;
use crate::live::{Live, TICK};
use crate::regions::{Region, Regions};
use crate::scope::Reach;

/// Of the pager's time, one part in so many goes into looking: reading the list takes 0.5 us a mapping.
const SHARE: u64 = 100;

/// When the list is read next, and room for it.
#[derive(Default)]
pub(crate) struct Check {
    next: Nanos,
    /// Opened once: a program may run out of descriptors.
    file: Option<List>,
    list: Vec<u8>,
    found: Vec<Found>,
    parts: Vec<Region>,
    /// What the last look found stale.
    stale: Vec<(usize, usize)>,
    /// Children of forks that no hook sees might get memory of which a part is paged out.
    pub(crate) unmarked: bool,
}

impl Check {
    /// Room for the list, of which RAM is taken as it is written: a piece at a time, mostly a page.
    fn make_room(&mut self) {
        if self.list.is_empty() {
            self.list = vec![0; LIST_BYTES];
        }
    }
}

/// Differences that one look puts right; the next one finds the others. So the list takes no memory, whatever the program maps.
const FOUND_MAX: usize = 256;

/// Where the list and the pager differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// Private anonymous memory that nobody told of, and its protection.
    Unknown(usize, usize, i32),
    /// Known by another protection than this.
    Protected(usize, usize, i32),
    /// Known, and nothing of the kind is there.
    Stale(usize, usize),
}

/// Holds the mappings, as they come, against the regions.
struct Comparison<'a> {
    regions: &'a Regions,
    parts: &'a mut Vec<Region>,
    found: &'a mut Vec<Found>,
    /// Whether faults at an address come to the pager.
    served: &'a dyn Fn(usize) -> bool,
    /// What lies below is compared.
    at: usize,
}

impl Comparison<'_> {
    fn note(&mut self, found: Found) {
        if self.found.len() < FOUND_MAX {
            self.found.push(found);
        }
    }

    /// Nothing that could be managed lies from `at` up to `end`.
    fn nothing_up_to(&mut self, end: usize) {
        if self.at >= end || !self.regions.any_within(self.at, end) {
            return;
        }
        let mut parts = std::mem::take(self.parts);
        self.regions.within(self.at, end, &mut parts);
        for part in &parts {
            self.note(Found::Stale(part.start, part.end));
        }
        *self.parts = parts;
    }

    /// A mapping that could be managed; what nobody knows of it is noted if it is `wanted`, or if the rest is managed: it grew.
    fn mapping(&mut self, start: usize, end: usize, prot: i32, wanted: impl FnOnce() -> bool) {
        self.nothing_up_to(start);
        let mut parts = std::mem::take(self.parts);
        self.regions.within(start, end, &mut parts);
        let wanted = !parts.is_empty() || wanted();
        let mut at = start;
        for part in &parts {
            if wanted && at < part.start {
                self.note(Found::Unknown(at, part.start, prot));
            }
            self.known(part, false, prot);
            at = part.end;
        }
        if wanted && at < end {
            self.note(Found::Unknown(at, end, prot));
        }
        *self.parts = parts;
        self.at = end;
    }
}

impl Comparison<'_> {
    /// Holds what is known of a part against its mapping, which is shared or not.
    fn known(&mut self, part: &Region, shared: bool, prot: i32) {
        if (part.view != 0) != shared || !(self.served)(part.start) {
            self.note(Found::Stale(part.start, part.end));
        } else if part.prot != prot {
            self.note(Found::Protected(part.start, part.end, prot));
        }
    }

    /// A mapping of shared memory, of which what is not known stays with the kernel.
    fn shared(&mut self, start: usize, end: usize, prot: i32) {
        self.nothing_up_to(start);
        let mut parts = std::mem::take(self.parts);
        self.regions.within(start, end, &mut parts);
        parts.iter().for_each(|part| self.known(part, true, prot));
        *self.parts = parts;
        self.at = end;
    }
}

impl Check {
    /// In a forked child: the list is the parent's.
    pub(crate) fn forget(&mut self) {
        if let Some(file) = self.file.take() {
            file.abandon();
        }
    }
}

impl Live {
    /// Opens the list.
    pub(crate) fn open_list(&mut self) -> Result<(), Errno> {
        self.check.file = Some(List::open()?);
        Ok(())
    }

    /// Looks at all mappings, if it is time.
    pub(crate) fn check_mappings(&mut self, now: Nanos) {
        if now < self.check.next {
            return;
        }
        self.check_now();
        self.look_for_lent();
        let end = clock::now();
        let took = end.0 - now.0;
        self.check.next = Nanos(end.0 + TICK.0.max(SHARE * took));
    }

    /// Looks at all mappings.
    pub(crate) fn check_now(&mut self) {
        let whole = self.world.failing.reach() == Reach::Process;
        // A small one whose faults come here is what another one grew by unseen, cut off by another protection: the rest of it is not forked, nor is it.
        let is_served = |door: &dyn Door, start| {
            door.is_registered(start) == Some(true) && door.may_have_registered(start)
        };
        self.look_at(|entry, door| {
            whole && (entry.len() >= MAPPING_BYTES || is_served(door, entry.start))
        });
    }

    /// Manages what is mapped at `address`, where a fault was met though nothing is known there.
    pub(crate) fn find(&mut self, address: usize) {
        self.look_at(|entry, _| (entry.start..entry.end).contains(&address));
    }

    /// Puts right what the list says otherwise; of mappings that nobody told of those that `wanted` picks are managed.
    fn look_at(&mut self, wanted: impl Fn(&Mapping<'_>, &dyn Door) -> bool) {
        let before = self.world.is_changing();
        let Some(file) = self.check.file.take() else {
            return;
        };
        self.check.make_room();
        let mut list = std::mem::take(&mut self.check.list);
        let mut found = std::mem::take(&mut self.check.found);
        found.clear();
        let statics = own::statics();
        let door = &self.world.door;
        let mut comparison = Comparison {
            regions: &self.world.space,
            parts: &mut self.check.parts,
            found: &mut found,
            served: &|address| door.is_registered(address) != Some(false),
            at: 0,
        };
        let listed = file.for_each(&mut list, |entry| {
            parts_of_program(entry, statics, |start, end| {
                comparison.mapping(start, end, entry.prot, || wanted(entry, &**door));
            });
            if entry.shared && entry.kind() == Kind::SharedMemory {
                comparison.shared(entry.start, entry.end, entry.prot);
            }
            ControlFlow::Continue(())
        });
        comparison.nothing_up_to(usize::MAX);
        // What a thread is changing is in the list as it will be, and here as it was: soon the kernel tells.
        // And a list that could not be read tells nothing.
        if listed.is_ok() && !before && !self.world.is_changing() {
            found.iter().for_each(|&found| self.put_right(found));
            self.remember_stale(&found);
            if std::mem::take(&mut self.check.unmarked) {
                self.keep_from_children();
            }
        }
        (self.check.list, self.check.found) = (list, found);
        self.check.file = Some(file);
    }

    /// Asks which protection the staging area has: whether ordinary memory has another, and is write-protected in place of being moved.
    /// Where the list cannot be read it is taken to be what was asked for.
    pub(crate) fn moves_no_plain_memory(&mut self) -> bool {
        let (start, _) = self.world.frames.span();
        let asked = self.world.frames.prot();
        let got = self.of_mapping(start, |entry| entry.prot);
        let got = got.ok().flatten().unwrap_or(asked);
        self.world.frames.set_prot(got);
        got != asked
    }

    /// What [`crate::call::Call::MappingAt`] asks for.
    pub(crate) fn mapping_at(&mut self, addr: usize) -> isize {
        let answer = self.of_mapping(addr, |entry| {
            let told = (entry.end | entry.prot as usize) as isize;
            entry.is_private_anonymous().then_some(told)
        });
        // Where the list cannot be read there is no answer either.
        let answer = answer.ok().flatten().flatten();
        answer.unwrap_or(-(libc::EFAULT as isize))
    }

    /// What `look` says of the mapping at `addr`, if there is one.
    ///
    /// # Errors
    /// Those of reading the list of mappings.
    pub(crate) fn of_mapping<T>(
        &mut self,
        addr: usize,
        look: impl Fn(&Mapping<'_>) -> T,
    ) -> Result<Option<T>, Errno> {
        let file = self.check.file.take().ok_or(Errno::ENOENT)?;
        let mut found = None;
        self.check.make_room();
        let read = file.for_each(&mut self.check.list, |entry| {
            if entry.end <= addr {
                return ControlFlow::Continue(());
            }
            found = (entry.start <= addr).then(|| look(entry));
            ControlFlow::Break(())
        });
        self.check.file = Some(file);
        read.map(|()| found)
    }

    fn remember_stale(&mut self, found: &[Found]) {
        let stale = found.iter().filter_map(|&found| match found {
            Found::Stale(start, end) => Some((start, end)),
            _ => None,
        });
        self.check.stale.clear();
        self.check.stale.extend(stale);
    }

    /// Whether nothing of the kind is at `start..end`, of which the kernel tells nothing: the list is read mapping by mapping (since
    /// Linux 6.17), and one that shmat(2) splits at this moment may be missing from it once. Contents depend on it, so two looks in a
    /// row have to agree.
    fn is_stale(&self, start: usize, end: usize) -> bool {
        let before = &self.check.stale;
        before.iter().any(|s| s.0 <= start && end <= s.1)
    }

    fn put_right(&mut self, found: Found) {
        match found {
            Found::Stale(start, end)
                if self.is_stale(start, end) && !self.world.door.may_have_registered(start) =>
            {
                self.unmapped(start, end);
                // Children may have what lies there now.
                let _ = map::madvise(start, end - start, libc::MADV_DOFORK);
            }
            Found::Stale(..) => {}
            Found::Protected(start, end, prot) => {
                (self.world.space).change(start, end - start, |r| r.prot = prot);
            }
            // A mapping that is gone again, or that cannot be registered, stays with the kernel.
            Found::Unknown(start, end, prot) => {
                if self.take_over(start, end, prot, false).is_ok() {
                    (self.world.space).change(start, end - start, |r| r.found = true);
                    self.adopt(start, end);
                    self.drive();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

    #[test]
    fn what_differs_is_found() {
        let mut regions = Regions::new();
        regions.add(0x1000, 0x3000, RW, false);
        regions.add(0x5000, 0x8000, RW, false);
        regions.add(0x9000, 0xA000, RW, false);
        regions.add(0xD000, 0xE000, RW, false);
        let (mut parts, mut found) = (Vec::new(), Vec::new());
        let mut comparison = Comparison {
            regions: &regions,
            parts: &mut parts,
            found: &mut found,
            served: &|address| address != 0xD000,
            at: 0,
        };
        // Of the first region the end is gone; a larger mapping lies around the second, of which a part may only be read. Nobody asks
        // for that one, but the kernel joins nothing that is registered with what is not.
        comparison.mapping(0x1000, 0x2000, RW, || false);
        comparison.mapping(0x4000, 0x6000, RW, || false);
        comparison.mapping(0x6000, 0x8000, libc::PROT_READ, || true);
        comparison.mapping(0xB000, 0xC000, RW, || false);
        // Something like it, which is not served.
        comparison.mapping(0xD000, 0xE000, RW, || false);
        comparison.nothing_up_to(usize::MAX);
        assert_eq!(
            found,
            [
                Found::Stale(0x2000, 0x3000),
                Found::Unknown(0x4000, 0x5000, RW),
                Found::Protected(0x6000, 0x8000, libc::PROT_READ),
                Found::Stale(0x9000, 0xA000),
                Found::Stale(0xD000, 0xE000),
            ]
        );
    }
}
