//! Other replacement policies, for comparison.
