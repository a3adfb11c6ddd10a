//! The pager against a model body: a simulated world with real page contents.

mod actions;
mod advice;
mod any;
mod body;
mod dead;
mod discard;
mod distress;
mod eviction;
mod plan;
mod pooled;
mod record;
mod store;
