//! One change of the address space at a time.
//!
//! The kernel tells the pager of what is unmapped when that is done, and another thread's new mapping may lie there by then.
//! So whoever changes mappings, or forks, has this lock from before the call until the pager knows all of it.
//!
//! Signals wait meanwhile: a handler may jump away, or change mappings itself. The lock of a task that was killed with it, as a
//! child that shares the memory may be, is taken over.

use outpage_sys::turns::{Turn, Turns};

use crate::raw::SignalsBlocked;

static TURNS: Turns = Turns::new();

/// The lock, held.
pub struct Order {
    // Signals come again when others may have their turn.
    _turn: Turn<'static>,
    _signals: SignalsBlocked,
}

impl Order {
    /// Waits for its turn.
    pub fn take() -> Self {
        let signals = SignalsBlocked::new();
        Self {
            _turn: TURNS.take(),
            _signals: signals,
        }
    }

    /// Called in a forked child by its only thread, which had the lock, under another number, or did not need it.
    pub fn forget_in_child() {
        TURNS.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::tests::blocked;

    /// A handler may jump away, and nobody would have a turn again.
    #[test]
    fn signals_wait_as_long_as_a_turn_lasts() {
        let before = blocked();
        let order = Order::take();
        assert_eq!(blocked().len(), 62);
        drop(order);
        assert_eq!(blocked(), before);
    }
}
