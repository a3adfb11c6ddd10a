//! The floor below which no policy can go.
//!
//! | bound | what it is |
//! |---|---|
//! | [`opt()`] | the fewest misses: Belady's optimum |
//! | [`transfers`] | the fewest page-ins of written pages, and a bound below the page-outs |
//! | [`Curve`] | the misses of LRU at every size, in one pass |
//! | [`Floor::time`] | the time that a disk needs to move that many bytes |
//!
//! All of them speak of single pages and a fixed number of frames; read-ahead, clusters and
//! cleaning ahead of time change when bytes move, and can only add to them.

mod curve;
mod floor;
mod keep;
mod opt;

pub use curve::Curve;
pub use floor::{Bandwidth, Floor, transfers};
pub use opt::{Optimum, opt};
