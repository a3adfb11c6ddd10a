//! The daemon of FreeBSD 6.2 and 8.2 through the whole pager: `bsd-vm.md`, the list at the end of
//! section 16, and random programs against a body that knows what every page holds.

mod any;
mod daemon;
mod driven;
mod faults;
mod levels;
mod machine;
