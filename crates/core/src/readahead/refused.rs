//! What cannot be had of the read-ahead policies, and what can.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::params::Allowed;

/// Why a policy cannot be had as it was asked for, and what can.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no such policy.
    Policy {
        /// What was given.
        given: String,
        /// The policies there are.
        allowed: Vec<&'static str>,
    },
    /// The policy has no such setting, or it was not given as NAME=VALUE.
    Setting {
        /// The policy.
        policy: &'static str,
        /// What was given.
        given: String,
        /// The settings it has.
        allowed: Vec<&'static str>,
    },
    /// The setting cannot have that value.
    Value {
        /// The setting.
        setting: &'static str,
        /// What was given.
        given: String,
        /// The values it can have.
        allowed: Allowed,
    },
    /// The setting is given twice, under one name or two.
    Twice {
        /// The policy.
        policy: &'static str,
        /// The setting, as given the second time.
        setting: &'static str,
        /// As given the first time.
        first: &'static str,
    },
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
    /// The setting needs what the body cannot give.
    Needs {
        /// The policy.
        policy: &'static str,
        /// The setting.
        setting: &'static str,
        /// Its value.
        given: &'static str,
        /// What it needs.
        needs: &'static str,
        /// The setting's values that can be had; none where the policy cannot do without.
        allowed: Vec<&'static str>,
        /// The policies that can be had with their defaults.
        policies: Vec<&'static str>,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { given, allowed } => {
                let allowed = allowed.join(", ");
                write!(
                    f,
                    "there is no read-ahead policy '{given}'; there are: {allowed}"
                )
            }
            Self::Setting {
                policy,
                given,
                allowed,
            } if allowed.is_empty() => write!(f, "{policy} has no setting, and so no '{given}'"),
            Self::Setting {
                policy,
                given,
                allowed,
            } => write!(
                f,
                "'{given}' sets nothing of {policy}; NAME=VALUE with one of: {}",
                allowed.join(", ")
            ),
            Self::Value {
                setting,
                given,
                allowed,
            } => write!(f, "{setting} cannot be '{given}'; allowed: {allowed}"),
            Self::Twice {
                policy,
                setting,
                first,
            } if setting == first => write!(f, "{policy} is given {setting} twice; allowed: once"),
            Self::Twice {
                policy,
                setting,
                first,
            } => write!(
                f,
                "{policy} is given {first} and {setting}; allowed: one of them"
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
            Self::Needs {
                policy,
                setting,
                given,
                needs,
                allowed,
                policies,
            } => {
                write!(
                    f,
                    "{policy} with {setting}={given} needs {needs}; allowed: "
                )?;
                if !allowed.is_empty() {
                    write!(f, "{setting}={}, or ", allowed.join(", "))?;
                }
                write!(f, "another policy: {}", policies.join(", "))
            }
        }
    }
}

impl core::error::Error for Refused {}
