//! The page-out, slot and read-ahead policies: worked examples of their sources, and small models.

mod allocator;
mod bsd_vm;
mod clusters;
mod linux_slot;
mod papers;
mod placing;
mod stream;
mod windows;
mod world;
