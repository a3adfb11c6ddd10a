//! Every order in which processes can take their steps, up to a number of interruptions.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

use super::*;

/// The same words, whose steps the model checker orders.
impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.swap(value, order)
    }
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_sub(value, order)
    }
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits, order)
    }
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_and(bits, order)
    }
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_max(value, order)
    }
    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(old, new, SeqCst, SeqCst)
    }
    /// The checker takes `SeqCst` accesses for acquire and release ones, and knows fences.
    fn in_order() {
        fence(SeqCst);
    }
}

/// Words of holders an extent: a member of the first, and one of the second.
const WORDS: usize = 2;
const FIRST: MemberId = MemberId(3);
const SECOND: MemberId = MemberId(70);
/// Shares a word with the first.
const NEAR: MemberId = MemberId(4);

/// Interruptions of a process by others in one run, a choice: two show every mistake that was put in to try the tests, and with
/// three all of them take less than a second.
const INTERRUPTIONS: usize = 3;

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(INTERRUPTIONS);
    builder.check(run);
}

struct Memory {
    reserved: AtomicU64,
    peak: AtomicU64,
    held: [AtomicU64; 3],
    end: AtomicU64,
    extents: [[AtomicU64; WORDS]; 2],
}

fn memory() -> Arc<Memory> {
    Arc::new(Memory {
        reserved: AtomicU64::new(0),
        peak: AtomicU64::new(0),
        held: std::array::from_fn(|_| AtomicU64::new(0)),
        end: AtomicU64::new(0),
        extents: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
    })
}

impl Memory {
    const LIMIT: u64 = 10;

    fn take(&self, who: usize, pages: u64) -> u64 {
        let granted = take(&self.reserved, &self.peak, Self::LIMIT, pages);
        self.held[who].fetch_add(granted, SeqCst);
        granted
    }

    fn reserved(&self) -> u64 {
        Word::load(&self.reserved, SeqCst)
    }

    fn sum(&self) -> u64 {
        self.held.iter().map(|held| Word::load(held, SeqCst)).sum()
    }

    fn holders(&self, extent: u32) -> u32 {
        let words = self.extents[extent as usize].iter();
        words
            .map(|word| Word::load(word, SeqCst).count_ones())
            .sum()
    }
}

#[test]
fn no_two_take_more_than_the_limit() {
    model(|| {
        let memory = memory();
        let others = [(0, 7), (1, 6)].map(|(who, pages)| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let granted = memory.take(who, pages);
                assert!(memory.reserved() <= Memory::LIMIT);
                granted
            })
        });
        let granted: u64 = others
            .map(|other| other.join().expect("no panic"))
            .iter()
            .sum();
        assert_eq!(
            granted,
            Memory::LIMIT,
            "nothing is left while somebody wants it"
        );
        assert_eq!((memory.reserved(), memory.sum()), (granted, granted));
        assert_eq!(Word::load(&memory.peak, SeqCst), granted);
    });
}

#[test]
fn what_one_gives_back_another_takes() {
    model(|| {
        let memory = memory();
        assert_eq!(memory.take(0, 8), 8);
        let (giver, taker) = (Arc::clone(&memory), Arc::clone(&memory));
        let giver = thread::spawn(move || {
            giver.held[0].fetch_sub(5, SeqCst);
            Word::fetch_sub(&giver.reserved, 5, SeqCst);
        });
        let taker = thread::spawn(move || taker.take(1, 4));
        giver.join().expect("no panic");
        let granted = taker.join().expect("no panic");
        assert!((2..=4).contains(&granted), "{granted}");
        assert_eq!(
            (memory.reserved(), memory.sum()),
            (3 + granted, 3 + granted)
        );
    });
}

/// A process that is killed between two steps loses frames for the tree and gives nobody too many.
#[test]
fn the_killed_are_buried_while_others_take() {
    for killed_early in [false, true] {
        model(move || {
            let memory = memory();
            // Dead before anybody buries it: the kernel let its lock go.
            let granted = take(&memory.reserved, &memory.peak, Memory::LIMIT, 6);
            if !killed_early {
                memory.held[0].fetch_add(granted, SeqCst);
            }
            let (undertaker, taker) = (Arc::clone(&memory), Arc::clone(&memory));
            let undertaker =
                thread::spawn(move || give_back(&undertaker.reserved, &undertaker.held[0]));
            let taker = thread::spawn(move || {
                let granted = taker.take(1, 9);
                assert!(taker.reserved() <= Memory::LIMIT);
                granted
            });
            assert!(
                undertaker.join().expect("no panic"),
                "as many were reserved"
            );
            let granted = taker.join().expect("no panic");
            let lost = if killed_early { 6 } else { 0 };
            assert_eq!(memory.sum(), granted);
            assert_eq!(memory.reserved(), granted + lost);
        });
    }
}

fn two_lease(first: MemberId, second: MemberId) {
    model(move || {
        let memory = memory();
        let leases = [first, second].map(|member| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || lease(&memory.extents, &memory.end, member))
        });
        let leased = leases.map(|lease| lease.join().expect("no panic"));
        if let [Some(one), Some(other)] = leased {
            assert_ne!(one, other, "one extent for two");
        }
        assert!(leased.iter().any(Option::is_some), "somebody gets one");
        for extent in leased.iter().flatten() {
            assert_eq!(memory.holders(*extent), 1);
            assert!(u64::from(*extent) < Word::load(&memory.end, SeqCst));
        }
    });
}

#[test]
fn no_extent_is_leased_to_two() {
    two_lease(FIRST, SECOND);
    two_lease(FIRST, NEAR);
}

/// Both give way to each other and scan again: the only extent is not lost.
#[test]
fn an_extent_that_both_gave_up_is_free() {
    model(|| {
        let memory = memory();
        let leases = [FIRST, SECOND].map(|member| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || lease(&memory.extents[..1], &memory.end, member))
        });
        let leased = leases.map(|lease| lease.join().expect("no panic"));
        let count = leased.iter().flatten().count() as u32;
        assert!(count <= 1, "one extent for two");
        assert_eq!(memory.holders(0), count);
        assert_eq!(
            lease(&memory.extents[..1], &memory.end, NEAR).is_some(),
            count == 0
        );
    });
}

/// The dead one's extents are free for others, but not those that its child shares.
#[test]
fn the_dead_are_buried_while_others_lease() {
    model(|| {
        let memory = memory();
        assert_eq!(lease(&memory.extents, &memory.end, FIRST), Some(0));
        share(&memory.extents[..1], FIRST, NEAR);
        assert_eq!(lease(&memory.extents, &memory.end, FIRST), Some(1));
        let (undertaker, other) = (Arc::clone(&memory), Arc::clone(&memory));
        let undertaker = thread::spawn(move || drop_all(&undertaker.extents, FIRST));
        let other = thread::spawn(move || lease(&other.extents, &other.end, SECOND));
        undertaker.join().expect("no panic");
        let leased = other.join().expect("no panic");
        assert!(matches!(leased, None | Some(1)), "{leased:?}");
        assert_eq!(memory.holders(0), 1, "the child's");
        assert_eq!(memory.holders(1), u32::from(leased.is_some()));
    });
}

/// As every counter counts.
fn count_in(word: &AtomicU64, n: u64) {
    let load = || Word::load(word, Relaxed);
    outpage_stats::count(n, load, |value| word.store(value, Relaxed));
}

/// Somebody reads while a process counts; when that is gone, its counts go to those of the dead, once.
#[test]
fn no_count_is_lost() {
    model(|| {
        let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(5)]);
        let (owner, reader) = (Arc::clone(&counts), Arc::clone(&counts));
        let owner = thread::spawn(move || (1..=3).for_each(|n| count_in(&owner[0], n)));
        let reader = thread::spawn(move || {
            let seen = [0; 3].map(|_| Word::load(&reader[0], Relaxed));
            assert!(seen.is_sorted() && seen[2] <= 6, "{seen:?}");
        });
        owner.join().expect("no panic");
        reader.join().expect("no panic");
        let [own, retired] = &*counts;
        count_in(retired, Word::load(own, Relaxed));
        own.store(0, Relaxed);
        assert_eq!(
            (Word::load(own, SeqCst), Word::load(retired, SeqCst)),
            (0, 11)
        );
    });
}
