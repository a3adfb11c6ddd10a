//! What is written from where, and what comes of what was read.

use super::*;

#[test]
fn what_was_read_is_staged_if_it_is_what_left() {
    for mut stage in each(8) {
        let hashes = vec![stage.hash(1), stage.hash(99), stage.hash(3)];
        let out = stage.read_expecting(&[(0, 1), (1, 2), (2, 3)], hashes, &[2]);
        let refused = [Refusal::Damaged, Refusal::Unread].map(PageOutcome::Refused);
        assert_eq!(out, [DONE, refused[0], refused[1]]);
        assert_eq!(stage.frames_in_use(), 1, "one is staged");
        assert_eq!(
            stage.fake.filled_with(0),
            None,
            "its first touch is to show"
        );
        assert_eq!(stage.map(&[(0, 1)], true), [DONE]);
        assert_eq!(stage.fake.filled_with(0), Some(1));
        assert_eq!(stage.frames_in_use(), 0);
    }
}

#[test]
fn what_is_read_damaged_is_gone_where_something_is_mapped_over_it() {
    for mut stage in each(8) {
        stage.fake.cover(0, 2);
        let hashes = vec![stage.hash(1), stage.hash(99), stage.hash(98)];
        let out = stage.read_expecting(&[(0, 1), (1, 2), (2, 3)], hashes, &[]);
        let [gone, damaged] = [Refusal::Gone, Refusal::Damaged].map(PageOutcome::Refused);
        assert_eq!(out, [DONE, gone, damaged]);
        // Where its mapping moved away, and the message waits, it is wanted elsewhere.
        stage.fake.remap(4, 6, 2);
        stage.world.door.let_change_pass();
        let hashes = vec![stage.hash(99)];
        assert_eq!(stage.read_expecting(&[(4, 2)], hashes, &[]), [damaged]);
    }
}

#[test]
fn what_is_read_damaged_is_gone_where_the_program_threw_it_away() {
    for mut stage in each(8) {
        stage.fake.state().begin_to_free(0, 1);
        stage.fake.remap(2, 6, 2);
        stage.fake.state().begin_to_free(7, 1);
        stage.world.door.let_change_pass();
        let hashes = (0..4).map(|_| stage.hash(99)).collect();
        let out = stage.read_expecting(&[(0, 1), (1, 1), (2, 1), (3, 1)], hashes, &[]);
        let [gone, damaged] = [Refusal::Gone, Refusal::Damaged].map(PageOutcome::Refused);
        assert_eq!(
            out,
            [gone, damaged, damaged, gone],
            "page 3 lay at 7 when that went"
        );
        assert_eq!(stage.frames_in_use(), 0);
    }
}

#[test]
fn what_is_written_is_what_left_wherever_its_place_moves() {
    for mut stage in each(8) {
        filled(&stage, 2);
        stage.detach(&[(0, 2)]);
        stage.fake.remap(0, 4, 2);
        stage.world.door.let_change_pass();
        assert_eq!(stage.write(&[0, 1]), [1, 2]);
    }
}
