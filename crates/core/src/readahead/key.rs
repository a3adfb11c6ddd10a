//! Whose faults share one record of where the last ones came.

use super::Touch;
use crate::settings::{Allowed, Setting, Values};

/// Whose faults share one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    /// Everybody's: the process, where each process has a pager of its own.
    One,
    /// Those on one memory object: a guest, where its memory is one object.
    Object,
    /// Those of one [`Touch::source`].
    Source,
}

pub(super) static KEY: Setting = Setting {
    name: "key",
    summary: "whose faults share an entry",
    allowed: Allowed::Words(&["one", "object", "source"]),
    default: Key::One as u32,
};

impl Key {
    /// What `values` say, of a policy that has [`KEY`].
    pub(super) fn set(values: &Values) -> Self {
        values.word(KEY.name, &[Self::One, Self::Object, Self::Source])
    }

    /// The number under which `touch` is remembered.
    pub(super) const fn of(self, touch: &Touch) -> u32 {
        match self {
            Self::One => 0,
            Self::Object => touch.page.object().0,
            Self::Source => touch.source.0,
        }
    }
}
