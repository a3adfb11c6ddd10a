//! The same events again, and the same actions.

use alloc::vec::Vec;

use super::{Decisions, Logged, Reader, Unreadable, Why};
use crate::contract::{Action, Event};
use crate::pager::{Pager, Setup};

/// A trace that was replayed to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Events told.
    pub events: u64,
    /// Actions that were the same.
    pub actions: u64,
    /// [`Decisions::transfers`] of these.
    pub transfers: u64,
    /// [`Decisions::all`] of these.
    pub all: u64,
}

/// Where another pager did something else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// Byte offset of the entry in the trace.
    pub offset: usize,
    /// What the trace has there; `None` when it has no action there.
    pub expected: Option<Action>,
    /// What the pager did; `None` when it had nothing to do.
    pub got: Option<Action>,
}

/// Why a replay is not equal to its trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unequal {
    /// The trace cannot be read to its end. Up to there all was equal.
    Unreadable(Unreadable),
    /// The pager did something else.
    Diverged(Divergence),
}

impl From<Unreadable> for Unequal {
    fn from(unreadable: Unreadable) -> Self {
        Self::Unreadable(unreadable)
    }
}

impl core::fmt::Display for Unequal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unreadable(unreadable) => unreadable.fmt(f),
            Self::Diverged(d) => {
                let (expected, got) = (&d.expected, &d.got);
                write!(
                    f,
                    "at byte {}: {expected:?} in the trace, {got:?} in the replay",
                    d.offset
                )
            }
        }
    }
}

impl core::error::Error for Unequal {}

/// Tells the events of the trace `bytes` to a fresh pager made of `setup` (that of
/// [`Header::setup`](super::Header::setup), to be equal) and compares its actions.
///
/// # Errors
/// At the first difference, or where the trace cannot be read.
pub fn replay(bytes: &[u8], setup: Setup) -> Result<Replayed, Unequal> {
    let mut reader = Reader::new(bytes)?;
    let mut pager = Pager::new(setup);
    pager.measure_up_to(reader.header().measured as usize);
    let mut replayed = Replayed::default();
    let mut decisions = Decisions::new();
    // Whether an action of that id waits for its answer.
    let mut open: Vec<bool> = Vec::new();
    loop {
        let offset = reader.offset();
        let diverged = |expected, got| {
            Err(Unequal::Diverged(Divergence {
                offset,
                expected,
                got,
            }))
        };
        match reader.next_entry()? {
            None => match pager.poll_action() {
                None => return Ok(replayed),
                got => return diverged(None, got),
            },
            Some(Logged::Action(expected)) => {
                let got = pager.poll_action();
                if got.as_ref() != Some(&expected) {
                    return diverged(Some(expected), got);
                }
                note(&mut open, &expected);
                replayed.actions += 1;
                decisions.action(&expected);
                (replayed.transfers, replayed.all) = (decisions.transfers(), decisions.all());
            }
            Some(Logged::Event { now, event }) => {
                match event {
                    Event::Done { id, .. } => match open.get_mut(id.0 as usize) {
                        Some(open) if *open => *open = false,
                        _ => return Err(damaged(offset)),
                    },
                    // The traced pager was done with the range.
                    Event::Unmap(range) | Event::Discard(range) | Event::Freeing(range)
                        if pager.busy(range) =>
                    {
                        return diverged(None, pager.poll_action());
                    }
                    _ => {}
                }
                if !pager.admits(&event) {
                    return Err(damaged(offset));
                }
                pager.handle(now, event);
                replayed.events += 1;
            }
        }
    }
}

const fn damaged(offset: usize) -> Unequal {
    Unequal::Unreadable(Unreadable {
        offset,
        why: Why::Corrupt,
    })
}

/// Remembers that `action` is to be answered.
fn note(open: &mut Vec<bool>, action: &Action) {
    let Some(id) = action.id() else { return };
    let at = id.0 as usize;
    if open.len() <= at {
        open.resize(at + 1, false);
    }
    open[at] = true;
}
