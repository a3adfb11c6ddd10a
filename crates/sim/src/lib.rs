//! Body two: the same pager with a simulated clock, disks and programs.
//!
//! Deterministic: the same inputs give the same bytes out. Times are nanoseconds of virtual time.
#![forbid(unsafe_code)]

pub mod bounds;
pub mod decisions;
pub mod disk;
pub mod guests;
pub mod neighbours;
pub mod paper;
pub mod programs;
pub mod rivals;
mod seed;
pub mod sizes;
pub mod sweep;
pub mod trace;
pub mod world;
