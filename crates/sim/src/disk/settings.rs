//! What an administrator can set of the schedulers, and how people write it: `cfq:idle-ms=4`.

use std::fmt;

use super::{AnticipatoryParams, FairParams, SCHEDULERS, Scheduler};

/// The tunables of all schedulers, at the kernel's defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tunables {
    /// Of `cfq`.
    pub cfq: FairParams,
    /// Of `anticipatory`.
    pub anticipatory: AnticipatoryParams,
}

/// A tunable of a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name; the unit is the last part.
    pub name: &'static str,
    /// What it is, in one line.
    pub help: &'static str,
    /// The least that it can be.
    pub least: u64,
    /// The most.
    pub most: u64,
    field: fn(&mut Tunables) -> &mut u64,
}

impl Setting {
    /// Its value when nothing is said.
    #[must_use]
    pub fn default(&self) -> u64 {
        *(self.field)(&mut Tunables::default())
    }
}

/// Ten seconds, a hundred times the longest default: more would only make a scheduler another one.
const MS_MAX: u64 = 10_000;

macro_rules! setting {
    ($scheduler:ident.$field:ident, $name:literal, $help:literal, $least:expr, $most:expr) => {
        Setting {
            name: $name,
            help: $help,
            least: $least,
            most: $most,
            field: |tunables| &mut tunables.$scheduler.$field,
        }
    };
}

/// Those of `cfq`.
pub(super) const CFQ: &[Setting] = &[
    setting!(cfq.slice_sync_ms, "slice-ms", "a reader's slice", 1, MS_MAX),
    setting!(
        cfq.slice_async_ms,
        "async-slice-ms",
        "the slice of the writes",
        1,
        MS_MAX
    ),
    setting!(
        cfq.slice_async_requests,
        "async-requests",
        "writes in a slice, an eighth of them",
        1,
        1_000
    ),
    setting!(
        cfq.slice_idle_ms,
        "idle-ms",
        "how long the disk waits for the same reader's next read",
        0,
        MS_MAX
    ),
];

/// Those of `anticipatory`.
pub(super) const ANTICIPATORY: &[Setting] = &[
    setting!(
        anticipatory.antic_expire_us,
        "antic-expire-us",
        "how long the disk waits for the same reader's next read",
        0,
        1_000 * MS_MAX
    ),
    setting!(
        anticipatory.read_batch_ms,
        "read-batch-ms",
        "reads are served so long before writes get a turn",
        1,
        MS_MAX
    ),
    setting!(
        anticipatory.write_batch_ms,
        "write-batch-ms",
        "and writes so long",
        1,
        MS_MAX
    ),
    setting!(
        anticipatory.read_expire_ms,
        "read-expire-ms",
        "a read older than this is served first",
        1,
        MS_MAX
    ),
    setting!(
        anticipatory.write_expire_ms,
        "write-expire-ms",
        "and a write",
        1,
        MS_MAX
    ),
];

/// Why a scheduler cannot be had as it was asked for, and what can.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no such scheduler.
    Scheduler {
        /// What was given.
        given: String,
    },
    /// The scheduler has no such setting, or it was not given as KEY=VALUE.
    Setting {
        /// The scheduler.
        scheduler: &'static str,
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
        /// The least and the most that are allowed.
        allowed: (u64, u64),
    },
    /// The setting is given twice.
    Twice {
        /// The scheduler.
        scheduler: &'static str,
        /// The setting.
        setting: &'static str,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler { given } => {
                let names: Vec<_> = SCHEDULERS.iter().map(|s| s.name).collect();
                let names = names.join(", ");
                write!(f, "there is no scheduler '{given}'; there are {names}")
            }
            Self::Setting {
                scheduler,
                given,
                allowed,
            } if allowed.is_empty() => {
                write!(f, "{scheduler} has no setting, and so no '{given}'")
            }
            Self::Setting {
                scheduler,
                given,
                allowed,
            } => {
                let allowed = allowed.join(", ");
                write!(
                    f,
                    "'{given}' sets nothing of {scheduler}; KEY=VALUE with one of: {allowed}"
                )
            }
            Self::Value {
                setting,
                given,
                allowed: (least, most),
            } => write!(
                f,
                "{setting} cannot be '{given}'; allowed: {least} to {most}"
            ),
            Self::Twice { scheduler, setting } => {
                write!(f, "{scheduler} is given {setting} twice; allowed: once")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// The scheduler that `text` names, `NAME[:KEY=VALUE,...]`.
///
/// # Errors
/// When there is no such scheduler, setting or value, or a setting is given twice.
pub fn scheduler(text: &str) -> Result<Box<dyn Scheduler>, Refused> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    let found = SCHEDULERS.iter().find(|entry| entry.name == name.trim());
    let entry = found.ok_or_else(|| Refused::Scheduler {
        given: name.to_owned(),
    })?;
    let mut tunables = Tunables::default();
    let mut names = Vec::new();
    for given in settings.split(',').map(str::trim).filter(|s| !s.is_empty()) {
        let (setting, value) = given
            .split_once('=')
            .and_then(|(key, value)| {
                let found = entry.settings.iter().find(|s| s.name == key.trim())?;
                Some((found, value.trim()))
            })
            .ok_or_else(|| Refused::Setting {
                scheduler: entry.name,
                given: given.to_owned(),
                allowed: entry.settings.iter().map(|s| s.name).collect(),
            })?;
        if names.contains(&setting.name) {
            return Err(Refused::Twice {
                scheduler: entry.name,
                setting: setting.name,
            });
        }
        names.push(setting.name);
        let in_range = |number: &u64| (setting.least..=setting.most).contains(number);
        let number = value.parse().ok().filter(in_range);
        *(setting.field)(&mut tunables) = number.ok_or_else(|| Refused::Value {
            setting: setting.name,
            given: value.to_owned(),
            allowed: (setting.least, setting.most),
        })?;
    }
    Ok((entry.build)(&tunables))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_bad_ones_refused_with_what_is_allowed() {
        for good in ["fifo", "cfq", "cfq:", "cfq: idle-ms=0, slice-ms = 400"] {
            assert!(scheduler(good).is_ok(), "{good}");
        }
        for (bad, parts) in [
            ("noop", ["noop", "elevator"]),
            ("fifo:idle-ms=8", ["fifo has no setting", "idle-ms=8"]),
            (
                "cfq:antic-expire-us=1",
                ["antic-expire-us", "async-slice-ms"],
            ),
            ("cfq:idle-ms", ["'idle-ms'", "KEY=VALUE"]),
            ("cfq:slice-ms=0", ["slice-ms", "1 to 10000"]),
            ("cfq:idle-ms=8,idle-ms=0", ["idle-ms", "twice"]),
            ("anticipatory:antic-expire-us=-1", ["'-1'", "0 to 10000000"]),
        ] {
            let said = scheduler(bad).err().expect(bad).to_string();
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
    }

    #[test]
    fn every_setting_has_its_default_in_range_and_a_field_of_its_own() {
        for settings in [CFQ, ANTICIPATORY] {
            let mut tunables = Tunables::default();
            for (value, setting) in (77..).zip(settings) {
                assert!((setting.least..=setting.most).contains(&setting.default()));
                *(setting.field)(&mut tunables) = value;
            }
            for (value, setting) in (77..).zip(settings) {
                assert_eq!(*(setting.field)(&mut tunables), value, "{}", setting.name);
            }
        }
    }
}
