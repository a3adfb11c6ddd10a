//! What the program says of its pages, and what follows from it.

use outpage_core::contract::{self, Advice, Event};
use outpage_core::limits::FRAMES_MIN;
use outpage_core::page::State;
use outpage_core::reclaim;
use outpage_core::units::PageRange;

use crate::body::{Body, page};
use crate::plan::{Answers, Plan};

const FRAMES: u64 = 4 * FRAMES_MIN as u64;

fn body(readahead: &str) -> Body {
    body_with("second-chance", readahead)
}

fn body_with(reclaim: &'static str, readahead: &str) -> Body {
    let mut body = Body::new(&Plan {
        reclaim,
        answers: Answers::AtOnce,
        zero_around: 1,
        rescue_around: 0,
        ..Plan::calm("packed", readahead, FRAMES as usize)
    });
    body.object_pages = 8 * FRAMES;
    body
}

fn range(object: u32, start: u64, pages: u64) -> PageRange {
    PageRange::new(page(object, start), pages)
}

fn touch(body: &mut Body, range: PageRange, write: bool) {
    for page in range.iter() {
        assert!(body.touch_and_wait(0, page, write), "{page:?}");
    }
}

fn count(body: &Body, range: PageRange, state: State) -> u64 {
    let in_state = range.iter().filter(|&page| body.pager.state(page) == state);
    in_state.count() as u64
}

/// Three times the limit, written in order.
fn written(readahead: &str) -> (Body, PageRange) {
    written_with("second-chance", readahead)
}

fn written_with(reclaim: &'static str, readahead: &str) -> (Body, PageRange) {
    let mut body = body_with(reclaim, readahead);
    let all = range(0, 0, 3 * FRAMES);
    touch(&mut body, all, true);
    body.settle();
    (body, all)
}

/// Major faults and page-ins of a walk through `range`.
fn walk(body: &mut Body, range: PageRange) -> (u64, u64) {
    let before = *body.pager.stats();
    touch(body, range, false);
    body.settle();
    let after = body.pager.stats();
    (
        after.major_faults - before.major_faults,
        after.page_ins - before.page_ins,
    )
}

#[test]
fn what_is_needed_is_mapped_before_it_is_touched() {
    let (mut body, _) = written("none");
    let needed = range(0, 0, FRAMES / 2);
    assert_eq!(count(&body, needed, State::PagedOut), needed.pages);
    body.report(Event::Advise(Advice::WillNeed, needed));
    body.settle();
    assert_eq!(count(&body, needed, State::Resident), needed.pages);
    assert_eq!(walk(&mut body, needed), (0, 0));
    let stats = body.pager.stats();
    assert!(stats.page_in_reads < needed.pages / 4, "{stats:?}");
    assert_eq!(stats.read_ahead, 0, "it was asked for");
    body.read_all();
}

#[test]
fn what_is_needed_stays_under_every_policy() {
    for entry in reclaim::offered(contract::Body::default()) {
        let (mut body, _) = written_with(entry.name, "none");
        let needed = range(0, FRAMES, FRAMES / 2);
        body.report(Event::Advise(Advice::WillNeed, needed));
        body.settle();
        // Some are staged, as always, and of these a few leave.
        let out = count(&body, needed, State::PagedOut);
        assert!(out <= needed.pages / 16, "{}: {out}", entry.name);
        body.read_all();
    }
}

#[test]
fn of_more_than_half_the_limit_the_first_half_is_brought_in() {
    let (mut body, all) = written("none");
    body.report(Event::Advise(Advice::WillNeed, all));
    body.settle();
    let half = FRAMES / 2;
    assert_eq!(count(&body, range(0, 0, half), State::Resident), half);
    let page_ins = body.pager.stats().page_ins;
    assert_eq!(page_ins, half);
    body.read_all();
}

#[test]
fn what_is_needed_and_staged_does_not_leave() {
    let (mut body, all) = written("none");
    let staged = count(&body, all, State::Staged);
    assert!(staged > 0);
    let late = range(0, 2 * FRAMES, FRAMES);
    body.report(Event::Advise(Advice::WillNeed, late));
    body.settle();
    let mapped = count(&body, late, State::Resident);
    assert!(mapped >= FRAMES / 2, "{mapped}");
    body.read_all();
}

#[test]
fn cold_pages_leave_first() {
    for advised in [false, true] {
        let mut body = body("none");
        let (old, cold) = (range(0, 0, 3 * FRAMES / 8), range(1, 0, 3 * FRAMES / 8));
        touch(&mut body, old, true);
        touch(&mut body, cold, true);
        if advised {
            body.report(Event::Advise(Advice::Cold, cold));
        }
        // An eighth of the limit too much.
        touch(&mut body, range(2, 0, 3 * FRAMES / 8), true);
        body.settle();
        let out = [old, cold].map(|range| count(&body, range, State::PagedOut));
        // The older ones otherwise, which are first in, first out.
        assert_eq!(out[0] > 0, !advised, "{out:?}");
        assert_eq!(out[1] > 0, advised, "{out:?}");
        body.read_all();
    }
}

#[test]
fn cold_pages_that_are_touched_are_as_they_were() {
    let mut body = body("none");
    let cold = range(0, 0, FRAMES / 4);
    touch(&mut body, cold, true);
    body.report(Event::Advise(Advice::Cold, cold));
    body.settle();
    assert_eq!(count(&body, cold, State::Staged), cold.pages);
    assert_eq!(walk(&mut body, cold), (0, 0));
    assert_eq!(count(&body, cold, State::Resident), cold.pages);
    body.read_all();
}

#[test]
fn what_is_touched_in_order_is_read_so_from_the_first_fault_on() {
    let (mut body, _) = written("none");
    let plain = range(0, 0, FRAMES / 2);
    assert_eq!(walk(&mut body, plain), (plain.pages, plain.pages));
    let advised = range(0, FRAMES / 2, FRAMES / 2);
    body.report(Event::Advise(Advice::Sequential, advised));
    let (faults, page_ins) = walk(&mut body, advised);
    // A sixty-fourth of the frames at once; the walk may read a window beyond its end.
    assert!(faults <= advised.pages / 16, "{faults}");
    assert!(
        page_ins >= advised.pages && page_ins <= advised.pages + 32,
        "{page_ins}"
    );
    // One word takes it back.
    body.report(Event::Advise(Advice::Normal, advised));
    touch(&mut body, range(1, 0, 2 * FRAMES), true);
    body.settle();
    assert_eq!(walk(&mut body, range(0, FRAMES / 2, 64)), (64, 64));
    body.read_all();
}

#[test]
fn what_is_touched_in_no_order_is_read_alone() {
    let (mut body, _) = written("stream");
    let advised = range(0, 0, FRAMES / 2);
    body.report(Event::Advise(Advice::Random, advised));
    assert_eq!(walk(&mut body, advised), (advised.pages, advised.pages));
    let beyond = range(0, FRAMES / 2, FRAMES / 2);
    let (faults, _) = walk(&mut body, beyond);
    assert!(faults < beyond.pages / 4, "others are read ahead: {faults}");
    body.read_all();
}

#[test]
fn what_was_said_of_a_range_goes_with_it() {
    let (mut body, all) = written("none");
    body.report(Event::Advise(Advice::Sequential, all));
    body.drop_range(all, Event::Unmap);
    touch(&mut body, all, true);
    body.settle();
    assert_eq!(walk(&mut body, range(0, 0, 100)), (100, 100));
    body.read_all();
}
