//! What a run with guests gave.

use serde::Serialize;

use super::Machine;
use crate::disk::QueueStats;

/// Reads of the host's swap space, and the pages that they brought, by what they were made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Causes {
    /// A program of a guest's wanted what is in the page.
    pub program_reads: u64,
    /// Pages of these.
    pub program_pages: u64,
    /// Nothing but a guest that wrote the page to its own swap space: double paging.
    pub page_out_reads: u64,
    /// Pages of these.
    pub page_out_pages: u64,
    /// A guest read something else into the frame.
    pub page_in_reads: u64,
    /// Pages of these.
    pub page_in_pages: u64,
    /// A guest filled the frame with zeroes.
    pub zero_fill_reads: u64,
    /// Pages of these.
    pub zero_fill_pages: u64,
}

/// One guest. Times in nanoseconds, from the start of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GuestReport {
    /// Its program.
    pub name: String,
    /// When its program ended.
    pub ended_ns: u64,
    /// When its phases began, in order.
    pub phases: Vec<(&'static str, u64)>,
    /// Pages that it wrote to its own swap space.
    pub page_outs: u64,
    /// Pages that it read from there.
    pub page_ins: u64,
    /// The most pages that were hidden.
    pub hidden_peak: u64,
    /// Hidden pages that were given back because memory ran out.
    pub rescued: u64,
    /// Entries of its rings that named no page that could be hidden.
    pub skipped: u64,
    /// Entries that found their ring full.
    pub lost: u64,
    /// How often it read its rings.
    pub drains: u64,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Until the last program ended, nanoseconds.
    pub elapsed_ns: u64,
    /// Pages that the host wrote to its swap space.
    pub page_outs: u64,
    /// Writes.
    pub page_out_writes: u64,
    /// Pages that it read from there.
    pub page_ins: u64,
    /// Reads.
    pub page_in_reads: u64,
    /// What these were for.
    pub causes: Causes,
    /// The disk, with the guests' swap spaces.
    pub disk: QueueStats,
    /// The guests.
    pub guests: Vec<GuestReport>,
}

impl GuestReport {
    /// Nanoseconds from the beginning of its phase `name` to the end of its program; `None` if it has none.
    #[must_use]
    pub fn since(&self, name: &str) -> Option<u64> {
        let phase = self.phases.iter().find(|phase| phase.0 == name)?;
        Some(self.ended_ns - phase.1)
    }
}

impl Machine {
    pub(super) fn report(&self) -> Report {
        let guests = self.guests.iter().map(|guest| {
            let notifier = guest.notifier.as_ref();
            let stats = guest.pager.stats();
            GuestReport {
                name: guest.name().to_owned(),
                ended_ns: guest.ended_at.unwrap_or(self.now),
                phases: guest.phases.iter().map(|p| (p.name, p.from_ns)).collect(),
                page_outs: stats.page_outs,
                page_ins: stats.page_ins,
                hidden_peak: notifier.map_or(0, |n| n.hidden_peak),
                rescued: notifier.map_or(0, |n| n.rescued),
                skipped: notifier.map_or(0, |n| n.skipped),
                lost: notifier.map_or(0, |n| u64::from(n.lost())),
                drains: notifier.map_or(0, |n| n.drains),
            }
        });
        let guests: Vec<_> = guests.collect();
        let stats = self.host.stats();
        Report {
            elapsed_ns: guests.iter().map(|guest| guest.ended_ns).max().unwrap_or(0),
            page_outs: stats.page_outs,
            page_out_writes: stats.page_out_writes,
            page_ins: stats.page_ins,
            page_in_reads: stats.page_in_reads,
            causes: self.causes,
            disk: *self.disk.stats(),
            guests,
        }
    }
}
