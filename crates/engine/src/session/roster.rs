//! Who belongs to the session: joining, forking, burying the dead.
//!
//! Everything here happens under the roster lock, so it may take its time over steps; a process
//! that dies half-way leaves an entry that the next [`Session::reap`] finishes.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use outpage_core::units::Nanos;
use outpage_stats::liveness::{self, Seen, is_gone};
use outpage_sys::futex::{self, Scope};
use outpage_sys::launch::wait_lock_byte;
use outpage_sys::shared::{is_locked, lock_byte, unlock_byte};
use outpage_sys::{clock, process};

use super::direct::identity_of;
use super::{
    LAUNCHER_BYTE, MEMBERS_MAX, MemberId, ROSTER_BYTE, Reserved, Session, SessionError, State, os,
    word,
};

/// A forked child has joined by then, unless it was stopped: it does so before it returns from `fork`. A
/// choice, long beyond what a busy machine needs; a child that comes later ends with a message.
const JOINS_WITHIN: Nanos = Nanos(60_000_000_000);

/// Processes in direct mode that one search for the dead looks up in /proc, 10 us each: a pager searches
/// while its program waits. The next search goes on where this one stopped.
const LOOKED_UP_MAX: usize = 16;

/// A search for the dead waits so often, and each time so long, for somebody else's to end.
const TRIES: u32 = 20;
const TRY_AGAIN: Nanos = Nanos(100_000);

/// How often processes that hold no lock are looked at by somebody who waits for their end.
const LOOK_INTERVAL: Nanos = Nanos(20_000_000);

/// The roster lock; dropping it unlocks.
pub(super) struct Roster<'a>(&'a Session);

impl Drop for Roster<'_> {
    fn drop(&mut self) {
        // An error is impossible short of a closed descriptor, and then the lock is gone anyway.
        let _ = unlock_byte(self.0.descriptor(), ROSTER_BYTE);
    }
}

/// Without libc, whose state a pager's thread lacks.
fn sleep(span: Nanos) {
    futex::wait(&AtomicU32::new(0), 0, Some(span), Scope::Process);
}

impl Session {
    /// Makes the calling process a member with a pager. Its memory counts from now on. What it was lent
    /// in direct mode it keeps.
    ///
    /// The calling thread's description of the memfd is what keeps the member alive: it must be the
    /// pager thread, with a descriptor table of its own.
    ///
    /// # Errors
    /// [`SessionError::Full`]; [`SessionError::Damaged`]; [`SessionError::Os`].
    ///
    /// # Panics
    /// When the view has joined before.
    pub fn join(&mut self) -> Result<MemberId, SessionError> {
        assert!(self.me.is_none(), "joined twice");
        let namespace = self.namespace();
        let roster = self.roster()?;
        let id = match self.own_direct_entry() {
            Some(id) => {
                self.claim(id, State::Direct)?;
                id
            }
            None => {
                let id = self.new_entry()?;
                self.claim(id, State::Free)?;
                self.reset(id, process::pid(), namespace);
                id
            }
        };
        self.set_state(id, State::Live);
        drop(roster);
        self.become_member(id)?;
        Ok(id)
    }

    /// Makes a forked child the member that its parent reserved with [`Session::begin_fork`].
    ///
    /// # Errors
    /// [`SessionError::Expired`] when the entry is not reserved (any more); [`SessionError::Os`].
    pub fn join_forked(&mut self, reserved: Reserved) -> Result<(), SessionError> {
        assert!(self.me.is_none(), "joined twice");
        let (id, namespace) = (reserved.id, self.namespace());
        let roster = self.roster()?;
        if !self.holds(reserved) {
            return Err(SessionError::Expired);
        }
        self.claim(id, State::Forking)?;
        let member = self.member(id);
        member.pid.store(process::pid(), Relaxed);
        member.pid_namespace.store(namespace, Relaxed);
        self.set_state(id, State::Live);
        drop(roster);
        self.extents().remember(id, &self.own.extents);
        self.become_member(id)
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
        self.own.extents.clear();
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
        let namespace = self.namespace();
        let _roster = self.roster()?;
        let id = self.new_entry()?;
        self.reset(id, 0, namespace);
        let member = self.member(id);
        member.forked_by.store(self.own.generation, Relaxed);
        member.since.store(clock::now().0, Relaxed);
        self.extents().share(parent, id);
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
            && self.state(child.id) == Ok(State::Forking)
        {
            self.bury(child.id);
        }
    }

    /// Whether the entry is still that of this child.
    fn holds(&self, child: Reserved) -> bool {
        self.member(child.id).generation.load(SeqCst) == child.generation
    }

    /// Buries members that died; returns how many. Their frames and extents become free.
    ///
    /// Of processes in direct mode it looks at a few. Finds nobody while others search or join.
    pub fn reap(&self) -> usize {
        let free = || lock_byte(self.descriptor(), ROSTER_BYTE);
        for _ in 0..TRIES {
            match free() {
                Ok(true) => {
                    let _roster = Roster(self);
                    return self.reap_locked(LOOKED_UP_MAX);
                }
                Ok(false) => sleep(TRY_AGAIN),
                Err(_) => break,
            }
        }
        0
    }

    /// As [`Self::reap`], but looks at everybody, and waits for whoever searches or joins.
    ///
    /// # Errors
    /// [`SessionError::Os`].
    pub fn reap_all(&self) -> Result<usize, SessionError> {
        let _roster = self.roster()?;
        Ok(self.reap_locked(MEMBERS_MAX))
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
    /// [`SessionError::Os`]; [`SessionError::Damaged`].
    pub fn wait_members_gone(&self) -> Result<(), SessionError> {
        loop {
            self.reap_all()?;
            self.check()?;
            let Some(someone) = self.members().next() else {
                return Ok(());
            };
            if someone.state == State::Live {
                self.wait_unlocked(someone.id.index() as u64)?;
            } else {
                sleep(LOOK_INTERVAL);
            }
        }
    }

    fn wait_unlocked(&self, byte: u64) -> Result<(), SessionError> {
        wait_lock_byte(self.descriptor(), byte).map_err(os("wait for a process"))?;
        unlock_byte(self.descriptor(), byte).map_err(os("unlock the session"))
    }

    pub(super) fn roster(&self) -> Result<Roster<'_>, SessionError> {
        wait_lock_byte(self.descriptor(), ROSTER_BYTE).map_err(os("lock the session"))?;
        Ok(Roster(self))
    }

    /// An entry that is nobody's, after a search for the dead.
    pub(super) fn new_entry(&self) -> Result<MemberId, SessionError> {
        let free = || MemberId::all().find(|&id| self.state_or_free(id) == State::Free);
        self.reap_locked(LOOKED_UP_MAX);
        let found = free().or_else(|| {
            self.reap_locked(MEMBERS_MAX);
            free()
        });
        self.check()?;
        found.ok_or(SessionError::Full)
    }

    /// The inode of this process's pid namespace, as /proc had it when it was first needed; 0: unknown.
    fn namespace(&self) -> u64 {
        *self.own.namespace.get_or_init(liveness::pid_namespace)
    }

    /// Takes the lock of entry `id`, which must be in `state`.
    fn claim(&self, id: MemberId, state: State) -> Result<(), SessionError> {
        let lock = || lock_byte(self.descriptor(), id.index() as u64);
        if self.state(id)? == state && lock().map_err(os("lock the session"))? {
            Ok(())
        } else {
            Err(SessionError::Expired)
        }
    }

    /// A fresh entry for process `pid`, not yet visible.
    pub(super) fn reset(&self, id: MemberId, pid: u32, namespace: u64) {
        // In a damaged session this may be the largest number.
        let before = self.head().generations.fetch_add(1, SeqCst);
        let generation = before.wrapping_add(1);
        let member = self.member(id);
        member.pid.store(pid, Relaxed);
        member.pid_namespace.store(namespace, Relaxed);
        member.generation.store(generation, Relaxed);
        member.held_pages.store(0, Relaxed);
        member.wants_pages.store(0, Relaxed);
        member.target_pages.store(u64::MAX, Relaxed);
        self.bid_of(id).clear();
        self.ledger(id).clear();
    }

    pub(super) fn set_state(&self, id: MemberId, state: State) {
        self.member(id).state.store(state as u32, SeqCst);
    }

    /// Buries the dead, of those in direct mode among at most `look_up` looked at.
    fn reap_locked(&self, look_up: usize) -> usize {
        let others = |&id: &MemberId| self.me != Some(id);
        let dead = |&id: &MemberId| match self.state_or_free(id) {
            State::Free | State::Direct => false,
            State::Live => self.is_unlocked(id),
            State::Forking => self.fork_is_over(id),
        };
        let all = MemberId::all().filter(others);
        let buried = all.filter(dead).map(|id| self.bury(id)).count();
        buried + self.reap_direct(look_up)
    }

    /// Buries processes in direct mode that are gone, having looked at no more than `look_up`.
    fn reap_direct(&self, look_up: usize) -> usize {
        let start = self.head().search_from.load(Relaxed) as usize % MEMBERS_MAX;
        let direct =
            |&id: &MemberId| self.state_or_free(id) == State::Direct && self.me != Some(id);
        let order = MemberId::all()
            .skip(start)
            .chain(MemberId::all().take(start));
        let mut looked_at = order.filter(direct).take(look_up).peekable();
        if looked_at.peek().is_none() || !self.sees_keeper() {
            return 0;
        }
        let mut buried = 0;
        for id in looked_at {
            let next = (id.index() + 1) as u32;
            self.head().search_from.store(next, Relaxed);
            if is_gone(identity_of(self.member(id))) {
                self.bury(id);
                buried += 1;
            }
        }
        buried
    }

    fn is_unlocked(&self, id: MemberId) -> bool {
        is_locked(self.descriptor(), id.index() as u64) == Ok(false)
    }

    /// Whether the child that the entry is reserved for is gone, or can be no more; unknown counts as not.
    fn fork_is_over(&self, id: MemberId) -> bool {
        let member = self.member(id);
        let pid = member.pid.load(SeqCst);
        let here = self.namespace();
        let known = pid != 0 && here != 0 && member.pid_namespace.load(Relaxed) == here;
        if known {
            return !liveness::exists(pid)
                || liveness::proc_is_own() && matches!(liveness::look(pid), Seen::Ended(_));
        }
        // Nobody here can tell of the child, so its time is up some day.
        self.joins_no_more(id) && (pid != 0 || !self.forker_lives(id))
    }

    fn joins_no_more(&self, id: MemberId) -> bool {
        let (now, since) = (clock::now().0, self.member(id).since.load(Relaxed));
        // A time to come was never written here.
        since > now || now - since > JOINS_WITHIN.0
    }

    /// Whether the process that reserved entry `id` for its child lives, and will say which it is.
    fn forker_lives(&self, id: MemberId) -> bool {
        let by = self.member(id).forked_by.load(Relaxed);
        let forks = |&at: &MemberId| {
            self.state_or_free(at) == State::Live
                && self.member(at).generation.load(Relaxed) == by
                && !self.is_unlocked(at)
        };
        self.me.is_some() && self.own.generation == by || MemberId::all().any(|at| forks(&at))
    }

    /// Folds the entry's counters into the totals and frees everything that it holds.
    fn bury(&self, id: MemberId) {
        let (retired, ledger) = (&self.board().retired, self.ledger(id));
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
        let (reserved, held) = (&self.head().reserved.word, &self.member(id).held_pages);
        if !word::give_back(reserved, held) {
            self.condemn();
        }
        self.extents().drop_all(id);
    }
}
