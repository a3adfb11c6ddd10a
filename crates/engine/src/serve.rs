//! What the program's threads ask of the pager's.
//!
//! They change the address space themselves (`ask`, `changes`). Here is what keeps the pager's picture of protections,
//! locks and pins in step, and advice that the kernel gives no message about.

use core::ops::Range;

use outpage_core::contract::Event;
use outpage_core::units::PAGE_BYTES;
use outpage_sys::process::Tid;
use outpage_sys::raw::Errno;
use outpage_sys::{clock, map};

use crate::advice::{
    MADV_COLD, MADV_COLLAPSE, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE, MADV_PAGEOUT,
    MADV_POPULATE_READ, MADV_POPULATE_WRITE,
};
use crate::call::Call;
use crate::encryption;
use crate::leaving::Topic;
use crate::live::Live;
use crate::regions::Region;
use crate::scope::Reach;
use crate::space::{Piece, end_of, page_up};

/// The share of the limit that may be locked (`mlock`): the rest must be left to page in.
const LOCKED_SHARE: usize = 2;

/// What part of the limit a scope's only pin may be of: what is left has to do for everything else. A choice, of which
/// five eighths are tried by a test: from a half, which pins may have together, to all but a window are plausible.
const SINGLE_PIN: (usize, usize) = (3, 4);

/// The share of the limit that device reads may pin at once. The shim pins 384 KiB a read at most,
/// which fits that of the smallest limit, 8 MiB.
const PINNED_SHARE: usize = 8;

/// Bytes below a stack pointer that a fork may use: libc's fork needs a few hundred, the kernel's
/// signal frame and the red zone less than a page.
const STACK_BELOW: usize = 8 * PAGE_BYTES;
/// Thread-local blocks of a thread that are looked at, at most: a new pager thread copies no more.
const MODULES_MAX: usize = 800;

/// What a call makes of addresses in its range at which nothing is mapped (`ENOMEM`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holes {
    /// It ends there, as mprotect(2).
    Stop,
    /// It goes on behind them, as madvise(2).
    Passed,
}

/// How many of `len` bytes from `start` on have guards, after a call over all of them that failed: mappings before the one that may have none, a
/// locked one for example, which may be a part of what is managed as one. Found by halves: to set guards again changes nothing.
fn guarded_bytes(start: usize, len: usize) -> usize {
    let (mut guarded, mut failing) = (0, len / PAGE_BYTES);
    while failing - guarded > 1 {
        let middle = guarded.midpoint(failing);
        match map::madvise(start, middle * PAGE_BYTES, MADV_GUARD_INSTALL) {
            Ok(()) => guarded = middle,
            Err(_) => failing = middle,
        }
    }
    guarded * PAGE_BYTES
}

fn unit(result: Result<(), Errno>) -> isize {
    value(result.map(|()| 0))
}

fn value(result: Result<usize, Errno>) -> isize {
    result.map_or_else(|error| -(error.number() as isize), |value| value as isize)
}

impl Live {
    /// Carries out `call`; returns what the system call would.
    pub(crate) fn serve(&mut self, call: Call, slot: usize) -> isize {
        match call {
            Call::Take {
                addr,
                len,
                prot,
                fresh,
            } => unit(self.take(addr, addr + len, prot, fresh)),
            Call::TakeShared { .. }
            | Call::Lend { .. }
            | Call::Seat { .. }
            | Call::GiveUp { .. }
            | Call::Alias { .. }
            | Call::Reorder { .. }
            | Call::MayGrow { .. }
            | Call::SharedUpTo { .. } => self.serve_shared(call),
            Call::Remapped {
                old,
                old_len,
                new,
                new_len,
                flags,
            } => unit(self.remapped([old, page_up(old_len)], [new, page_up(new_len)], flags)),
            Call::Replaced { addr, len } => self.replaced(addr, len),
            Call::MappingAt { addr } => self.mapping_at(addr),
            Call::Madvise { addr, len, advice } => self.madvise(addr, len, advice),
            Call::Mprotect { addr, len, prot } => self.mprotect(addr, len, prot),
            Call::Mlock { addr, len } => self.lock(addr, len, true),
            Call::Munlock { addr, len } => self.unlock(addr, len),
            Call::Pin { addr, len } => self.pin(addr, len),
            Call::Unpin { addr, len } => self.unpin(addr, len),
            Call::ForkPrepare { stack, tls } => self.prepare_fork(stack, tls, slot),
            Call::ThreadBegins { tid } => {
                self.thread_begins(Tid(tid));
                // Among threads that fault in turn its first fault, on its stack, may have bound it.
                self.placement.unbind(Tid(tid), false);
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
            Call::Outlive => self.ask_outlive(slot),
            Call::Manage { addr, len } => unit(self.manage(addr, len)),
            Call::TakeBack { addr, len } => self.take_back(addr, len),
            Call::Subscribe { addr, len } => unit(self.subscribe(addr, len, Topic::Out)),
            Call::Listen { addr, len } => unit(self.subscribe(addr, len, Topic::Leaving)),
            Call::Discardable { .. }
            | Call::Wanted { .. }
            | Call::Advise { .. }
            | Call::Traffic { .. }
            | Call::Places { .. }
            | Call::Counts => value(self.tell(call)),
            Call::Fence => 0,
            Call::Close => unit(self.ask_close(slot)),
            Call::Ending => self.ending(),
        }
    }

    /// Calls about memory that is shared.
    fn serve_shared(&mut self, call: Call) -> isize {
        match call {
            Call::TakeShared {
                addr,
                len,
                prot,
                fresh,
            } => unit(self.take_shared((addr, addr + len), prot, fresh)),
            Call::Lend { addr, len, prot } => unit(self.lend(addr, len, prot)),
            Call::Seat { addr, len, id } => unit(self.seat(addr, len, id)),
            Call::GiveUp { id } => value(self.give_up_file(id).map(|told| told as usize)),
            Call::Alias { addr, len } => unit(self.about_to_alias(addr, len)),
            Call::Reorder { addr, .. } if self.is_home_at(addr) => unit(Err(Errno::ENOMEM)),
            Call::Reorder { addr, len } => unit(self.about_to_alias(addr, len)),
            Call::MayGrow { addr } => unit(self.may_grow(addr)),
            Call::SharedUpTo { addr, len } => self.shared_up_to(addr, len),
            other => unreachable!("{other:?} is no call about shared memory"),
        }
    }

    fn ending(&mut self) -> isize {
        self.pager.ending();
        0
    }

    fn replaced(&mut self, addr: usize, len: usize) -> isize {
        self.attend_to_changes();
        self.unmapped(addr, addr + page_up(len));
        0
    }

    fn ask_outlive(&mut self, slot: usize) -> isize {
        self.outlive_asked = self.outlives.is_none().then_some(slot);
        0
    }

    fn ask_close(&mut self, slot: usize) -> Result<(), Errno> {
        if self.world.failing.reach() == Reach::Process {
            return Err(Errno::EINVAL);
        }
        self.close_asked = Some(slot);
        Ok(())
    }

    fn madvise(&mut self, addr: usize, len: usize, advice: i32) -> isize {
        let Some(end) = end_of(addr, len) else {
            // The kernel says why, and has done nothing.
            return unit(map::madvise(addr, len, advice));
        };
        if let Some(result) = self.madvise_shared(addr, len, advice) {
            return unit(result);
        }
        if let Some(result) = self.madvise_lent(addr, len, advice) {
            return unit(result);
        }
        let kernel = |start, end| map::madvise(start, end - start, advice);
        match advice {
            // Of this the kernel does not tell.
            MADV_GUARD_INSTALL if self.world.space.manages_any(addr, len) => {
                unit(self.guard(addr, end))
            }
            MADV_GUARD_REMOVE => unit(self.note(addr..end, Holes::Passed, kernel, |r| {
                r.guarded = false;
            })),
            // Populating managed memory would have the pager wait for itself.
            MADV_POPULATE_READ | MADV_POPULATE_WRITE if self.world.space.manages_any(addr, len) => {
                let populate = |piece: Piece| match piece.region {
                    Some(region) => may_populate(&region, advice),
                    None => kernel(piece.start, piece.end),
                };
                unit(self.in_order(addr..end, Holes::Stop, |_, piece| populate(piece)))
            }
            // Huge pages and the kernel's own reclaim have no place in managed memory, and access hints
            // would split mappings for nothing.
            libc::MADV_NORMAL
            | libc::MADV_SEQUENTIAL
            | libc::MADV_RANDOM
            | libc::MADV_HUGEPAGE
            | MADV_COLLAPSE
            | libc::MADV_MERGEABLE
            | MADV_COLD
            | MADV_PAGEOUT
            | libc::MADV_WILLNEED
                if self.world.space.manages_any(addr, len) =>
            {
                unit(self.in_order(addr..end, Holes::Passed, unmanaged_only(advice, kernel)))
            }
            libc::MADV_WIPEONFORK | libc::MADV_KEEPONFORK => {
                let wiped = advice == libc::MADV_WIPEONFORK;
                let change = |r: &mut Region| r.wiped_by_fork = wiped;
                unit(self.note(addr..end, Holes::Passed, kernel, change))
            }
            // Managed memory is so marked as a rule, but not always (`Live::keep_from_children`).
            libc::MADV_DONTFORK => unit(self.note(addr..end, Holes::Passed, kernel, |r| {
                r.not_forked = true;
            })),
            libc::MADV_DOFORK => unit(self.in_order(addr..end, Holes::Passed, |live, piece| {
                if piece.region.is_some() {
                    let len = piece.end - piece.start;
                    (live.world.space).change(piece.start, len, |r| r.not_forked = false);
                    return Ok(());
                }
                kernel(piece.start, piece.end)
            })),
            _ => unit(map::madvise(addr, len, advice)),
        }
    }

    /// Advice that drops contents. The kernel goes first: where it refuses, the contents stay. Part by
    /// part, for a fault that is served after a part is dropped may map pages of the next.
    fn guard(&mut self, start: usize, end: usize) -> Result<(), Errno> {
        self.in_order(start..end, Holes::Passed, |live, piece| {
            let (start, len) = (piece.start, piece.end - piece.start);
            let Some(region) = piece.region else {
                return map::madvise(start, len, MADV_GUARD_INSTALL);
            };
            live.withholding((start, piece.end), |live| live.quiesce(region.pages()));
            let result = map::madvise(start, len, MADV_GUARD_INSTALL);
            let guarded = if result.is_ok() {
                len
            } else {
                guarded_bytes(start, len)
            };
            for part in live.world.space.pieces(start, start + guarded) {
                let Some(region) = part.region else { continue };
                live.pager
                    .handle(clock::now(), Event::Discard(region.pages()));
                live.drive();
            }
            (live.world.space).change(start, guarded, |r| r.guarded = true);
            result
        })
    }

    /// Has the kernel act on a range, and changes what is known of the regions in it. A call that fails has done a part nevertheless: it is
    /// made again, piece by piece, and what succeeds was done before.
    fn note(
        &mut self,
        range: Range<usize>,
        holes: Holes,
        kernel: impl Fn(usize, usize) -> Result<(), Errno>,
        change: impl Fn(&mut Region),
    ) -> Result<(), Errno> {
        let result = kernel(range.start, range.end);
        if result.is_ok() {
            (self.world.space).change(range.start, range.end - range.start, change);
            return result;
        }
        let _ = self.in_order(range, holes, |live, piece| {
            kernel(piece.start, piece.end)?;
            (live.world.space).change(piece.start, piece.end - piece.start, &change);
            Ok(())
        });
        result
    }

    /// Has `act` do the pieces of a range in the order of addresses, up to the first error, as madvise(2) and mprotect(2) do.
    fn in_order(
        &mut self,
        range: Range<usize>,
        holes: Holes,
        mut act: impl FnMut(&mut Self, Piece) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut result = Ok(());
        for piece in self.world.space.pieces(range.start, range.end) {
            match act(self, piece) {
                Err(Errno::ENOMEM) if holes == Holes::Passed => result = Err(Errno::ENOMEM),
                other => other?,
            }
        }
        result
    }

    /// Has `act` do what is left of `start..end` when the managed parts are taken out, up to the first error.
    pub(crate) fn each_gap(
        &mut self,
        start: usize,
        end: usize,
        mut act: impl FnMut(&mut Self, usize, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        for (start, end) in self.world.space.gaps(start, end) {
            act(self, start, end)?;
        }
        Ok(())
    }

    fn mprotect(&mut self, addr: usize, len: usize, prot: i32) -> isize {
        let kernel = |start, end| map::mprotect(start, end - start, prot);
        let Some(end) = end_of(addr, len).filter(|&end| end > addr) else {
            return unit(map::mprotect(addr, len, prot));
        };
        let prot = prot & (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
        unit(self.note(addr..end, Holes::Stop, kernel, |r| r.prot = prot))
    }

    fn lock(&mut self, addr: usize, len: usize, locked: bool) -> isize {
        let bounds = (self.kept_bytes(), self.lockable());
        unit(self.world.space.lock(addr, len, locked, bounds))
    }

    fn unlock(&mut self, addr: usize, len: usize) -> isize {
        let result = self.lock(addr, len, false);
        if addr == 0 {
            // munlockall(2), which unlocked the key of the swap file as well.
            encryption::keep_locked(self.cipher.as_deref());
        }
        result
    }

    /// Pages that may be locked: half of what transfers leave.
    pub(crate) fn lockable(&self) -> usize {
        self.frames_max.saturating_sub(self.set_aside()) / LOCKED_SHARE
    }

    fn pin(&mut self, addr: usize, len: usize) -> isize {
        let pages_max = match self.world.failing.reach() {
            Reach::Process => self.frames_max / PINNED_SHARE,
            // Whoever pins pages of a scope does it on purpose, for as long as it likes, as `mlock` does.
            Reach::Regions => self.lockable(),
        };
        let is_scope = self.world.failing.reach() == Reach::Regions;
        if is_scope && len / PAGE_BYTES > self.frames_max * SINGLE_PIN.0 / SINGLE_PIN.1 {
            return -(libc::EAGAIN as isize);
        }
        let bounds = (self.kept_bytes(), pages_max);
        if let Err(refused) = self.pin_lent(addr, len, true) {
            return unit(Err(refused));
        }
        let pinned = self.world.space.pin(addr, len, bounds);
        if pinned.is_err() {
            let _ = self.pin_lent(addr, len, false);
        }
        unit(pinned)
    }

    fn unpin(&mut self, addr: usize, len: usize) -> isize {
        let _ = self.pin_lent(addr, len, false);
        self.world.space.unpin(addr, len);
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
        self.world.space.hold(start, end);
        self.fork_keeps.push((start, end));
        for address in (start..end).step_by(PAGE_BYTES) {
            self.bring_in(address);
        }
    }

    /// The fork is over: what was kept for it may leave.
    pub(crate) fn let_fork_keeps_go(&mut self) {
        while let Some((start, end)) = self.fork_keeps.pop() {
            self.world.space.unpin(start, end - start);
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
        let read = self.world.door.read(address, &mut word);
        (read == Ok(word.len())).then(|| usize::from_ne_bytes(word))
    }
}

/// What the kernel says of populating such memory (mm/madvise.c, `madvise_populate`, Linux 6.18).
fn may_populate(region: &Region, advice: i32) -> Result<(), Errno> {
    let needed = match advice {
        MADV_POPULATE_WRITE => libc::PROT_WRITE,
        _ => libc::PROT_READ,
    };
    match region {
        Region { prot, .. } if prot & needed == 0 => Err(Errno::EINVAL),
        Region { guarded: true, .. } => Err(Errno::EFAULT),
        _ => Ok(()),
    }
}

/// For [`Live::in_order`]: `kernel` for what is not managed, nothing for what is, but that locked pages are not to leave (`can_madv_lru_vma` in mm/madvise.c).
fn unmanaged_only(
    advice: i32,
    kernel: impl Fn(usize, usize) -> Result<(), Errno>,
) -> impl FnMut(&mut Live, Piece) -> Result<(), Errno> {
    let leaves = matches!(advice, MADV_COLD | MADV_PAGEOUT);
    move |_, piece| match piece.region {
        Some(region) if region.locked && leaves => Err(Errno::EINVAL),
        Some(_) => Ok(()),
        None => kernel(piece.start, piece.end),
    }
}
