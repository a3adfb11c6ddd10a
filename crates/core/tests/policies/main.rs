//! The reclaim, page-out, slot and read-ahead policies: worked examples of their sources, and small models.

mod allocator;
mod asp;
mod bsd_vm;
mod clusters;
mod governed;
mod leap;
mod linux_slot;
mod linux_vma;
mod papers;
mod placing;
mod reclaim;
mod reclaim_auto;
mod reclaim_learned;
mod settings;
mod stream;
mod swap_cache;
mod windows;
mod world;
