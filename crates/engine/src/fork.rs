//! Fork: the pager comes to rest, the process is copied, the child gets a pager of its own.
//!
//! The kernel drops a child's userfaultfd registrations, so the child's pager registers everything
//! again before the child's only thread goes on. It begins with a copy of the parent's state: the
//! pages mapped in both, the frames staged in both (copy-on-write), the slots shared in the swap
//! file. The parent keeps those slots until the child and all that was forked from it are gone; they
//! never write to them.

use std::mem::{self, ManuallyDrop};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use outpage_core::contract::Event;
use outpage_store::Descriptors;
use outpage_sys::fd::Fd;
use outpage_sys::futex::{self, Scope};
use outpage_sys::own;
use outpage_sys::process::{self, Tid, Visible};
use outpage_sys::raw::Errno;
use outpage_sys::uffd::Mode;
use outpage_sys::{clock, instructions, map, maps, proc};

use crate::adopt::LIST_BYTES;
use crate::call::Call;
use crate::encryption;
use crate::engine::{Begin, Engine, Shared};
use crate::live::Live;
use crate::placement::Placement;
use crate::regions::Region;
use crate::session::{Session, SessionError};
use crate::start::{self, StartError, fatal, keep_only, open_doors, os, owned, register_own};
use crate::ticket::{Arrived, DESCRIPTORS, Needed, Ticket};

impl Engine {
    /// On the forking thread, with signals blocked: brings the pager to rest. Until
    /// [`Self::fork_parent`] or [`Self::fork_child`] nobody serves faults; the pages around `stack`
    /// and `tls` stay mapped.
    ///
    /// # Errors
    /// A negative error number of fork(2): the memory cannot be handed to a child now. Nothing rests then.
    pub fn fork_prepare(&self, stack: usize, tls: usize) -> Result<Ticket, isize> {
        match self.call(Call::ForkPrepare { stack, tls }) {
            0 => Ok(self.ticket()),
            refused => Err(refused),
        }
    }

    fn ticket(&self) -> Ticket {
        let parked = self.shared.parked.lock();
        let Ok(Some(live)) = parked.as_deref() else {
            fatal(&["outpage: the pager did not come to rest for a fork; the program ends"]);
        };
        let pager = Tid(self.shared.tid.load(Ordering::SeqCst));
        Ticket::new(pager, live.fork_needs, live.fork_member)
    }

    /// In the parent, after the fork returned `pid` (or a negative error): the pager goes on.
    pub fn fork_parent(&self, ticket: Ticket, pid: i32) {
        ticket.give_back();
        self.shared.forked_pid.store(pid, Ordering::SeqCst);
        self.shared.gate.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.shared.gate, 1, Scope::Process);
    }

    /// In the child, before anything else touches memory: gives it a pager.
    pub fn fork_child(&self, ticket: Ticket) {
        own::after_fork_in_child();
        self.shared.turns.forget();
        process::outlives(None);
        let live = self.shared.parked.lock().ok().and_then(|mut p| p.take());
        let Some(mut live) = live else {
            fatal(&["outpage: the pager was not at rest when the process forked; the child ends"]);
        };
        let ticket = ticket.arrive();
        // The pager's thread owns the copies in its table; those in this one are to go.
        let copies = ticket.numbers();
        let holes = keep_out(&live);
        live.left_out.clone_from(&holes);
        let launched = self
            .shared
            .launch(Begin::Child(ManuallyDrop::new(live), ticket));
        copies
            .into_iter()
            .flatten()
            .for_each(|n| drop(Fd::adopt(n)));
        for (start, len) in holes {
            let _ = map::munmap(start, len);
        }
        if let Err(error) = launched {
            let text = error.to_string();
            fatal(&[
                "outpage: a forked child cannot get a pager: ",
                &text,
                "; the child ends",
            ]);
        }
    }
}

/// Keeps what the child does not have of its parent's memory (`MADV_DONTFORK`), nor the parent of its own's, free while the pager
/// takes its places: a touch is to be an error, as without Outpage. Returns what to unmap then.
fn keep_out(live: &Live) -> Vec<(usize, usize)> {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let left_out = live.world.space.all().filter(|r| r.not_forked);
    let left_out = left_out.map(|r| (r.start, r.end - r.start));
    let lent = live.lent.withheld();
    let mapped = live.left_out.iter().copied().chain(left_out).chain(lent);
    // What lies there already is the program's.
    let kept =
        mapped.filter(|&(start, len)| map::mmap(start, len, libc::PROT_NONE, flags, -1, 0).is_ok());
    kept.collect()
}

/// For so long, in nanoseconds, memory that cannot be given to a child may be memory that is gone without a word (shmat(2) with
/// `SHM_REMAP`): looks at the mappings find that. A choice, room for many looks.
const GONE: u64 = 1_000_000_000;

/// How often children of forks that no hook sees are kept from the managed memory again after a fork while other threads change mappings, before
/// that is left to the next look at them: until then such a child would read zeroes where pages are out. A choice.
const KEEPS: u32 = 64;

/// Ends what is under way, and lets the child have the managed memory.
fn come_to_rest(live: &mut Live) -> Result<(), Errno> {
    // The child maps it too, and neither hears of what the other does.
    live.give_shared_back()?;
    let mut calm_since = clock::now();
    // What a mapping grew by unseen (a `syscall` instruction) is as little forked as the rest of it, until it is known.
    live.check_now();
    // Faults read together with the call for the fork, and the event itself, may have begun more I/O;
    // a slot that is written later than the event would not be kept for the child.
    loop {
        live.attend_to_changes();
        live.quiesce_all();
        live.pager.handle(clock::now(), Event::Forking);
        live.drive();
        if !live.is_at_rest() {
            continue;
        }
        match live.give_to_children(true) {
            // Memory that goes: the kernel tells of it when it is gone.
            Err(_) if live.world.is_changing() => {
                calm_since = clock::now();
                process::yield_now();
            }
            Err(_) if clock::now().0 - calm_since.0 < GONE => live.check_now(),
            result => return result.and_then(|()| live.lend_to_child()),
        }
    }
}

/// On the pager's thread: rests until the fork is over.
pub(crate) fn park(shared: &Arc<Shared>, mut live: Box<Live>, slot: usize) -> Box<Live> {
    if let Err(error) = come_to_rest(&mut live) {
        let _ = live.give_to_children(false);
        live.keep_lent_from_children();
        live.let_fork_keeps_go();
        live.calls.answer(slot, -(error.number() as isize));
        live.resolve_bell(slot);
        return live;
    }
    // What the parent's log holds now is the beginning of the child's.
    live.pager.flush(true);
    live.fork_member = live.session.begin_fork().ok();
    live.fork_needs = Needed::of(&live);
    let forks_so_far = shared.gate.load(Ordering::SeqCst);
    live.calls.answer(slot, 0);
    if let Ok(mut parked) = shared.parked.lock() {
        // From the moment the bell is resolved until the gate opens, nothing may change here:
        // the process may be copied at any instant.
        parked.insert(live).resolve_bell(slot);
    }
    while shared.gate.load(Ordering::SeqCst) == forks_so_far {
        futex::wait(&shared.gate, forks_so_far, None, Scope::Process);
    }
    let mut live = shared
        .parked
        .lock()
        .ok()
        .and_then(|mut p| p.take())
        .expect("put there above");
    for _ in 0..KEEPS {
        live.attend_to_changes();
        if live.keep_from_children() {
            break;
        }
        process::yield_now();
    }
    live.keep_lent_from_children();
    live.let_fork_keeps_go();
    let pid = shared.forked_pid.load(Ordering::SeqCst);
    if let Some(child) = live.fork_member.take() {
        if pid > 0 {
            live.session.fork_done(child, pid as u32);
        } else {
            live.session.cancel_fork(child);
        }
    }
    live.keeps_slots = true;
    live
}

/// On the child's new pager thread: makes the parent's state this process's own.
pub(crate) fn revive(
    shared: &Arc<Shared>,
    mut live: Box<Live>,
    ticket: Arrived,
) -> Result<Box<Live>, StartError> {
    instructions::have_all_in_child();
    let begun = process::with_descriptors(DESCRIPTORS, || {
        let _visible = Visible::now();
        begin_child(shared, &mut live, ticket)
    });
    if let Err(error) = begun {
        // Of its descriptors some are numbers of the parent's table: nothing may be closed.
        mem::forget(live);
        return Err(error);
    }
    live.pager.handle(clock::now(), Event::Forked);
    live.take_share();
    live.drive();
    // However soon the child ends, its log says where it begins.
    live.pager.flush(true);
    // The thread that forked is the child's only one.
    live.thread_begins(Tid(process::pid()));
    Ok(live)
}

fn begin_child(
    shared: &Arc<Shared>,
    live: &mut Box<Live>,
    ticket: Arrived,
) -> Result<(), StartError> {
    let [session, swap, device, proc, home] = ticket.numbers();
    keep_only(&[shared.paths.uffd_device, session, swap, device, proc, home])?;
    proc::keep_as(ticket.proc);
    // The old descriptors are numbers of the parent's table: forgotten, not closed.
    mem::forget(mem::replace(&mut live.device, ticket.device));
    let device = live.device.as_ref().map(Fd::number);
    let ((door, bells), mechanism) = open_doors(shared, device)?;
    // The releaser's thread is not here either.
    mem::forget(mem::replace(&mut live.world.door, door));
    mem::forget(mem::replace(&mut live.world.bells, bells));
    debug_assert!(mechanism == live.world.mechanism);
    live.check.forget();
    live.open_list().map_err(os("open /proc/self/maps"))?;
    live.beside.forget(true);
    let session_fd = ticket
        .session
        .ok_or(StartError::Os("reach the session", ticket.missing))?;
    live.beside
        .watch(Session::from_fd(session_fd.number()).ok());
    let mut session = Session::from_fd(session_fd.number()).map_err(StartError::Session)?;
    // Only that entry holds the parent's extents, which this process reads from.
    let reserved = ticket.child.ok_or(SessionError::Full);
    let joined = reserved.and_then(|child| session.join_forked(child));
    joined.map_err(StartError::Session)?;
    mem::replace(&mut live.session, session).abandon();
    let swap = ticket
        .swap
        .ok_or(StartError::Os("reach the swap file", ticket.missing))?;
    let swap = Descriptors::Replaced(owned(swap.release()));
    let locked = encryption::lock_again(shared.config.encrypt, live.cipher.as_deref());
    locked.map_err(StartError::Encryption)?;
    live.store
        .reopen_after_fork(swap)
        .map_err(StartError::Store)?;
    live.apart.none_in_child();
    live.pool = live.apart.kept();
    if live.pager.traces() {
        live.pager.branch(start::child_trace(&shared.config));
    }
    // The parent's knows its own threads, and where this one's pager may run.
    live.placement = Placement::new();
    live.leased.clear();
    live.unneeded.clear();
    live.keeps_slots = false;
    live.calls.reset();
    live.forget_parent();
    // Frames outside the program are shared with the parent until either writes to them, which is soon:
    // they are what pages are read into.
    live.world.cow_duplicates = live.world.frames.populated() as u64;
    if !live.left_out.is_empty() {
        // While these places are kept free: later the stacks of both would come to lie there.
        (live.world.door.start_releasing()).map_err(os("start a thread"))?;
        live.beside.start().map_err(os("start a thread"))?;
    }
    register_again(live)?;
    live.lent_in_child(ticket.home)
}

/// The child's mappings under the child's descriptor.
fn register_again(live: &mut Live) -> Result<(), StartError> {
    register_own(live)?;
    live.world.space.let_all_leave();
    let regions: Vec<_> = live.world.space.all().copied().collect();
    // All of them first: what follows may map pages anywhere.
    let mut absent = Vec::new();
    for region in regions.iter().filter(|region| !region.not_forked) {
        live.register_in_child(region, &mut absent)?;
    }
    for (start, end) in absent {
        live.unmapped(start, end);
    }
    for region in &regions {
        if region.not_forked {
            live.unmapped(region.start, region.end);
        } else if region.wiped_by_fork {
            live.drop_contents(region.start, region.end, Event::Discard);
        }
    }
    live.keep_from_children();
    Ok(())
}

impl Live {
    /// Lets children have the managed memory, or not, but for what the program keeps from them.
    fn give_to_children(&self, give: bool) -> Result<(), Errno> {
        let advice = if give {
            libc::MADV_DOFORK
        } else {
            libc::MADV_DONTFORK
        };
        let mut result = Ok(());
        for region in self.world.space.all().filter(|r| !r.not_forked) {
            let given = map::madvise(region.start, region.end - region.start, advice);
            result = result.and(given);
        }
        result
    }

    /// What no hook sees forked gets no managed memory (`changes`). Where a thread has mapped something else over it and was not
    /// heard yet, that is not to be kept from anybody: then all of it waits for the next look at the mappings. False where a change that may be over
    /// soon was in the way.
    pub(crate) fn keep_from_children(&mut self) -> bool {
        self.check.unmarked = true;
        if self.world.is_changing() {
            return false;
        }
        // What a thread unmaps at this moment it tells of soon.
        let marked = self.give_to_children(false);
        if self.world.is_changing() {
            // What was there before is still known here, and so is what was marked in its place.
            let _ = self.give_to_children(true);
            return false;
        }
        self.check.unmarked = marked.is_err();
        true
    }

    /// Registers `region`, or of it what the child has: an unmapping by another thread of the parent's, unseen by the
    /// hooks, may have come between. What the child does not have is added to `absent`.
    fn register_in_child(
        &mut self,
        region: &Region,
        absent: &mut Vec<(usize, usize)>,
    ) -> Result<(), StartError> {
        let (start, end) = (region.start, region.end);
        let whole = self.world.door.register(start, end - start, Mode::both());
        if whole.is_err() {
            self.register_what_is_there(start, end, absent)?;
        }
        Ok(())
    }

    fn register_what_is_there(
        &mut self,
        start: usize,
        end: usize,
        absent: &mut Vec<(usize, usize)>,
    ) -> Result<(), StartError> {
        let mut there = Vec::new();
        let mut buffer = vec![0; LIST_BYTES];
        let listed = maps::for_each(&mut buffer, |entry| {
            if entry.start < end && start < entry.end && entry.is_private_anonymous() {
                there.push((entry.start.max(start), entry.end.min(end)));
            }
            ControlFlow::Continue(())
        });
        listed.map_err(os("read /proc/self/maps"))?;
        let mut at = start;
        for (from, to) in there {
            absent.push((at, from));
            (self.world.door)
                .register(from, to - from, Mode::both())
                .map_err(os("register memory in a forked child"))?;
            at = to;
        }
        absent.push((at, end));
        Ok(())
    }
}
