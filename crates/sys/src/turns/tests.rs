use std::thread;

use super::*;

#[test]
fn callers_take_turns_and_all_have_theirs() {
    const TURNS: u32 = 300;
    let turns = Turns::new();
    let (within, done) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for nth in 0..6 {
            let (turns, within, done) = (&turns, &within, &done);
            scope.spawn(move || {
                for _ in 0..TURNS {
                    let _turn = if nth % 3 == 0 {
                        let long = Nanos(u64::MAX);
                        turns.take_within(long, thread::yield_now).expect("in time")
                    } else {
                        turns.take()
                    };
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
    assert_eq!(turns.begun(), 6 * TURNS);
    let left = [&turns.owner, &turns.waiters].map(|word| word.load(Ordering::SeqCst));
    assert_eq!(left, [0, 0]);
}

#[test]
fn a_turn_of_who_was_killed_ends() {
    let turns = Turns::new();
    let tid = thread::scope(|scope| {
        let killed = scope.spawn(|| {
            core::mem::forget(turns.take());
            process::tid()
        });
        killed.join().expect("ended")
    });
    // The number may be another thread's by then, as on any system: it has to be gone for this to say anything.
    if !process::task_exists(tid) {
        drop(turns.take());
        core::mem::forget(turns.take());
        turns.owner.store(tid.0, Ordering::SeqCst);
        assert!(turns.take_within(Nanos(0), || {}).is_some());
    }
}

#[test]
fn a_turn_of_who_lives_is_not_taken_away() {
    let turns = Turns::new();
    let ended = AtomicU32::new(0);
    thread::scope(|scope| {
        let turn = turns.take();
        let waiter = scope.spawn(|| {
            let _turn = turns.take();
            ended.load(Ordering::SeqCst)
        });
        while turns.waiters.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        // Longer than a waiter sleeps between two looks.
        thread::sleep(std::time::Duration::from_nanos(3 * LOOK.0));
        let mut calls = 0;
        assert!(turns.take_within(LOOK, || calls += 1).is_none());
        assert!(calls > 0 && turns.begun() == 1);
        ended.store(1, Ordering::SeqCst);
        drop(turn);
        assert_eq!(waiter.join().expect("ended"), 1, "a turn before its time");
    });
}

/// The thread has another number there, and whoever waited is not there.
#[test]
fn in_the_child_of_a_fork_it_is_nobodys_turn() {
    let turns = Turns::new();
    let parents = turns.take();
    turns.waiters.store(5, Ordering::SeqCst);
    turns.forget();
    drop(turns.take());
    assert_eq!(turns.waiters.load(Ordering::SeqCst), 0);
    drop(parents);
}
