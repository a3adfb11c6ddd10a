//! What eviction costs: few faults, few writes, and none that are not needed.

use outpage_core::contract::Body as Offered;
use outpage_core::limits::{FRAMES_MIN, Limits};
use outpage_core::page::State;
use outpage_core::stats::Stats;
use outpage_core::units::PageRange;
use outpage_core::{pageout, readahead, reclaim, slots};

use crate::body::{Body, page};
use crate::plan::{Answers, Plan};

const FRAMES: usize = 512;
/// Twice the memory.
const PAGES: u64 = 2 * FRAMES as u64;

/// With an object of twice the memory.
fn body(plan: &Plan) -> Body {
    let mut body = Body::new(plan);
    body.object_pages = 2 * plan.frames as u64;
    body
}

/// Touches all pages of the object in order; returns what that cost.
fn sweep(body: &mut Body, write: bool) -> Stats {
    let before = *body.pager.stats();
    for page in PageRange::new(page(1, 0), body.object_pages).iter() {
        assert!(body.touch_and_wait(0, page, write), "{page:?} never came");
    }
    let after = body.pager.stats();
    Stats {
        major_faults: after.major_faults - before.major_faults,
        page_ins: after.page_ins - before.page_ins,
        page_in_reads: after.page_in_reads - before.page_in_reads,
        page_outs: after.page_outs - before.page_outs,
        rescues: after.rescues - before.rescues,
        ..*after
    }
}

#[test]
fn a_sweep_over_twice_the_memory_takes_few_major_faults() {
    let frames = 4 * FRAMES;
    let pages = 2 * frames as u64;
    for allocator in 0..slots::REGISTRY.len() {
        let mut body = body(&Plan {
            slots: allocator,
            ..Plan::calm("mclustering", "stream", frames)
        });
        sweep(&mut body, true);
        // The first sweep back teaches the windows.
        sweep(&mut body, true);
        for write in [true, false, true] {
            let cost = sweep(&mut body, write);
            assert!(cost.page_ins >= pages / 2, "the sweep does not fit");
            // Each brings more than the 15 pages of BSD's window, and hardly any in vain.
            let faults = cost.major_faults;
            assert!(faults <= pages / 20, "{faults} faults for {pages} pages");
            assert!(
                cost.page_ins <= pages * 17 / 16,
                "{} page-ins",
                cost.page_ins
            );
        }
    }
}

#[test]
fn pages_that_stay_zero_are_never_written_nor_read() {
    let mut body = body(&Plan::calm("mclustering", "stream", FRAMES));
    for _ in 0..3 {
        sweep(&mut body, false);
    }
    let stats = body.pager.stats();
    assert!(stats.found_zero > PAGES);
    assert_eq!((stats.page_outs, stats.page_ins), (0, 0));
    assert_eq!(body.pager.slots_used(), 0);
}

#[test]
fn pages_equal_to_their_slots_are_never_written_again() {
    for entry in pageout::REGISTRY {
        let mut body = body(&Plan::calm(entry.name, "stream", FRAMES));
        sweep(&mut body, true);
        // What is still dirty is written in this one.
        sweep(&mut body, false);
        assert!(body.pager.stats().page_outs <= PAGES);
        for _ in 0..3 {
            let cost = sweep(&mut body, false);
            assert!(cost.page_ins >= PAGES / 2 && cost.found_clean > 0);
            assert_eq!(cost.page_outs, 0, "{}", entry.name);
        }
    }
}

#[test]
fn a_rescue_needs_no_io() {
    let mut body = body(&Plan::calm("mclustering", "stream", FRAMES));
    sweep(&mut body, true);
    body.settle();
    let staged: Vec<_> = PageRange::new(page(1, 0), PAGES)
        .iter()
        .filter(|&page| body.pager.state(page) == State::Staged)
        .collect();
    assert!(staged.len() >= body.pager.limits().staged_low / 2);
    let before = *body.pager.stats();
    // One page: its rescue does not bring the others back.
    for &page in staged.iter().take(8) {
        body.touch(0, page, false);
        assert!(body.idle(0), "{page:?} had to wait for I/O");
    }
    let after = body.pager.stats();
    assert_eq!(after.page_ins, before.page_ins);
    assert_eq!(after.major_faults, before.major_faults);
    assert!(after.rescues > before.rescues);
}

#[test]
fn as_many_pages_are_staged_as_the_setting_says() {
    let staged = |reclaim| {
        let mut body = body(&Plan {
            reclaim,
            ..Plan::calm("mclustering", "stream", 4 * FRAMES)
        });
        sweep(&mut body, true);
        sweep(&mut body, false);
        body.settle();
        let all = PageRange::new(page(1, 0), body.object_pages);
        let mapped = all
            .iter()
            .filter(|&page| body.pager.state(page) == State::Resident);
        1000 - 1000 * mapped.count() / (4 * FRAMES)
    };
    // What is not mapped is free or staged; a batch more or less is 62.
    let [eighth, third, half] = [
        "second-chance",
        "second-chance:staged=333",
        "second-chance:staged=500",
    ]
    .map(staged);
    assert!((125..=187).contains(&eighth), "{eighth}");
    assert!((333..=395).contains(&third), "{third}");
    assert!((500..=562).contains(&half), "{half}");
    assert_eq!(staged("second-chance:staged=125"), eighth);
}

#[test]
fn a_write_takes_a_full_chunk_where_memory_allows() {
    for chunk in [16, 64, 128] {
        let frames = 12 * chunk as usize;
        let mut body = body(&Plan {
            chunk,
            ..Plan::calm("mclustering", "stream", frames.max(FRAMES))
        });
        body.object_pages = 4 * frames as u64;
        for page in PageRange::new(page(1, 0), body.object_pages).iter() {
            assert!(body.touch_and_wait(0, page, true));
        }
        let stats = body.pager.stats();
        let mean = stats.page_outs / stats.page_out_writes;
        assert!(mean >= u64::from(chunk) * 3 / 4, "{mean} pages a write");
    }
}

#[test]
fn the_smallest_limit_works_with_every_order_of_victims() {
    let names = reclaim::offered(Offered::default()).map(|entry| entry.name);
    for reclaim in names.chain(["second-chance:staged=500"]) {
        for answers in [Answers::AtOnce, Answers::TransfersLate, Answers::Late] {
            let mut body = body(&Plan {
                reclaim,
                answers,
                ..Plan::calm("bsd", "stream", FRAMES_MIN)
            });
            for write in [true, false, true] {
                sweep(&mut body, write);
            }
            body.settle();
            body.read_all();
        }
    }
}

#[test]
fn the_smallest_limit_works_with_every_policy_and_chunk() {
    for pageout in 0..pageout::REGISTRY.len() {
        for readahead in 0..readahead::REGISTRY.len() {
            for (chunk, answers) in [
                (1, Answers::Late),
                (16, Answers::TransfersLate),
                (1024, Answers::Late),
                (1024, Answers::AtOnce),
            ] {
                let mut body = body(&Plan {
                    pageout,
                    readahead,
                    chunk,
                    window: 256,
                    answers,
                    ..Plan::calm("bsd", "none", FRAMES_MIN)
                });
                for write in [true, false, true] {
                    sweep(&mut body, write);
                }
                body.settle();
                body.read_all();
            }
        }
    }
}

#[test]
fn the_watermarks_make_sense() {
    for frames in (FRAMES_MIN..5000).chain([1 << 14, 1 << 18, 1 << 22]) {
        for chunk in [1, 16, 64, 256, 1024] {
            let l = Limits::new(frames, chunk);
            let context = format!("{l:?}, chunks of {chunk}");
            assert!(0 < l.reserve && 2 * l.reserve <= l.clean_low, "{context}");
            assert!(l.clean_low <= l.staged_low, "{context}");
            assert!(4 * l.staged_low <= frames, "{context}");
            assert!(
                0 < l.detach_batch && 4 * l.detach_batch <= frames,
                "{context}"
            );
            if frames >= 12 * chunk {
                // A whole chunk is dirty and inactive before there is too little that is clean.
                assert!(l.staged_low - l.clean_low >= chunk, "{context}");
            }
        }
    }
}

/// Pages that fit the memory come to rest there, even where they leave less of it than is to be staged.
#[test]
fn a_working_set_just_below_the_limit_comes_to_rest() {
    let frames = 4 * FRAMES;
    let mut body = body(&Plan::calm("packed", "stream", frames));
    sweep(&mut body, true);
    body.object_pages = frames as u64 * 31 / 32;
    for _ in 0..4 {
        sweep(&mut body, true);
    }
    let before = *body.pager.stats();
    sweep(&mut body, true);
    let after = body.pager.stats();
    assert_eq!(after.minor_faults - before.minor_faults, 0, "minor faults");
    assert_eq!(after.major_faults - before.major_faults, 0, "major faults");
}
