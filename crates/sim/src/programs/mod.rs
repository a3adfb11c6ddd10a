//! Programs as generators of page references.
