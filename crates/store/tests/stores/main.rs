//! Stores through their interface, one topic a file.

mod bad_pages;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod encrypted;
mod faulty;
mod no_space;
mod swapfile;
