//! Members in direct mode: processes that fit as yet.
//!
//! Such a process must be able to do all that it could do alone, so it keeps neither a thread nor a
//! descriptor nor a mapping for its session. It opens a view for each call, and its entry is found by its
//! number and start. A program that it executes has the same, and finds the same entry.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use outpage_stats::layout::Member;
use outpage_stats::liveness::{self, Identity, Seen};

use super::{Keeper, MemberId, Session, SessionError, State};

/// The part of the limit that processes without a pager may hold which the program started. A choice: with more, who needs it waits for what
/// was only asked for; with less, more processes have a pager that would fit without.
const UNTAKEN: u64 = 4;
/// While everything fits each of them may hold this part whatever the others hold. A choice: two that ask for as much are not in each other's way.
const EACH: u64 = 8;
/// And so many times what it has touched: a heap that grows doubles at most. What is only asked for would stay untaken when others need it a moment
/// later. A choice.
const TOUCHED_TIMES: u64 = 2;

impl Session {
    /// Makes `keeper` the process that the session's paths name, in whose /proc the processes in direct
    /// mode have their numbers.
    pub fn keep(&self, keeper: Keeper) {
        let head = self.head();
        head.keeper_started.store(keeper.started, Relaxed);
        head.keeper_namespace.store(keeper.namespace, Relaxed);
        head.keeper_pid.store(keeper.pid, SeqCst);
    }

    /// Says that process `pid` keeps the run's shared memory.
    pub fn set_home(&self, pid: u32) {
        self.head().home_pid.store(pid.into(), Relaxed);
    }

    /// Whether process `pid` keeps the run's shared memory, and is no process of the program.
    #[must_use]
    pub fn is_home(&self, pid: u32) -> bool {
        pid != 0 && self.head().home_pid.load(Relaxed) == u64::from(pid)
    }

    /// Says that process `pid` is the program of the session, for whoever looks from outside.
    pub fn set_program(&self, pid: u32) {
        if let Seen::Running(program) = liveness::look(pid) {
            let head = self.head();
            head.program_started.store(program.started, Relaxed);
            head.program_pid.store(program.pid.into(), SeqCst);
        }
    }

    /// The keeper; `None` as long as there is none.
    #[must_use]
    pub fn keeper(&self) -> Option<Keeper> {
        let head = self.head();
        let pid = head.keeper_pid.load(SeqCst);
        (pid != 0).then(|| Keeper {
            pid,
            started: head.keeper_started.load(Relaxed),
            namespace: head.keeper_namespace.load(Relaxed),
        })
    }

    /// Whether the caller's /proc numbers processes as the session's does.
    pub(super) fn sees_keeper(&self) -> bool {
        self.keeper().is_some_and(Keeper::is_seen)
    }

    /// Makes the calling process a member in direct mode, unless it is one: then this view is that
    /// member's. The entry stays when the view goes.
    ///
    /// # Errors
    /// [`SessionError::Unreachable`] where its /proc is not the session's; [`SessionError::Full`];
    /// [`SessionError::Damaged`]; [`SessionError::Os`].
    ///
    /// # Panics
    /// When the view has joined before.
    pub fn join_direct(&mut self) -> Result<(), SessionError> {
        assert!(self.me.is_none(), "joined twice");
        if !self.sees_keeper() {
            return Err(SessionError::Unreachable);
        }
        let identity = liveness::own().ok_or(SessionError::Unreachable)?;
        if let Some(id) = self.direct_entry(identity) {
            return self.become_member(id);
        }
        let roster = self.roster()?;
        let id = self.new_entry()?;
        self.reset(id, identity.pid, 0);
        self.member(id).since.store(identity.started, Relaxed);
        self.set_state(id, State::Direct);
        drop(roster);
        self.become_member(id)
    }

    /// Frames that this process, which has no pager and has touched `touched` pages, may hold at most, in pages.
    ///
    /// What it holds nobody can take from it, so that the others could not use what it only asked for: all such processes get a quarter of the limit
    /// between them. As long as no process has a pager everything fits, and neither an eighth of the limit is too much for one nor twice what it has
    /// touched. The program itself, from which the others descend, may have all of the limit, and so may any process where none is known to be the
    /// program.
    ///
    /// # Panics
    /// When the process has not joined.
    #[must_use]
    pub fn most_without_pager(&self, touched: u64) -> u64 {
        let head = self.head();
        let program = Identity {
            pid: head.program_pid.load(SeqCst) as u32,
            started: head.program_started.load(Relaxed),
        };
        let pages = |id| !matches!(self.state_or_free(id), State::Free | State::Direct);
        if program.pid == 0 || liveness::own() == Some(program) {
            return self.limit_pages();
        }
        let me = self.joined();
        let others = MemberId::all()
            .filter(|&id| id != me && self.state_or_free(id) == State::Direct)
            .map(|id| self.member(id))
            .filter(|member| identity_of(member) != program);
        let lent = others.map(|member| member.held_pages.load(Relaxed));
        let untaken =
            (self.limit_pages() / UNTAKEN).saturating_sub(lent.fold(0, u64::saturating_add));
        if MemberId::all().any(pages) {
            return untaken;
        }
        let used = touched.saturating_mul(TOUCHED_TIMES);
        untaken
            .max(self.limit_pages() / EACH)
            .max(used)
            .min(self.limit_pages())
    }

    /// As [`Self::join_direct`], but `false` and no member where there was none.
    ///
    /// # Errors
    /// Those of [`Self::join_direct`].
    ///
    /// # Panics
    /// When the view has joined before.
    pub fn rejoin_direct(&mut self) -> Result<bool, SessionError> {
        assert!(self.me.is_none(), "joined twice");
        match self.own_direct_entry() {
            Some(id) => self.become_member(id).map(|()| true),
            None => Ok(false),
        }
    }

    /// The entry that the calling process has from direct mode.
    pub(super) fn own_direct_entry(&self) -> Option<MemberId> {
        self.direct_entry(liveness::own().filter(|_| self.sees_keeper())?)
    }

    fn direct_entry(&self, identity: Identity) -> Option<MemberId> {
        let mine = |&id: &MemberId| {
            self.state_or_free(id) == State::Direct && identity_of(self.member(id)) == identity
        };
        MemberId::all().find(mine)
    }

    /// Takes entry `id`, which is the calling process's, for this view's.
    pub(super) fn become_member(&mut self, id: MemberId) -> Result<(), SessionError> {
        let held = self.member(id).held_pages.load(SeqCst);
        if held > self.own.limit_pages {
            return Err(SessionError::Damaged("what this process was lent"));
        }
        self.own.generation = self.member(id).generation.load(Relaxed);
        self.own.held_pages.store(held, Relaxed);
        self.me = Some(id);
        Ok(())
    }
}

/// The process of an entry in direct mode.
pub(super) fn identity_of(member: &Member) -> Identity {
    Identity {
        pid: member.pid.load(Relaxed),
        started: member.since.load(Relaxed),
    }
}
