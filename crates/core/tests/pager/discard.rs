//! Discardable pages: when each policy drops them, and what the program is told.

use outpage_core::contract::Event;
use outpage_core::limits::FRAMES_MIN;
use outpage_core::page::State;
use outpage_core::stats::Stats;
use outpage_core::units::PageRange;

use crate::body::{Body, page};
use crate::plan::{Answers, Plan};

const FRAMES: u64 = FRAMES_MIN as u64;

fn body(discard: &'static str) -> Body {
    let mut body = Body::new(&Plan {
        discard,
        answers: Answers::AtOnce,
        zero_around: 1,
        ..Plan::calm("single", "none", FRAMES_MIN)
    });
    body.object_pages = 8 * FRAMES;
    body
}

fn range(object: u32, pages: u64) -> PageRange {
    PageRange::new(page(object, 0), pages)
}

fn write(body: &mut Body, range: PageRange) {
    for page in range.iter() {
        assert!(body.touch_and_wait(0, page, true), "{page:?}");
    }
}

fn stats(body: &Body) -> Stats {
    *body.pager.stats()
}

/// Pages of `range` in `state`.
fn count(body: &Body, range: PageRange, state: State) -> u64 {
    range
        .iter()
        .filter(|&page| body.pager.state(page) == state)
        .count() as u64
}

#[test]
fn without_a_policy_marks_are_not_kept_and_all_is_kept() {
    let mut body = body("none");
    write(&mut body, range(0, FRAMES / 2));
    body.mark(range(0, FRAMES / 2));
    write(&mut body, range(1, 2 * FRAMES));
    assert!(count(&body, range(0, FRAMES / 2), State::PagedOut) > 0);
    body.take_back(range(0, FRAMES / 2));
    let stats = stats(&body);
    assert_eq!((stats.dropped_for_write, stats.taken_back_lost), (0, 0));
    body.read_all();
}

#[test]
fn without_flushing_discardable_pages_leave_in_their_turn_and_are_not_written() {
    let mut body = body("nf");
    let (junk, kept) = (range(0, FRAMES / 2), range(1, FRAMES));
    write(&mut body, junk);
    body.mark(junk);
    write(&mut body, kept);
    let stats = stats(&body);
    assert!(stats.dropped_for_write >= FRAMES / 4, "{stats:?}");
    // All that was written is wanted.
    assert_eq!(count(&body, junk, State::PagedOut), 0);
    assert_eq!(stats.flushed, 0);
    let lost = count(&body, junk, State::Untouched);
    body.take_back(junk);
    assert_eq!(body.pager.stats().taken_back_lost, lost);
    // Zeroes in place of reads.
    let before = body.pager.stats().page_ins;
    let gone: Vec<_> = junk
        .iter()
        .filter(|&page| body.pager.state(page) == State::Untouched)
        .collect();
    for &page in &gone {
        assert!(body.touch_and_wait(0, page, false));
    }
    let stats = body.pager.stats();
    assert_eq!(stats.filled_for_dropped, gone.len() as u64);
    assert_eq!(stats.page_ins, before);
    body.read_all();
}

#[test]
fn with_a_victim_that_is_written_so_many_are_flushed() {
    for (policy, most) in [("pf", 64), ("pf:pages=5", 5)] {
        let mut body = body(policy);
        let junk = range(0, 5 * FRAMES / 16);
        // Behind what is older than they: a write comes before their turn.
        write(&mut body, range(1, FRAMES / 2));
        write(&mut body, junk);
        body.mark(junk);
        let mut index = FRAMES / 2;
        assert_eq!(stats(&body).page_outs, 0);
        while body.pager.stats().page_outs == 0 {
            assert_eq!(body.pager.stats().flushed, 0, "none before a write");
            write(&mut body, PageRange::one(page(1, index)));
            index += 1;
        }
        // What is flushed is staged by the same event that began the write, or mapped.
        let flushed = stats(&body).flushed;
        assert!(flushed >= most && flushed.is_multiple_of(most), "{flushed}");
        body.take_back(junk);
        body.read_all();
    }
}

#[test]
fn the_program_has_its_discardable_pages_flushed_and_no_others() {
    let mut body = body("uf");
    let (junk, kept) = (range(0, 40), range(1, 40));
    write(&mut body, junk);
    write(&mut body, kept);
    body.mark(range(0, 30));
    body.report(Event::Flush(range(0, 60)));
    body.report(Event::Flush(range(1, 60)));
    assert_eq!(stats(&body).flushed, 30);
    assert_eq!(count(&body, range(0, 30), State::Untouched), 30);
    assert_eq!(count(&body, kept, State::Resident), 40);
    body.take_back(junk);
    assert_eq!(stats(&body).taken_back_lost, 30);
    body.read_all();
}

#[test]
fn on_demand_nothing_is_written_while_a_discardable_page_is_left() {
    let mut body = body("on-demand");
    let (kept, junk) = (range(1, FRAMES / 2), range(0, FRAMES / 3));
    write(&mut body, kept);
    write(&mut body, junk);
    body.mark(junk);
    // As many more as the discardable pages have frames.
    let ahead = 3 * body.pager.limits().clean_low as u64;
    let more = FRAMES - kept.pages - ahead;
    write(&mut body, range(2, more));
    let after = stats(&body);
    assert_eq!(after.page_outs, 0, "{after:?}");
    let lost = count(&body, junk, State::Untouched);
    assert!(lost > junk.pages / 2, "{lost}");
    // Exactly as many as frames were wanted.
    let wanted = kept.pages + junk.pages + more;
    let more = lost - (wanted - FRAMES);
    assert!(more <= body.pager.limits().reserve as u64, "{lost}");
    write(&mut body, range(2, 2 * FRAMES));
    assert!(stats(&body).page_outs > 0);
    body.take_back(junk);
    body.read_all();
}

#[test]
fn on_demand_a_page_that_is_touched_before_its_frame_is_wanted_is_as_it_was() {
    let mut body = body("on-demand");
    let junk = range(0, FRAMES / 2);
    write(&mut body, junk);
    write(&mut body, range(1, FRAMES / 2 - 4));
    body.mark(junk);
    write(&mut body, range(2, 8));
    let staged: Vec<_> = junk
        .iter()
        .filter(|&page| body.pager.state(page) == State::Staged)
        .collect();
    assert!(!staged.is_empty(), "some are ahead of demand");
    let before = stats(&body);
    for &page in &staged {
        // Compared with what was written.
        assert!(body.touch_and_wait(0, page, false));
    }
    let after = stats(&body);
    assert_eq!(after.given_back - before.given_back, staged.len() as u64);
    assert_eq!(after.filled_for_dropped, before.filled_for_dropped);
    body.take_back(junk);
    body.read_all();
}

#[test]
fn slots_of_what_is_given_up_are_free_at_once() {
    for (tier, policy) in [("none", "nf"), ("none", "on-demand"), ("lz4:pool=50", "uf")] {
        let mut body = Body::new(&Plan {
            discard: policy,
            tier: tier.to_owned(),
            answers: Answers::AtOnce,
            ..Plan::calm("packed", "none", FRAMES_MIN)
        });
        body.object_pages = 8 * FRAMES;
        let all = range(0, 3 * FRAMES);
        write(&mut body, all);
        body.tick();
        let out = count(&body, all, State::PagedOut);
        assert!(out > FRAMES, "{out}");
        body.mark(all);
        assert_eq!(count(&body, all, State::PagedOut), 0);
        assert_eq!(stats(&body).dropped_in_slots, out);
        body.settle();
        body.tick();
        let left = body.pager.slots_used() as u64;
        assert!(left <= FRAMES, "{left} slots for pages in memory");
        if tier != "none" {
            assert_eq!(body.store.pool_frames(), 0);
        }
        body.take_back(all);
        assert!(stats(&body).taken_back_lost >= out);
        body.read_all();
    }
}

#[test]
fn what_was_unmapped_is_neither_discardable_nor_lost() {
    let mut body = body("uf");
    write(&mut body, range(0, 60));
    body.mark(range(0, 60));
    body.report(Event::Flush(range(0, 20)));
    body.drop_range(range(0, 40), Event::Unmap);
    write(&mut body, range(0, 40));
    body.report(Event::Flush(range(0, 60)));
    assert_eq!(
        stats(&body).flushed,
        20 + 20,
        "the first twenty, and the last"
    );
    body.take_back(range(0, 60));
    assert_eq!(stats(&body).taken_back_lost, 20);
    body.read_all();
}

/// A page that was dropped, touched and marked again before it is taken back is wanted like any other.
#[test]
fn what_was_dropped_once_and_marked_again_is_written_once_it_was_taken_back() {
    for policy in ["nf", "uf", "on-demand"] {
        let mut body = body(policy);
        let junk = range(0, FRAMES / 3);
        for round in 0..2 {
            write(&mut body, junk);
            body.mark(junk);
            body.report(Event::Flush(junk));
            // Few enough in the second round that some are staged still.
            let pressure = if round == 0 { 2 * FRAMES } else { 8 };
            write(&mut body, range(1 + round, pressure));
        }
        assert!(stats(&body).filled_for_dropped > 0, "{policy}");
        let staged = count(&body, junk, State::Staged);
        assert_eq!(staged > 0, policy == "on-demand", "{policy}: {staged}");
        body.take_back(junk);
        write(&mut body, range(1, 2 * FRAMES));
        body.read_all();
    }
}
