//! What cannot be had of the read-ahead policies, and what can.

use alloc::string::String;
use core::fmt;

use super::REGISTRY;
use crate::settings::Wrong;

/// Why a policy cannot be had as it was asked for, and what can.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is none of that name.
    Policy(String),
    /// Something cannot be set of the policy of this name.
    Setting(&'static str, Wrong),
    /// Two settings of the policy of this name are given that say the same.
    Both(&'static str, [&'static str; 2]),
    /// The setting is larger than another one lets it be.
    Larger {
        /// The setting.
        setting: &'static str,
        /// Its value.
        given: u32,
        /// The other one.
        than: &'static str,
        /// The other one's value: the most that is allowed.
        most: u32,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(given) => {
                write!(f, "there is no read-ahead policy '{given}'; there are: ")?;
                let mut between = "";
                REGISTRY.iter().try_for_each(|entry| {
                    let between = core::mem::replace(&mut between, ", ");
                    write!(f, "{between}{}", entry.name)
                })
            }
            Self::Setting(name, wrong) => write!(f, "read-ahead policy {name}: {wrong}"),
            Self::Both(name, [one, other]) => write!(
                f,
                "read-ahead policy {name}: {one} and {other} are given; allowed: one of them"
            ),
            Self::Larger {
                setting,
                given,
                than,
                most,
            } => write!(
                f,
                "{setting} is {given}, but {than} is {most}; allowed: {setting} at most {most}, or a larger {than}"
            ),
        }
    }
}

impl core::error::Error for Refused {}
