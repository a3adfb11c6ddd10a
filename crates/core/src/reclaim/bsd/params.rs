//! The releases, and the switches for what the papers tell differently from the kernel.

use crate::slots::ShrinkRule;

/// Which FreeBSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// 6.2, January 2007: cached pages stay in their object; page colours count in the reserve;
    /// read-ahead is given up when memory is short.
    V6_2,
    /// 8.2, February 2011: a cached page is memory that remembers its content; without a slot it is
    /// freed at once; read-ahead takes what it can get.
    V8_2,
}

/// What counts once against the limit of launderings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitUnit {
    /// Each cluster: the kernel, where a cluster is a write.
    Cluster,
    /// Each buffer that is handed over: MOC, figure 8.
    Flush,
}

/// What lowers the shortage of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShortageUnit {
    /// Each cluster, by one whatever its size: the kernel. For the papers' schemes: when it is buffered.
    Cluster,
    /// Each buffer that is handed over, by one.
    Flush,
    /// Each page of a cluster.
    Page,
}

/// When a dirty page that is met the first time is spared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecondLook {
    /// In pass 0 only: the kernel.
    FirstPass,
    /// Always: both papers.
    Always,
}

/// What happens at the limit of launderings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtLimit {
    /// The walk goes on and reclaims clean pages: the kernel.
    GoOn,
    /// The walk ends: MOC, section 2.
    Stop,
}

/// Where a clean page goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CleanPage {
    /// To the cache: the kernel, MOC.
    Cached,
    /// It is freed: mClustering, section 2.
    Freed,
}

/// How pages are kept between their collection into a buffer and its write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffered {
    /// Busy and write-protected: whoever needs them waits, as for a page that is being written.
    Busy,
    /// As they were. A page that a fault takes meanwhile leaves the buffer.
    Revalidated,
}

/// What the daemon is made of. [`Params::new`] gives the kernel's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// The release.
    pub release: Release,
    /// Page colours, for 6.2: the kernel's default when it does not know the processor's cache.
    pub colours: usize,
    /// Launderings of a scan in pass 0 (`vm_max_launder`).
    pub launder_max: u32,
    /// What counts against that.
    pub limit_unit: LimitUnit,
    /// What lowers the shortage.
    pub shortage_unit: ShortageUnit,
    /// When a dirty page is spared.
    pub second_look: SecondLook,
    /// What happens at the limit.
    pub at_limit: AtLimit,
    /// Where clean pages go.
    pub clean: CleanPage,
    /// How buffered pages are kept.
    pub buffered: Buffered,
    /// How requests for slots shrink.
    pub shrink: ShrinkRule,
    /// Writes in flight at once (`nsw_wcount_async`).
    pub writes_max: usize,
}

impl Params {
    /// As the release does it.
    #[must_use]
    pub const fn new(release: Release) -> Self {
        Self {
            release,
            colours: 32,
            launder_max: 32,
            limit_unit: LimitUnit::Cluster,
            shortage_unit: ShortageUnit::Cluster,
            second_look: SecondLook::FirstPass,
            at_limit: AtLimit::GoOn,
            clean: CleanPage::Cached,
            buffered: Buffered::Busy,
            shrink: ShrinkRule::Halve,
            writes_max: 4,
        }
    }
}
