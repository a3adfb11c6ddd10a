//! Recorded page references.
