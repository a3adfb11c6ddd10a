//! What a fault may have while more frames are in use than the limit allows.
//!
//! A limit falls at once, and pages leave one after another: a forked child begins with all that its parent had, and a share that has a fraction of it.
//! If its faults waited until it is down there, a child that touches one page before it ends would wait until a hundred megabytes are written. So a fault
//! takes the place of pages that have left. What is in use never grows by that, and goes on to fall.

/// A fault may have one frame for so many that have left. A choice: coming down takes at most a third longer, and a fault waits for four pages, which a write
/// or a compression makes leave together.
const LEAVE_FOR_ONE: usize = 4;

/// What faults may have of the frames that left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exchange {
    /// Frames in use when that was last looked at.
    seen: usize,
    /// Frames that have left since the limit was exceeded, and were not exchanged yet.
    left: usize,
}

impl Exchange {
    /// The limit is not exceeded by the `used` frames in use. When it is, faults may have `at_once` frames before any has left.
    pub const fn begin(&mut self, used: usize, at_once: usize) {
        *self = Self {
            seen: used,
            left: at_once * LEAVE_FOR_ONE,
        };
    }

    /// Whether a fault may have a frame although `used` frames are in use, which are more than are allowed.
    pub const fn grants(&mut self, used: usize) -> bool {
        // What the pool has taken meanwhile, or what was adopted, has their place.
        self.left = (self.left + self.seen).saturating_sub(used);
        self.seen = used;
        self.left >= LEAVE_FOR_ONE
    }

    /// Faults took `frames` frames.
    pub const fn took(&mut self, frames: usize) {
        self.left = self.left.saturating_sub(frames * LEAVE_FOR_ONE);
        self.seen += frames;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_that_leave_make_room_for_one() {
        let mut exchange = Exchange::default();
        exchange.begin(100, 0);
        assert!(!exchange.grants(100));
        assert!(!exchange.grants(97));
        assert!(exchange.grants(96));
        assert!(exchange.grants(96), "asking takes nothing");
        exchange.took(1);
        assert!(!exchange.grants(97));
        assert!(exchange.grants(93));
    }

    #[test]
    fn some_may_be_had_before_any_left() {
        let mut exchange = Exchange::default();
        exchange.begin(100, 2);
        for used in 100..102 {
            assert!(exchange.grants(used));
            exchange.took(1);
        }
        assert!(!exchange.grants(102));
        assert!(exchange.grants(98));
    }

    #[test]
    fn what_is_adopted_meanwhile_leaves_first() {
        let mut exchange = Exchange::default();
        exchange.begin(10, 0);
        assert!(!exchange.grants(50));
        assert!(!exchange.grants(47));
        assert!(exchange.grants(46));
        // What left before is not exchanged once others have its place.
        assert!(!exchange.grants(47));
        assert!(exchange.grants(46));
    }

    /// However it goes, what is in use never exceeds what was when the limit fell.
    #[test]
    fn what_is_in_use_never_grows() {
        let (mut exchange, mut used) = (Exchange::default(), 1_000);
        exchange.begin(used, 0);
        for step in 0..2_000_usize {
            if exchange.grants(used) {
                exchange.took(1);
                used += 1;
            } else if used > 0 {
                used -= 1 + step % 3 % used;
            }
            assert!(used <= 1_000, "{used} at step {step}");
        }
        assert!(used < 10, "{used}: it comes down");
    }
}
