//! A policy with what was set of it.

use alloc::boxed::Box;
use alloc::string::ToString;
use core::{fmt, str};

use super::common::{GOVERN, Govern, MAX, Manner, PAGE_CLUSTER};
use super::refused::Refused;
use super::{Entry, ReadAhead, find};
use crate::settings::Values;

/// A policy of [`REGISTRY`](super::REGISTRY) with what was set of it.
#[derive(Clone, Copy)]
pub struct Choice {
    entry: &'static Entry,
    values: Values,
}

impl Choice {
    /// The policy where nothing is set. It is governed.
    #[must_use]
    pub fn plain(entry: &'static Entry) -> Self {
        let values = Values::defaults(entry.settings);
        Self { entry, values }
    }

    /// The policy as its source has it: not governed.
    #[must_use]
    pub fn ungoverned(entry: &'static Entry) -> Self {
        Self::plain(entry).set(GOVERN.name, Govern::Off as u32)
    }

    /// The same with what `settings` say, as in `window=4,max=64`. Whether the values fit together is for [`Self::check`].
    ///
    /// # Errors
    /// When the policy has no such setting, a value is not allowed, or a setting is given twice, under one name or two.
    pub fn with(self, settings: &str) -> Result<Self, Refused> {
        let name = self.entry.name;
        let over = Values::parse(self.entry.settings, settings);
        let over = over.map_err(|wrong| Refused::Setting(name, wrong))?;
        let twins = [MAX.name, PAGE_CLUSTER.name];
        if twins.iter().all(|twin| over.is_set(twin)) {
            return Err(Refused::Both(name, twins));
        }
        let values = match twins.iter().any(|twin| over.is_set(twin)) {
            true => self.values.without(MAX.name).without(PAGE_CLUSTER.name),
            false => self.values,
        };
        Ok(Self {
            values: values.with(&over),
            ..self
        })
    }

    /// The same with a largest window of `slots`; what reads the demanded page alone stays as it is.
    ///
    /// # Errors
    /// When the policy does not allow that window.
    pub fn with_window(self, slots: u32) -> Result<Self, Refused> {
        if self.values.find(MAX.name).is_none() {
            return Ok(self);
        }
        self.with(&alloc::format!("{}={slots}", MAX.name))
    }

    /// The same for a pager of `frames` frames: with little memory, the largest window is
    /// [`Little::max_window`](super::Little::max_window) unless one was set.
    #[must_use]
    pub fn for_frames(self, frames: usize) -> Self {
        match self.entry.little {
            Some(little) if frames < little.below && !self.values.is_set(MAX.name) => {
                self.set(MAX.name, little.max_window)
            }
            _ => self,
        }
    }

    /// The same with the setting called `name`, if the policy has it, at `number`.
    fn set(self, name: &str, number: u32) -> Self {
        let values = self.values.set(name, number);
        Self { values, ..self }
    }

    /// The policy's entry.
    #[must_use]
    pub const fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// The value of each of its settings.
    #[must_use]
    pub const fn values(&self) -> &Values {
        &self.values
    }

    /// How the pager is to treat what it names.
    #[must_use]
    pub fn manner(&self) -> Manner {
        Manner::of(&self.values, self.entry.needs_touches)
    }

    /// The largest window, in slots: 1 to 256.
    #[must_use]
    pub fn max_window(&self) -> u32 {
        self.manner().read_max
    }

    /// Makes one.
    #[must_use]
    pub fn build(&self) -> Box<dyn ReadAhead> {
        (self.entry.build)(&self.values, self.manner())
    }

    /// Whether its values fit together.
    ///
    /// # Errors
    /// When one is larger than another lets it be.
    pub fn check(&self) -> Result<(), Refused> {
        for &(setting, than) in self.entry.at_most {
            let (given, most) = (self.values.of(setting), self.values.of(than));
            if given > most {
                return Err(Refused::Larger {
                    setting,
                    given,
                    than,
                    most,
                });
            }
        }
        Ok(())
    }
}

/// Of a name and settings, as in `asp:window=4,max=64`. An error where there is no such policy, setting or value, or values do not fit together.
impl str::FromStr for Choice {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let name = name.trim();
        let entry = find(name).ok_or_else(|| Refused::Policy(name.to_string()))?;
        let choice = Self::plain(entry).with(settings)?;
        choice.check()?;
        Ok(choice)
    }
}

impl PartialEq for Choice {
    fn eq(&self, other: &Self) -> bool {
        self.entry.name == other.entry.name && self.values == other.values
    }
}

impl Eq for Choice {}

/// As it is displayed: its entry says no more.
impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As it is read.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry.name)?;
        if self.values == Values::defaults(self.entry.settings) {
            return Ok(());
        }
        write!(f, ":{}", self.values)
    }
}
