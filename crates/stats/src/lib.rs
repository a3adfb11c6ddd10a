//! What a run counts, and a look at runs from outside.
//!
//! [`COUNTERS`] declares every counter once: the shared memory of a run, its JSON, its summary and the documents come
//! from it. [`find`] finds the runs of this machine, and [`run`] reads one, believing nothing that it reads: any process
//! of a run can write anything there.
#![deny(unsafe_code)]

mod counters;
pub mod find;
mod latency;
pub mod layout;
pub mod liveness;
mod objects;
pub mod run;
mod table;

pub use counters::{COUNTERS, Counter, Counters, Counts, WRITE_SIZES, count};
pub use latency::{Histogram, Latencies, Latency, Waits};
pub use objects::{ObjectUse, ObjectUses, Table, largest};
pub use table::{Definition, Kind, LINES, Line, LineDefinition, Unit};
