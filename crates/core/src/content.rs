//! What is known of a page's content.

/// 96 bits of a page's keyed 128-bit content hash.
///
/// 96 are kept, not 128, so that the state of a page stays below 32 bytes. Two different contents
/// of a page agree with probability 2^-96.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContentHash(pub [u32; 3]);
