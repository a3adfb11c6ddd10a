//! Taking over the memory that a program had before its pager began.

use std::ops::ControlFlow;

use outpage_core::contract::Event;
use outpage_core::page::State;
use outpage_core::units::{Nanos, PAGE_BYTES, PAGE_SHIFT, PageRange};
use outpage_sys::maps::{self, Kind, Mapping};
use outpage_sys::raw::Errno;
use outpage_sys::{clock, map, own};

use crate::leaving::Topic;
use crate::live::{Live, STUCK_MAX};
use crate::notify::{Notifier, Pages, SUBSCRIPTIONS_MAX};
use crate::regions::Region;
use crate::scope::Failure;
use crate::start::{StartError, os};

/// Room for a piece of /proc/self/maps: any path fits (`PATH_MAX` is 4096).
pub(crate) const LIST_BYTES: usize = 64 << 10;
/// Uninitialised data (.bss) of at least this size is managed, and so are mappings that nobody told of. Below stay
/// libc's and this library's own variables, which the pager's thread uses, and nothing that would matter to the limit.
pub(crate) const MAPPING_BYTES: usize = 1 << 20;
/// Pages that are adopted at once: a quarter of the places that are empty under the smallest limit (`FRAMES_MIN` frames, twice as
/// many places).
const ADOPT_PAGES: usize = 64;
/// How long pages that are adopted may take to leave: a store that fails holds them for ever.
const ROOM_WITHIN: Nanos = Nanos(1_000_000_000);
/// How often it is looked whether there is room.
const ROOM_LOOK: Nanos = Nanos(1_000_000);
/// Pages whose presence is looked up at once.
const LOOK_PAGES: usize = 4096;

/// Calls `visit` with what of a private anonymous mapping is not the pager's own; `statics` is an address among this library's variables. The kernel makes one
/// mapping of neighbours that are alike, so a mapping may be ours in part where it has no name: another copy of this library, which a program may be linked
/// with, has areas like ours.
pub(crate) fn parts_of_program(
    entry: &Mapping<'_>,
    statics: usize,
    mut visit: impl FnMut(usize, usize),
) {
    let named = matches!(entry.kind(), Kind::Named(name) if name.starts_with(b"outpage"));
    let variables = (entry.start..entry.end).contains(&statics);
    if !entry.is_private_anonymous() || named || variables {
        return;
    }
    let mut at = entry.start;
    while at < entry.end {
        let mut ours = (entry.end, entry.end);
        own::for_each(|start, end| {
            if at < end && start < ours.0 {
                ours = (start.max(at), end);
            }
        });
        if at < ours.0 {
            visit(at, ours.0);
        }
        at = ours.1;
    }
}

/// The end of `len` bytes from `addr` on, if they are whole pages.
pub(crate) fn whole_pages(addr: usize, len: usize) -> Result<usize, Errno> {
    let end = addr.checked_add(len).ok_or(Errno::EINVAL)?;
    let whole = [addr, len].iter().all(|n| n.is_multiple_of(PAGE_BYTES));
    (whole && len > 0).then_some(end).ok_or(Errno::EINVAL)
}

/// The mappings that `start..end` consists of, cut to it, and their protections.
///
/// # Errors
/// `EINVAL` where it is not private anonymous memory of the program's throughout; those of reading the list.
fn mappings_of(start: usize, end: usize) -> Result<Vec<(usize, usize, i32)>, Errno> {
    let (mut found, mut at) = (Vec::new(), start);
    let statics = own::statics();
    maps::for_each(&mut vec![0; LIST_BYTES], |entry| {
        parts_of_program(entry, statics, |from, to| {
            if from <= at && at < to && at < end {
                found.push((at, to.min(end), entry.prot));
                at = to;
            }
        });
        ControlFlow::Continue(())
    })?;
    (at >= end).then_some(found).ok_or(Errno::EINVAL)
}

impl Live {
    /// Manages every private anonymous mapping of the process but the pager's own.
    ///
    /// The main thread's stack stays with the kernel (it grows by itself), as do the mappings that
    /// the kernel made for itself.
    ///
    /// `advised` says that the program marked some of it for forks.
    pub(crate) fn adopt_everything(&mut self, advised: bool) -> Result<(), StartError> {
        let mut found = Vec::with_capacity(1024);
        let mut buffer = vec![0; LIST_BYTES];
        let mut file_end = 0;
        let statics = own::statics();
        maps::for_each(&mut buffer, |entry| {
            let small_bss = entry.start == file_end && entry.len() < MAPPING_BYTES;
            if !small_bss {
                parts_of_program(entry, statics, |start, end| {
                    found.push((start, end, entry.prot))
                });
            }
            if entry.kind() == Kind::File {
                file_end = entry.end;
            }
            ControlFlow::Continue(())
        })
        .map_err(os("read /proc/self/maps"))?;
        // Before all of it is marked.
        let mut marks = Vec::new();
        if advised {
            maps::for_each_advised(&mut buffer, |mark| marks.push(mark))
                .map_err(os("read /proc/self/smaps"))?;
        }
        let threads = crate::threads::now();
        for (start, end, prot) in found {
            let _ = map::madvise(start, end - start, libc::MADV_NORMAL);
            // A mapping that cannot be registered stays with the kernel.
            if self.take_over(start, end, prot, false).is_ok() {
                self.keep_threads_in(&threads, start, end);
                self.adopt(start, end);
            }
        }
        for mark in marks {
            (self.world.space).change(mark.start, mark.end - mark.start, |r| {
                (r.not_forked, r.wiped_by_fork) = (mark.not_forked, mark.wiped);
            });
        }
        self.drive();
        Ok(())
    }

    /// Manages `addr..addr + len`, all of which is private anonymous memory and nobody's yet.
    ///
    /// # Errors
    /// Those of [`crate::scope::Scope::manage`]; nothing of it is managed then.
    pub(crate) fn manage(&mut self, addr: usize, len: usize) -> Result<(), Errno> {
        let end = whole_pages(addr, len)?;
        self.attend_to_changes();
        if self.world.space.manages_any(addr, len) {
            return Err(Errno::EEXIST);
        }
        let mappings = mappings_of(addr, end)?;
        for (i, &(start, end, prot)) in mappings.iter().enumerate() {
            if let Err(error) = self.take_over(start, end, prot, false) {
                for &(start, end, _) in &mappings[..i] {
                    self.undo_take_over(start, end);
                }
                return Err(error);
            }
        }
        for (start, end, _) in mappings {
            self.adopt(start, end);
        }
        self.drive();
        Ok(())
    }

    /// Tells the program by the area that it offered which of `addr..addr + len` are paged out, or which are about to leave.
    ///
    /// # Errors
    /// Those of [`Call::Subscribe`](crate::call::Call::Subscribe).
    pub(crate) fn subscribe(&mut self, addr: usize, len: usize, topic: Topic) -> Result<(), Errno> {
        let end = whole_pages(addr, len)?;
        self.attend_to_changes();
        let others = self.world.who_hears(topic);
        others.retain(|notifier| !notifier.is_forgotten());
        if others.len() >= SUBSCRIPTIONS_MAX {
            return Err(Errno::EBUSY);
        }
        let area = self.calls.take_offer().ok_or(Errno::EAGAIN)?;
        let pages = self.managed_pages(addr, end).ok_or(Errno::EINVAL)?;
        let meets = |notifier: &Notifier| pages.iter().any(|&pages| notifier.meets(pages));
        if self.world.who_hears(topic).iter().any(meets) {
            return Err(Errno::EBUSY);
        }
        let told_of = Pages::of(pages.iter().copied());
        let mut notifier = Notifier::subscribed(area, told_of).ok_or(Errno::EINVAL)?;
        for page in pages.iter().flat_map(|pages| pages.iter()) {
            if topic == Topic::Out && self.pager.state(page) == State::PagedOut {
                notifier.paged_out(page);
            }
        }
        notifier.begins();
        self.world.who_hears(topic).push(notifier);
        Ok(())
    }

    /// The pages of `start..end` by their places; `None` where one of them is not managed.
    fn managed_pages(&mut self, start: usize, end: usize) -> Option<Vec<PageRange>> {
        let parts = self.world.space.parts(start, end);
        let pages: Vec<PageRange> = parts.iter().map(Region::pages).collect();
        self.world.space.take_list(parts);
        let managed: u64 = pages.iter().map(|pages| pages.pages).sum();
        (managed == ((end - start) >> PAGE_SHIFT) as u64).then_some(pages)
    }

    /// `start..end` is unmapped: other pages may have the numbers of its pages later.
    pub(crate) fn unsubscribe(&mut self, start: usize, end: usize) {
        let nobody = |topic| self.world.who_hears(topic).is_empty();
        if Topic::ALL.into_iter().all(nobody) {
            return;
        }
        let parts = self.world.space.parts(start, end);
        for part in &parts {
            let gone = part.pages();
            for topic in Topic::ALL {
                let all = self.world.who_hears(topic);
                all.retain_mut(|notifier| notifier.loses(gone));
            }
        }
        self.world.space.take_list(parts);
    }

    /// Undoes [`Self::take_over`], before any page of it was told of.
    fn undo_take_over(&mut self, start: usize, end: usize) {
        let _ = self.world.door.unregister(start, end - start);
        let _ = map::madvise(start, end - start, libc::MADV_DOFORK);
        self.world.space.remove(start, end);
    }

    /// Tells the pager which pages of a region are there already.
    pub(crate) fn adopt(&mut self, start: usize, end: usize) {
        // A fault would have neighbours filled that are there.
        self.withholding((start, end), |live| live.adopt_run(start, end));
    }

    fn adopt_run(&mut self, start: usize, end: usize) {
        let mut there = vec![false; LOOK_PAGES];
        let mut at = start;
        while at < end {
            let pages = ((end - at) >> PAGE_SHIFT).min(LOOK_PAGES);
            if self.world.there_at(at, &mut there[..pages]).is_ok() {
                self.world.count_adopted(at, &there[..pages]);
                self.adopt_present(at, &there[..pages]);
            }
            at += pages * PAGE_BYTES;
        }
    }

    fn adopt_present(&mut self, at: usize, there: &[bool]) {
        let mut i = 0;
        while i < there.len() {
            let run = there[i..].iter().take_while(|&&there| there).count();
            if run == 0 {
                i += 1;
                continue;
            }
            let run = run.min(ADOPT_PAGES);
            let address = at + i * PAGE_BYTES;
            let Some(region) = self.world.space.at(address).copied() else {
                return;
            };
            let range = PageRange::new(region.page(address), run as u64);
            self.pager.handle(clock::now(), Event::Adopt(range));
            self.drive();
            self.make_room();
            i += run;
        }
    }

    /// Waits until no more pages have frames than there are: what was mapped unseen may be more, and it leaves through the staging
    /// area, which has room for as many again. Where none can ever leave (`mlockall` with `MCL_FUTURE`, before the pager began), that is the end.
    fn make_room(&mut self) {
        let begun = clock::now().0;
        self.trim();
        while self.pager.frames_used() > self.pager.limits().frames && !self.pager.rests() {
            let waited = clock::now().0 - begun;
            let leave = self.pager.in_flight() > 0 || self.pager.count(State::Staged) > 0;
            if leave && waited >= ROOM_WITHIN.0 {
                return;
            }
            if waited >= STUCK_MAX.0 || waited >= ROOM_WITHIN.0 && own::is_future_locked() {
                return self.world.failing.fail(Failure::NoVictims);
            }
            self.go_on(ROOM_LOOK);
            self.pager.handle(clock::now(), Event::Tick);
            self.drive();
            self.trim();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outpage_sys::own::Fork;

    fn parts(line: &str, statics: usize) -> Vec<(usize, usize)> {
        let entry = Mapping::parse(line.as_bytes()).expect("a line of the list");
        let mut parts = Vec::new();
        parts_of_program(&entry, statics, |start, end| parts.push((start, end)));
        parts
    }

    #[test]
    fn of_a_mapping_with_own_memory_in_it_the_rest_is_the_programs() {
        // Addresses that no mapping can have, so that other tests of this process do not meddle.
        let base = 3_usize << 60;
        let at = |pages: usize| base + pages * PAGE_BYTES;
        let line = |from, to| format!("{:x}-{:x} rw-p 00000000 00:00 0 \n", at(from), at(to));
        for (from, to) in [(6, 8), (2, 4), (4, 5)] {
            own::add(at(from), at(to), Fork::Inherited).expect("room");
        }
        assert_eq!(
            parts(&line(0, 10), 0),
            [(at(0), at(2)), (at(5), at(6)), (at(8), at(10))]
        );
        assert_eq!(parts(&line(3, 7), 0), [(at(5), at(6))]);
        assert_eq!(parts(&line(2, 5), 0), []);
        assert_eq!(parts(&line(8, 10), 0), [(at(8), at(10))]);
        assert_eq!(parts(&line(8, 10), at(9)), [], "the library's variables");
        [6, 2, 4].into_iter().for_each(|from| own::remove(at(from)));
    }
}
