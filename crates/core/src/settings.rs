//! What people set of a policy, as in `s3-fifo:small=20,ghost=50`: names, ranges and defaults.

use alloc::string::{String, ToString};
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

    fn write(self, number: u32) -> String {
        match self {
            Self::Numbers(..) => number.to_string(),
            Self::Words(words) => words[number as usize].into(),
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

impl Setting {
    /// Its value where nobody sets it, as people write it.
    #[must_use]
    pub fn by_default(&self) -> String {
        self.allowed.write(self.default)
    }
}

/// The most settings that a policy has: read-ahead `asp`.
const SETTINGS_MAX: usize = 11;

/// A value for each setting of a policy, and which of them were set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Values {
    settings: &'static [&'static Setting],
    values: [u32; SETTINGS_MAX],
    /// A bit for each setting.
    set: u16,
}

impl Values {
    /// The defaults of `settings`.
    ///
    /// # Panics
    /// When there are more than eleven settings.
    #[must_use]
    pub fn defaults(settings: &'static [&'static Setting]) -> Self {
        let mut values = [0; SETTINGS_MAX];
        for (value, setting) in values[..settings.len()].iter_mut().zip(settings) {
            *value = setting.default;
        }
        let set = 0;
        Self {
            settings,
            values,
            set,
        }
    }

    /// What `text` sets of them, as in `small=20,ghost=50`, and the defaults of the others. Nothing sets nothing.
    ///
    /// # Errors
    /// [`Wrong`], at the first thing that cannot be set.
    pub fn parse(settings: &'static [&'static Setting], text: &str) -> Result<Self, Wrong> {
        let mut values = Self::defaults(settings);
        for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let (name, value) = one.split_once('=').unwrap_or((one, ""));
            let at = values.at(name.trim());
            let Some(at) = at.filter(|_| one.contains('=')) else {
                return Err(Wrong::Setting(one.into(), settings));
            };
            if values.is_set_at(at) {
                return Err(Wrong::Twice(settings[at].name));
            }
            let number = settings[at].allowed.read(value.trim());
            let number = number.ok_or_else(|| Wrong::Value(value.trim().into(), *settings[at]))?;
            values.set_at(at, number);
        }
        Ok(values)
    }

    /// The value of the setting called `name`; of words, the index.
    ///
    /// # Panics
    /// When there is no such setting.
    #[must_use]
    pub fn of(&self, name: &str) -> u32 {
        self.find(name).expect("a setting of the policy")
    }

    /// The same, where the policy has such a setting.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<u32> {
        self.at(name).map(|at| self.values[at])
    }

    /// What the word of the setting called `name` stands for; `meanings` is in the order of its words.
    ///
    /// # Panics
    /// When there is no such setting, or it has more words than meanings.
    #[must_use]
    pub fn word<T: Copy>(&self, name: &str, meanings: &[T]) -> T {
        meanings[self.of(name) as usize]
    }

    /// Whether the policy has the setting and it was set, to its default or another value.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.at(name).is_some_and(|at| self.is_set_at(at))
    }

    /// The same with `number` as the value of the setting called `name`; nothing else where there is no such setting.
    ///
    /// # Panics
    /// When it is not an allowed value.
    #[must_use]
    pub fn set(mut self, name: &str, number: u32) -> Self {
        if let Some(at) = self.at(name) {
            assert!(
                self.settings[at].allowed.hold(number),
                "{name} cannot be {number}"
            );
            self.set_at(at, number);
        }
        self
    }

    /// The same with what is set in `over`.
    ///
    /// # Panics
    /// When they are not values of the same settings.
    #[must_use]
    pub fn with(mut self, over: &Self) -> Self {
        assert_eq!(self.settings, over.settings);
        for at in (0..self.settings.len()).filter(|&at| over.is_set_at(at)) {
            self.set_at(at, over.values[at]);
        }
        self
    }

    /// The same with the default of the setting called `name`, as if it was not set.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        if let Some(at) = self.at(name) {
            self.values[at] = self.settings[at].default;
            self.set &= !(1 << at);
        }
        self
    }

    fn at(&self, name: &str) -> Option<usize> {
        self.settings.iter().position(|s| s.name == name)
    }

    const fn is_set_at(&self, at: usize) -> bool {
        self.set >> at & 1 == 1
    }

    const fn set_at(&mut self, at: usize, number: u32) {
        self.values[at] = number;
        self.set |= 1 << at;
    }
}

/// What was set, as [`Values::parse`] reads it.
impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for at in (0..self.settings.len()).filter(|&at| self.is_set_at(at)) {
            let (setting, between) = (self.settings[at], core::mem::replace(&mut between, ","));
            let value = setting.allowed.write(self.values[at]);
            write!(f, "{between}{}={value}", setting.name)?;
        }
        Ok(())
    }
}

/// What cannot be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// This sets none of these settings.
    Setting(String, &'static [&'static Setting]),
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

    static TWO: [&Setting; 2] = [
        &Setting {
            name: "share",
            summary: "",
            allowed: Allowed::Numbers(1, 99),
            default: 10,
        },
        &Setting {
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
        assert_eq!(read("share=10").unwrap().to_string(), "share=10");
        assert_eq!(TWO[1].by_default(), "up");
        let both = read(" order = down, share=7").unwrap();
        assert_eq!((both.of("share"), both.of("order")), (7, 1));
        assert_eq!(both.to_string(), "share=7,order=down");
        assert_eq!(read(&both.to_string()), Ok(both));
    }

    #[test]
    fn what_is_set_later_holds_and_the_rest_stays() {
        let read = |text| Values::parse(&TWO, text).unwrap();
        let both = read("share=7,order=down").with(&read("order=up"));
        assert_eq!(both.to_string(), "share=7,order=up");
        assert_eq!(both.word("order", &['u', 'd']), 'u');
        assert!(both.is_set("order") && !both.is_set("else"));
        let one = both.without("share");
        assert_eq!(one, read("order=up"));
        assert_eq!((one.find("share"), one.find("else")), (Some(10), None));
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
