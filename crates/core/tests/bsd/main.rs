//! The daemon of FreeBSD 6.2 and 8.2 by itself and through the whole pager, and random programs
//! against a body that knows what every page holds.

mod any;
mod daemon;
mod driven;
mod faults;
mod levels;
mod machine;
