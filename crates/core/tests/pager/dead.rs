//! Slots that nobody reads any more are told, and no others.

use outpage_core::contract::Event;
use outpage_core::limits::FRAMES_MIN;
use outpage_core::slots;
use outpage_core::units::PageRange;
use proptest::prelude::*;

use crate::any;
use crate::body::{Body, page};
use crate::plan::{Answers, Plan};

const PAGES: u64 = 600;

/// A world in which all of `PAGES` pages were written, and most of them are in slots.
fn paged_out(allocator: usize, answers: Answers) -> Body {
    let mut body = Body::new(&Plan {
        slots: allocator,
        answers,
        ..Plan::calm("packed", "none", FRAMES_MIN)
    });
    body.object_pages = PAGES;
    for page in all().iter() {
        assert!(body.touch_and_wait(0, page, true));
    }
    body.settle();
    ticks(&mut body);
    body.store.told_dead.clear();
    body.store.told_runs = 0;
    assert!(body.store.bound() > 200, "{}", body.store.bound());
    body
}

fn all() -> PageRange {
    PageRange::new(page(0, 0), PAGES)
}

fn ticks(body: &mut Body) {
    for _ in 0..4 {
        body.tick();
        body.settle();
    }
}

fn each(test: impl Fn(Body)) {
    for allocator in 0..slots::REGISTRY.len() {
        for answers in [Answers::AtOnce, Answers::TransfersLate, Answers::Late] {
            test(paged_out(allocator, answers));
        }
    }
}

#[test]
fn what_is_unmapped_is_told_in_runs() {
    each(|mut body| {
        let in_slots: Vec<_> = all()
            .iter()
            .filter_map(|page| body.store.slot(page))
            .collect();
        body.drop_range(all(), Event::Unmap);
        assert_eq!(body.store.told_runs, 0, "nobody waits for it");
        ticks(&mut body);
        let told = &body.store.told_dead;
        assert!(in_slots.iter().all(|slot| told.contains(slot)));
        let runs = body.store.told_runs;
        assert!(
            (1..=12).contains(&runs),
            "{runs} runs of {} slots",
            in_slots.len()
        );
        ticks(&mut body);
        assert_eq!(body.store.told_runs, runs, "once");
        body.read_all();
    });
}

#[test]
fn what_is_written_anew_elsewhere_is_told_and_what_is_written_there_is_not() {
    each(|mut body| {
        let before: Vec<_> = all()
            .iter()
            .filter_map(|page| body.store.slot(page))
            .collect();
        for _ in 0..3 {
            for page in all().iter() {
                assert!(body.touch_and_wait(0, page, true));
            }
        }
        body.settle();
        ticks(&mut body);
        let bound: Vec<_> = all()
            .iter()
            .filter_map(|page| body.store.slot(page))
            .collect();
        let left = before.iter().filter(|slot| !bound.contains(slot));
        let told = &body.store.told_dead;
        assert!(left.clone().all(|slot| told.contains(slot)));
        body.read_all();
    });
}

#[test]
fn what_a_child_may_read_is_told_when_the_children_are_gone() {
    each(|mut body| {
        let shared: Vec<_> = all()
            .iter()
            .filter_map(|page| body.store.slot(page))
            .collect();
        body.fork(false);
        body.drop_range(all(), Event::Discard);
        ticks(&mut body);
        // Of the model's store, which fails if one is told that is kept.
        let told = |body: &Body| {
            shared
                .iter()
                .filter(|slot| body.store.told_dead.contains(slot))
                .count()
        };
        assert_eq!(told(&body), 0);
        body.children_gone();
        ticks(&mut body);
        assert_eq!(told(&body), shared.len());
    });
}

/// Room that the pager has, in slots.
fn room(body: &Body) -> usize {
    body.store.room().0
}

/// An extent is kept, and no more.
fn is_least(body: &Body) -> bool {
    let (room, extent) = body.store.room();
    room == extent
}

fn rest(body: &mut Body) {
    for _ in 0..any::RESTS {
        body.tick();
        body.settle();
    }
}

#[test]
fn room_that_nothing_is_in_is_given_up_after_a_while() {
    let mut body = paged_out(log(), Answers::Late);
    let before = room(&body);
    rest(&mut body);
    assert_eq!(room(&body), before, "as much again as is in use is kept");
    body.drop_range(all(), Event::Unmap);
    ticks(&mut body);
    assert_eq!(room(&body), before, "it may be needed again at once");
    rest(&mut body);
    rest(&mut body);
    assert!(is_least(&body), "{} of {before}", room(&body));
    let all_again = all().iter().all(|page| body.touch_and_wait(0, page, true));
    body.settle();
    assert!(all_again && room(&body) > before / 2, "{}", room(&body));
    body.read_all();
}

#[test]
fn room_that_a_child_reads_is_kept_until_it_is_gone() {
    let mut body = paged_out(log(), Answers::AtOnce);
    let before = room(&body);
    body.fork(false);
    body.drop_range(all(), Event::Unmap);
    rest(&mut body);
    rest(&mut body);
    assert!(room(&body) > before / 2, "{} of {before}", room(&body));
    body.children_gone();
    rest(&mut body);
    rest(&mut body);
    assert!(is_least(&body), "{} of {before}", room(&body));
}

/// A store that was full is asked for more once the program has been small.
#[test]
fn who_has_given_room_up_may_ask_for_more_though_there_was_none() {
    let mut body = Body::new(&Plan {
        slots: log(),
        slots_max: 768,
        answers: Answers::Late,
        ..Plan::calm("packed", "none", FRAMES_MIN)
    });
    body.object_pages = 2 * PAGES;
    let mut written = 0;
    while !body.store.full {
        assert!(body.touch_and_wait(0, page(0, written), true));
        written += 1;
    }
    let all = PageRange::new(page(0, 0), written);
    for _ in 0..2 {
        body.settle();
        body.drop_range(all, Event::Unmap);
        (0..3).for_each(|_| rest(&mut body));
        assert!(is_least(&body), "{}", room(&body));
        let again = all.iter().all(|page| body.touch_and_wait(0, page, true));
        assert!(again, "with {} slots", room(&body));
    }
    body.read_all();
}

#[test]
fn allocators_that_only_grow_keep_their_room() {
    for allocator in (0..slots::REGISTRY.len()).filter(|&at| at != log()) {
        let mut body = paged_out(allocator, Answers::AtOnce);
        body.drop_range(all(), Event::Unmap);
        rest(&mut body);
        rest(&mut body);
        assert_eq!(body.store.shrunk, 0);
    }
}

fn log() -> usize {
    let found = slots::REGISTRY.iter().position(|entry| entry.name == "log");
    found.expect("it is one of them")
}

#[test]
fn a_child_tells_nothing_of_its_parents() {
    each(|mut body| {
        body.fork(true);
        body.drop_range(all(), Event::Unmap);
        ticks(&mut body);
        assert_eq!(body.store.told_runs, 0);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// As `nothing_is_lost_and_nobody_waits_in_vain`, with many ticks: a dead slot that is read again has no content in the model.
    #[test]
    fn no_dead_slot_is_read_before_it_is_written(plan in any::plan(), steps in any::steps()) {
        let mut body = Body::new(&plan);
        for step in &steps {
            any::take(&mut body, step);
            any::take(&mut body, &any::Step::Tick);
        }
        body.settle();
        body.read_all();
    }
}
