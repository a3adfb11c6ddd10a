//! What a run gave.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::World;
use crate::disk::QueueStats;
use outpage_core::stats::Stats;

/// One program of a run. Times in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ProgramReport {
    /// Its name.
    pub name: String,
    /// The most pages it has at once.
    pub footprint_pages: u64,
    /// From the start of the run to its end.
    pub elapsed_ns: u64,
    /// CPU time, that of its faults included.
    pub cpu_ns: u64,
    /// Of it, that of its faults.
    pub fault_ns: u64,
    /// Time during which a fault of it was being served.
    pub wait_ns: u64,
    /// Touches of mapped pages.
    pub touches: u64,
    /// Faults.
    pub faults: u64,
    /// Reads for its pages.
    pub reads: u64,
    /// Pages read.
    pub pages_in: u64,
    /// Pages written.
    pub pages_out: u64,
    /// Work that it did, in units of its own: transactions of `jvm`; 0 where it counts none.
    pub done: u64,
}

/// What happened in one phase of one program, counted over the whole world.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct PhaseReport {
    /// The program's number.
    pub program: usize,
    /// The phase's name.
    pub name: Cow<'static, str>,
    /// When it began.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// Pages read during it.
    pub page_ins: u64,
    /// Pages written during it.
    pub page_outs: u64,
    /// Writes during it.
    pub page_out_writes: u64,
}

/// What became of discardable pages, in pages.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct DiscardReport {
    /// Dropped in place of a write.
    pub dropped: u64,
    /// Dropped though a slot had them.
    pub dropped_clean: u64,
    /// Dropped when they were marked, being in a slot alone.
    pub dropped_in_slots: u64,
    /// Flushed: dropped before they would have left.
    pub flushed: u64,
    /// Zero-filled after they were dropped.
    pub filled: u64,
    /// Touched or taken back before their frames were wanted: as they were.
    pub given_back: u64,
    /// Taken back after they were dropped.
    pub lost: u64,
    /// CPU time of an external pager, nanoseconds.
    pub pager_ns: u64,
}

/// A whole run. Times in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Report {
    /// Until the last program ended.
    pub elapsed_ns: u64,
    /// During which nobody could run.
    pub idle_ns: u64,
    /// Frames of memory.
    pub frames: u64,
    /// Faults that read.
    pub major_faults: u64,
    /// Faults that did not.
    pub minor_faults: u64,
    /// Pages filled with zeroes.
    pub zero_fills: u64,
    /// Pages read.
    pub page_ins: u64,
    /// Reads.
    pub page_in_reads: u64,
    /// Of the pages read, those that nobody had asked for.
    pub read_ahead: u64,
    /// Of those, mapped along with a touched page: their use is not seen.
    pub read_ahead_mapped: u64,
    /// Of those, touched while they were staged or being read.
    pub read_ahead_hits: u64,
    /// Of the pages read ahead, those touched before they left memory or were unmapped, mapped along or not.
    /// `None` under a page daemon, which clears the bits that tell.
    pub ahead_used: Option<u64>,
    /// Of the pages read ahead, those that left memory untouched. `None` as above.
    pub ahead_in_vain: Option<u64>,
    /// Windows of major faults by the size in slots that read-ahead chose, up to 64.
    pub windows: Vec<(u32, u64)>,
    /// Pages written.
    pub page_outs: u64,
    /// Writes.
    pub page_out_writes: u64,
    /// Writes of each size in pages that occurred, up to 64.
    pub write_sizes: Vec<(u32, u64)>,
    /// Pages that were put into the pool of compressed pages.
    pub compressed: u64,
    /// What they came to, in bytes.
    pub compressed_bytes: u64,
    /// Victims that did not get small enough for it.
    pub unfit: u64,
    /// Faults that found their page there: minor ones.
    pub pool_hits: u64,
    /// Pages that came out of it with these, because touches followed each other.
    pub pool_along: u64,
    /// Pages that went from there to the swap space.
    pub demoted: u64,
    /// Discardable pages.
    pub discards: DiscardReport,
    /// The most frames that it took.
    pub pool_frames_peak: u64,
    /// The most frames that were in use between events, those of the pool among them; 0 without a pool.
    pub pooled_frames_peak: u64,
    /// Programs, in their order.
    pub programs: Vec<ProgramReport>,
    /// Phases, in order of their beginnings.
    pub phases: Vec<PhaseReport>,
    /// The disk.
    pub disk: QueueStats,
    /// Bytes of heap for the pager's state of pages and slots.
    pub core_bytes: u64,
}

impl Report {
    /// Seconds until the last program ended.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.elapsed_ns as f64 / 1e9
    }

    /// The hit rate of the ASP paper (HPDC 2010, section 4.1), percent: hits in the swap cache by
    /// pages read less swap-ins. `None` when nothing was read ahead.
    #[must_use]
    pub fn hit_rate_percent(&self) -> Option<f64> {
        let seen = self.read_ahead.checked_sub(self.read_ahead_mapped)?;
        (seen > 0).then(|| 100.0 * self.read_ahead_hits as f64 / seen as f64)
    }

    /// Mean pages a write.
    #[must_use]
    pub fn pages_a_write(&self) -> f64 {
        self.page_outs as f64 / (self.page_out_writes.max(1)) as f64
    }

    /// The size that most writes have, and the share of writes that have it. 0 without writes.
    #[must_use]
    pub fn modal_write(&self) -> (u32, f64) {
        let most = self.write_sizes.iter().max_by_key(|s| s.1);
        most.map_or((0, 0.0), |&(pages, writes)| {
            (pages, writes as f64 / self.page_out_writes as f64)
        })
    }
}

impl World {
    /// Program `who` enters a phase.
    pub(super) fn begin_phase(&mut self, who: usize, name: &'static str) {
        self.end_phase(who);
        let stats = self.pager.stats();
        self.phases.push(PhaseReport {
            program: who,
            name: Cow::Borrowed(name),
            from_ns: self.now,
            to_ns: u64::MAX,
            page_ins: stats.page_ins,
            page_outs: stats.page_outs,
            page_out_writes: stats.page_out_writes,
        });
    }

    /// The phase that program `who` is in ends.
    pub(super) fn end_phase(&mut self, who: usize) {
        let (now, stats) = (self.now, *self.pager.stats());
        let open = self
            .phases
            .iter_mut()
            .find(|p| p.program == who && p.to_ns == u64::MAX);
        if let Some(phase) = open {
            phase.to_ns = now;
            phase.page_ins = stats.page_ins - phase.page_ins;
            phase.page_outs = stats.page_outs - phase.page_outs;
            phase.page_out_writes = stats.page_out_writes - phase.page_out_writes;
        }
    }

    pub(super) fn report(self) -> Report {
        let stats: &Stats = self.pager.stats();
        let sizes = (0..).zip(stats.write_pages.0).filter(|s| s.1 > 0);
        let windows = (0..).zip(stats.windows.0).filter(|s| s.1 > 0);
        let programs = self.processes.iter().map(|p| ProgramReport {
            name: p.name().to_owned(),
            footprint_pages: p.footprint(),
            elapsed_ns: p.ended_at,
            cpu_ns: p.cpu_ns,
            fault_ns: p.fault_ns,
            wait_ns: p.wait_ns,
            touches: p.touches,
            faults: p.faults,
            reads: p.reads,
            pages_in: p.pages_in,
            pages_out: p.pages_out,
            done: p.done(),
        });
        let (used, in_vain) = self.ahead.ends().unzip();
        Report {
            elapsed_ns: self.processes.iter().map(|p| p.ended_at).max().unwrap_or(0),
            idle_ns: self.idle_ns,
            frames: self.frames as u64,
            major_faults: stats.major_faults,
            minor_faults: stats.minor_faults,
            zero_fills: stats.zero_fills,
            page_ins: stats.page_ins,
            page_in_reads: stats.page_in_reads,
            read_ahead: stats.read_ahead,
            read_ahead_mapped: stats.read_ahead_mapped,
            read_ahead_hits: stats.read_ahead_hits,
            ahead_used: used,
            ahead_in_vain: in_vain,
            windows: windows.collect(),
            page_outs: stats.page_outs,
            page_out_writes: stats.page_out_writes,
            write_sizes: sizes.collect(),
            compressed: stats.compressed,
            compressed_bytes: stats.compressed_bytes,
            unfit: stats.unfit,
            pool_hits: stats.pool_hits,
            pool_along: stats.pool_along,
            demoted: stats.demoted,
            discards: DiscardReport {
                dropped: stats.dropped_for_write,
                dropped_clean: stats.dropped_clean,
                dropped_in_slots: stats.dropped_in_slots,
                flushed: stats.flushed,
                filled: stats.filled_for_dropped,
                given_back: stats.given_back,
                lost: stats.taken_back_lost,
                pager_ns: self.pager_ns,
            },
            pool_frames_peak: self.pool.as_ref().map_or(0, |pool| pool.peak as u64),
            pooled_frames_peak: self.pool.as_ref().map_or(0, |pool| pool.used_peak as u64),
            programs: programs.collect(),
            phases: self.phases.clone(),
            disk: *self.disk.stats(),
            core_bytes: self.pager.heap_bytes() as u64,
        }
    }
}
