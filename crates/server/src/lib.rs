//! The external pager: memory objects for other processes, under one limit.
//!
//! A client creates objects over a local socket, maps them and hands the server the userfaultfd that its faults go to. The server answers them, after
//! "Managing Discardable Pages with an External Pager" (Subramanian, 1991, section 2), and drops what the clients have given up in place of writing it.
//!
//! Each client has a [`Pager`](outpage_core::pager::Pager) of its own, to which `shares` gives frames of the limit. Nothing that a client sends or does in the
//! memory that it shares is believed: `memory.rs` says what that means.
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod body;
mod client;
mod common;
mod complaints;
mod extents;
mod listener;
mod memory;
mod object;
mod options;
mod policies;
mod server;
mod shares;
pub mod systemd;

pub use listener::{SocketFile, listen};
pub use options::Options;
pub use server::{ServeError, Server};
