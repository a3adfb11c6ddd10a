//! Which address ranges belong to the pager itself, so that it never manages its own memory.
//!
//! A table of fixed size, written under a tiny lock and read without one: the reader may be a hook in
//! any thread, between any two instructions.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::raw::{self, Errno};

/// Ranges the table can hold. The arena's blocks grow with what it holds, so a few hundred would do.
pub const RANGES_MAX: usize = 2048;

/// Low bit of `start` (a page-aligned address): the range does not exist in a forked child.
const PARENT_ONLY: usize = 1;

struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
}

static SLOTS: [Slot; RANGES_MAX] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
    }
}; RANGES_MAX];
/// Slots ever used: readers look no further.
static USED: AtomicUsize = AtomicUsize::new(0);
/// In the section of what a fork writes in parent and child: the kernel copies its pages, and those alone.
#[unsafe(link_section = "outpage_forks")]
static LOCKED: AtomicBool = AtomicBool::new(false);

/// Whether a range survives into a forked child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fork {
    /// The child has a copy.
    Inherited,
    /// The child has a hole there (`MADV_DONTFORK`).
    ParentOnly,
}

/// Enters `start..end` (page-aligned, not empty) in the table.
///
/// # Errors
/// `ENOMEM` when the table is full.
pub fn add(start: usize, end: usize, fork: Fork) -> Result<(), Errno> {
    debug_assert!(start < end && start & PARENT_ONLY == 0);
    let mark = if fork == Fork::ParentOnly {
        PARENT_ONLY
    } else {
        0
    };
    let _held = hold();
    let used = USED.load(Ordering::Relaxed);
    let free = SLOTS[..used]
        .iter()
        .position(|slot| slot.start.load(Ordering::Relaxed) == 0);
    let index = free.unwrap_or(used);
    let slot = SLOTS.get(index).ok_or(Errno::ENOMEM)?;
    // Release on `end`: whoever reads it sees the zero that `remove` left in `start` before it.
    slot.end.store(end, Ordering::Release);
    slot.start.store(start | mark, Ordering::Release);
    USED.store(used.max(index + 1), Ordering::Release);
    Ok(())
}

/// Removes the range that was added with this `start`.
pub fn remove(start: usize) {
    let _held = hold();
    let used = USED.load(Ordering::Relaxed);
    let is_it = |slot: &&Slot| slot.start.load(Ordering::Relaxed) & !PARENT_ONLY == start;
    if let Some(slot) = SLOTS[..used].iter().find(is_it) {
        slot.start.store(0, Ordering::Release);
    }
}

/// An address among this library's own variables, which must never be paged.
#[must_use]
pub fn statics() -> usize {
    (&raw const SLOTS).addr()
}

/// Whether `address` lies in a range of the pager's own.
#[must_use]
pub fn contains(address: usize) -> bool {
    let mut found = false;
    for_each(|start, end| found |= start <= address && address < end);
    found
}

/// Calls `visit` with every range (start, end). Ranges added meanwhile may be missed.
pub fn for_each(mut visit: impl FnMut(usize, usize)) {
    for slot in &SLOTS[..USED.load(Ordering::Acquire)] {
        if let Some((start, end)) = slot.read() {
            visit(start, end);
        }
    }
}

/// Whether the kernel locks what is mapped from now on ([`locks_future`]).
static LOCKS_FUTURE: AtomicBool = AtomicBool::new(false);

/// The kernel locks what is mapped from now on (`MCL_FUTURE` of mlockall(2)), or does not any more: mappings of the pager's own are let go.
pub fn locks_future(does: bool) {
    LOCKS_FUTURE.store(does, Ordering::Relaxed);
}

/// Whether the kernel locks what is mapped, as far as was told ([`locks_future`]).
pub fn is_future_locked() -> bool {
    LOCKS_FUTURE.load(Ordering::Relaxed)
}

/// Forgets the ranges that a forked child does not have. To be called first thing in the child,
/// which has one thread then; it also frees the table's lock which another thread may have held.
pub fn after_fork_in_child() {
    // Nor are locks (mlockall(2)).
    locks_future(false);
    LOCKED.store(false, Ordering::Release);
    for slot in &SLOTS[..USED.load(Ordering::Acquire)] {
        if slot.start.load(Ordering::Relaxed) & PARENT_ONLY != 0 {
            slot.start.store(0, Ordering::Release);
        }
    }
}

impl Slot {
    /// A consistent pair, or `None` for a free slot.
    fn read(&self) -> Option<(usize, usize)> {
        loop {
            let start = self.start.load(Ordering::Acquire);
            let end = self.end.load(Ordering::Acquire);
            if start == 0 {
                return None;
            }
            if self.start.load(Ordering::Acquire) == start {
                return Some((start & !PARENT_ONLY, end));
            }
        }
    }
}

/// The table's lock, held: no range comes or goes until it is dropped.
#[must_use]
pub(crate) struct Held(());

/// Waits for the lock.
pub(crate) fn hold() -> Held {
    while LOCKED
        .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        raw::yield_now();
    }
    Held(())
}

impl Drop for Held {
    fn drop(&mut self) {
        LOCKED.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_half_open_and_go_when_removed() {
        // Addresses no mapping can have, so that other tests of this process do not meddle.
        let base = 1usize << 60;
        add(base, base + 0x2000, Fork::Inherited).unwrap();
        add(base + 0x3000, base + 0x4000, Fork::ParentOnly).unwrap();
        for (offset, inside) in [
            (0, true),
            (0x1fff, true),
            (0x2000, false),
            (0x2fff, false),
            (0x3000, true),
        ] {
            assert_eq!(contains(base + offset), inside, "{offset:#x}");
        }
        remove(base);
        remove(base + 0x3000);
        assert!(!contains(base) && !contains(base + 0x3000));
    }

    #[test]
    fn a_reader_never_sees_halves_of_two_ranges() {
        let base = 2usize << 60;
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for round in 0..20_000usize {
                    let start = base + (round % 7) * 0x10_0000;
                    add(start, start + 0x1000, Fork::Inherited).unwrap();
                    remove(start);
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                for_each(|start, end| {
                    let ours = start >> 60 == 2;
                    assert!(!ours || end - start == 0x1000, "{start:#x}..{end:#x}");
                });
            }
        });
    }
}
