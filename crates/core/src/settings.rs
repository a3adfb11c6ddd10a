//! What people set of a policy, as in `s3-fifo:small=20,ghost=50`: names, ranges and defaults.

use alloc::string::String;
use core::fmt;

/// The values of a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// From the first to the second, both included.
    Numbers(u32, u32),
    /// One of these; its index is the number behind it.
    Words(&'static [&'static str]),
}

impl Allowed {
    pub(crate) const fn hold(self, number: u32) -> bool {
        match self {
            Self::Numbers(least, most) => least <= number && number <= most,
            Self::Words(words) => (number as usize) < words.len(),
        }
    }

    pub(crate) fn read(self, text: &str) -> Option<u32> {
        match self {
            Self::Numbers(..) => text.parse().ok().filter(|&number| self.hold(number)),
            Self::Words(words) => words
                .iter()
                .position(|word| *word == text)
                .map(|at| at as u32),
        }
    }

    fn write(self, number: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbers(..) => write!(f, "{number}"),
            Self::Words(words) => f.write_str(words[number as usize]),
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbers(least, most) => write!(f, "{least} to {most}"),
            Self::Words(words) => f.write_str(&words.join(", ")),
        }
    }
}

/// One setting of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in one line, with its unit.
    pub summary: &'static str,
    /// Its values.
    pub allowed: Allowed,
    /// Where nobody sets it; of words, the index.
    pub default: u32,
}

/// The most settings that a policy has.
const SETTINGS_MAX: usize = 4;

/// A value for each setting of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Values {
    settings: &'static [Setting],
    values: [u32; SETTINGS_MAX],
}

impl Values {
    /// The defaults of `settings`.
    ///
    /// # Panics
    /// When there are more than four settings.
    #[must_use]
    pub fn defaults(settings: &'static [Setting]) -> Self {
        let mut values = [0; SETTINGS_MAX];
        for (value, setting) in values[..settings.len()].iter_mut().zip(settings) {
            *value = setting.default;
        }
        Self { settings, values }
    }

    /// What `text` sets of them, as in `small=20,ghost=50`, and the defaults of the others. Nothing sets nothing.
    ///
    /// # Errors
    /// [`Wrong`], at the first thing that cannot be set.
    pub fn parse(settings: &'static [Setting], text: &str) -> Result<Self, Wrong> {
        let mut values = Self::defaults(settings);
        let mut given = [false; SETTINGS_MAX];
        for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let (name, value) = one.split_once('=').unwrap_or((one, ""));
            let at = settings.iter().position(|s| s.name == name.trim());
            let Some(at) = at.filter(|_| one.contains('=')) else {
                return Err(Wrong::Setting(one.into(), settings));
            };
            if core::mem::replace(&mut given[at], true) {
                return Err(Wrong::Twice(settings[at].name));
            }
            values.values[at] = settings[at]
                .allowed
                .read(value.trim())
                .ok_or_else(|| Wrong::Value(value.trim().into(), settings[at]))?;
        }
        Ok(values)
    }

    /// The value of the setting called `name`; of words, the index.
    ///
    /// # Panics
    /// When there is no such setting.
    #[must_use]
    pub fn of(&self, name: &str) -> u32 {
        let at = self.settings.iter().position(|s| s.name == name);
        self.values[at.expect("a setting of the policy")]
    }
}

/// What is not as by default, as [`Values::parse`] reads it.
impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (setting, &value) in self.settings.iter().zip(&self.values) {
            if value != setting.default {
                write!(f, "{between}{}=", setting.name)?;
                setting.allowed.write(value, f)?;
                between = ",";
            }
        }
        Ok(())
    }
}

/// What cannot be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// This sets none of these settings.
    Setting(String, &'static [Setting]),
    /// The setting cannot have this value.
    Value(String, Setting),
    /// The setting is given twice.
    Twice(&'static str),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(given, []) => write!(f, "there is no setting, and so no '{given}'"),
            Self::Setting(given, settings) => {
                write!(f, "'{given}' sets nothing; NAME=VALUE with one of: ")?;
                let mut between = "";
                settings.iter().try_for_each(|setting| {
                    write!(
                        f,
                        "{}{}",
                        core::mem::replace(&mut between, ", "),
                        setting.name
                    )
                })
            }
            Self::Value(given, setting) => write!(
                f,
                "{} cannot be '{given}'; allowed: {}",
                setting.name, setting.allowed
            ),
            Self::Twice(name) => write!(f, "{name} is given twice; allowed: once"),
        }
    }
}

impl core::error::Error for Wrong {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    static TWO: [Setting; 2] = [
        Setting {
            name: "share",
            summary: "",
            allowed: Allowed::Numbers(1, 99),
            default: 10,
        },
        Setting {
            name: "order",
            summary: "",
            allowed: Allowed::Words(&["up", "down"]),
            default: 0,
        },
    ];

    #[test]
    fn what_is_set_comes_back_as_it_was_written() {
        let read = |text| Values::parse(&TWO, text);
        assert_eq!(read(""), Ok(Values::defaults(&TWO)));
        assert_eq!(read("share=10").unwrap().to_string(), "");
        let both = read(" order = down, share=7").unwrap();
        assert_eq!((both.of("share"), both.of("order")), (7, 1));
        assert_eq!(both.to_string(), "share=7,order=down");
        assert_eq!(read(&both.to_string()), Ok(both));
    }

    #[test]
    fn what_cannot_be_set_is_said_in_one_line() {
        let wrong = |text| Values::parse(&TWO, text).unwrap_err().to_string();
        assert_eq!(
            wrong("ghost=1"),
            "'ghost=1' sets nothing; NAME=VALUE with one of: share, order"
        );
        assert_eq!(
            wrong("share"),
            "'share' sets nothing; NAME=VALUE with one of: share, order"
        );
        assert_eq!(
            wrong("share=100"),
            "share cannot be '100'; allowed: 1 to 99"
        );
        assert_eq!(wrong("share=-1"), "share cannot be '-1'; allowed: 1 to 99");
        assert_eq!(wrong("order=x"), "order cannot be 'x'; allowed: up, down");
        assert_eq!(
            wrong("share=1,share=2"),
            "share is given twice; allowed: once"
        );
        assert_eq!(
            Values::parse(&[], "a=1").unwrap_err().to_string(),
            "there is no setting, and so no 'a=1'"
        );
    }
}
