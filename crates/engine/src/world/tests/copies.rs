//! Pages that leave by copies under move.

use super::*;

/// `pages` pages that may only be read, with frames for copies of so many.
fn read_only(pages: usize, kept_for_copies: usize) -> Stage {
    let mut stage = Stage::new(Mechanism::Move, pages);
    filled(&stage, pages);
    stage.protect(0, pages, libc::PROT_READ);
    stage.world.kept_for_copies = kept_for_copies;
    stage
}

#[test]
fn no_copy_is_made_ahead_without_a_frame_for_it() {
    let mut stage = read_only(4, 1);
    stage.detach(&[(0, 4)]);
    assert_eq!(stage.fake.state().release_calls, 4);
}

#[test]
fn what_leaves_by_copying_is_dropped_together() {
    let mut stage = read_only(20, 16);
    let out = stage.detach(&[(0, 20)]);
    for (page, &outcome) in out.iter().enumerate() {
        assert_eq!(hash_of(outcome), stage.hash(page as u8 + 1));
        assert_eq!(stage.fake.filled_with(page), None);
    }
    assert_eq!(stage.fake.state().release_calls, 2, "16 copies and 4");
    assert_eq!(stage.world.frames.populated(), 20, "a frame for each");
}

#[test]
fn what_is_not_dropped_with_its_neighbours_stays_alone() {
    let mut stage = read_only(4, 4);
    stage.fake.state().locked.insert(at(2));
    let out = stage.detach(&[(0, 4)]);
    assert_eq!(out[2], BUSY);
    for page in [0, 1, 3] {
        assert_eq!(hash_of(out[page]), stage.hash(page as u8 + 1));
    }
    let left = [0, 1, 2, 3].map(|n| stage.fake.filled_with(n));
    assert_eq!(left, [None, None, Some(3), None]);
    assert!(!stage.fake.is_protected(2), "it may be written again");
    assert_eq!(stage.frames_in_use(), 3);
}

#[test]
fn what_went_with_its_neighbours_is_kept_though_it_is_locked_by_then() {
    let mut stage = read_only(3, 3);
    stage.fake.state().locked.insert(at(2));
    let lock = |state: &mut State, start| assert!(state.locked.insert(start));
    stage.fake.state().at_drop = Some(Box::new(lock));
    let out = stage.detach(&[(0, 3)]);
    assert_eq!(hash_of(out[0]), stage.hash(1));
    assert_eq!(stage.map(&[(0, 1)], true), [DONE]);
    assert_eq!(stage.fake.filled_with(0), Some(1));
}

#[test]
fn what_lies_apart_is_dropped_together() {
    let mut stage = Stage::new(Mechanism::WriteProtect, 40);
    filled(&stage, 40);
    stage.world.kept_for_copies = 16;
    let out = stage.detach(&[(0, 1), (7, 2), (20, 1), (39, 1)]);
    for (&outcome, byte) in out.iter().zip([1, 8, 9, 21, 40]) {
        assert_eq!(hash_of(outcome), stage.hash(byte));
    }
    assert_eq!(stage.fake.state().release_calls, 1);
    assert_eq!(stage.world.frames.populated(), 5, "a frame for each");
    let left = [0, 1, 7, 8, 20, 39].map(|n| stage.fake.filled_with(n));
    assert_eq!(left, [None, Some(2), None, None, None, None]);
}

#[test]
fn of_what_lies_apart_each_part_is_refused_by_itself() {
    let mut stage = Stage::new(Mechanism::WriteProtect, 40);
    filled(&stage, 40);
    stage.world.kept_for_copies = 16;
    stage.fake.state().locked.insert(at(7));
    let out = stage.detach(&[(0, 1), (7, 1), (20, 1)]);
    assert_eq!(out[1], BUSY);
    assert_eq!(
        [0, 2].map(|n| hash_of(out[n])),
        [1, 21].map(|b| stage.hash(b))
    );
    assert!(!stage.fake.is_protected(7), "it may be written again");
    assert_eq!(stage.frames_in_use(), 2);
}
