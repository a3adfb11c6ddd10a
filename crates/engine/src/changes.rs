//! Changes of the program's address space.
//!
//! A thread that unmaps, moves or empties managed memory makes the call itself, by whatever road: libc, a bare
//! `syscall` instruction, another library. The kernel decides, then tells the pager (`UFFD_FEATURE_EVENT_UNMAP`, `_REMAP`,
//! `_REMOVE`), and the thread waits until the message is read. What the kernel refuses is never heard of here, and costs nothing.
//!
//! From the moment it is read that thread may use the range again, so nothing of the old content is mapped there any more
//! (`world/changing.rs`). Of memory that is new the kernel says nothing: the hooks say so ([`crate::call::Call::Take`]), and what
//! no hook saw is found by `check`.

use outpage_core::contract::Event;
use outpage_core::page::State;
use outpage_core::units::{Nanos, PAGE_BYTES, PageNo, PageRange};
use outpage_sys::process::Tid;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{Fault, FaultKind, Message, Mode};
use outpage_sys::{clock, map, process};

use crate::live::Live;
use crate::regions::Region;
use crate::scope::{Failure, Reach};

/// How long a range may stay known after the kernel gave it to somebody else, while no thread is at a change: one that unmapped it
/// would be, from Linux 5.13 on, until it has told. A choice for older kernels, where that cannot be seen.
const TELLS_WITHIN: Nanos = Nanos(100_000_000);

/// What holds for a range, as the program set it.
#[derive(Clone, Copy, Default)]
struct Attributes {
    prot: i32,
    locked: bool,
    wiped_by_fork: bool,
    not_forked: bool,
}

impl Live {
    /// Attends to one message about the address space.
    pub(crate) fn changed(&mut self, message: &Message) {
        match *message {
            Message::Removed { start, end } => self.emptied(start, end),
            Message::Unmapped { start, end } if self.is_still_mapped(start, end) => {}
            Message::Unmapped { start, end } => self.unmapped(start, end),
            Message::Remapped { from, to, len } => self.moved(from, to, len),
            Message::Fault(_) | Message::Forked(_) | Message::Other => {}
        }
    }

    /// Reads the messages that wait and attends to those about the address space; faults stay for later.
    pub(crate) fn attend_to_changes(&mut self) {
        self.world.door.let_change_pass();
        self.attend_to_known_changes();
    }

    /// Attends to what was read; returns how much that was.
    pub(crate) fn attend_to_known_changes(&mut self) -> usize {
        let mut count = 0;
        while let Some(change) = self.world.door.next_change() {
            self.changed(&change);
            count += 1;
        }
        if count > 0 {
            self.let_calls_end();
        }
        if count > 0 && !self.world.is_changing() {
            self.world.door.undisturbed();
        }
        count
    }

    /// Whether a range that is said to be unmapped is as it was: the kernel says so too where a mapping was to take
    /// its place and failed (`mmap_region` in mm/vma.c, Linux 6.12).
    fn is_still_mapped(&mut self, start: usize, end: usize) -> bool {
        let parts = self.world.space.parts(start, end);
        let first = parts.first().copied();
        self.world.space.take_list(parts);
        let Some(part) = first else { return false };
        // As a rule nothing is there, and the advice is refused.
        if map::madvise(part.start, part.end - part.start, libc::MADV_NORMAL).is_err() {
            return false;
        }
        if self.is_home_at(part.start) {
            return false;
        }
        // What was mapped there instead is private, and becomes one with its neighbours only if it was not asked of by other means.
        let door = &self.world.door;
        let asks = |at| match part.view {
            0 => door.is_protectable(at),
            _ => door.is_registered(at),
        };
        let registered = loop {
            if let Some(answer) = asks(part.start) {
                break answer;
            }
            door.let_change_pass();
        };
        registered && !self.world.door.is_moved_onto(part.start)
    }

    /// Pages that were found to be mapped over while they were written are not wanted any more: what was written is not what they had,
    /// and read-ahead would find them damaged.
    pub(crate) fn attend_to_covered(&mut self) {
        for _ in 0..self.world.space.covered() {
            // Where a mapping moved away, of which the message waits, nothing is registered either.
            let is_calm = self.world.is_calm();
            let Some(address) = self.world.space.next_covered() else {
                return;
            };
            let registered = if self.is_home_at(address) {
                Some(false)
            } else {
                self.world.door.is_registered(address)
            };
            match registered {
                Some(false) if is_calm && self.world.is_calm() => {
                    self.unmapped(address, address + PAGE_BYTES);
                }
                // Mapped anew since, it is another page.
                Some(true) => {}
                _ => self.world.space.found_covered(address),
            }
        }
    }

    /// The pages of `start..end` are not wanted any more, and the range is not managed any more.
    pub(crate) fn unmapped(&mut self, start: usize, end: usize) {
        if start >= end {
            return;
        }
        self.unsubscribe(start, end);
        self.note_what_is_cut(start, end);
        self.drop_contents(start, end, Event::Unmap);
        self.let_kept_go_in(start, end);
        self.drop_shared(start, end);
        self.world.space.remove(start, end);
    }

    /// Tells the pager that the contents of `start..end` are gone, or may go. Nothing is mapped there meanwhile.
    pub(crate) fn drop_contents(
        &mut self,
        start: usize,
        end: usize,
        event: fn(PageRange) -> Event<'static>,
    ) {
        self.world.space.attend_to_removal(start, end);
        let parts = self.world.space.parts(start, end);
        for part in &parts {
            self.quiesce(part.pages());
            self.pager.handle(clock::now(), event(part.pages()));
            self.drive();
        }
        self.world.space.take_list(parts);
        self.world.space.attended();
    }

    /// What was managed at `from` lies at `to` now, with its registration, protections and flags.
    fn moved(&mut self, from: usize, to: usize, len: usize) {
        self.expect_no_alias(from, len);
        self.let_kept_go_in(from, from + len);
        self.world.space.attend_to_move(from, from + len, to);
        self.withholding((to, to + len), |live| live.await_departure(to, to + len));
        self.world.space.relocate(from, to, len);
        self.world.space.attended();
        (self.world.door).disturbed_in(to, to + len, &mut |start, end| self.expect_all(start, end));
    }

    /// Under write-protect pages are thrown away by address, and the kernel does not ask whether something else was moved there just
    /// before. What the program had in RAM is there still, or is given back, or the program ends: it would find zeroes.
    fn expect_all(&self, start: usize, end: usize) {
        for address in (start..end).step_by(PAGE_BYTES) {
            // Pages of shared memory are thrown away by their place in a file.
            let region = self.world.space.at(address).filter(|r| r.view == 0);
            let page = region.map(|r| r.page(address));
            let had = page.is_some_and(|page| self.is_in_program(page));
            let gone = self.world.door.is_empty(address) == Ok(true);
            if had && gone && !self.went_since(address) && !self.world.door.give_back(address) {
                let why = "is lost: memory was moved there at the moment at which what had been there was thrown away";
                self.world.failing.fail(Failure::Page(address, why));
                self.world.signal(address);
            }
        }
    }

    /// Whether the program has the page in RAM, as far as is known.
    fn is_in_program(&self, page: PageNo) -> bool {
        self.pager.state(page) == State::Resident
    }

    /// Whether what was at `address` was thrown away, unmapped or moved on: by a thread that has told, or is about to.
    fn went_since(&self, address: usize) -> bool {
        loop {
            // In this order: what is not under way any more was told.
            let changing = self.world.door.is_changing(address);
            self.world.door.let_change_pass();
            if self.world.change_at(address).is_some() {
                return true;
            }
            if !changing {
                return false;
            }
        }
    }

    /// Something was moved to `start..end`: what is known there was unmapped or moved away by another thread, unseen by the hooks,
    /// which is about to tell, or it went by a call that the kernel never tells of (shmat(2) with `SHM_REMAP`). Threads tell in any
    /// order; of each place the messages are in order. Nothing else is attended to: the unmapping of where it came from may be
    /// among it.
    fn await_departure(&mut self, start: usize, end: usize) {
        let mut calm_since = clock::now();
        while self.world.space.manages_any(start, end - start) {
            if self.world.door.is_changing(start) {
                calm_since = clock::now();
            }
            self.world.door.let_change_pass();
            match self.world.door.next_departure(start, end) {
                Some(Message::Remapped { from, to, len }) => self.moved(from, to, len),
                Some(Message::Unmapped { start, end }) => self.unmapped(start, end),
                _ if clock::now().0 - calm_since.0 > TELLS_WITHIN.0 => self.unmapped(start, end),
                _ => {}
            }
        }
    }

    /// The kernel has mapped something at `start..end` since. What is known there was unmapped: by a thread that is about
    /// to tell, or by a call that the kernel never tells of (shmat(2) with `SHM_REMAP`). But what was found by a look at the
    /// mappings (`check`) may be this very one: then it is registered.
    pub(crate) fn make_known_room(&mut self, start: usize, end: usize) {
        // Not of the range itself: a mapping that was asked of before it is registered gets an `anon_vma` of its own (`uffd_mfill_lock` in
        // mm/userfaultfd.c, Linux 6.18), and never becomes one with its neighbours. Of mappings a process has 65,530.
        let (known, _) = self.world.frames.span();
        let stale = loop {
            while self.world.door.is_changing(known) || !self.world.door.is_calm() {
                self.attend_to_changes();
            }
            if let Some(stale) = self.stale_within(start, end) {
                break stale;
            }
        };
        for part in stale {
            self.unmapped(part.start, part.end);
        }
    }

    /// What is known within `start..end` and is not what is mapped there. `None` while a thread is at a change.
    fn stale_within(&mut self, start: usize, end: usize) -> Option<Vec<Region>> {
        let mut parts = self.world.space.parts(start, end);
        let door = &self.world.door;
        let mut certain = true;
        parts.retain(|part| {
            let there = part.found.then(|| door.is_registered(part.start));
            certain &= there != Some(None);
            there != Some(Some(true))
        });
        let stale = certain.then(|| parts.clone());
        self.world.space.take_list(parts);
        stale
    }

    /// Manages `start..end`, which is mapped; what was touched already is adopted unless it is `fresh`.
    pub(crate) fn take(
        &mut self,
        start: usize,
        end: usize,
        prot: i32,
        fresh: bool,
    ) -> Result<(), Errno> {
        let like = Attributes {
            prot: prot & (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC),
            ..Attributes::default()
        };
        self.take_like(like, start, end, fresh)
    }

    /// The same, with what is to hold for the range. What was found of it already is taken as it is.
    fn take_like(
        &mut self,
        like: Attributes,
        start: usize,
        end: usize,
        fresh: bool,
    ) -> Result<(), Errno> {
        self.make_known_room(start, end);
        let result = self.each_gap(start, end, |live, start, end| {
            live.take_over(start, end, like.prot, like.locked)?;
            // Under mlockall(2) with `MCL_FUTURE`, which no hook may have seen, the kernel has filled it.
            if !fresh || live.world.door.is_present(start) == Ok(true) {
                live.adopt(start, end);
                live.drive();
            }
            Ok(())
        });
        (self.world.space).change(start, end - start, |r| {
            (r.prot, r.locked, r.found) = (like.prot, like.locked, false);
            (r.wiped_by_fork, r.not_forked) = (like.wiped_by_fork, like.not_forked);
        });
        result
    }

    /// Manages `start..end`, which is mapped. Children of forks that no hook sees do not get it: rather no memory than
    /// zeroes in place of what is paged out.
    pub(crate) fn take_over(
        &mut self,
        start: usize,
        end: usize,
        prot: i32,
        locked: bool,
    ) -> Result<Region, Errno> {
        // First: what another userfaultfd has stays as it is.
        self.world.door.register(start, end - start, Mode::both())?;
        if let Err(error) = self.world.door.mark_managed(start, end - start) {
            let _ = self.world.door.unregister(start, end - start);
            return Err(error);
        }
        let region = self.world.space.add(start, end, prot, locked);
        for notifier in &mut self.world.notifiers {
            notifier.managed(&region);
        }
        Ok(region)
    }

    /// After mremap(2) moved or resized `old`, where the kernel has told of all that is not new: what was
    /// added is managed like its neighbour, and so is what a move left behind (`MREMAP_DONTUNMAP`).
    pub(crate) fn remapped(
        &mut self,
        [old, old_len]: [usize; 2],
        [new, new_len]: [usize; 2],
        flags: i32,
    ) -> Result<(), Errno> {
        self.lent_remapped([old, old_len], [new, new_len]);
        let kept = old_len.min(new_len);
        if kept == 0 {
            return Ok(());
        }
        let like = self.world.space.at(new + kept - 1);
        // Beyond what was mapped shared at once nothing can be touched, and what was cut off from it does not come back (`cut`).
        let Some(like) = like.filter(|r| r.view == 0) else {
            return Ok(());
        };
        let like = Attributes {
            prot: like.prot,
            locked: like.locked,
            wiped_by_fork: like.wiped_by_fork,
            not_forked: like.not_forked,
        };
        if new_len > kept {
            self.take_like(like, new + kept, new + new_len, false)?;
        }
        if flags & libc::MREMAP_DONTUNMAP != 0 {
            self.take_like(like, old, old + old_len, false)?;
        }
        Ok(())
    }

    /// A fault of a page that counts as resident. Where the page is gone the program threw it away while it was
    /// being mapped, or unheard of (write-protect), and a touch gives zeroes. Where it is protected nobody wants it to be.
    pub(crate) fn recheck_resident(&mut self, region: &Region, fault: &Fault) {
        let address = fault.address & !(PAGE_BYTES - 1);
        let page = region.page(address);
        if self.pager.state(page) != State::Resident {
            return;
        }
        match fault.kind {
            FaultKind::Missing | FaultKind::Minor => {
                let gone = if region.view != 0 {
                    self.world.is_hole(region.view, page)
                } else {
                    self.world.is_gone(address)
                };
                if gone {
                    let event = Event::Discard(PageRange::one(page));
                    self.pager.handle(clock::now(), event);
                    self.drive();
                }
            }
            FaultKind::WriteProtect => self.world.may_be_written(address),
        }
    }

    /// Where nothing can be found at `start` though its faults come here, `tid` would fault for ever.
    fn is_astray(&mut self, tid: Tid, start: usize) {
        if self.world.space.at(start).is_some() {
            self.astray.goes_on(tid);
        } else if self.astray.strays(tid, start, clock::now()) {
            let why = "is managed, and nothing is known of it";
            self.world.failing.fail(Failure::Page(start, why));
        }
    }

    /// Whether a fault at `start`, where nothing is known, was on its way when the page went back to the program.
    fn was_given_back(&self, start: usize) -> bool {
        let world = &self.world;
        world.failing.reach() == Reach::Regions && world.door.is_registered(start) == Some(false)
    }

    /// A fault of `tid` in no region: the range was unmapped meanwhile, or a mapping came to be unseen.
    pub(crate) fn stray(&mut self, tid: Tid, address: usize) {
        let start = address & !(PAGE_BYTES - 1);
        if self.world.change_at(address).is_none() && !self.was_given_back(start) {
            self.find(start);
            self.is_astray(tid, start);
        }
        // The thread faults again, and gets the kernel's answer or the pager's.
        self.world.door.wake(start, PAGE_BYTES);
        process::yield_now();
    }
}
