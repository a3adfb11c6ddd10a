//! What a world is made of, as people write it down.

use outpage_core::contract::{Body, Event};
use outpage_core::limits::FRAMES_MIN;
use outpage_core::pager::{self, Pager};
use outpage_core::tier::Written;
use outpage_core::units::{Nanos, SlotNo, SlotRange};
use outpage_core::{discard, pageout, readahead, reclaim, slots, tier};
use serde::{Deserialize, Serialize};

use super::{Costs, Ratio};
use crate::disk::{self, Params, Queue};
use crate::programs::Spec;

/// What is allowed of [`Setup::pool_loss_percent`].
pub const POOL_LOSS_PERCENT: std::ops::RangeInclusive<u32> = 0..=50;
/// A simulated body sees every touch.
const BODY: Body = Body { bits: true };

/// Which pages a cluster looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowSetting {
    /// As the kernel does.
    #[default]
    Kernel,
    /// As the papers describe it.
    Paper,
}

/// When BSD read-ahead moves the point from which it expects a sequential fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LastrSetting {
    /// At faults that read.
    #[default]
    MajorFaults,
    /// At every fault.
    EveryFault,
    /// Never.
    Off,
}

impl LastrSetting {
    /// As a setting of read-ahead `bsd`.
    const fn text(self) -> &'static str {
        match self {
            Self::MajorFaults => "lastr=major-faults",
            Self::EveryFault => "lastr=every-fault",
            Self::Off => "lastr=off",
        }
    }
}

/// What lowers the page daemon's shortage of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShortageSetting {
    /// Each cluster, by one: the kernel.
    #[default]
    Cluster,
    /// Each write, by one.
    Flush,
    /// Each page.
    Page,
}

/// Where the page daemon departs from the kernel, towards what the papers say. All off is the
/// kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BsdSwitches {
    /// The limit of launderings counts writes, not clusters.
    pub limit_counts_writes: bool,
    /// What lowers the shortage.
    pub shortage: ShortageSetting,
    /// Every dirty page is spared at its first visit, not in pass 0 only.
    pub second_look_always: bool,
    /// The walk ends at the limit.
    pub stop_at_limit: bool,
    /// Clean pages are freed, not cached.
    pub free_clean: bool,
    /// Buffered pages stay usable until their write begins.
    pub revalidate: bool,
    /// Requests for slots shrink by one, not by half.
    pub shrink_by_one: bool,
    /// Writes in flight at once; the kernel's 4 if absent.
    pub writes_max: Option<u32>,
    /// Page colours (6.2); the kernel's default of 32 if absent.
    pub colours: Option<u32>,
}

impl BsdSwitches {
    fn apply(&self, p: &mut reclaim::bsd::Params) {
        use reclaim::bsd::{AtLimit, Buffered, CleanPage, LimitUnit, SecondLook, ShortageUnit};
        if self.limit_counts_writes {
            p.limit_unit = LimitUnit::Flush;
        }
        p.shortage_unit = match self.shortage {
            ShortageSetting::Cluster => p.shortage_unit,
            ShortageSetting::Flush => ShortageUnit::Flush,
            ShortageSetting::Page => ShortageUnit::Page,
        };
        if self.second_look_always {
            p.second_look = SecondLook::Always;
        }
        if self.stop_at_limit {
            p.at_limit = AtLimit::Stop;
        }
        if self.free_clean {
            p.clean = CleanPage::Freed;
        }
        if self.revalidate {
            p.buffered = Buffered::Revalidated;
        }
        if self.shrink_by_one {
            p.shrink = slots::ShrinkRule::ByOne;
        }
        p.writes_max = self.writes_max.map_or(p.writes_max, |n| n as usize);
        p.colours = self.colours.map_or(p.colours, |n| n as usize);
    }
}

/// Policies by their names in the registries, and their parameters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policies {
    /// Which pages leave.
    pub reclaim: String,
    /// How victims are grouped.
    pub pageout: String,
    /// What else comes back.
    pub readahead: String,
    /// Where in the swap space victims go.
    pub slots: String,
    /// Which victims are kept compressed in RAM, with settings as in `lz4:pool=50`.
    pub tier: String,
    /// When discardable pages are dropped, with settings as in `pf:pages=64`.
    pub discard: String,
    /// Pages of a write; the policy's own figure if absent.
    pub buffer_pages: Option<u32>,
    /// Pages of a read; the policy's own figure if absent.
    pub max_window: Option<u32>,
    /// Other settings of the read-ahead policy, as in `block=fixed,arrival=staged`.
    pub readahead_settings: String,
    /// Which pages a cluster looks at.
    pub window: WindowSetting,
    /// For read-ahead `bsd`.
    pub lastr: LastrSetting,
    /// For reclaim `bsd-6.2` and `bsd-8.2`: where it departs from the kernel.
    pub bsd: BsdSwitches,
    /// The most pages of a zero-fill.
    pub zero_around: u32,
    /// Staged neighbours that come along with a rescue.
    pub rescue_around: u32,
}

impl Policies {
    /// The read-ahead policy with its settings, as in `asp:window=4`.
    #[must_use]
    pub fn readahead_text(&self) -> String {
        let settings = self.readahead_settings.trim();
        let colon = if settings.is_empty() { "" } else { ":" };
        format!("{}{colon}{settings}", self.readahead)
    }
}

impl Default for Policies {
    /// Those of the live pager.
    fn default() -> Self {
        let name = |s: &str| s.to_owned();
        Self {
            reclaim: name("early"),
            pageout: name("packed"),
            readahead: name("stream"),
            slots: name("log"),
            tier: name("none"),
            discard: name("none"),
            buffer_pages: None,
            max_window: None,
            readahead_settings: String::new(),
            window: WindowSetting::Kernel,
            lastr: LastrSetting::MajorFaults,
            bsd: BsdSwitches::default(),
            zero_around: 64,
            rescue_around: 8,
        }
    }
}

/// A disk: one of the registry, or figures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DiskSpec {
    /// By name.
    Named(String),
    /// Made up or measured.
    Params(Params),
}

/// Everything a run is made of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Frames that programs can use.
    pub frames: u64,
    /// Swap space, in slots.
    pub swap_slots: u32,
    /// Policies.
    #[serde(default)]
    pub policies: Policies,
    /// The disk.
    pub disk: DiskSpec,
    /// The scheduler's name, and settings as in `cfq:idle-ms=4`.
    pub scheduler: String,
    /// CPU time of the kernel.
    #[serde(default)]
    pub costs: Costs,
    /// How far the programs' pages compress.
    #[serde(default)]
    pub ratio: Ratio,
    /// Of the pool's frames, so many percent hold nothing: sizes are rounded up, blocks are not full.
    #[serde(default = "pool_loss_percent")]
    pub pool_loss_percent: u32,
    /// The longest that a program computes while another could, milliseconds.
    #[serde(default = "quantum_ms")]
    pub quantum_ms: u32,
    /// What runs, all at once.
    pub programs: Vec<Spec>,
    /// When each program starts, milliseconds from the start of the run; at once if it is not in the list.
    #[serde(default)]
    pub starts_ms: Vec<u32>,
}

/// FreeBSD's `kern.sched.quantum`: 100 ms.
const fn quantum_ms() -> u32 {
    100
}

/// What is lost in the pool of a live body: 7 to 12 percent were measured, by heap.
const fn pool_loss_percent() -> u32 {
    8
}

impl Setup {
    /// When program `who` starts, nanoseconds.
    pub(super) fn starts(&self, who: usize) -> u64 {
        let ms = self.starts_ms.get(who).copied().unwrap_or(0);
        u64::from(ms) * 1_000_000
    }

    /// The page daemon of FreeBSD `release` (`6.2` or `8.2`) with page-out policy `pageout`, and all
    /// else as that kernel has it.
    #[must_use]
    pub fn bsd(release: &str, pageout: &str, frames: u64, programs: Vec<Spec>) -> Self {
        let old = release == "6.2";
        let policies = Policies {
            reclaim: format!("bsd-{release}"),
            pageout: pageout.to_owned(),
            readahead: "bsd".to_owned(),
            slots: "blist".to_owned(),
            lastr: if old {
                LastrSetting::EveryFault
            } else {
                LastrSetting::MajorFaults
            },
            zero_around: 1,
            rescue_around: 0,
            ..Policies::default()
        };
        Self {
            policies,
            ..Self::live(frames, programs)
        }
    }

    /// `program` with the live policies, 2 GiB of swap and the MOC paper's disk.
    #[must_use]
    pub fn live(frames: u64, programs: Vec<Spec>) -> Self {
        Self {
            frames,
            swap_slots: 1 << 19,
            policies: Policies::default(),
            disk: DiskSpec::Named("barracuda-7200.9".to_owned()),
            scheduler: "elevator".to_owned(),
            costs: Costs::default(),
            ratio: Ratio::default(),
            pool_loss_percent: pool_loss_percent(),
            quantum_ms: quantum_ms(),
            programs,
            starts_ms: Vec::new(),
        }
    }
}

/// A set-up that cannot be built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetupError {
    /// A name that no registry has, and those there are.
    Unknown {
        /// Of what.
        what: &'static str,
        /// The name.
        name: String,
        /// What there is.
        offered: Vec<&'static str>,
    },
    /// A reclaim policy that there is not or that cannot work here, in its own words.
    Reclaim(String),
    /// A tier policy that there is not or that cannot work here.
    Tier(String),
    /// A discard policy that there is not or that cannot work here.
    Discard(String),
    /// A setting that the read-ahead policy does not have, or a value that it cannot have.
    ReadAhead(String),
    /// A scheduler, a setting of it or a value that there is not.
    Scheduler(String),
    /// A disk that there cannot be: which figure, and what could be.
    Disk(String),
    /// A figure out of its range.
    Range {
        /// Which.
        what: &'static str,
        /// The figure.
        value: u64,
        /// The range, in words.
        allowed: String,
    },
}

impl std::fmt::Display for SetupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown {
                what,
                name,
                offered,
            } => {
                write!(
                    f,
                    "there is no {what} '{name}'; there are {}",
                    offered.join(", ")
                )
            }
            Self::Reclaim(why)
            | Self::Tier(why)
            | Self::Discard(why)
            | Self::ReadAhead(why)
            | Self::Scheduler(why)
            | Self::Disk(why) => f.write_str(why),
            Self::Range {
                what,
                value,
                allowed,
            } => write!(f, "{what} is {value}, but must be {allowed}"),
        }
    }
}

impl std::error::Error for SetupError {}

fn unknown(
    what: &'static str,
    name: &str,
    offered: impl Iterator<Item = &'static str>,
) -> SetupError {
    SetupError::Unknown {
        what,
        name: name.to_owned(),
        offered: offered.collect(),
    }
}

impl Setup {
    /// The pager, its swap space added; whether it wants to be told of passing time, and its tier policy.
    pub(crate) fn pager(&self) -> Result<(Pager, bool, &'static tier::Entry), SetupError> {
        let p = &self.policies;
        if self.frames < FRAMES_MIN as u64 {
            let allowed = format!("at least {FRAMES_MIN}");
            return Err(SetupError::Range {
                what: "memory in pages",
                value: self.frames,
                allowed,
            });
        }
        let reclaim = reclaim::Choice::parse(&p.reclaim, BODY)
            .map_err(|e| SetupError::Reclaim(e.to_string()))?;
        let slots = slots::find(&p.slots).ok_or_else(|| {
            unknown(
                "slot allocator",
                &p.slots,
                slots::REGISTRY.iter().map(|e| e.name),
            )
        })?;
        let needs_referenced = reclaim.entry().needs_referenced;
        let tier = self.tier()?;
        let discard = discard::Choice::parse(&p.discard)
            .map_err(|refused| SetupError::Discard(refused.to_string()))?;
        let discard = discard.build();
        let mut reclaim = reclaim.build();
        if let reclaim::Policy::Daemon(params) = &mut reclaim {
            p.bsd.apply(params);
            if discard.is_some() {
                let why = format!("reclaim {} takes no discard policy but none", p.reclaim);
                return Err(SetupError::Discard(why));
            }
            if !tier.entry().codec.is_empty() {
                let why = format!(
                    "reclaim {} writes to the swap space alone: it takes no tier but none",
                    p.reclaim
                );
                return Err(SetupError::Tier(why));
            }
        }
        let setup = pager::Setup {
            reclaim,
            pageout: self.pageout()?,
            readahead: self.readahead()?,
            slots: slots.build,
            tier: tier.build(),
            discard,
            frames: self.frames as usize,
            slots_max: self.swap_slots,
            zero_around: p.zero_around,
            rescue_around: p.rescue_around,
            body: BODY,
        };
        let mut pager = Pager::new(setup);
        // The first two slots of a device are never used (`swapon` of FreeBSD).
        let range = SlotRange::new(SlotNo(2), self.swap_slots.saturating_sub(2));
        pager.handle(Nanos(0), Event::Grown(range));
        pager.handle(Nanos(0), Event::Full);
        Ok((pager, !needs_referenced, tier.entry()))
    }

    fn tier(&self) -> Result<tier::Choice, SetupError> {
        let choice = tier::Choice::parse(&self.policies.tier, Written::Compressed)
            .map_err(|refused| SetupError::Tier(refused.to_string()))?;
        range(
            "pool loss in percent",
            self.pool_loss_percent,
            &POOL_LOSS_PERCENT,
        )?;
        Ok(choice)
    }

    fn pageout(&self) -> Result<Box<dyn pageout::PageOut>, SetupError> {
        let p = &self.policies;
        let entry = pageout::find(&p.pageout).ok_or_else(|| {
            unknown(
                "page-out policy",
                &p.pageout,
                pageout::REGISTRY.iter().map(|e| e.name),
            )
        })?;
        let mut params = entry.params();
        params.buffer_pages = p.buffer_pages.unwrap_or(params.buffer_pages);
        params.window = match p.window {
            WindowSetting::Kernel => pageout::ClusterWindow::Kernel,
            WindowSetting::Paper => pageout::ClusterWindow::Paper,
        };
        range("chunk", params.buffer_pages, &pageout::BUFFER_PAGES)?;
        Ok((entry.build)(params))
    }

    fn readahead(&self) -> Result<Box<dyn readahead::ReadAhead>, SetupError> {
        let p = &self.policies;
        let entry = readahead::find(&p.readahead).ok_or_else(|| {
            unknown(
                "read-ahead policy",
                &p.readahead,
                readahead::REGISTRY.iter().map(|e| e.name),
            )
        })?;
        let mut choice = readahead::Choice::ungoverned(entry).for_frames(self.frames as usize);
        let refused = |refused: readahead::Refused| SetupError::ReadAhead(refused.to_string());
        if let Some(window) = p.max_window {
            range("window", window, &readahead::MAX_WINDOW)?;
            choice = choice.with_window(window).map_err(refused)?;
        }
        if entry.name == "bsd" {
            choice = choice.with(p.lastr.text()).map_err(refused)?;
        }
        let choice = choice.with(&p.readahead_settings).map_err(refused)?;
        choice.check().map_err(refused)?;
        Ok(choice.build())
    }

    /// The disk behind its scheduler.
    pub(crate) fn queue(&self) -> Result<Queue, SetupError> {
        let params = match &self.disk {
            DiskSpec::Params(params) => *params,
            DiskSpec::Named(name) => {
                let offered = disk::MODELS.iter().map(|m| m.name);
                disk::model(name)
                    .ok_or_else(|| unknown("disk", name, offered))?
                    .params
            }
        };
        params.check().map_err(SetupError::Disk)?;
        let scheduler = disk::scheduler(&self.scheduler)
            .map_err(|refused| SetupError::Scheduler(refused.to_string()))?;
        Ok(Queue::new(params.device(), scheduler))
    }
}

fn range(
    what: &'static str,
    value: u32,
    allowed: &std::ops::RangeInclusive<u32>,
) -> Result<(), SetupError> {
    if allowed.contains(&value) {
        return Ok(());
    }
    let allowed = format!("{} to {}", allowed.start(), allowed.end());
    Err(SetupError::Range {
        what,
        value: u64::from(value),
        allowed,
    })
}
