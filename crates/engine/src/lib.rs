//! The live body: pages a real program, in its own process.
//!
//! [`Engine`] is what the program's threads see: they post calls to it. [`live`] is the loop of the
//! one thread that owns everything else. An engine has the whole process, or the regions of a [`scope`]. Nothing here decides which page leaves or comes; that is
//! `outpage_core`.
#![deny(unsafe_code)]

mod adopt;
mod advice;
mod ask;
mod astray;
mod beside;
pub mod brain;
mod budget;
pub mod call;
mod changes;
mod check;
mod compressed;
pub mod config;
mod contiguous;
mod cut;
pub mod door;
pub mod encryption;
mod engine;
mod fork;
pub mod frames;
mod freeing;
mod give_back;
pub mod hash;
pub mod home;
mod leaving;
mod lent;
pub mod live;
pub mod notify;
mod outlive;
pub mod placement;
pub mod regions;
mod releaser;
mod report;
mod rest;
pub mod scope;
mod serve;
pub mod session;
mod sharing;
pub mod space;
pub mod staged;
mod start;
pub mod tell;
#[cfg(test)]
mod tests;
mod threads;
mod ticket;
mod together;
mod transfer;
mod unmanaged;
mod urgent;
mod views;
mod wait;
mod waiting;
mod workers;
pub mod world;
mod worth;

pub use engine::{Engine, OpenStore, Setup};
pub use outpage_stats::Counts;
pub use start::StartError;
pub use ticket::Ticket;
pub use workers::Workers;
