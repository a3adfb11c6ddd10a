use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::*;
use crate::raw::tests::blocked;

/// One test at a time has all of the lock's callers.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn callers_take_turns_and_all_have_theirs() {
    const TURNS: u32 = 300;
    let _alone = alone();
    let (within, done) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    let _order = Order::take();
                    assert_eq!(within.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    // Others come and find it taken.
                    thread::yield_now();
                    done.fetch_add(1, Ordering::SeqCst);
                    within.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 6 * TURNS);
    assert_eq!(
        (OWNER.load(Ordering::SeqCst), WAITERS.load(Ordering::SeqCst)),
        (0, 0)
    );
}

/// A handler may jump away, and nobody would have a turn again.
#[test]
fn signals_wait_as_long_as_a_turn_lasts() {
    let _alone = alone();
    let before = blocked();
    let order = Order::take();
    assert!(blocked().len() == 62 && OWNER.load(Ordering::SeqCst) == process::tid().0);
    drop(order);
    assert_eq!(blocked(), before);
}

#[test]
fn a_turn_of_who_was_killed_ends() {
    let _alone = alone();
    let tid = thread::spawn(|| {
        core::mem::forget(Order::take());
        process::tid()
    })
    .join()
    .expect("ended");
    // The number may be another thread's by then, as on any system: it has to be gone for this to say anything.
    if OWNER.load(Ordering::SeqCst) == tid.0 {
        let order = Order::take();
        assert_eq!(OWNER.load(Ordering::SeqCst), process::tid().0);
        drop(order);
    }
    assert_eq!(OWNER.load(Ordering::SeqCst), 0);
}

#[test]
fn a_turn_of_who_lives_is_not_taken_away() {
    let _alone = alone();
    let turns = AtomicU32::new(0);
    thread::scope(|scope| {
        let order = Order::take();
        let waiter = scope.spawn(|| {
            let _order = Order::take();
            turns.load(Ordering::SeqCst)
        });
        while WAITERS.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        // Longer than a waiter sleeps between two looks.
        thread::sleep(std::time::Duration::from_nanos(3 * LOOK.0));
        turns.store(1, Ordering::SeqCst);
        drop(order);
        assert_eq!(waiter.join().expect("ended"), 1, "a turn before its time");
    });
}

/// The thread has another number there, and whoever waited is not there.
#[test]
fn in_the_child_of_a_fork_nobody_has_a_turn() {
    let _alone = alone();
    let parents = Order::take();
    WAITERS.store(5, Ordering::SeqCst);
    Order::forget_in_child();
    let order = Order::take();
    assert_eq!(WAITERS.load(Ordering::SeqCst), 0);
    drop(order);
    drop(parents);
    assert_eq!(OWNER.load(Ordering::SeqCst), 0);
}
