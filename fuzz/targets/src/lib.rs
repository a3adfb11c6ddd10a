//! What outside bytes reach: each function takes any bytes and must not panic, hang or eat memory.
//!
//! A target that can has an oracle as well: what was read is written and read again, or another implementation says the same.

mod cursor;
mod formats;
mod log;
mod notify;
mod protocol;
mod session;
mod settings;
mod text;

pub use formats::{lackey, oracle, trace};
pub use log::log;
pub use notify::notify;
pub use protocol::protocol;
pub use session::session;
pub use settings::{disk, environment, machine, policies, size};
pub use text::{code, maps};

/// A target: what runs it.
pub type Target = fn(&[u8]);

/// Every target and its name, which is that of its directory of seeds.
pub const TARGETS: &[(&str, Target)] = &[
    ("trace", trace),
    ("lackey", lackey),
    ("oracle", oracle),
    ("log", log),
    ("session", session),
    ("size", size),
    ("policies", policies),
    ("environment", environment),
    ("machine", machine),
    ("disk", disk),
    ("maps", maps),
    ("code", code),
    ("notify", notify),
    ("protocol", protocol),
];
