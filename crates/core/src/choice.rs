//! A policy of a registry with what was set of it, for the seams whose policies differ in their settings alone.

use core::fmt;

use crate::settings::{Setting, Values, Wrong};

/// What a registry's entry tells of its policy.
pub trait Offer: Sized + 'static {
    /// What a policy of this registry is called in a message, as in `reclaim policy`.
    const KIND: &'static str;

    /// Every entry, the default first.
    fn registry() -> &'static [Self];

    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// What can be set of it.
    fn settings(&self) -> &'static [&'static Setting];
}

/// A policy with what was set of it.
pub struct Choice<E: 'static> {
    entry: &'static E,
    values: Values,
}

impl<E: Offer> Choice<E> {
    /// Reads a name and settings, as in `s3-fifo:small=20`.
    pub(crate) fn read<'a, W>(
        text: &'a str,
        find: impl FnOnce(&'a str) -> Result<&'static E, W>,
    ) -> Result<Self, Refused<W>> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let entry = find(name.trim()).map_err(Refused::Policy)?;
        let values = Values::parse(entry.settings(), settings);
        let values = values.map_err(|wrong| Refused::Setting(E::KIND, entry.name(), wrong))?;
        Ok(Self { entry, values })
    }
}

impl<E> Choice<E> {
    /// The policy's entry.
    #[must_use]
    pub const fn entry(&self) -> &'static E {
        self.entry
    }

    /// The values of its settings.
    #[must_use]
    pub const fn values(&self) -> &Values {
        &self.values
    }
}

impl<E> Clone for Choice<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Choice<E> {}

impl<E: Offer> Default for Choice<E> {
    fn default() -> Self {
        let entry = &E::registry()[0];
        let values = Values::defaults(entry.settings());
        Self { entry, values }
    }
}

impl<E: Offer> PartialEq for Choice<E> {
    fn eq(&self, other: &Self) -> bool {
        self.entry.name() == other.entry.name() && self.values == other.values
    }
}

impl<E: Offer> Eq for Choice<E> {}

impl<E: Offer> fmt::Debug for Choice<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{self}'")
    }
}

/// As it is read.
impl<E: Offer> fmt::Display for Choice<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry.name())?;
        if self.values == Values::defaults(self.entry.settings()) {
            return Ok(());
        }
        write!(f, ":{}", self.values)
    }
}

/// Why a policy cannot be had as it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused<W> {
    /// There is none of that name, or not here.
    Policy(W),
    /// Something cannot be set: of which kind of policy, of which name, and what.
    Setting(&'static str, &'static str, Wrong),
}

impl<W: fmt::Display> fmt::Display for Refused<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(why) => why.fmt(f),
            Self::Setting(kind, name, wrong) => write!(f, "{kind} {name}: {wrong}"),
        }
    }
}

impl<W: fmt::Debug + fmt::Display> core::error::Error for Refused<W> {}

/// Ends a message by the names that there are.
pub(crate) fn list<E: Offer>(
    f: &mut fmt::Formatter<'_>,
    entries: impl Iterator<Item = &'static E>,
) -> fmt::Result {
    let mut before = "; there are: ";
    for entry in entries {
        write!(f, "{before}{}", entry.name())?;
        before = ", ";
    }
    Ok(())
}
