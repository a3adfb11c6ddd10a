//! The pager against a model body: a simulated world with real page contents.

mod any;
mod body;
mod plan;
mod store;
