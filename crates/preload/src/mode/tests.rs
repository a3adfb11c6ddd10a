use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::*;

/// The mode is one for all tests of the process: one at a time sets it.
static ALONE: Mutex<()> = Mutex::new(());

/// This process in a mode, while it lives.
pub struct InMode(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl InMode {
    pub fn new(mode: Mode) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        set(mode);
        Self(alone)
    }
}

impl Drop for InMode {
    fn drop(&mut self) {
        set(Mode::Uninitialised);
    }
}

fn at_work() -> AtWork {
    let Path::Direct(at_work) = enter() else {
        panic!("not in direct mode");
    };
    at_work
}

fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn hooks_that_nothing_was_set_up_for_make_bare_calls() {
    for mode in [Mode::Uninitialised, Mode::Disabled] {
        let _mode = InMode::new(mode);
        assert_eq!(current(), mode);
        assert!(matches!(enter(), Path::Raw), "{mode:?}");
    }
}

/// The pager would find the list of mappings without what such a hook is about to map.
#[test]
fn the_pager_starts_when_no_hook_is_at_work() {
    let _mode = InMode::new(Mode::Direct);
    let released = AtomicBool::new(false);
    let ours = at_work();
    thread::scope(|scope| {
        let starter = scope.spawn(|| {
            start(|| {
                assert!(released.load(Ordering::SeqCst), "a hook was at work");
                assert_eq!(current(), Mode::Starting);
                None
            });
        });
        until(|| current() == Mode::Starting);
        (0..100).for_each(|_| thread::yield_now());
        released.store(true, Ordering::SeqCst);
        drop(ours);
        starter.join().expect("started");
    });
    assert_eq!(
        current(),
        Mode::Disabled,
        "there is no pager to manage anything"
    );
    assert!(matches!(enter(), Path::Raw));
}

/// It would wait for itself for ever.
#[test]
fn a_handler_that_interrupts_a_hook_goes_on_while_the_pager_starts() {
    let _mode = InMode::new(Mode::Direct);
    let ours = at_work();
    thread::scope(|scope| {
        scope.spawn(|| start(|| None));
        until(|| current() == Mode::Starting);
        assert!(matches!(enter(), Path::Raw));
        drop(ours);
    });
}

#[test]
fn others_wait_until_the_pager_is_there_and_the_starter_does_not() {
    let _mode = InMode::new(Mode::Direct);
    let (asked, entered) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        start(|| {
            assert!(matches!(enter(), Path::Raw), "the starter's own calls");
            scope.spawn(|| {
                asked.store(true, Ordering::SeqCst);
                let path = enter();
                entered.store(true, Ordering::SeqCst);
                assert!(matches!(path, Path::Raw));
            });
            until(|| asked.load(Ordering::SeqCst));
            (0..100).for_each(|_| thread::yield_now());
            assert!(
                !entered.load(Ordering::SeqCst),
                "entered while the pager began"
            );
            None
        });
    });
    assert!(entered.load(Ordering::SeqCst));
}

#[test]
fn one_of_all_that_outgrow_the_limit_at_once_starts_the_pager() {
    for _ in 0..200 {
        let _mode = InMode::new(Mode::Direct);
        let starts = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    start(|| {
                        starts.fetch_add(1, Ordering::SeqCst);
                        None
                    });
                    assert_ne!(current(), Mode::Direct);
                });
            }
        });
        assert_eq!(starts.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn what_is_not_direct_is_not_started() {
    for mode in [Mode::Uninitialised, Mode::Disabled] {
        let _mode = InMode::new(mode);
        start(|| panic!("started from {mode:?}"));
        assert_eq!(current(), mode);
    }
}

#[test]
fn bytes_are_pending_until_their_hook_is_done() {
    let _mode = InMode::new(Mode::Direct);
    let (first, second) = (at_work(), at_work());
    first.announce(5 << 20);
    second.announce(3 << 20);
    assert_eq!(pending_bytes(), 8 << 20);
    first.announce(1 << 20);
    assert_eq!(pending_bytes(), 4 << 20, "the last word of each counts");
    drop(second);
    assert_eq!(pending_bytes(), 1 << 20);
    drop(first);
    assert_eq!(pending_bytes(), 0);
}

#[test]
fn a_hook_within_a_hook_is_told_from_one_beside_it() {
    let _mode = InMode::new(Mode::Direct);
    let outer = at_work();
    assert!(!outer.is_nested());
    thread::scope(|scope| {
        scope.spawn(|| assert!(!at_work().is_nested(), "another thread's"));
    });
    let inner = at_work();
    assert!(inner.is_nested());
    drop(inner);
    assert!(!outer.is_nested());
}

#[test]
fn more_threads_than_places_take_turns() {
    let _mode = InMode::new(Mode::Direct);
    let places: [AtomicBool; SLOTS_COUNT] = [const { AtomicBool::new(false) }; SLOTS_COUNT];
    thread::scope(|scope| {
        for _ in 0..SLOTS_COUNT + 16 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let ours = at_work();
                    let offset = core::ptr::from_ref(ours.slot) as usize - SLOTS.as_ptr() as usize;
                    let place = &places[offset / size_of::<Slot>()];
                    assert!(!place.swap(true, Ordering::SeqCst), "two in one place");
                    thread::yield_now();
                    place.store(false, Ordering::SeqCst);
                }
            });
        }
    });
}

/// Threads that the parent had are not in a child that fork made: nobody would leave their places.
#[test]
fn a_child_waits_for_none_of_its_parents_hooks() {
    let _mode = InMode::new(Mode::Direct);
    for _ in 0..SLOTS_COUNT / 2 {
        let gone = at_work();
        gone.announce(1 << 20);
        core::mem::forget(gone);
    }
    forget_other_threads();
    assert_eq!(pending_bytes(), 0);
    start(|| None);
    assert_eq!(current(), Mode::Disabled);
}
