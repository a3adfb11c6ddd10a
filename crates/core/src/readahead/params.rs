//! What read-ahead policies are built from, and which values each setting takes.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::refused::Refused;
use super::{Entry, Touch, find};
pub use crate::settings::Allowed;

/// The most slots that a window can have.
pub(super) const MAX_SLOTS: usize = 256;

/// When BSD read-ahead moves the point from which it expects a sequential fault (`lastr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LastrRule {
    /// At every fault that needed a read (FreeBSD from the spring of 2010 on).
    #[default]
    MajorFaults,
    /// At faults on untouched pages too (FreeBSD 6.2 and 7).
    EveryFault,
    /// Never: no fault counts as sequential.
    Off,
}

/// Whose faults share one record of where the last ones came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Key {
    /// Everybody's: the process, where each process has a pager of its own.
    #[default]
    One,
    /// Those on one memory object: a guest, where its memory is one object.
    Object,
    /// Those of one [`Touch::source`].
    Source,
}

impl Key {
    /// The number under which `touch` is remembered.
    pub(super) const fn of(self, touch: &Touch) -> u32 {
        match self {
            Self::One => 0,
            Self::Object => touch.page.object().0,
            Self::Source => touch.source.0,
        }
    }
}

/// Where a window of `asp` lies. The paper does not say; Linux of its time aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// From the multiple of the smallest window at or below the fault's slot.
    #[default]
    Aligned,
    /// From the fault's slot on.
    Target,
    /// With the fault's slot in the middle: half of the window lies below it.
    Centred,
}

/// How `linux-slot` sizes its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BlockRule {
    /// By the hits since the last fault (Linux from 3.14 on).
    #[default]
    Hits,
    /// Always the largest (before Linux 3.14).
    Fixed,
}

/// What becomes of the pages that a read brings along with a demanded one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Arrival {
    /// Neighbours of the demanded page that the same read brought are mapped with it. That saves a
    /// minor fault a page; whether they are used is not seen.
    #[default]
    Mapped,
    /// They wait staged, clean and unmapped, each for its own first touch: a swap cache.
    Staged,
}

/// Whether what a policy names is all read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Govern {
    /// All of it: the policy as its source has it.
    #[default]
    Off,
    /// As much as pays, by what was read before: see `govern.rs`.
    On,
}

/// What a policy is built from. Each policy uses some of it: see [`Entry::settings`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// The most slots in a window, 1 to 256.
    pub max_window: u32,
    /// The smallest window of `asp`, in slots, 1 to 256.
    pub window: u32,
    /// By how many slots a window of `asp` grows, 1 to 256.
    pub step: u32,
    /// A fault nearer than so many slots to the last window is local, to `asp`: MDIS.
    pub mdis: u32,
    /// Entries of the track buffer of `asp` (`C_ent`), histories of `leap`: 1 to 1024.
    pub entries: u32,
    /// Whose faults share an entry or a history.
    pub key: Key,
    /// Where windows of `asp` lie.
    pub placement: Placement,
    /// For `linux-slot`.
    pub block: BlockRule,
    /// What becomes of pages that nobody asked for.
    pub arrival: Arrival,
    /// Windows of at least so many slots are read as the demanded page first and the rest behind
    /// it; 0 for never, which is every policy's default.
    ///
    /// Whether two reads pay depends on the device. On a virtio disk (a read of 4 KiB 55 us, of 256 KiB
    /// 281 us) no gain could be told from noise: `docs/readahead.md` has the table.
    pub demand_first: u32,
    /// Deltas that `leap` remembers, 2 to 256.
    pub history: u32,
    /// The share of them, as 1/n, in which `leap` looks for a trend first: 1 to 256.
    pub split: u32,
    /// For `bsd`.
    pub lastr: LastrRule,
    /// Whether less is read where read-ahead was of little use.
    pub govern: Govern,
}

impl Params {
    /// The ASP paper's constants, and where it is silent those of the policies' sources.
    pub(super) const DEFAULT: Self = Self {
        max_window: 32,
        window: 8,
        step: 8,
        mdis: 8,
        entries: 32,
        key: Key::One,
        placement: Placement::Aligned,
        block: BlockRule::Hits,
        arrival: Arrival::Mapped,
        demand_first: 0,
        history: 32,
        split: 4,
        lastr: LastrRule::MajorFaults,
        govern: Govern::Off,
    };

    /// All of it as numbers, in an order that stays: what a trace keeps.
    #[must_use]
    pub fn numbers(&self) -> [u32; FIELDS.len()] {
        FIELDS.map(|field| (field.get)(self))
    }

    /// What [`Self::numbers`] gave; `None` when a number lies outside its range.
    #[must_use]
    pub fn from_numbers(numbers: [u32; FIELDS.len()]) -> Option<Self> {
        let mut params = Self::DEFAULT;
        for (field, number) in FIELDS.iter().zip(numbers) {
            field.allowed.hold(number).then_some(())?;
            (field.set)(&mut params, number);
        }
        Some(params)
    }

    /// Whether every field lies in its range, so that any policy can be built.
    #[must_use]
    pub fn in_range(&self) -> bool {
        FIELDS
            .iter()
            .all(|field| field.allowed.hold((field.get)(self)))
    }

    /// The parameters themselves.
    ///
    /// # Panics
    /// When a field lies outside its range.
    pub(super) fn checked(self) -> Self {
        for field in &FIELDS {
            let (name, value) = (field.name, (field.get)(&self));
            assert!(field.allowed.hold(value), "{name} cannot be {value}");
        }
        self
    }
}

impl Default for Params {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// One field of [`Params`], as people set it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in one line.
    pub help: &'static str,
    /// Its values.
    pub allowed: Allowed,
    /// Reads the field as a number; of words, the index.
    get: fn(&Params) -> u32,
    set: fn(&mut Params, u32),
}

impl Setting {
    /// What it sets: two names may stand for one field.
    fn field(&self) -> &'static str {
        if self.name == PAGE_CLUSTER.name {
            MAX.name
        } else {
            self.name
        }
    }

    /// Its value in `params`, as people write it.
    #[must_use]
    pub fn value(&self, params: &Params) -> String {
        let number = (self.get)(params);
        match self.allowed {
            Allowed::Numbers(..) => number.to_string(),
            Allowed::Words(words) => words[number as usize].to_string(),
        }
    }
}

/// A setting that is a number.
macro_rules! number {
    ($name:literal, $help:literal, $least:literal, $most:literal, $field:ident) => {
        Setting {
            name: $name,
            help: $help,
            allowed: Allowed::Numbers($least, $most),
            get: |params| params.$field,
            set: |params, number| params.$field = number,
        }
    };
}

/// A setting that is one of several words, each standing for a variant.
macro_rules! words {
    ($name:literal, $help:literal, $field:ident: $of:ident { $($word:literal = $variant:ident),+ }) => {
        Setting {
            name: $name,
            help: $help,
            allowed: Allowed::Words(&[$($word),+]),
            get: |params| params.$field as u32,
            set: |params, number| {
                params.$field = [$($of::$variant),+][number as usize];
            },
        }
    };
}

pub(super) const MAX: Setting = number!("max", "largest window, in slots", 1, 256, max_window);
pub(super) const WINDOW: Setting = number!("window", "smallest window, in slots", 1, 256, window);
pub(super) const STEP: Setting = number!("step", "growth of the window, in slots", 1, 256, step);
pub(super) const MDIS: Setting = number!(
    "mdis",
    "a fault nearer to the last window than so many slots is local",
    1,
    1_048_576,
    mdis
);
pub(super) const ENTRIES: Setting = number!("entries", "entries that are kept", 1, 1024, entries);
pub(super) const HISTORY: Setting = number!(
    "history",
    "accesses remembered for the trend",
    2,
    256,
    history
);
pub(super) const SPLIT: Setting = number!(
    "split",
    "the trend is looked for in the last 1/n of the history first",
    1,
    256,
    split
);
pub(super) const DEMAND_FIRST: Setting = number!(
    "demand-first",
    "windows of so many slots are read behind the demanded page; 0 for never",
    0,
    256,
    demand_first
);
pub(super) const KEY: Setting = words!("key", "whose faults share an entry", key: Key {
    "one" = One, "object" = Object, "source" = Source
});
pub(super) const PLACEMENT: Setting = words!("placement", "where a window lies", placement: Placement {
    "aligned" = Aligned, "target" = Target, "centred" = Centred
});
pub(super) const BLOCK: Setting = words!("block", "how the block is sized", block: BlockRule {
    "hits" = Hits, "fixed" = Fixed
});
pub(super) const ARRIVAL: Setting = words!("arrival", "pages read along are mapped, or staged until touched", arrival: Arrival {
    "mapped" = Mapped, "staged" = Staged
});
pub(super) const LASTR: Setting = words!("lastr", "which faults move the sequential point", lastr: LastrRule {
    "major-faults" = MajorFaults, "every-fault" = EveryFault, "off" = Off
});
pub(super) const GOVERN: Setting = words!("govern", "read less where read-ahead is of little use", govern: Govern {
    "off" = Off, "on" = On
});
/// `max` as `vm.page-cluster` counts it.
pub(super) const PAGE_CLUSTER: Setting = Setting {
    name: "page-cluster",
    help: "binary logarithm of the largest window",
    allowed: Allowed::Numbers(0, 8),
    get: |params| params.max_window.ilog2(),
    set: |params, number| params.max_window = 1 << number,
};
/// Linux reads at most 2^5 virtual neighbours (`SWAP_RA_ORDER_CEILING`).
pub(super) const VMA_MAX: Setting = Setting {
    allowed: Allowed::Numbers(1, 32),
    ..MAX
};
pub(super) const VMA_PAGE_CLUSTER: Setting = Setting {
    allowed: Allowed::Numbers(0, 5),
    ..PAGE_CLUSTER
};

/// Every field of [`Params`], in the order in which a trace keeps them.
const FIELDS: [Setting; 14] = [
    MAX,
    LASTR,
    WINDOW,
    STEP,
    MDIS,
    ENTRIES,
    KEY,
    PLACEMENT,
    BLOCK,
    ARRIVAL,
    DEMAND_FIRST,
    HISTORY,
    SPLIT,
    GOVERN,
];

/// What a body can tell a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// It sees the first touch of every staged page, reads included.
    pub touches: bool,
    /// Its faults name who caused them: see [`Touch::source`].
    pub sources: bool,
}

impl Abilities {
    /// All there is.
    pub const ALL: Self = Self {
        touches: true,
        sources: true,
    };
}

/// The policy called `name` with `settings`, as in `window=4,max=64`, for a pager of `frames` frames
/// whose body can do what `can` says. It is governed, unless the settings say `govern=off`.
///
/// # Errors
/// When there is no such policy, setting or value, or the body cannot give what it needs.
pub fn configure(
    name: &str,
    settings: &str,
    frames: usize,
    can: Abilities,
) -> Result<(&'static Entry, Params), Refused> {
    let entry = find(name).ok_or_else(|| Refused::Policy {
        given: name.to_string(),
        allowed: super::REGISTRY.iter().map(|entry| entry.name).collect(),
    })?;
    let mut params = entry.params_for(frames);
    if entry.has(GOVERN.name) {
        params.govern = Govern::On;
    }
    entry.set_all(&mut params, settings)?;
    entry.validate(&params, can)?;
    Ok((entry, params))
}

impl Entry {
    /// Sets what `settings` say, as in `window=4,max=64`.
    ///
    /// # Errors
    /// When the policy has no such setting, a value is not allowed, or a setting is given twice.
    pub fn set_all(&self, params: &mut Params, settings: &str) -> Result<(), Refused> {
        let mut given: Vec<&Setting> = Vec::new();
        let settings = settings.split(',').map(str::trim);
        for text in settings.filter(|text| !text.is_empty()) {
            let (setting, number) = self.read(text)?;
            if let Some(first) = given.iter().find(|s| s.field() == setting.field()) {
                return Err(Refused::Twice {
                    policy: self.name,
                    setting: setting.name,
                    first: first.name,
                });
            }
            (setting.set)(params, number);
            given.push(setting);
        }
        Ok(())
    }

    /// A setting and its value, as in `window=4`.
    fn read(&self, text: &str) -> Result<(&'static Setting, u32), Refused> {
        let found = text.split_once('=').and_then(|(name, value)| {
            let found = self.settings.iter().find(|s| s.name == name.trim())?;
            Some((found, value.trim()))
        });
        let (found, value) = found.ok_or_else(|| Refused::Setting {
            policy: self.name,
            given: text.to_string(),
            allowed: self.settings.iter().map(|s| s.name).collect(),
        })?;
        let number = found.allowed.read(value).ok_or_else(|| Refused::Value {
            setting: found.name,
            given: value.to_string(),
            allowed: found.allowed,
        })?;
        Ok((found, number))
    }

    /// Whether the policy can be had with `params` where the body can do what `can` says.
    ///
    /// # Errors
    /// When a value is not allowed, or needs what the body cannot give.
    pub fn validate(&self, params: &Params, can: Abilities) -> Result<(), Refused> {
        for setting in self.settings {
            let number = (setting.get)(params);
            if !setting.allowed.hold(number) {
                return Err(Refused::Value {
                    setting: setting.name,
                    given: number.to_string(),
                    allowed: setting.allowed,
                });
            }
        }
        let pairs = [(WINDOW, MAX), (STEP, MAX), (SPLIT, HISTORY)];
        for (setting, than) in pairs {
            let (given, most) = ((setting.get)(params), (than.get)(params));
            if self.has(setting.name) && given > most {
                return Err(Refused::Larger {
                    setting: setting.name,
                    given,
                    than: than.name,
                    most,
                });
            }
        }
        self.needs(params, can).map_or(Ok(()), Err)
    }

    /// What the policy needs and the body lacks.
    fn needs(&self, params: &Params, can: Abilities) -> Option<Refused> {
        let lacks = |params: &Params| {
            if params.arrival == Arrival::Staged && !can.touches {
                let needs = "to see the first touch of every staged page";
                Some((ARRIVAL.name, "staged", needs, &["mapped"][..]))
            } else if params.key == Key::Source && !can.sources {
                let needs = "to know who caused a fault";
                Some((KEY.name, "source", needs, &["one", "object"][..]))
            } else {
                None
            }
        };
        let (setting, given, needs, other) = lacks(params)?;
        let can_be_set = self.has(setting);
        Some(Refused::Needs {
            policy: self.name,
            setting,
            given,
            needs,
            allowed: other.iter().filter(|_| can_be_set).copied().collect(),
            policies: super::REGISTRY
                .iter()
                .filter(|entry| lacks(&entry.params()).is_none())
                .map(|entry| entry.name)
                .collect(),
        })
    }

    fn has(&self, setting: &str) -> bool {
        self.settings.iter().any(|s| s.name == setting)
    }
}
