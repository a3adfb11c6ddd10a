//! Who belongs to the session: joining, forking, burying the dead.
//!
//! Everything here happens under the roster lock, so it may take its time over steps; a process
//! that dies half-way leaves an entry that the next [`Session::reap`] finishes.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use outpage_core::units::Nanos;
use outpage_sys::launch::wait_lock_byte;
use outpage_sys::shared::{is_locked, lock_byte, unlock_byte};
use outpage_sys::{clock, process};

use super::layout::Member;
use super::liveness::{is_alive, pid_namespace};
use super::{
    LAUNCHER_BYTE, MemberId, ROSTER_BYTE, Reserved, Session, SessionError, State, os, word,
};

/// A forked child has joined by then, unless it was stopped: it does so before it returns from `fork`. A
/// choice, long beyond what a busy machine needs; a child that comes later ends with a message.
const JOINS_WITHIN: Nanos = Nanos(60_000_000_000);

/// The roster lock; dropping it unlocks.
struct Roster<'a>(&'a Session);

impl Drop for Roster<'_> {
    fn drop(&mut self) {
        // An error is impossible short of a closed descriptor, and then the lock is gone anyway.
        let _ = unlock_byte(self.0.descriptor(), ROSTER_BYTE);
    }
}

impl Session {
    /// Makes the calling process a member. Its memory counts from now on.
    ///
    /// The calling thread's description of the memfd is what keeps the member alive: it must be the
    /// pager thread, with a descriptor table of its own.
    ///
    /// # Errors
    /// [`SessionError::Full`]; [`SessionError::Os`].
    ///
    /// # Panics
    /// When the view has joined before.
    pub fn join(&mut self) -> Result<MemberId, SessionError> {
        assert!(self.me.is_none(), "joined twice");
        let roster = self.roster()?;
        self.reap_locked();
        let id = self.free_entry()?;
        self.claim(id, State::Free)?;
        self.reset(id, process::pid());
        self.set_state(id, State::Live);
        drop(roster);
        self.me = Some(id);
        Ok(id)
    }

    /// Makes a forked child the member that its parent reserved with [`Session::begin_fork`].
    ///
    /// # Errors
    /// [`SessionError::Expired`] when the entry is not reserved (any more); [`SessionError::Os`].
    pub fn join_forked(&mut self, reserved: Reserved) -> Result<(), SessionError> {
        assert!(self.me.is_none(), "joined twice");
        let (id, member) = (reserved.id, self.member(reserved.id));
        let roster = self.roster()?;
        if !self.holds(reserved) {
            return Err(SessionError::Expired);
        }
        self.claim(id, State::Forking)?;
        member.pid.store(process::pid(), Relaxed);
        member.pid_namespace.store(pid_namespace(), Relaxed);
        self.set_state(id, State::Live);
        drop(roster);
        self.me = Some(id);
        Ok(())
    }

    /// Ends the membership: frames and extents go back, counters stay in the totals.
    ///
    /// # Errors
    /// [`SessionError::Os`].
    pub fn leave(&mut self) -> Result<(), SessionError> {
        let Some(id) = self.me else { return Ok(()) };
        let roster = self.roster()?;
        self.bury(id);
        unlock_byte(self.descriptor(), id.index() as u64).map_err(os("unlock the session"))?;
        drop(roster);
        self.me = None;
        Ok(())
    }

    /// Reserves an entry for a child about to be forked; it holds all extents of this process.
    ///
    /// # Errors
    /// [`SessionError::Full`]; [`SessionError::Os`].
    ///
    /// # Panics
    /// When the process has not joined.
    pub fn begin_fork(&self) -> Result<Reserved, SessionError> {
        let parent = self.joined();
        let _roster = self.roster()?;
        self.reap_locked();
        let id = self.free_entry()?;
        self.reset(id, 0);
        let member = self.member(id);
        let by = self.member(parent).generation.load(Relaxed);
        member.forked_by.store(by, Relaxed);
        member.forking_since.store(clock::now().0, Relaxed);
        self.layout().extents.share(parent, id);
        self.set_state(id, State::Forking);
        let generation = member.generation.load(Relaxed);
        Ok(Reserved { id, generation })
    }

    /// The fork returned: the child that will [`Session::join_forked`] as `child` is `pid`.
    pub fn fork_done(&self, child: Reserved, pid: u32) {
        // The child may have joined already and then knows its own pid.
        if self.holds(child) {
            let known = &self.member(child.id).pid;
            let _ = known.compare_exchange(0, pid, SeqCst, SeqCst);
        }
    }

    /// The fork failed: the entry is free again.
    pub fn cancel_fork(&self, child: Reserved) {
        if let Ok(_roster) = self.roster()
            && self.holds(child)
            && self.state(child.id) == State::Forking
        {
            self.bury(child.id);
        }
    }

    /// Whether the entry is still that of this child.
    fn holds(&self, child: Reserved) -> bool {
        self.member(child.id).generation.load(SeqCst) == child.generation
    }

    /// Buries members that died; returns how many. Their frames and extents become free.
    pub fn reap(&self) -> usize {
        self.roster().map_or(0, |_roster| self.reap_locked())
    }

    /// Marks the launcher as alive for as long as this view exists.
    ///
    /// # Errors
    /// [`SessionError::Os`].
    pub fn hold_for_launcher(&self) -> Result<(), SessionError> {
        wait_lock_byte(self.descriptor(), LAUNCHER_BYTE).map_err(os("lock the session"))
    }

    /// Waits until no launcher holds the session.
    ///
    /// # Errors
    /// [`SessionError::Os`].
    pub fn wait_launcher_gone(&self) -> Result<(), SessionError> {
        self.wait_unlocked(LAUNCHER_BYTE)
    }

    /// Waits until there are no members, burying those that die.
    ///
    /// # Errors
    /// [`SessionError::Os`].
    pub fn wait_members_gone(&self) -> Result<(), SessionError> {
        loop {
            self.reap();
            let Some(someone) = self.members().next() else {
                return Ok(());
            };
            if someone.state == State::Live {
                self.wait_unlocked(someone.id.index() as u64)?;
            } else {
                // A fork in progress has nothing to wait on; it takes milliseconds.
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }

    fn wait_unlocked(&self, byte: u64) -> Result<(), SessionError> {
        wait_lock_byte(self.descriptor(), byte).map_err(os("wait for a process"))?;
        unlock_byte(self.descriptor(), byte).map_err(os("unlock the session"))
    }

    fn roster(&self) -> Result<Roster<'_>, SessionError> {
        wait_lock_byte(self.descriptor(), ROSTER_BYTE).map_err(os("lock the session"))?;
        Ok(Roster(self))
    }

    fn free_entry(&self) -> Result<MemberId, SessionError> {
        let free = |&id: &MemberId| self.state(id) == State::Free;
        MemberId::all().find(free).ok_or(SessionError::Full)
    }

    /// Takes the lock of entry `id`, which must be in `state`.
    fn claim(&self, id: MemberId, state: State) -> Result<(), SessionError> {
        let lock = || lock_byte(self.descriptor(), id.index() as u64);
        if self.state(id) == state && lock().map_err(os("lock the session"))? {
            Ok(())
        } else {
            Err(SessionError::Expired)
        }
    }

    /// A fresh entry for process `pid`, not yet visible.
    fn reset(&self, id: MemberId, pid: u32) {
        let generation = self.layout().generations.fetch_add(1, SeqCst) + 1;
        let member = self.member(id);
        member.pid.store(pid, Relaxed);
        member.pid_namespace.store(pid_namespace(), Relaxed);
        member.generation.store(generation, Relaxed);
        member.held_pages.store(0, Relaxed);
        member.wants_pages.store(0, Relaxed);
        member.target_pages.store(u64::MAX, Relaxed);
        self.ledger(id).clear();
    }

    fn set_state(&self, id: MemberId, state: State) {
        self.member(id).state.store(state as u32, SeqCst);
    }

    fn reap_locked(&self) -> usize {
        let here = pid_namespace();
        let dead = |&id: &MemberId| self.me != Some(id) && self.is_dead(id, here);
        MemberId::all().filter(dead).map(|id| self.bury(id)).count()
    }

    /// Whether the entry's process is gone; unknown counts as alive.
    fn is_dead(&self, id: MemberId, here: u64) -> bool {
        match self.state(id) {
            State::Free => false,
            State::Live => is_locked(self.descriptor(), id.index() as u64) == Ok(false),
            State::Forking if self.member(id).pid.load(SeqCst) == 0 => self.fork_is_over(id),
            State::Forking => pid_is_gone(self.member(id), here),
        }
    }

    /// Whether nobody will say any more which process the reserved entry `id` is for: whoever forked is
    /// gone, and a child that it may have made had time to join.
    fn fork_is_over(&self, id: MemberId) -> bool {
        let member = self.member(id);
        let since = member.forking_since.load(Relaxed);
        let by = member.forked_by.load(Relaxed);
        let forks = |at: &MemberId| {
            self.state(*at) == State::Live
                && self.member(*at).generation.load(Relaxed) == by
                && is_locked(self.descriptor(), at.index() as u64) != Ok(false)
        };
        let lives = self
            .me
            .iter()
            .any(|&me| self.member(me).generation.load(Relaxed) == by)
            || MemberId::all().any(|at| forks(&at));
        clock::now().0.saturating_sub(since) > JOINS_WITHIN.0 && !lives
    }

    /// Folds the entry's counters into the totals and frees everything that it holds.
    fn bury(&self, id: MemberId) {
        let (retired, ledger) = (&self.layout().retired, self.ledger(id));
        let mut counts = retired.counters.read();
        counts.merge(&ledger.counters.read(), false);
        retired.counters.write(&counts);
        let mut waits = retired.latencies.read();
        waits.merge(&ledger.latencies.read());
        retired.latencies.write(&waits);
        ledger.clear();
        self.bury_objects(id);
        self.give_back(id);
        self.set_state(id, State::Free);
    }

    fn give_back(&self, id: MemberId) {
        word::give_back(&self.layout().reserved.word, &self.member(id).held_pages);
        self.layout().extents.drop_all(id);
    }
}

/// Whether the process named by the entry is gone, as far as this pid namespace (`here`) can tell.
fn pid_is_gone(member: &Member, here: u64) -> bool {
    let pid = member.pid.load(SeqCst);
    pid != 0 && here != 0 && member.pid_namespace.load(Relaxed) == here && !is_alive(pid)
}
