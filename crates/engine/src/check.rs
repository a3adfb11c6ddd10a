//! The kernel's list of mappings, held against the pager's.
//!
//! What is unmapped, moved or emptied the kernel tells (`changes`). It says nothing of memory that is new and of protections;
//! the hooks do, for every call through libc. A bare `syscall` instruction, or a library with calls of its own, is seen here, a
//! tick later: memory is managed from then on, and what may be done to a range is put right.

use std::ops::ControlFlow;

use outpage_core::units::Nanos;
use outpage_sys::clock;
use outpage_sys::maps::{Entry, List};
use outpage_sys::raw::Errno;

use crate::adopt::{LIST_BYTES, MAPPING_BYTES, is_ours};
use crate::live::{Live, TICK};
use crate::regions::Region;

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
}

/// Something that the pager does not know, or knows otherwise.
#[derive(Clone, Copy)]
struct Found {
    start: usize,
    end: usize,
    prot: i32,
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
        self.look_at(|entry| entry.len() >= MAPPING_BYTES);
        let end = clock::now();
        let took = end.0 - now.0;
        self.check.next = Nanos(end.0 + TICK.0.max(SHARE * took));
    }

    /// Manages what is mapped at `address`, where a fault was met though nothing is known there.
    pub(crate) fn find(&mut self, address: usize) {
        self.look_at(|entry| (entry.start..entry.end).contains(&address));
    }

    /// Puts right what the list says otherwise; of mappings that nobody told of those that `wanted` picks are managed.
    fn look_at(&mut self, wanted: impl Fn(&Entry<'_>) -> bool) {
        let mut list = std::mem::take(&mut self.check.list);
        let mut found = std::mem::take(&mut self.check.found);
        list.resize(LIST_BYTES, 0);
        found.clear();
        let statics = crate::start::statics();
        let regions = &self.world.regions;
        let before = self.world.is_changing();
        let Some(file) = &self.check.file else { return };
        let listed = file.for_each(&mut list, |entry| {
            let known = regions.any_within(entry.start, entry.end) || wanted(entry);
            if entry.is_private_anonymous() && known && !is_ours(entry, statics) {
                found.push(Found {
                    start: entry.start,
                    end: entry.end,
                    prot: entry.prot,
                });
            }
            ControlFlow::Continue(())
        });
        // What a thread is changing is in the list as it will be, and here as it was: soon the kernel tells.
        // And a list that could not be read tells nothing.
        if listed.is_ok() && !before && !self.world.is_changing() {
            self.drop_stale(&found);
            for &Found { start, end, prot } in &found {
                self.put_right(start, end, prot);
            }
        }
        (self.check.list, self.check.found) = (list, found);
    }

    /// Gives up what is known where no memory of that kind is any more: the kernel does not tell of shmat(2) over a mapping.
    fn drop_stale(&mut self, there: &[Found]) {
        let mut stale = Vec::new();
        for region in self.world.regions.all() {
            let mut at = region.start;
            let first = there.partition_point(|found| found.end <= at);
            for found in there[first..].iter().take_while(|f| f.start < region.end) {
                stale.extend((at < found.start).then_some((at, found.start)));
                at = found.end;
            }
            stale.extend((at < region.end).then_some((at, region.end)));
        }
        for (start, end) in stale {
            self.unmapped(start, end);
        }
    }

    fn put_right(&mut self, start: usize, end: usize, prot: i32) {
        let mut parts = std::mem::take(&mut self.scratch);
        self.world.regions.within(start, end, &mut parts);
        let otherwise = |part: &&Region| part.prot != prot;
        let wrong: Vec<Region> = parts.iter().filter(otherwise).copied().collect();
        self.scratch = parts;
        for part in wrong {
            self.change(part.start, part.end - part.start, |r| r.prot = prot);
        }
        // A mapping that is gone again, or that cannot be registered, stays with the kernel.
        let _ = self.each_gap(start, end, |live, start, end| {
            live.take_over(start, end, prot, false)?;
            live.change(start, end - start, |r| r.found = true);
            live.adopt(start, end);
            live.drive();
            Ok(())
        });
    }
}
