//! What a run says at its end: a summary for people, all counters as JSON.

use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::{Config, Mechanism, format_size};
use outpage_engine::session::Session;
use outpage_stats::{Counts, Definition, Histogram, Line, ObjectUses, Waits};
use outpage_sys::libc;
use serde_json::Value;

use super::watch::unpaged::{NOTABLE_BYTES, Unpaged};

pub mod fields;
mod objects;
mod rates;

use fields::{Counted, Written};
use rates::percents;
pub use rates::{cache, rates_json};

/// The facts of one finished run.
#[derive(Clone, Debug)]
pub struct Outcome {
    counts: Counts,
    waits: Waits,
    objects: ObjectUses,
    mechanism: Mechanism,
    encrypted: bool,
    /// Most frames that the whole tree held, in pages.
    peak_pages: u64,
    elapsed: Duration,
    still_running: usize,
    /// What was in RAM beside the limit.
    unpaged: Unpaged,
    /// The program was ended by SIGKILL, by its pager perhaps, which could not begin: nobody knows what it would have had.
    killed: bool,
}

/// Processes of the program that are there.
fn still_running(session: &Session) -> usize {
    let members = session.members();
    members
        .filter(|member| !session.is_home(member.pid))
        .count()
}

impl Outcome {
    /// A run that has not begun.
    #[must_use]
    pub fn before(encrypted: bool) -> Self {
        Self {
            counts: Counts::default(),
            waits: Waits::default(),
            objects: ObjectUses::default(),
            mechanism: Mechanism::Auto,
            encrypted,
            peak_pages: 0,
            elapsed: Duration::ZERO,
            still_running: 0,
            unpaged: Unpaged::default(),
            killed: false,
        }
    }

    /// Of a program that ended so.
    #[must_use]
    pub fn ended(self, status: ExitStatus) -> Self {
        let killed = status.signal() == Some(libc::SIGKILL);
        Self { killed, ..self }
    }

    /// Reads the counters of a session whose program has ended after `elapsed`, or runs for so long.
    #[must_use]
    pub fn of(session: &Session, elapsed: Duration) -> Self {
        session.reap();
        Self {
            unpaged: Unpaged::default(),
            counts: session.totals(),
            waits: session.waits(),
            objects: session.object_uses(objects::LISTED_MAX),
            mechanism: session.mechanism(),
            encrypted: session.has_key(),
            peak_pages: session.peak_pages(),
            elapsed,
            still_running: still_running(session),
            killed: false,
        }
    }

    /// With what was seen in RAM beside the limit.
    #[must_use]
    pub const fn beside(mut self, unpaged: Unpaged) -> Self {
        self.unpaged = unpaged;
        self
    }

    /// Whether any page ever left the program.
    #[must_use]
    pub const fn paged(&self) -> bool {
        let c = &self.counts;
        c.detached_pages > 0 || c.page_outs > 0 || c.major_faults > 0
    }

    /// The summary, each line ended.
    #[must_use]
    pub fn summary(&self, config: &Config) -> String {
        let limit = format_size(config.memory_bytes);
        let not_paged = self.not_paged();
        if !self.paged() && self.trouble().is_empty() {
            let first = if self.unpaged.resident > config.memory_bytes && not_paged.is_some() {
                let most = format_size(self.unpaged.resident);
                format!("limit {limit}, but the program had {most} in RAM; nothing was paged")
            } else if self.killed {
                format!("limit {limit}; nothing was paged")
            } else {
                format!("the program stayed within its {limit}; nothing was paged")
            };
            return not_paged
                .into_iter()
                .fold(format!("outpage: {first}\n"), row);
        }
        let beside = not_paged.as_ref().map_or(String::new(), |_| {
            format!(
                ", {} more that are not paged,",
                format_size(self.unpaged.all)
            )
        });
        let text = format!(
            "outpage: limit {limit}, peak {} in RAM{beside} and {} in swap ({}, {}, page-out {}, read-ahead {}, reclaim {}, tier {}, discard {})\n",
            pages_size(self.peak_pages),
            pages_size(self.counts.peak_swap_slots),
            self.mechanism.name(),
            if self.encrypted {
                "encrypted"
            } else {
                "not encrypted"
            },
            config.pageout,
            config.readahead,
            config.reclaim,
            config.tier,
            config.discard,
        );
        self.rows().into_iter().chain(not_paged).fold(text, row)
    }

    /// The row of what is not paged, where that is worth one.
    fn not_paged(&self) -> Option<Row> {
        const WORDS: [(&str, &str); 4] = [
            ("shared", "shared memory"),
            ("huge", "huge pages"),
            ("unlimited", "programs that run without a limit"),
            (
                "private",
                "private memory (main threads' stacks, pages of files, processes that said so)",
            ),
        ];
        let kinds = self.unpaged.kinds().into_iter();
        let parts: Vec<String> = kinds
            .filter(|(_, bytes)| *bytes >= NOTABLE_BYTES)
            .filter_map(|(kind, bytes)| {
                let (_, words) = WORDS.iter().find(|(name, _)| *name == kind)?;
                Some(format!("{} {words}", format_size(bytes)))
            })
            .collect();
        (!parts.is_empty()).then(|| (Line::NotPaged, format!("at most {}", parts.join(", "))))
    }

    /// What to say, whatever is kept quiet, of a program that a lost page ended: the signal alone tells nobody why.
    #[must_use]
    pub fn ended_by_loss(&self, config: &Config, status: ExitStatus) -> Option<String> {
        // What a shell makes of a signal: sh(1).
        let of_shell = status.code() == Some(128 + libc::SIGBUS);
        let ended = status.signal() == Some(libc::SIGBUS) || of_shell;
        (ended && self.counts.poisoned > 0).then(|| {
            format!(
                "the program ended because {} of its pages could not be read back from the swap file in {}: \
                 look for errors of that disk, or name another with --swap",
                grouped(self.counts.poisoned),
                config.swap_dir.display()
            )
        })
    }

    /// The lines below the first, those left out that have nothing to say.
    fn rows(&self) -> Vec<Row> {
        let c = &self.counts;
        let mut rows = vec![
            (Line::PageOuts, page_outs(c)),
            (Line::BySize, write_sizes(c)),
            (
                Line::PageIns,
                transfers(c.page_ins, c.page_in_reads, "read", "mean"),
            ),
            (Line::ReadAhead, read_ahead(c)),
            (Line::ByObject, objects::text(&self.objects)),
            (Line::Faults, self.faults()),
            (
                Line::Minor,
                quantiles(&self.waits.minor).unwrap_or_default(),
            ),
            (
                Line::Major,
                quantiles(&self.waits.major).unwrap_or_default(),
            ),
            (Line::Compressed, compressed(c)),
            (Line::Freed, freed(c)),
            (
                Line::NotWritten,
                format!(
                    "{} clean, {} zero; {} rescued",
                    grouped(c.clean_drops),
                    grouped(c.zero_drops),
                    grouped(c.rescues)
                ),
            ),
        ];
        rows.retain(|(_, text)| !text.is_empty());
        rows.extend(
            self.trouble()
                .into_iter()
                .map(|text| (Line::Attention, text)),
        );
        rows
    }

    fn faults(&self) -> String {
        let c = &self.counts;
        format!(
            "{} minor, {} major, {:.2} s waited for them in {:.2} s",
            grouped(c.minor_faults),
            grouped(c.major_faults),
            c.fault_ns as f64 / 1e9,
            self.elapsed.as_secs_f64()
        )
    }

    /// What a user must not overlook.
    fn trouble(&self) -> Vec<String> {
        let warns = |(counter, count): (&Definition, u64)| {
            let words = counter.warning.filter(|_| count > 0)?;
            Some(format!("{} {words}", grouped(count)))
        };
        let mut lines: Vec<String> = self.counts.each().filter_map(warns).collect();
        if self.still_running > 0 {
            lines.push(match self.still_running {
                1 => "1 process of the program still runs".to_owned(),
                more => format!(
                    "{} processes of the program still run",
                    grouped(more as u64)
                ),
            });
        }
        lines.extend(self.reads_too_much());
        lines
    }

    /// What helps a program for which far more was read than it touched.
    fn reads_too_much(&self) -> Option<String> {
        /// A program that goes through its memory ten times reads that much, and is slow with reason.
        const TIMES: u64 = 10;
        let c = &self.counts;
        let times = c.page_ins.checked_div(c.peak_touched_pages)?;
        if times < TIMES {
            return None;
        }
        let helps = if in_vain(c) > c.page_ins / 2 {
            "most of it ahead of the program and in vain: try --readahead none, or more with --memory"
        } else if c.read_ahead_pages > c.page_ins / 2 {
            "most of it ahead of the program, which used it: more with --memory helps"
        } else {
            "page by page: give it more with --memory"
        };
        Some(format!(
            "read {times} times what the program touched, {helps}"
        ))
    }

    /// All counters and the configuration; without a `status` those of a run that still lasts.
    #[must_use]
    pub fn json(&self, config: &Config, words: &[String], status: Option<ExitStatus>) -> Value {
        let written = Written {
            outcome: self,
            config,
            words,
            status,
        };
        let mut map = fields::object(fields::RUN, |value| value(&written));
        map.extend(fields::counted(&Counted {
            counts: &self.counts,
            waits: &self.waits,
            objects: Some(&self.objects),
        }));
        Value::Object(map)
    }
}

/// A line of the summary and what it says.
type Row = (Line, String);

/// `text` with one row more.
fn row(mut text: String, (line, value): Row) -> String {
    let _ = writeln!(text, "  {:<12}{value}", line.label());
    text
}

/// The shares of faults whose latencies are told, by their usual names.
pub const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// "p50 8.1 us, p90 ..."; `None` when nothing was measured.
#[must_use]
pub fn quantiles(histogram: &Histogram) -> Option<String> {
    let text = |(name, share)| Some(format!("{name} {}", duration(histogram.quantile(share)?)));
    let texts: Option<Vec<_>> = QUANTILES.into_iter().map(text).collect();
    texts.map(|texts| texts.join(", "))
}

/// Nanoseconds in the unit that suits them.
fn duration(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// What the pool of compressed pages did; nothing where it had nothing to do.
fn compressed(c: &Counts) -> String {
    if c.compressed_pages == 0 && c.compressed_unfit == 0 {
        return String::new();
    }
    let whole = pages_size(c.compressed_pages);
    let size = format_size(c.compressed_bytes);
    format!(
        "{} pages ({whole}) to {size}, at most {} at once; {} touched, {} on to swap, {} hardly smaller",
        grouped(c.compressed_pages),
        pages_size(c.peak_pool_pages),
        grouped(c.compressed_hits),
        grouped(c.compressed_demoted),
        grouped(c.compressed_unfit),
    )
}

fn freed(c: &Counts) -> String {
    if c.freed_pages == 0 {
        return String::new();
    }
    format!(
        "{} pages until written again; {} dropped, {} had been written",
        grouped(c.freed_pages),
        grouped(c.freed_drops),
        grouped(c.freed_kept)
    )
}

fn write_sizes(counts: &Counts) -> String {
    let spans = counts
        .write_sizes
        .iter()
        .enumerate()
        .filter(|(_, writes)| **writes > 0);
    let texts = spans.map(|(i, writes)| match i {
        0 => format!("1 page: {}", grouped(*writes)),
        _ => format!("{}-{}: {}", 1_u64 << i, (2_u64 << i) - 1, grouped(*writes)),
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn transfers(pages: u64, requests: u64, request: &str, mean: &str) -> String {
    if requests == 0 {
        return "none".into();
    }
    let plural = if requests == 1 { "" } else { "s" };
    format!(
        "{} pages ({}) in {} {request}{plural}, {mean} {:.1} pages",
        grouped(pages),
        pages_size(pages),
        grouped(requests),
        pages as f64 / requests as f64
    )
}

/// A cluster is a run of neighbouring pages; a write holds one or more.
fn page_outs(c: &Counts) -> String {
    let written = transfers(c.page_outs, c.page_out_writes, "write", "mean");
    if c.clusters == 0 {
        return written;
    }
    format!(
        "{written}, mean cluster {:.1} pages",
        c.page_outs as f64 / c.clusters as f64
    )
}

/// Of the pages that were mapped along, how many were not used, by the sample; `None` without one.
fn along_in_vain(c: &Counts) -> Option<u64> {
    let along = cache(c).along()?;
    Some(((1.0 - along.share) * c.read_ahead_mapped as f64) as u64)
}

/// Of the pages that were read ahead, how many were not used, as far as is known.
fn in_vain(c: &Counts) -> u64 {
    c.read_ahead_waste + along_in_vain(c).unwrap_or(0)
}

fn read_ahead(c: &Counts) -> String {
    if c.read_ahead_pages == 0 {
        return "none".into();
    }
    let cache = cache(c);
    let unused = along_in_vain(c).map_or(String::new(), |pages| {
        format!(" (about {} of them in vain)", grouped(pages))
    });
    let text = format!(
        "{} pages: {} mapped along{unused}, {} hits, {} wasted",
        grouped(c.read_ahead_pages),
        grouped(c.read_ahead_mapped),
        grouped(c.read_ahead_hits),
        grouped(c.read_ahead_waste)
    );
    text + &percents(&cache)
}

/// Pages in the unit that suits them.
pub fn pages_size(pages: u64) -> String {
    format_size(pages.saturating_mul(PAGE_BYTES as u64))
}

/// `1234567` as `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
