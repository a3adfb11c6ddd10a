//! The rivals against worked examples, against naive implementations, and against the optimum.

mod agree;
mod golden;
mod libcachesim;
mod naive;
mod naive_lists;
mod strings;
mod table;
mod variants;
