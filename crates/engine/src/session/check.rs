//! Whether the shared memory still holds what processes of this version write there.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use outpage_stats::layout::{MAGIC, VERSION};

use super::extents::Held;
use super::{EXTENTS_MAX, MemberId, Own, Session, SessionError, State};

impl Session {
    /// Looks at what every view needs, when it is opened, and keeps what does not change.
    pub(super) fn remember(&mut self) -> Result<(), SessionError> {
        let head = self.head();
        if head.magic.load(SeqCst) != MAGIC || head.version.load(Relaxed) != VERSION {
            return Err(SessionError::Foreign);
        }
        let limit_pages = head.limit_pages.load(Relaxed);
        let cap = head.extents_cap.load(Relaxed);
        let extents_cap = u32::try_from(cap).unwrap_or(u32::MAX);
        if extents_cap as usize > EXTENTS_MAX {
            return Err(SessionError::Damaged("its swap file's size"));
        }
        self.own = Own {
            limit_pages,
            extents_cap,
            extents: Held::new(extents_cap),
            ..Own::default()
        };
        self.check()
    }

    /// Whether what can be known of the shared memory is there. Costs microseconds: for each tick.
    ///
    /// # Errors
    /// [`SessionError::Damaged`] names what is wrong.
    pub fn check(&self) -> Result<(), SessionError> {
        let (head, own) = (self.head(), &self.own);
        let heads = head.magic.load(SeqCst) == MAGIC
            && head.version.load(Relaxed) == VERSION
            && head.limit_pages.load(Relaxed) == own.limit_pages
            && head.extents_cap.load(Relaxed) == u64::from(own.extents_cap);
        if !heads {
            return Err(SessionError::Damaged("its head"));
        }
        if self.reserved_pages() > own.limit_pages {
            return Err(SessionError::Damaged("the sum of what is lent"));
        }
        let Some(me) = self.me else { return Ok(()) };
        let member = self.member(me);
        let mine = matches!(self.state(me), Ok(State::Live | State::Direct))
            && member.generation.load(Relaxed) == own.generation
            && member.held_pages.load(Relaxed) == own.held_pages.load(Relaxed);
        if !mine {
            return Err(SessionError::Damaged("the entry of this process"));
        }
        if !self.extents().holds_all(me, &own.extents) {
            return Err(SessionError::Damaged("the extents of this process"));
        }
        Ok(())
    }

    /// Has every process find the session damaged at its next look: this one did.
    pub(super) fn condemn(&self) {
        self.head().magic.store(0, SeqCst);
    }

    /// The state of an entry.
    ///
    /// # Errors
    /// [`SessionError::Damaged`].
    pub(super) fn state(&self, id: MemberId) -> Result<State, SessionError> {
        let raw = self.member(id).state.load(SeqCst);
        State::from_raw(raw).ok_or(SessionError::Damaged("the state of an entry"))
    }

    /// The state of an entry; one that cannot be is nobody's, and everybody learns of it.
    pub(super) fn state_or_free(&self, id: MemberId) -> State {
        self.state(id).unwrap_or_else(|_| {
            self.condemn();
            State::Free
        })
    }
}
