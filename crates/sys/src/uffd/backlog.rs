//! Messages that were read before anybody could attend to them.
//!
//! While a thread changes the address space (munmap, mremap, madvise), every call that resolves faults ends with
//! `EAGAIN` until the message about it is read. So it is read in the midst of whatever is under way,
//! and kept here.

use alloc::collections::VecDeque;

use super::{Fault, Message};

/// Messages of either kind that fit without allocating: more than threads that fault at once, as a rule.
const ROOM: usize = 256;

/// What happened to a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Its pages were thrown away, or it was unmapped.
    Removed,
    /// It moved; its contents are wanted elsewhere.
    Moved,
}

impl Message {
    /// What the message says of the mapping at `address`.
    #[must_use]
    pub fn change_at(&self, address: usize) -> Option<Change> {
        match *self {
            Self::Removed { start, end } | Self::Unmapped { start, end }
                if (start..end).contains(&address) =>
            {
                Some(Change::Removed)
            }
            Self::Remapped { from, len, .. } if (from..from + len).contains(&address) => {
                Some(Change::Moved)
            }
            _ => None,
        }
    }
}

/// Messages in the order in which they were read, faults apart.
#[derive(Debug)]
pub(super) struct Backlog {
    changes: VecDeque<Message>,
    faults: VecDeque<Fault>,
    /// Moves among all that was ever put here.
    moves: u64,
}

impl Backlog {
    pub(super) fn new() -> Self {
        Self {
            changes: VecDeque::with_capacity(ROOM),
            faults: VecDeque::with_capacity(ROOM),
            moves: 0,
        }
    }

    pub(super) fn is_calm(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.faults.is_empty()
    }

    pub(super) fn changes(&self) -> usize {
        self.changes.len()
    }

    pub(super) const fn moves(&self) -> u64 {
        self.moves
    }

    pub(super) fn put(&mut self, messages: &[Message]) {
        for &message in messages {
            self.moves += u64::from(matches!(message, Message::Remapped { .. }));
            match message {
                Message::Fault(fault) => self.faults.push_back(fault),
                change => self.changes.push_back(change),
            }
        }
    }

    pub(super) fn next_departure(&mut self, from: usize, to: usize) -> Option<Message> {
        let departs = |message: &Message| match *message {
            Message::Unmapped { start, end } => start < to && from < end,
            Message::Remapped {
                from: start, len, ..
            } => start < to && from < start + len,
            _ => false,
        };
        let at = self.changes.iter().position(departs)?;
        self.changes.remove(at)
    }

    pub(super) fn next_fault(&mut self) -> Option<Fault> {
        self.faults.pop_front()
    }

    pub(super) fn is_moved_onto(&self, address: usize) -> bool {
        let onto = |message: &Message| match *message {
            Message::Remapped { to, len, .. } => (to..to + len).contains(&address),
            _ => false,
        };
        self.changes.iter().any(onto)
    }

    /// Whether what lies at `address` is not, or may soon not be, what lay there before the changes.
    pub(super) fn is_disturbed(&self, address: usize) -> bool {
        self.change_at(address).is_some() || self.is_moved_onto(address)
    }

    pub(super) fn next_change(&mut self) -> Option<Message> {
        self.changes.pop_front()
    }

    /// Where what was at `address` lies now.
    pub(super) fn moved_to(&self, address: usize) -> usize {
        self.changes
            .iter()
            .fold(address, |at, message| match *message {
                Message::Remapped { from, to, len } if (from..from + len).contains(&at) => {
                    to + (at - from)
                }
                _ => at,
            })
    }

    /// Whether what was at `address` was thrown away, there or where it had moved to.
    pub(super) fn is_removed(&self, address: usize) -> bool {
        let mut at = address;
        self.changes.iter().any(|message| {
            let change = message.change_at(at);
            if let Message::Remapped { from, to, .. } = *message
                && change == Some(Change::Moved)
            {
                at = to + (at - from);
            }
            change == Some(Change::Removed)
        })
    }

    /// The first change decides: what moved away may be followed by the removal of the place it was at.
    pub(super) fn change_at(&self, address: usize) -> Option<Change> {
        self.changes.iter().find_map(|m| m.change_at(address))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FaultAccess, FaultKind};
    use super::*;

    fn fault(address: usize) -> Fault {
        Fault {
            address,
            kind: FaultKind::Missing,
            access: FaultAccess::Read,
            tid: 1,
        }
    }

    fn removed(start: usize, end: usize) -> Message {
        Message::Removed { start, end }
    }

    const MOVED: Message = Message::Remapped {
        from: 16,
        to: 64,
        len: 16,
    };

    #[test]
    fn changes_and_faults_are_kept_apart_in_their_order() {
        let mut backlog = Backlog::new();
        let [first, second] = [1, 2].map(fault);
        backlog.put(&[
            Message::Fault(first),
            removed(16, 32),
            Message::Fault(second),
        ]);
        backlog.put(&[removed(64, 80)]);
        assert_eq!(backlog.change_at(31), Some(Change::Removed));
        assert_eq!(backlog.change_at(32), None);
        assert_eq!(backlog.next_change(), Some(removed(16, 32)));
        assert_eq!(
            backlog.change_at(31),
            None,
            "it is the caller's to attend to"
        );
        assert_eq!(backlog.next_change(), Some(removed(64, 80)));
        assert!(backlog.is_calm() && !backlog.is_empty());
        assert_eq!(
            [backlog.next_fault(), backlog.next_fault()],
            [Some(first), Some(second)]
        );
        assert!(backlog.is_empty());
        assert_eq!((backlog.next_change(), backlog.next_fault()), (None, None));
    }

    #[test]
    fn what_is_removed_where_it_moved_to_is_removed() {
        let mut backlog = Backlog::new();
        backlog.put(&[removed(64, 96), MOVED, removed(16, 32), removed(70, 80)]);
        let gone = [16, 22, 31, 64, 95, 96].map(|at| backlog.is_removed(at));
        assert_eq!(gone, [false, true, true, true, true, false]);
    }

    #[test]
    fn what_moved_away_is_not_removed() {
        let mut backlog = Backlog::new();
        let unmapped = Message::Unmapped { start: 16, end: 32 };
        backlog.put(&[MOVED, unmapped]);
        assert_eq!(backlog.change_at(16), Some(Change::Moved));
        assert_eq!(backlog.change_at(64), None);
        assert_eq!(backlog.next_departure(0, 16), None);
        assert!(backlog.is_moved_onto(79) && !backlog.is_moved_onto(16));
        assert_eq!([backlog.moved_to(20), backlog.moved_to(32)], [68, 32]);
        let disturbed = [15, 16, 31, 32, 63, 64, 79, 80].map(|at| backlog.is_disturbed(at));
        assert_eq!(
            disturbed,
            [false, true, true, false, false, true, true, false]
        );
        // It is known where it is before the place it left is given up.
        assert_eq!(backlog.next_departure(31, 99), Some(MOVED));
        assert_eq!(backlog.next_departure(31, 99), Some(unmapped));
        assert_eq!(backlog.next_departure(0, 99), None);
    }
}
