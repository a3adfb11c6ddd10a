use super::*;

/// A name that nobody defines is no runtime: every program would run without a limit.
#[test]
fn a_program_without_a_sanitizer_has_none() {
    assert_eq!(name(), None);
}
