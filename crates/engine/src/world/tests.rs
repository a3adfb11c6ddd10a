//! Every mechanism on a door without a kernel: what leaves comes back, and whatever changes meanwhile costs no byte and no frame.

use std::collections::BTreeMap;

use outpage_core::contract::{PageOutcome, Refusal};
use outpage_core::page::ContentHash;
use outpage_core::units::PAGE_BYTES;
use outpage_sys::raw::Errno;

use super::*;
use crate::tests::fake::{State, at};
use crate::tests::random::Random;
use crate::tests::stage::{FRAMES, Stage};

mod copies;
mod io;

const BUSY: PageOutcome = PageOutcome::Refused(Refusal::Busy);
const GONE: PageOutcome = PageOutcome::Refused(Refusal::Gone);
const ABSENT: PageOutcome = PageOutcome::Refused(Refusal::Absent);
const DONE: PageOutcome = PageOutcome::Done;

/// One of each mechanism, with `pages` pages.
fn each(pages: usize) -> [Stage; 2] {
    Mechanism::ALL.map(|mechanism| Stage::new(mechanism, pages))
}

/// The first `count` pages are there, page `n` filled with `n + 1`.
fn filled(stage: &Stage, count: usize) {
    (0..count).for_each(|page| stage.fake.fill(page, page as u8 + 1));
}

fn hash_of(outcome: PageOutcome) -> ContentHash {
    match outcome {
        PageOutcome::Detached { hash, .. } => hash,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_first_touch_finds_zeroes_and_its_thread_goes_on() {
    for mut stage in each(8) {
        assert_eq!(stage.fake.touch(1, at(3), Some(7)), None);
        assert_eq!(stage.zero_fill(2, 4), [DONE; 4]);
        assert!(!stage.fake.sleeps(1));
        assert_eq!(stage.fake.touch(1, at(3), Some(7)), Some(7));
        assert_eq!(stage.fake.filled_with(2), Some(0));
        assert_eq!(stage.fake.filled_with(6), None);
        assert_eq!(stage.frames_in_use(), 0);
    }
}

#[test]
fn zeroes_never_go_where_a_page_is() {
    for mut stage in each(4) {
        stage.fake.fill(1, 9);
        let out = stage.zero_fill(0, 3);
        assert_eq!(out, [DONE, PageOutcome::Refused(Refusal::Present), DONE]);
        assert_eq!(stage.fake.filled_with(1), Some(9));
        assert_eq!(stage.frames_in_use(), 0);
    }
}

#[test]
fn zeroes_never_go_where_something_is_being_moved() {
    for mut stage in each(4) {
        // What two of the pages were is gone, and what lies there now is paged out.
        stage.fake.remove(2, 2, true);
        stage.fake.remap(20, 2, 2);
        assert_eq!(stage.zero_fill(0, 4), [DONE, DONE, GONE, GONE]);
        let filled = [0, 1, 2, 3].map(|n| stage.fake.filled_with(n));
        assert_eq!(filled, [Some(0), Some(0), None, None]);
    }
}

#[test]
fn zeroes_go_where_a_marker_stayed() {
    let [_, mut stage] = each(4);
    let marked = [at(1), at(3)];
    stage.fake.state().markers.extend(marked);
    assert_eq!(stage.zero_fill(0, 3), [DONE; 3]);
    assert!(stage.world.is_gone(at(3)) && !stage.world.is_gone(at(1)));
    assert!(stage.fake.state().markers.is_empty());
}

#[test]
fn what_is_not_there_is_not_marked() {
    let [_, mut stage] = each(4);
    stage.fake.fill(0, 1);
    stage.fake.fill(2, 3);
    let out = stage.detach(&[(0, 4)]);
    assert_eq!([out[1], out[3]], [ABSENT; 2]);
    let left = [0, 2].map(|n| hash_of(out[n]));
    assert_eq!(left, [1, 3].map(|byte| stage.hash(byte)));
    assert!(stage.fake.state().markers.is_empty());
}

#[test]
fn frames_that_are_used_again_hold_zeroes() {
    for mut stage in each(4) {
        assert_eq!(stage.read(&[(0, 200), (1, 201)], &[]), [DONE; 2]);
        stage.release(&[0, 1]);
        assert_eq!(stage.zero_fill(2, 2), [DONE; 2]);
        assert_eq!([2, 3].map(|n| stage.fake.filled_with(n)), [Some(0); 2]);
    }
}

#[test]
fn what_left_cannot_change_and_comes_back_as_it_was() {
    for mut stage in each(8) {
        filled(&stage, 8);
        let out = stage.detach(&[(1, 2), (5, 1)]);
        let hashes: Vec<_> = out.iter().map(|&o| hash_of(o)).collect();
        assert_eq!(hashes, [2, 3, 6].map(|byte| stage.hash(byte)));
        // Whatever it is that keeps a page from changing, a write waits.
        assert_eq!(stage.fake.touch(1, at(5), Some(0)), None);
        assert_eq!(stage.write(&[1, 2, 5]), [2, 3, 6]);
        assert_eq!(stage.map(&[(1, 2), (5, 1)], true), [DONE; 3]);
        assert!(!stage.fake.sleeps(1));
        for page in 0..8 {
            assert_eq!(stage.fake.filled_with(page), Some(page as u8 + 1));
            assert!(!stage.fake.is_protected(page));
        }
        assert_eq!(stage.frames_in_use(), 0);
        assert!(stage.world.staged.is_empty());
    }
}

#[test]
fn a_staged_page_is_out_of_reach() {
    for mut stage in each(2) {
        filled(&stage, 1);
        hash_of(stage.detach(&[(0, 1)])[0]);
        assert_eq!(stage.fake.touch(1, at(0), None), None, "a read is a fault");
        assert_eq!(stage.fake.filled_with(0), None);
        assert_eq!(stage.frames_in_use(), 1);
    }
}

#[test]
fn zeroes_are_known_when_they_leave() {
    for mut stage in each(2) {
        stage.fake.fill(0, 0);
        stage.fake.fill(1, 1);
        let out = stage.detach(&[(0, 2)]);
        let zero = |o: &PageOutcome| matches!(o, PageOutcome::Detached { zero: true, .. });
        assert_eq!(out.iter().map(zero).collect::<Vec<_>>(), [true, false]);
        assert_eq!(hash_of(out[0]), stage.hash(0));
    }
}

#[test]
fn a_page_that_is_not_there_is_absent() {
    for mut stage in each(4) {
        stage.fake.fill(2, 5);
        let out = stage.detach(&[(1, 3)]);
        assert_eq!([out[0], out[2]], [ABSENT; 2]);
        assert_eq!(hash_of(out[1]), stage.hash(5));
    }
}

#[test]
fn ranges_without_victims_keep_their_pages() {
    for mut stage in each(4) {
        filled(&stage, 4);
        stage.world.space.hold(at(1), at(3));
        let out = stage.detach(&[(0, 4)]);
        assert_eq!(out[1..3], [BUSY; 2]);
        assert_eq!([out[0], out[3]].map(hash_of), [1, 4].map(|b| stage.hash(b)));
        assert_eq!(stage.fake.filled_with(1), Some(2));
        assert!(!stage.fake.is_protected(1));
    }
}

#[test]
fn pages_that_a_device_uses_stay_and_those_of_a_fork_are_duplicated() {
    let mut stage = Stage::new(Mechanism::Move, 4);
    filled(&stage, 4);
    stage.fake.state().pinned.insert(at(1));
    stage.fake.share(2);
    let out = stage.detach(&[(0, 4)]);
    assert_eq!(out[1], BUSY);
    assert_eq!(hash_of(out[2]), stage.hash(3));
    assert_eq!(stage.world.cow_duplicates, 1);
    assert_eq!(stage.fake.filled_with(1), Some(2));
    assert_eq!(stage.frames_in_use(), 3);
}

#[test]
fn runs_that_lie_close_move_in_one_call_and_nothing_else_does() {
    let mut stage = Stage::new(Mechanism::Move, 16);
    for page in [2, 4, 6, 7] {
        stage.fake.fill(page, page as u8);
    }
    let calls = |stage: &Stage| stage.fake.state().move_calls;
    let out = stage.detach(&[(2, 1), (4, 1), (6, 2)]);
    assert_eq!((out.len(), calls(&stage)), (4, 1));
    assert_eq!(stage.map(&[(2, 1), (4, 1), (6, 2)], false), [DONE; 4]);
    assert_eq!(calls(&stage), 2);
    // One that nobody named comes along, and goes back.
    stage.fake.fill(5, 5);
    stage.detach(&[(4, 1), (6, 1)]);
    assert_eq!(
        [4, 5, 6].map(|n| stage.fake.filled_with(n)),
        [None, Some(5), None]
    );
    assert_eq!(stage.frames_in_use(), 2);
}

#[test]
fn what_may_only_be_read_leaves_by_copying_under_either() {
    for mut stage in each(4) {
        filled(&stage, 4);
        stage.protect(0, 4, libc::PROT_READ);
        let out = stage.detach(&[(0, 4)]);
        assert_eq!(hash_of(out[3]), stage.hash(4));
        assert_eq!(stage.fake.filled_with(3), None, "its frame is gone");
        assert_eq!(stage.map(&[(0, 4)], true), [DONE; 4]);
        let back = [0, 1, 2, 3].map(|n| stage.fake.filled_with(n));
        assert_eq!(back, [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(stage.frames_in_use(), 0);
    }
}

#[test]
fn a_release_gives_the_frame_up() {
    for mut stage in each(4) {
        filled(&stage, 4);
        stage.detach(&[(0, 3)]);
        stage.release(&[0, 1, 2]);
        assert_eq!([0, 1, 2].map(|n| stage.fake.filled_with(n)), [None; 3]);
        assert_eq!(stage.fake.filled_with(3), Some(4));
        assert_eq!(stage.frames_in_use(), 0);
    }
}

#[test]
fn what_the_kernel_does_not_give_up_stays_as_it_was() {
    let mut stage = Stage::new(Mechanism::WriteProtect, 4);
    filled(&stage, 4);
    stage.fake.state().locked.insert(at(2));
    let out = stage.detach(&[(0, 4)]);
    assert_eq!(out[2], BUSY);
    let left = [0, 1, 2, 3].map(|n| stage.fake.filled_with(n));
    assert_eq!(left, [None, None, Some(3), None]);
    assert!(!stage.fake.is_protected(2));
}

#[test]
fn nothing_old_is_mapped_where_pages_were_thrown_away() {
    for mut stage in each(4) {
        stage.read(&[(0, 1), (1, 2), (2, 3)], &[]);
        // Not read yet: the kernel lets nothing pass, and reading it is what the call does.
        stage.fake.remove(1, 1, false);
        assert_eq!(stage.map(&[(0, 3)], true), [DONE, GONE, DONE]);
        assert_eq!(stage.fake.filled_with(1), None);
        assert_eq!(
            [0, 2].map(|n| stage.fake.filled_with(n)),
            [Some(1), Some(3)]
        );
        assert_eq!(stage.frames_in_use(), 0, "its frame is free");
        assert_eq!(stage.place_of(1), None);
    }
}

#[test]
fn what_moves_away_waits_in_its_frame() {
    for mut stage in each(8) {
        stage.read(&[(0, 1), (1, 2)], &[]);
        stage.fake.remap(1, 6, 1);
        stage.world.door.gather();
        assert_eq!(stage.map(&[(0, 2)], true), [DONE, KEPT]);
        assert!(stage.place_of(1).is_some());
        assert_eq!([1, 6].map(|n| stage.fake.filled_with(n)), [None; 2]);
    }
}

#[test]
fn nothing_leaves_where_something_changes() {
    for mut stage in each(8) {
        filled(&stage, 4);
        stage.fake.remap(2, 6, 1);
        stage.world.door.gather();
        let out = stage.detach(&[(0, 4)]);
        assert_eq!(out[2], BUSY);
        for page in [0, 1, 3] {
            assert_eq!(hash_of(out[page]), stage.hash(page as u8 + 1));
        }
        assert_eq!(stage.fake.filled_with(6), Some(3));
        assert!(!stage.fake.is_protected(6));
    }
}

/// Four pages that the program freed.
fn freed() -> Stage {
    let stage = Stage::new(Mechanism::Move, 12);
    filled(&stage, 4);
    stage.fake.state().free(0, 4);
    stage
}

fn drop_freed(stage: &mut Stage) -> Vec<PageOutcome> {
    let (run, mut out) = (stage.run(0, 4), Vec::new());
    stage.world.drop_freed(run, &mut out);
    out
}

fn first_four(stage: &Stage) -> [Option<u8>; 4] {
    [0, 1, 2, 3].map(|page| stage.fake.filled_with(page))
}

#[test]
fn freed_pages_go_when_those_who_told_of_changes_are_out_of_the_kernel() {
    let mut stage = freed();
    stage.fake.state().lingers = true;
    stage.fake.remove(8, 1, false);
    stage.fake.remove(9, 1, false);
    stage.world.door.gather();
    while stage.world.door.next_change().is_some() {}
    assert!(stage.world.is_changing(), "they are there yet");
    assert_eq!(drop_freed(&mut stage), [DONE; 4]);
    assert_eq!(first_four(&stage), [None; 4]);
}

#[test]
fn no_freed_page_is_tried_while_a_thread_stays_in_the_kernel() {
    let mut stage = freed();
    stage.fake.state().lingering = 1000;
    assert_eq!(drop_freed(&mut stage), [BUSY; 4]);
    assert_eq!(first_four(&stage), [Some(1), Some(2), Some(3), Some(4)]);
}

#[test]
fn a_freed_page_that_is_written_as_it_is_dropped_stays() {
    let mut stage = freed();
    let write = |state: &mut State, first| assert!(state.write_at_once(first + PAGE_BYTES, 2));
    stage.fake.state().at_drop = Some(Box::new(write));
    assert_eq!(drop_freed(&mut stage), [DONE, BUSY, DONE, DONE]);
    assert_eq!(first_four(&stage), [None, Some(2), None, None]);
}

#[test]
fn freed_pages_that_a_fork_shares_as_they_are_dropped_stay() {
    let mut stage = freed();
    stage.fake.state().at_drop = Some(Box::new(|state: &mut State, _| state.fork()));
    assert_eq!(drop_freed(&mut stage), [BUSY; 4]);
    assert_eq!(first_four(&stage), [Some(1), Some(2), Some(3), Some(4)]);
}

#[test]
fn a_freed_page_that_moves_as_it_is_dropped_does_not_count_as_gone() {
    let mut stage = freed();
    let move_away = |state: &mut State, _| state.remap(2, 8, 1);
    stage.fake.state().at_drop = Some(Box::new(move_away));
    // Nobody knows yet which of those that are not there moved.
    assert_eq!(drop_freed(&mut stage), [BUSY; 4]);
    assert_eq!(stage.fake.filled_with(8), Some(3));
}

#[test]
fn nothing_signals_where_a_mapping_is_changing() {
    for mut stage in each(8) {
        stage.read(&[(0, 1), (4, 2)], &[]);
        stage.fake.remap(0, 2, 1);
        stage.world.door.let_change_pass();
        // The page moved away; another came to where something was known.
        let pages = [0, 2].map(|n| stage.page(n));
        pages.iter().for_each(|&page| stage.world.poison(page));
        assert!(!(0..4).any(|n| stage.fake.is_poisoned(n)));
        assert!(stage.world.failing.take().is_none());
        let page = stage.page(4);
        stage.world.poison(page);
        assert!(stage.fake.is_poisoned(4));
    }
}

#[test]
fn a_page_that_cannot_be_read_signals() {
    for mut stage in each(2) {
        stage.read(&[(0, 1)], &[]);
        assert_eq!(stage.fake.touch(1, at(0), None), None);
        let page = stage.page(0);
        stage.world.poison(page);
        assert!(stage.fake.is_poisoned(0) && !stage.fake.sleeps(1));
        assert_eq!(stage.frames_in_use(), 0);
        assert_eq!(
            stage.zero_fill(0, 1),
            [PageOutcome::Refused(Refusal::Present)]
        );
    }
}

#[test]
fn a_kernel_without_memory_fails_the_scope_and_no_byte() {
    let mut stage = Stage::new(Mechanism::WriteProtect, 2);
    stage.read(&[(0, 1)], &[]);
    stage.fake.state().no_memory = true;
    assert_eq!(stage.map(&[(0, 1)], true), [KEPT]);
    let failure = stage.world.failing.take();
    assert_eq!(failure, Some(Failure::NoMemory(Errno::ENOMEM)));
    stage.fake.state().no_memory = false;
    assert_eq!(stage.map(&[(0, 1)], true), [DONE]);
    assert_eq!(stage.fake.filled_with(0), Some(1));
}

#[test]
fn free_frames_beyond_the_bound_go_back() {
    for mut stage in each(FRAMES) {
        let pages: Vec<_> = (0..16).map(|page| (page, 1)).collect();
        stage.read(&pages, &[]);
        stage.release(&(0..16).collect::<Vec<_>>());
        assert_eq!(stage.world.frames.free(), 16);
        // Nothing is used by the program, and so many frames may be.
        assert_eq!(stage.world.frames_too_many(0, 13), 3);
        stage.world.give_back(5);
        assert_eq!(stage.world.frames.populated(), 11);
        assert_eq!(stage.world.failing.take(), None);
    }
}

/// What the test knows of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    Untouched,
    There(u8),
    Staged(u8),
    Out(u8),
}

const PAGES: usize = 40;

/// Does one thing to a page, as the pager would, and says what is known of it then.
fn step(stage: &mut Stage, random: &mut Random, page: usize, known: Known) -> Known {
    let byte = 1 + random.index(250) as u8;
    match known {
        Known::Untouched => {
            assert_eq!(stage.zero_fill(page, 1), [DONE]);
            assert_eq!(stage.fake.touch(1, at(page), None), Some(0));
            stage.fake.fill(page, byte);
            Known::There(byte)
        }
        Known::There(_) if random.index(3) == 0 => {
            stage.fake.fill(page, byte);
            Known::There(byte)
        }
        Known::There(byte) => {
            let hash = hash_of(stage.detach(&[(page, 1)])[0]);
            assert_eq!(hash, stage.hash(byte));
            Known::Staged(byte)
        }
        Known::Staged(byte) if random.index(2) == 0 => {
            assert_eq!(stage.map(&[(page, 1)], random.index(2) == 0), [DONE]);
            Known::There(byte)
        }
        Known::Staged(byte) => {
            assert_eq!(stage.write(&[page]), [byte]);
            stage.release(&[page]);
            Known::Out(byte)
        }
        Known::Out(byte) => {
            assert_eq!(stage.read(&[(page, byte)], &[]), [DONE]);
            Known::Staged(byte)
        }
    }
}

#[test]
fn any_order_keeps_every_byte_and_every_frame() {
    for seed in 0..20 {
        for mut stage in each(PAGES) {
            let mut random = Random(seed);
            let mut known: BTreeMap<usize, Known> =
                (0..PAGES).map(|page| (page, Known::Untouched)).collect();
            for _ in 0..600 {
                let page = random.index(PAGES);
                let before = known[&page];
                let after = step(&mut stage, &mut random, page, before);
                known.insert(page, after);
            }
            for (&page, &known) in &known {
                match known {
                    Known::There(byte) => assert_eq!(stage.fake.filled_with(page), Some(byte)),
                    Known::Staged(byte) => {
                        assert_eq!(stage.map(&[(page, 1)], true), [DONE]);
                        assert_eq!(stage.fake.filled_with(page), Some(byte));
                    }
                    Known::Untouched | Known::Out(_) => {
                        assert_eq!(stage.fake.filled_with(page), None);
                    }
                }
            }
            assert_eq!(stage.frames_in_use(), 0);
            assert!(stage.world.frames.free() * PAGE_BYTES <= stage.world.frames.span().1);
        }
    }
}
