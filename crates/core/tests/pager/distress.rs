//! When pages cannot leave: pins, a full store, a broken one, a limit that falls.

use outpage_core::contract::Event;
use outpage_core::limits::FRAMES_MIN;
use outpage_core::page::State;
use outpage_core::slots;
use outpage_core::units::PageRange;

use crate::body::{Body, THREADS, page};
use crate::plan::{Answers, Plan, Random};

const FRAMES: u64 = FRAMES_MIN as u64;

fn body(plan: &Plan) -> Body {
    let mut body = Body::new(plan);
    body.object_pages = 4 * FRAMES;
    body
}

fn calm() -> Plan {
    Plan {
        // As soon as possible: a pager that asks again whenever it was refused never comes to rest.
        answers: Answers::AtOnce,
        zero_around: 1,
        ..Plan::calm("mclustering", "stream", FRAMES_MIN)
    }
}

/// Touches the pages in order, with a tick whenever somebody has to wait for one. How many came.
fn sweep(body: &mut Body, pages: u64, write: bool) -> u64 {
    for index in 0..pages {
        if !body.touch_and_wait(0, page(0, index), write) {
            body.settle();
            if !body.idle(0) {
                return index;
            }
        }
    }
    pages
}

#[test]
fn when_every_page_is_pinned_the_pager_rests_until_a_tick() {
    let mut body = body(&calm());
    let all = PageRange::new(page(0, 0), 4 * FRAMES);
    body.pin(all, true);
    assert_eq!(sweep(&mut body, 2 * FRAMES, true), FRAMES);
    assert!(body.exhausted);

    // A tick tries each page once more, and other events none.
    let tried = body.pager.stats().refused;
    body.tick();
    assert_eq!(body.pager.stats().refused - tried, FRAMES);
    assert!(body.exhausted);
    body.touch(1, page(1, 0), false);
    assert_eq!(body.pager.stats().refused - tried, FRAMES);

    body.pin(PageRange::new(page(0, 100), 8), false);
    assert!(!body.idle(0) && !body.idle(1));
    body.tick();
    body.settle();
    assert!(body.idle(0) && body.idle(1), "eight pages could leave");
    body.pin(all, false);
    body.read_all();
}

#[test]
fn who_waits_for_a_frame_for_a_page_that_is_dropped_tries_again() {
    let mut body = body(&calm());
    body.pin(PageRange::new(page(0, 0), 4 * FRAMES), true);
    assert_eq!(sweep(&mut body, 2 * FRAMES, true), FRAMES);
    let before = body.pager.stats().waits_for_frame;
    body.drop_range(PageRange::one(page(0, FRAMES)), Event::Unmap);
    assert_eq!(
        body.pager.stats().waits_for_frame,
        before + 1,
        "a new fault"
    );
}

#[test]
fn one_frame_is_enough_for_all_who_wait_for_the_page() {
    let mut body = body(&calm());
    body.pin(PageRange::new(page(0, 0), 4 * FRAMES), true);
    assert_eq!(sweep(&mut body, 2 * FRAMES, true), FRAMES);
    (1..4).for_each(|thread| body.touch(thread, page(0, FRAMES), false));
    assert!((0..4).all(|thread| !body.idle(thread)));
    body.drop_range(PageRange::one(page(0, 7)), Event::Discard);
    assert!((0..4).all(|thread| body.idle(thread)));
}

#[test]
fn who_has_left_gets_no_frame() {
    let mut body = body(&calm());
    body.pin(PageRange::new(page(0, 0), 4 * FRAMES), true);
    assert_eq!(sweep(&mut body, 2 * FRAMES, true), FRAMES);
    body.touch(1, page(0, FRAMES + 1), true);
    assert!(!body.idle(0) && !body.idle(1));
    let before = body.pager.stats().zero_fills;
    body.leave(0);
    // There is a frame for one of them.
    body.drop_range(PageRange::one(page(0, 7)), Event::Discard);
    assert!(body.idle(1), "it waited behind the other");
    assert_eq!(body.pager.stats().zero_fills, before + 1);
    body.drop_range(PageRange::one(page(0, 8)), Event::Discard);
    assert_eq!(body.pager.stats().zero_fills, before + 1, "nobody waits");
}

#[test]
fn while_nobody_waits_only_some_of_what_was_refused_is_tried_again() {
    let mut body = body(&calm());
    body.pin(PageRange::new(page(0, 0), FRAMES / 2), true);
    assert_eq!(sweep(&mut body, 3 * FRAMES, true), 3 * FRAMES);
    let before = body.pager.stats().refused;
    assert!(before >= FRAMES / 2, "they were victims once");
    assert_eq!(sweep(&mut body, FRAMES, true), FRAMES);
    assert_eq!(
        body.pager.stats().refused,
        before,
        "without a tick, not again"
    );
    for tick in 1..=10 {
        body.tick();
        sweep(&mut body, FRAMES, true);
        let most = tick * body.pager.limits().detach_batch as u64;
        assert!(body.pager.stats().refused - before <= most);
    }
    body.read_all();
}

#[test]
fn where_most_pages_are_pinned_the_others_take_turns() {
    let mut body = body(&calm());
    body.pin(PageRange::new(page(0, 0), FRAMES - 24), true);
    for _ in 0..3 {
        assert_eq!(sweep(&mut body, 2 * FRAMES, false), 2 * FRAMES);
        assert_eq!(sweep(&mut body, 2 * FRAMES, true), 2 * FRAMES);
    }
    body.read_all();
}

#[test]
fn a_store_that_cannot_grow_is_used_to_the_last_slots() {
    let slots_max = 200;
    for allocator in 0..slots::REGISTRY.len() {
        let mut body = body(&Plan {
            slots: allocator,
            slots_max,
            ..calm()
        });
        // A page that is read back occupies both for a moment.
        let fit = FRAMES + u64::from(slots_max) - 1;
        for write in [true, false, true, true] {
            assert_eq!(sweep(&mut body, fit, write), fit);
        }
        assert!(!body.exhausted);
        let came = sweep(&mut body, fit + 100, true);
        assert!(came >= fit && came < fit + 100 && body.exhausted);
        body.read_all();
    }
}

#[test]
fn holes_of_one_slot_are_enough_in_a_store_that_cannot_grow() {
    let slots_max = 256;
    for allocator in 0..slots::REGISTRY.len() {
        let mut body = body(&Plan {
            slots: allocator,
            slots_max,
            ..calm()
        });
        let fit = FRAMES + u64::from(slots_max) - 1;
        assert_eq!(sweep(&mut body, fit, true), fit);
        // Every other page that was paged out goes: no two slots next to each other are free.
        let out: Vec<_> = (0..fit)
            .map(|index| page(0, index))
            .filter(|&page| body.pager.state(page) == State::PagedOut)
            .collect();
        for &page in out.iter().step_by(2) {
            body.drop_range(PageRange::one(page), Event::Discard);
        }
        for index in 0..out.len() as u64 / 2 {
            assert!(body.touch_and_wait(0, page(1, index), true), "1:{index}");
        }
        assert!(!body.exhausted);
        body.read_all();
    }
}

#[test]
fn a_store_without_a_run_of_slots_grows() {
    let mut body = body(&Plan {
        slots_max: 1 << 16,
        ..calm()
    });
    let pages = 3 * FRAMES;
    assert_eq!(sweep(&mut body, pages, true), pages);
    let out: Vec<_> = (0..pages)
        .map(|index| page(0, index))
        .filter(|&page| body.pager.state(page) == State::PagedOut)
        .collect();
    for &page in out.iter().step_by(2) {
        body.drop_range(PageRange::one(page), Event::Discard);
    }
    let (granted, before) = (body.store.granted(), *body.pager.stats());
    assert!(body.store.free() > 64, "in holes of one slot");
    for index in 0..2 * FRAMES {
        assert!(body.touch_and_wait(0, page(1, index), true), "1:{index}");
    }
    let stats = body.pager.stats();
    assert!(body.store.granted() > granted);
    let pages = stats.page_outs - before.page_outs;
    let mean = pages / (stats.page_out_writes - before.page_out_writes);
    assert!(mean >= 4, "{mean} pages a write");
}

#[test]
fn slots_kept_for_a_child_come_back() {
    let slots_max = 200;
    for in_child in [false, true] {
        let mut body = body(&Plan {
            slots_max: if in_child { 4 * slots_max } else { slots_max },
            ..calm()
        });
        let some = FRAMES + u64::from(slots_max) / 4;
        assert_eq!(sweep(&mut body, some, true), some);
        body.fork(in_child);
        assert_eq!(sweep(&mut body, some, true), some);
        body.children_gone();
        // In the child those of the parent do not.
        let most = FRAMES + u64::from(slots_max) - 1;
        for _ in 0..2 {
            assert_eq!(sweep(&mut body, most, true), most);
        }
        assert!(!body.exhausted);
        body.read_all();
    }
}

#[test]
fn clean_pages_make_room_when_nothing_can_be_written() {
    let mut body = body(&calm());
    assert_eq!(sweep(&mut body, 2 * FRAMES, true), 2 * FRAMES);
    assert_eq!(sweep(&mut body, 2 * FRAMES, false), 2 * FRAMES);
    body.plan.write_failures = 1000;
    // All pages equal their slots, except a few that stay in memory from now on.
    assert_eq!(sweep(&mut body, FRAMES / 2, true), FRAMES / 2);
    let (waits, ticks) = (body.pager.stats().waits_for_frame, body.ticks);
    for _ in 0..3 {
        assert_eq!(sweep(&mut body, 2 * FRAMES, false), 2 * FRAMES);
    }
    assert!(!body.exhausted);
    let (waits, ticks) = (
        body.pager.stats().waits_for_frame - waits,
        body.ticks - ticks,
    );
    assert!(
        u64::from(ticks) <= waits / 8,
        "{ticks} ticks for {waits} waits"
    );
    body.read_all();
}

#[test]
fn a_limit_that_falls_is_reached() {
    let high = 4 * FRAMES_MIN;
    for answers in [Answers::AtOnce, Answers::Late] {
        for write_failures in [0, 1000] {
            let mut body = body(&Plan {
                answers,
                frames: high,
                ..calm()
            });
            body.object_pages = 8 * FRAMES;
            assert_eq!(sweep(&mut body, 6 * FRAMES, true), 6 * FRAMES);
            assert_eq!(sweep(&mut body, 6 * FRAMES, false), 6 * FRAMES);
            // With nothing to write to, clean pages are enough to get there.
            body.plan.write_failures = write_failures;
            body.limit(FRAMES_MIN);
            for _ in 0..100 {
                body.tick();
                body.settle();
            }
            let used = body.pager.frames_used();
            assert!(used <= FRAMES_MIN, "{used} frames, {write_failures}");
            body.read_all();
        }
    }
}

/// What left because the limit fell is not exchanged for pages that come once it was reached.
#[test]
fn what_exceeds_a_limit_that_was_reached_comes_down_at_once() {
    let high = 2 * FRAMES_MIN;
    let mut body = body(&Plan {
        answers: Answers::AtOnce,
        frames: high,
        ..calm()
    });
    body.object_pages = 4 * high as u64;
    assert_eq!(sweep(&mut body, high as u64, true), high as u64);
    body.limit(FRAMES_MIN);
    body.settle();
    assert!(body.pager.frames_used() <= FRAMES_MIN);
    body.plan.write_failures = 1000;
    body.adopt(PageRange::new(page(0, high as u64), FRAMES / 2));
    let used = body.pager.frames_used();
    assert!(used > FRAMES_MIN, "{used} frames");
    for thread in 0..THREADS {
        body.touch(thread, page(1, thread as u64), true);
        assert!(body.pager.frames_used() <= used);
    }
}

/// Of a store that is full, pages that compress go to the pool, as many as it may ever take: more fits than with no pool, and hardly any touch waits for a tick.
#[test]
fn a_pool_takes_what_a_full_store_does_not() {
    let slots_max = 4 * FRAMES_MIN as u32;
    let frames = 2 * FRAMES_MIN;
    let fit = frames as u64 + u64::from(slots_max);
    for tier in ["auto", "lz4", "zstd"] {
        for reclaim in ["early", "second-chance"] {
            let mut body = Body::new(&Plan {
                slots_max,
                tier: tier.to_owned(),
                reclaim,
                frames,
                ..calm()
            });
            body.object_pages = 8 * FRAMES;
            let more = fit + fit / 8;
            assert_eq!(sweep(&mut body, more, true), more, "{tier} {reclaim}");
            let (mut random, ticks) = (Random(7), body.ticks);
            for _ in 0..2000 {
                let index = random.below(more as usize) as u64;
                let write = random.happens(250);
                if !body.touch_and_wait(0, page(0, index), write) {
                    body.settle();
                }
                assert!(body.idle(0), "{tier} {reclaim}");
            }
            let ticks = body.ticks - ticks;
            assert!(
                ticks <= 20,
                "{ticks} ticks for 2000 touches: {tier} {reclaim}"
            );
            body.read_all();
        }
    }
}

#[test]
fn a_store_that_is_full_no_more_takes_what_the_pool_had_to() {
    let slots_max = 4 * FRAMES_MIN as u32;
    let mut body = Body::new(&Plan {
        slots_max,
        tier: "auto".to_owned(),
        frames: 2 * FRAMES_MIN,
        ..calm()
    });
    body.object_pages = 8 * FRAMES;
    let fit = 2 * FRAMES + u64::from(slots_max);
    assert_eq!(sweep(&mut body, fit, true), fit);
    let full = body.store.pool_frames();
    body.drop_range(PageRange::new(page(0, 0), fit / 2), Event::Discard);
    for index in fit / 2..fit {
        assert!(body.touch_and_wait(0, page(0, index), true));
    }
    let left = body.store.pool_frames();
    assert!(left < full / 2, "{left} frames of {full}");
    body.read_all();
}
