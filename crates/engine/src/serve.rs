//! The memory calls of the program, carried out on the pager's thread.
//!
//! Doing the system call here, between two faults, keeps the pager's picture and the kernel's in
//! step without a lock.

use outpage_core::contract::Event;
use outpage_core::units::{PAGE_BYTES, PageRange};
use outpage_sys::process::Tid;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::Mode;
use outpage_sys::{clock, map};

use crate::call::Call;
use crate::live::Live;
use crate::regions::Region;
use crate::vacate::one_mapping;

/// The share of the limit that may be locked (`mlock`): the rest must be left to page in.
pub(crate) const LOCKED_SHARE: usize = 2;

/// The share of the limit that device reads may pin at once. The shim pins 384 KiB a read at most,
/// which fits that of the smallest limit, 8 MiB.
const PINNED_SHARE: usize = 8;

/// Bytes below a stack pointer that a fork may use: libc's fork needs a few hundred, the kernel's
/// signal frame and the red zone less than a page.
const STACK_BELOW: usize = 8 * PAGE_BYTES;
/// Thread-local blocks of a thread that are looked at, at most: a new pager thread copies no more.
const MODULES_MAX: usize = 800;

pub(crate) const fn page_up(len: usize) -> usize {
    len.next_multiple_of(PAGE_BYTES)
}

fn value(result: Result<usize, Errno>) -> isize {
    result.map_or_else(|error| -(error.number() as isize), |v| v as isize)
}

fn unit(result: Result<(), Errno>) -> isize {
    value(result.map(|()| 0))
}

/// Makes `start..start + len` a mapping that joins no managed one.
///
/// A mapping that mremap moves next to one it can join takes that one's registration away with its
/// own (`mremap_userfaultfd_prep` in fs/userfaultfd.c, seen with 6.18): until it is back, other
/// threads would find zeroes in place of paged-out neighbours. Managed memory has no access hint, so
/// that one keeps mappings apart; to anonymous memory it means nothing else.
fn keep_apart(start: usize, len: usize) -> Result<(), Errno> {
    map::madvise(start, len, libc::MADV_SEQUENTIAL)
}

/// Ends [`keep_apart`].
fn may_join(start: usize, len: usize) -> Result<(), Errno> {
    map::madvise(start, len, libc::MADV_NORMAL)
}

/// Whether the kernel refuses a call to mremap for its arguments alone: it is not to cost what lies at
/// `new_addr` (`check_mremap_params` in mm/mremap.c).
fn refused(old: usize, old_len: usize, new_len: usize, flags: i32, new_addr: usize) -> bool {
    let places = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0;
    let overlap = new_addr < old.saturating_add(old_len) && old < new_addr.saturating_add(new_len);
    let fixed = flags & libc::MREMAP_FIXED != 0;
    places && flags & libc::MREMAP_MAYMOVE == 0
        || fixed && (!new_addr.is_multiple_of(PAGE_BYTES) || overlap)
        || flags & libc::MREMAP_DONTUNMAP != 0 && old_len != new_len
        || !old.is_multiple_of(PAGE_BYTES)
        || new_len == 0
}

impl Live {
    /// Carries out `call`; returns what the system call would.
    pub(crate) fn serve(&mut self, call: Call, slot: usize) -> isize {
        match call {
            Call::Mmap {
                addr,
                len,
                prot,
                flags,
            } => self.mmap(addr, len, prot, flags),
            Call::Munmap { addr, len } => self.munmap(addr, len),
            Call::Mremap {
                old,
                old_len,
                new_len,
                flags,
                new_addr,
            } => self.mremap(old, page_up(old_len), page_up(new_len), flags, new_addr),
            Call::Madvise { addr, len, advice } => self.madvise(addr, len, advice),
            Call::Mprotect { addr, len, prot } => self.mprotect(addr, len, prot),
            Call::Brk { addr } => self.brk(addr),
            Call::Mlock { addr, len } => self.lock(addr, len, true),
            Call::Munlock { addr, len } => self.lock(addr, len, false),
            Call::Replace { addr, len } => unit(self.make_way(addr, addr + page_up(len))),
            Call::Pin { addr, len } => self.pin(addr, len),
            Call::Unpin { addr, len } => self.unpin(addr, len),
            Call::ForkPrepare { stack, tls } => self.prepare_fork(stack, tls, slot),
            Call::ThreadBegins { tid } => {
                self.thread_begins(Tid(tid));
                0
            }
            Call::ThreadEnds { tid } => {
                self.thread_ends(Tid(tid));
                0
            }
            Call::KeepWord { addr } => {
                self.keep_word(addr);
                0
            }
            Call::Unbind { tid, lasting } => {
                self.placement.unbind(Tid(tid), lasting);
                0
            }
            Call::Bind { tid } => {
                self.placement.bind(Tid(tid));
                0
            }
            Call::Ending => {
                self.pager.ending();
                0
            }
        }
    }

    /// The pages of `start..end` are not wanted any more, and the range is not managed any more.
    pub(crate) fn let_go(&mut self, start: usize, end: usize) {
        self.drop_contents(start, end, Event::Unmap);
        self.let_kept_go_in(start, end);
        let mut parts = std::mem::take(&mut self.scratch);
        self.world.regions.remove(start, end, &mut parts);
        self.scratch = parts;
    }

    pub(crate) fn drop_contents(
        &mut self,
        start: usize,
        end: usize,
        event: fn(PageRange) -> Event<'static>,
    ) {
        let mut parts = std::mem::take(&mut self.scratch);
        self.world.regions.within(start, end, &mut parts);
        for part in &parts {
            self.quiesce(part.pages());
            self.pager.handle(clock::now(), event(part.pages()));
            self.drive();
        }
        self.scratch = parts;
    }

    /// Manages `start..end`, which is mapped and has no access hint (`madvise`).
    pub(crate) fn take_over(
        &mut self,
        start: usize,
        end: usize,
        prot: i32,
        locked: bool,
    ) -> Result<Region, Errno> {
        map::no_huge_pages(start, end - start)?;
        self.world.uffd.register(start, end - start, Mode::both())?;
        Ok(self.world.regions.add(start, end, prot, locked))
    }

    fn mmap(&mut self, addr: usize, len: usize, prot: i32, flags: i32) -> isize {
        let len = page_up(len);
        let replaces = flags & libc::MAP_FIXED != 0 && flags & libc::MAP_FIXED_NOREPLACE == 0;
        // Otherwise the kernel refuses, and what is there stays.
        if replaces
            && addr.is_multiple_of(PAGE_BYTES)
            && len > 0
            && let Err(error) = self.make_way(addr, addr.saturating_add(len))
        {
            return -(error.number() as isize);
        }
        // Populating here would bring in pages that nobody counts.
        let flags = flags & !(libc::MAP_POPULATE | libc::MAP_LOCKED);
        let start = match map::mmap(addr, len, prot, flags, -1, 0) {
            Ok(start) => start,
            Err(error) => return -(error.number() as isize),
        };
        if let Err(error) = self.take_over(start, start + len, prot, false) {
            let _ = map::munmap(start, len);
            return -(error.number() as isize);
        }
        start as isize
    }

    fn munmap(&mut self, addr: usize, len: usize) -> isize {
        if !addr.is_multiple_of(PAGE_BYTES) || len == 0 {
            return unit(map::munmap(addr, len));
        }
        let end = addr.saturating_add(page_up(len));
        unit(self.vacate(addr, end).and_then(|()| map::munmap(addr, len)))
    }

    fn mremap(
        &mut self,
        old: usize,
        old_len: usize,
        new_len: usize,
        flags: i32,
        new_addr: usize,
    ) -> isize {
        if refused(old, old_len, new_len, flags, new_addr) {
            return value(map::mremap(old, old_len, new_len, flags, new_addr));
        }
        let managed = self.world.regions.at(old).is_some();
        if !managed || old_len == 0 {
            let room = self.room_for_move(flags, new_addr, new_len);
            return value(room.and_then(|()| map::mremap(old, old_len, new_len, flags, new_addr)));
        }
        let mut parts = std::mem::take(&mut self.scratch);
        let end = old.saturating_add(old_len);
        self.world.regions.within(old, end, &mut parts);
        let result = if one_mapping(&parts, end) {
            let mut room = self.room_for_move(flags, new_addr, new_len);
            if new_len < old_len {
                room = room.and_then(|()| self.vacate(old + new_len, end));
            }
            let kept = old + old_len.min(new_len);
            self.world.regions.within(old, kept, &mut parts);
            room.and_then(|()| self.remap(&parts, old_len, new_len, flags, new_addr))
        } else {
            // The kernel too refuses to move several mappings at once.
            Err(Errno::EFAULT)
        };
        self.scratch = parts;
        value(result)
    }

    /// Lets go what mremap moves over.
    fn room_for_move(&mut self, flags: i32, at: usize, len: usize) -> Result<(), Errno> {
        if flags & libc::MREMAP_FIXED == 0 {
            return Ok(());
        }
        self.make_way(at, at.saturating_add(len))
    }

    /// Has the kernel move, grow or shrink a mapping, of which `parts` is what is kept.
    fn remap(
        &mut self,
        parts: &[Region],
        old_len: usize,
        new_len: usize,
        flags: i32,
        new_addr: usize,
    ) -> Result<usize, Errno> {
        while parts.iter().any(|part| self.pager.busy(part.pages())) {
            parts.iter().for_each(|part| self.quiesce(part.pages()));
        }
        let (old, kept) = (parts[0].start, old_len.min(new_len));
        self.let_kept_go_in(old, old + kept);
        let may_move = flags & libc::MREMAP_MAYMOVE != 0;
        if may_move {
            keep_apart(old, kept)?;
        }
        let old_stays = flags & libc::MREMAP_DONTUNMAP != 0;
        let moved = match map::mremap(old, old_len, new_len, flags, new_addr) {
            Ok(moved) => moved,
            Err(error) => {
                let _ = may_join(old, kept);
                return Err(error);
            }
        };
        self.moved(parts, moved, new_len, old_stays);
        if may_move {
            let _ = may_join(moved, new_len);
            let _ = old_stays.then(|| may_join(old, kept));
        }
        Ok(moved)
    }

    /// The kernel moved `parts`, which are one mapping, to `new`, where `new_len` bytes are mapped now.
    fn moved(&mut self, parts: &[Region], new: usize, new_len: usize, old_stays: bool) {
        let (first, last) = (parts[0], parts[parts.len() - 1]);
        let (old, kept) = (first.start, last.end - first.start);
        let regions = &mut self.world.regions;
        if new != old {
            regions.remove(old, old + kept, &mut self.scratch);
            for part in parts {
                regions.insert(Region {
                    start: new + (part.start - old),
                    end: new + (part.end - old),
                    ..*part
                });
            }
            if old_stays {
                regions.add(old, old + kept, last.prot, last.locked);
            }
        }
        if new_len > kept {
            regions.add(new + kept, new + new_len, last.prot, last.locked);
        }
        // The kernel drops the registration of what it moved.
        let registered = self.world.uffd.register(new, new_len, Mode::both());
        if let Err(error) = registered {
            crate::start::fatal(&[
                "outpage: moved memory cannot be managed any more: ",
                error.text(),
            ]);
        }
        // Nor does it keep the protection of pages that are staged in place.
        self.protect_staged(|page| parts.iter().any(|part| part.pages().contains(page)));
    }

    fn madvise(&mut self, addr: usize, len: usize, advice: i32) -> isize {
        match advice {
            libc::MADV_DONTNEED
            | libc::MADV_FREE
            | libc::MADV_REMOVE
            | MADV_DONTNEED_LOCKED
            | MADV_GUARD_INSTALL
                if addr.is_multiple_of(PAGE_BYTES) && self.manages_any(addr, len) =>
            {
                unit(self.forget(addr, len, advice))
            }
            // Huge pages and the kernel's own reclaim have no place in managed memory, populating it
            // would have the pager wait for itself, and access hints are for `keep_apart`.
            libc::MADV_NORMAL
            | libc::MADV_SEQUENTIAL
            | libc::MADV_RANDOM
            | libc::MADV_HUGEPAGE
            | MADV_COLLAPSE
            | libc::MADV_MERGEABLE
            | MADV_COLD
            | MADV_PAGEOUT
            | libc::MADV_WILLNEED
            | MADV_POPULATE_READ
            | MADV_POPULATE_WRITE
                if self.manages_any(addr, len) =>
            {
                0
            }
            libc::MADV_WIPEONFORK | libc::MADV_KEEPONFORK => {
                let result = map::madvise(addr, len, advice);
                if result.is_ok() {
                    let wiped = advice == libc::MADV_WIPEONFORK;
                    self.change(addr, len, |r| r.wiped_by_fork = wiped);
                }
                unit(result)
            }
            _ => unit(map::madvise(addr, len, advice)),
        }
    }

    /// Advice that drops contents. The kernel goes first: where it refuses, the contents stay. Part by
    /// part, for a fault that is served after a part is dropped may map pages of the next.
    fn forget(&mut self, addr: usize, len: usize, advice: i32) -> Result<(), Errno> {
        let end = addr.saturating_add(page_up(len));
        let mut parts = std::mem::take(&mut self.scratch);
        self.world.regions.within(addr, end, &mut parts);
        let locked = parts.iter().any(|part| part.locked);
        let result = if locked
            && matches!(
                advice,
                libc::MADV_DONTNEED | libc::MADV_FREE | MADV_GUARD_INSTALL
            ) {
            Err(Errno::EINVAL)
        } else {
            self.forget_parts(addr, end, &parts, advice)
        };
        self.scratch = parts;
        result
    }

    fn forget_parts(
        &mut self,
        addr: usize,
        end: usize,
        parts: &[Region],
        advice: i32,
    ) -> Result<(), Errno> {
        let (mut at, mut result) = (addr, Ok(()));
        for part in parts {
            if at < part.start {
                result = result.and(map::madvise(at, part.start - at, advice));
            }
            self.quiesce(part.pages());
            let at_once = if advice == libc::MADV_FREE {
                libc::MADV_DONTNEED
            } else {
                advice
            };
            let forgotten = map::madvise(part.start, part.end - part.start, at_once);
            if forgotten.is_ok() {
                let event = Event::Discard(part.pages());
                self.pager.handle(clock::now(), event);
                self.drive();
            }
            (at, result) = (part.end, result.and(forgotten));
        }
        if at < end {
            result = result.and(map::madvise(at, end - at, advice));
        }
        result
    }

    pub(crate) fn manages_any(&mut self, addr: usize, len: usize) -> bool {
        let mut parts = std::mem::take(&mut self.scratch);
        self.world
            .regions
            .within(addr, addr.saturating_add(page_up(len)), &mut parts);
        let any = !parts.is_empty();
        self.scratch = parts;
        any
    }

    /// Notes a change of all managed parts of a range.
    fn change(&mut self, addr: usize, len: usize, change: impl Fn(&mut Region)) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.world
            .regions
            .update(addr, addr + page_up(len), &mut scratch, change);
        self.scratch = scratch;
    }

    fn mprotect(&mut self, addr: usize, len: usize, prot: i32) -> isize {
        let result = map::mprotect(addr, len, prot);
        if result.is_ok() && len > 0 {
            let prot = prot & (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
            self.change(addr, len, |r| r.prot = prot);
        }
        unit(result)
    }

    fn brk(&mut self, addr: usize) -> isize {
        let before = map::brk(0);
        if addr == 0 {
            return before as isize;
        }
        let (from, to) = (page_up(before), page_up(addr));
        if to < from {
            self.let_go(to, from);
        }
        let after = map::brk(addr);
        let grown = page_up(after);
        if grown > from {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            if self.take_over(from, grown, prot, false).is_err() {
                return map::brk(before) as isize;
            }
        }
        after as isize
    }

    fn lock(&mut self, addr: usize, len: usize, locked: bool) -> isize {
        let start = addr & !(PAGE_BYTES - 1);
        let end = page_up(addr.saturating_add(len));
        let mut scratch = std::mem::take(&mut self.scratch);
        self.world.regions.within(start, end, &mut scratch);
        let more: usize = scratch
            .iter()
            .filter(|r| !r.locked)
            .map(|r| r.end - r.start)
            .sum();
        let so_far = self.locked_bytes() + self.kept_bytes();
        let fits = (so_far + more) / PAGE_BYTES <= self.frames_max / LOCKED_SHARE;
        if !locked || fits {
            self.world
                .regions
                .update(start, end, &mut scratch, |r| r.locked = locked);
        }
        self.scratch = scratch;
        if locked && !fits {
            -(Errno::ENOMEM.number() as isize)
        } else {
            0
        }
    }

    /// Bytes locked by `mlock`.
    pub(crate) fn locked_bytes(&self) -> usize {
        let locked = self.world.regions.all().iter().filter(|r| r.locked);
        locked.map(|r| r.end - r.start).sum()
    }

    fn pin(&mut self, addr: usize, len: usize) -> isize {
        let (start, end) = (addr & !(PAGE_BYTES - 1), page_up(addr.saturating_add(len)));
        let pinned: usize = self
            .world
            .regions
            .all()
            .iter()
            .filter(|r| r.pins > 0)
            .map(|r| r.end - r.start)
            .sum::<usize>()
            .saturating_sub(self.kept_bytes());
        if pinned > 0 && (pinned + end - start) / PAGE_BYTES > self.frames_max / PINNED_SHARE {
            return -(Errno::EAGAIN.number() as isize);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        self.world
            .regions
            .update(start, end, &mut scratch, |r| r.pins += 1);
        self.scratch = scratch;
        0
    }

    pub(crate) fn unpin(&mut self, addr: usize, len: usize) -> isize {
        let (start, end) = (addr & !(PAGE_BYTES - 1), page_up(addr.saturating_add(len)));
        let mut scratch = std::mem::take(&mut self.scratch);
        // Whatever was mapped there meanwhile has no pin.
        self.world.regions.update(start, end, &mut scratch, |r| {
            r.pins = r.pins.saturating_sub(1)
        });
        self.scratch = scratch;
        0
    }

    /// Brings everything to rest, with the pages mapped that the forking thread needs. They stay: where
    /// few pages can be victims, the last of them would otherwise push out the first, and the kernel
    /// reads the thread's block (its rseq area) on the way back to it.
    fn prepare_fork(&mut self, stack: usize, tls: usize, slot: usize) -> isize {
        self.keep_for_fork(stack.saturating_sub(STACK_BELOW), stack + 3 * PAGE_BYTES);
        self.keep_for_fork(tls.saturating_sub(PAGE_BYTES), tls + 2 * PAGE_BYTES);
        self.keep_module_vector(tls);
        self.quiesce_all();
        // The child may use the CPUs that its parent may.
        self.placement.let_go();
        self.fork_asked = Some(slot);
        0
    }

    /// Brings `start..end` in, rounded to pages, and keeps it until the fork is over.
    fn keep_for_fork(&mut self, start: usize, end: usize) {
        let (start, end) = (start & !(PAGE_BYTES - 1), page_up(end));
        let mut scratch = std::mem::take(&mut self.scratch);
        (self.world.regions).update(start, end, &mut scratch, |r| r.pins += 1);
        self.scratch = scratch;
        self.fork_keeps.push((start, end));
        for address in (start..end).step_by(PAGE_BYTES) {
            self.bring_in(address);
        }
    }

    /// The fork is over: what was kept for it may leave.
    pub(crate) fn let_fork_keeps_go(&mut self) {
        while let Some((start, end)) = self.fork_keeps.pop() {
            self.unpin(start, end - start);
        }
    }

    /// The forking thread's vector of thread-local blocks lies on the program's heap, and the child
    /// copies it to start its pager's thread (`tcbhead_t` and `dtv_t` in glibc's
    /// sysdeps/x86_64/nptl/tls.h; the entry before the first holds the number of entries).
    fn keep_module_vector(&mut self, tls: usize) {
        const ENTRY_BYTES: usize = 16;
        let Some(vector) = self.present_word(tls + 8).filter(|&v| v > ENTRY_BYTES) else {
            return;
        };
        let start = vector - ENTRY_BYTES;
        self.bring_in(start);
        let entries = self.present_word(start).unwrap_or(0).min(MODULES_MAX);
        self.keep_for_fork(start, vector + (entries + 1) * ENTRY_BYTES);
    }

    /// The word at `address`, whose page is in the program.
    pub(crate) fn present_word(&self, address: usize) -> Option<usize> {
        let mut word = [0; size_of::<usize>()];
        let read = self.world.memory.read(address, &mut word);
        (read == Ok(word.len())).then(|| usize::from_ne_bytes(word))
    }
}

/// From include/uapi/asm-generic/mman-common.h; libc does not name them all.
const MADV_COLD: i32 = 20;
const MADV_PAGEOUT: i32 = 21;
const MADV_POPULATE_READ: i32 = 22;
const MADV_POPULATE_WRITE: i32 = 23;
const MADV_DONTNEED_LOCKED: i32 = 24;
const MADV_COLLAPSE: i32 = 25;
const MADV_GUARD_INSTALL: i32 = 102;
