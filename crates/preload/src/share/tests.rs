use proptest::prelude::*;

use super::*;
use crate::mode::Mode;
use crate::mode::tests::InMode;

const MIB: u64 = 1 << 20;
const STEP: u64 = 16 * MIB;

/// What a process without a session is lent that has `have` and needs `need`.
fn alone(limit: u64, have: u64, need: u64) -> u64 {
    set_up(limit, &SessionPaths::default());
    raise_to(have, need, STEP).expect("nobody to refuse it")
}

#[test]
fn a_small_process_asks_nobody() {
    let _mode = InMode::new(Mode::Uninitialised);
    assert_eq!(alone(64 * MIB, 0, 1), 4 * MIB);
    assert_eq!(alone(64 * MIB, 0, 4 * MIB), 4 * MIB);
    assert_eq!(alone(2 * MIB, 0, 1), 2 * MIB, "less where the limit is");
    assert_eq!(
        alone(64 * MIB, 16 * MIB, 1),
        16 * MIB,
        "what it has it keeps"
    );
    assert!(!is_member());
}

#[test]
fn a_growing_process_gets_whole_steps_up_to_its_limit() {
    let _mode = InMode::new(Mode::Uninitialised);
    assert_eq!(alone(64 * MIB, 4 * MIB, 4 * MIB + 1), 16 * MIB);
    assert_eq!(alone(64 * MIB, 16 * MIB, 17 * MIB), 32 * MIB);
    assert_eq!(alone(40 * MIB, 32 * MIB, 33 * MIB), 40 * MIB);
    assert_eq!(alone(40 * MIB, 40 * MIB, 41 * MIB), 40 * MIB);
}

#[test]
fn whoever_is_lent_nothing_gives_nothing_back() {
    let _mode = InMode::new(Mode::Uninitialised);
    leave();
    assert!(!is_member());
    IS_MEMBER.store(true, Ordering::SeqCst);
    forget();
    assert!(!is_member(), "a child has none of its parent's");
}

proptest! {
    #[test]
    fn what_is_lent_never_shrinks_and_never_exceeds_the_limit(
        limit in MIB..1 << 40,
        have in 0..1_u64 << 40,
        need in 0..1_u64 << 48,
    ) {
        let _mode = InMode::new(Mode::Uninitialised);
        let have = have.min(limit);
        let lent = alone(limit, have, need);
        prop_assert!((have..=limit).contains(&lent), "{}", lent);
        prop_assert!(lent >= need.min(limit), "{} for {}", lent, need);
        prop_assert_eq!(alone(limit, lent, need), lent, "asked again");
    }
}
