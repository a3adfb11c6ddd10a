//! The brain of Outpage: events in, actions out. No I/O, no clock, no threads.
//!
//! [`pager::Pager`] says when things happen; the policies in [`reclaim`], [`pageout`],
//! [`readahead`] and [`slots`] say which; a body (the live engine, a simulator) says how.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod choice;
pub mod content;
pub mod contract;
pub mod discard;
pub mod limits;
pub mod notify;
pub mod page;
pub mod pageout;
pub mod pager;
pub mod readahead;
pub mod reclaim;
pub mod record;
pub mod refaults;
pub mod settings;
pub mod slot_pool;
pub mod slots;
pub mod stats;
pub mod swap_cache;
pub mod tier;
pub mod units;
