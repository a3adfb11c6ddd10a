//! Compressed pages in RAM.
//!
//! [`Pool`] keeps a page for each slot, within a limit of frames. Which pages come and go is its owner's decision, and whether they come
//! back as they were is the owner's to check.

mod blocks;
mod classes;
mod codec;
mod frames;
mod pool;
mod sample;
mod table;
#[cfg(test)]
mod tests;
mod zstd;

pub use codec::Codec;
pub use frames::Memory;
pub use pool::{Pool, TakeError, Unkept};
