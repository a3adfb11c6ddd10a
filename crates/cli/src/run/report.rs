//! What a run says at its end: a summary for people, all counters as JSON.

use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use outpage_core::swap_cache::SwapCache;
use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::{Config, Mechanism, format_size};
use outpage_engine::session::{Counts, Histogram, ObjectUses, Session, Waits};
use outpage_sys::libc;
use serde_json::{Map, Value, json};

use super::watch::unpaged::{NOTABLE_BYTES, Unpaged};

mod objects;

/// Version of the JSON's layout.
const SCHEMA: u32 = 1;

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
        }
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
            still_running: session.members().count(),
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
            "outpage: limit {limit}, peak {} in RAM{beside} and {} in swap ({}, {}, page-out {}, read-ahead {})\n",
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
        );
        self.rows().into_iter().chain(not_paged).fold(text, row)
    }

    /// The row of what is not paged, where that is worth one.
    fn not_paged(&self) -> Option<(&'static str, String)> {
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
        (!parts.is_empty()).then(|| ("not paged", format!("at most {}", parts.join(", "))))
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

    fn rows(&self) -> Vec<(&'static str, String)> {
        let c = &self.counts;
        let mut rows = vec![
            ("page-outs", page_outs(c)),
            (
                "page-ins",
                transfers(c.page_ins, c.page_in_reads, "read", "mean"),
            ),
            ("read-ahead", read_ahead(c)),
            ("  by object", objects::text(&self.objects)),
            (
                "faults",
                format!(
                    "{} minor, {} major, {:.2} s waited for them in {:.2} s",
                    grouped(c.minor_faults),
                    grouped(c.major_faults),
                    c.fault_ns as f64 / 1e9,
                    self.elapsed.as_secs_f64()
                ),
            ),
            (
                "not written",
                format!(
                    "{} clean, {} zero; {} rescued",
                    grouped(c.clean_drops),
                    grouped(c.zero_drops),
                    grouped(c.rescues)
                ),
            ),
        ];
        if c.page_out_writes > 0 {
            rows.insert(1, ("  by size", write_sizes(c)));
        }
        rows.retain(|(_, text)| !text.is_empty());
        let major = ("  major", quantiles(&self.waits.major));
        let minor = ("  minor", quantiles(&self.waits.minor));
        let after = rows
            .iter()
            .position(|row| row.0 == "faults")
            .map_or(rows.len(), |at| at + 1);
        let waits = [minor, major]
            .into_iter()
            .filter_map(|(name, text)| Some((name, text?)));
        rows.splice(after..after, waits);
        rows.extend(self.trouble().into_iter().map(|text| ("attention", text)));
        rows
    }

    /// What a user must not overlook.
    fn trouble(&self) -> Vec<String> {
        let c = &self.counts;
        let mut lines = Vec::new();
        let mut add = |count: u64, text: &str| {
            if count > 0 {
                lines.push(format!("{} {text}", grouped(count)));
            }
        };
        add(c.poisoned, "pages were lost to failed reads");
        add(c.checksum_errors, "pages read had a wrong checksum");
        add(c.store_errors, "requests to the swap file failed");
        add(
            c.swap_full,
            "page-outs found the swap file full: raise --swap-cap or free disk space",
        );
        add(
            c.cow_duplicates,
            "pages were duplicated by fork beyond the limit",
        );
        add(
            self.still_running as u64,
            "processes of the program still run",
        );
        lines
    }

    /// All counters and the configuration; without a `status` those of a run that still lasts.
    #[must_use]
    pub fn json(&self, config: &Config, program: &[String], status: Option<ExitStatus>) -> Value {
        let mut map = Map::new();
        map.insert("schema".into(), json!(SCHEMA));
        map.insert("complete".into(), json!(status.is_some()));
        map.insert("program".into(), json!(program));
        map.insert("exit_code".into(), json!(status.and_then(|s| s.code())));
        map.insert("exit_signal".into(), json!(status.and_then(|s| s.signal())));
        map.insert("elapsed_seconds".into(), json!(self.elapsed.as_secs_f64()));
        map.insert("mechanism".into(), json!(self.mechanism.name()));
        map.insert("encrypted".into(), json!(self.encrypted));
        map.insert("limit_bytes".into(), json!(config.memory_bytes));
        map.insert(
            "peak_bytes".into(),
            json!(self.peak_pages.saturating_mul(PAGE_BYTES as u64)),
        );
        for (name, _, value) in self.counts.fields() {
            map.insert(name.into(), json!(value));
        }
        map.insert("peak_resident_bytes".into(), json!(self.unpaged.resident));
        map.insert("peak_unpaged_bytes".into(), json!(self.unpaged.all));
        for (name, bytes) in self.unpaged.kinds() {
            map.insert(format!("peak_unpaged_{name}_bytes"), json!(bytes));
        }
        for (name, share) in rates(&cache(&self.counts)) {
            map.insert(
                format!("read_ahead_{}", name.replace(' ', "_")),
                json!(share),
            );
        }
        map.insert("read_ahead_objects".into(), objects::json(&self.objects));
        map.insert("write_histogram".into(), histogram(&self.counts));
        map.insert("minor_fault_latency".into(), latency(&self.waits.minor));
        map.insert("major_fault_latency".into(), latency(&self.waits.major));
        let settings = config.to_env().into_iter().map(|(name, value)| {
            let key = name.trim_start_matches("OUTPAGE_").to_lowercase();
            (key, json!(value.to_string_lossy()))
        });
        map.insert("config".into(), Value::Object(settings.collect()));
        Value::Object(map)
    }
}

/// `text` with one row more.
fn row(mut text: String, (name, value): (&str, String)) -> String {
    let _ = writeln!(text, "  {name:<12}{value}");
    text
}

/// Writes by size: half-open spans of pages and the writes in each.
fn histogram(counts: &Counts) -> Value {
    let spans = counts.write_sizes.iter().enumerate();
    spans.map(|(i, writes)| json!({"pages_min": 1_u64 << i, "pages_end": 2_u64 << i, "writes": writes})).collect()
}

/// The shares of faults whose latencies are told, by their usual names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

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

/// Quantiles in nanoseconds, and half-open spans of nanoseconds with the faults in each.
#[must_use]
pub fn latency(histogram: &Histogram) -> Value {
    let mut map = Map::new();
    map.insert("count".into(), json!(histogram.count()));
    for (name, share) in QUANTILES {
        map.insert(format!("{name}_ns"), json!(histogram.quantile(share)));
    }
    let spans = histogram
        .buckets()
        .map(|(from, end, count)| json!({"ns_min": from, "ns_end": end, "faults": count}));
    map.insert("histogram".into(), spans.collect());
    Value::Object(map)
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

fn read_ahead(c: &Counts) -> String {
    if c.read_ahead_pages == 0 {
        return "none".into();
    }
    let text = format!(
        "{} pages: {} mapped along, {} hits, {} wasted",
        grouped(c.read_ahead_pages),
        grouped(c.read_ahead_mapped),
        grouped(c.read_ahead_hits),
        grouped(c.read_ahead_waste)
    );
    text + &percents(&cache(c))
}

/// "; hit rate 86 %; ...": those that have a base.
fn percents(cache: &SwapCache) -> String {
    let mut text = String::new();
    for (name, share) in rates(cache) {
        if let Some(share) = share {
            let _ = write!(text, "; {name} {:.0} %", 100.0 * share);
        }
    }
    text
}

const fn cache(c: &Counts) -> SwapCache {
    SwapCache {
        major_faults: c.major_faults,
        page_ins: c.page_ins,
        read_ahead: c.read_ahead_pages,
        mapped: c.read_ahead_mapped,
        hits: c.read_ahead_hits,
        late: c.read_ahead_late,
        waste: c.read_ahead_waste,
    }
}

/// The rates of the swap cache; one without a base is left out.
fn rates(cache: &SwapCache) -> [(&'static str, Option<f64>); 4] {
    [
        ("hit rate", cache.hit_rate()),
        ("accuracy", cache.accuracy()),
        ("coverage", cache.coverage()),
        ("timeliness", cache.timeliness()),
    ]
}

fn pages_size(pages: u64) -> String {
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
mod tests {
    use super::*;

    fn outcome(counts: Counts) -> Outcome {
        Outcome {
            counts,
            mechanism: Mechanism::Move,
            peak_pages: 65536,
            elapsed: Duration::from_millis(2500),
            ..Outcome::before(true)
        }
    }

    fn busy() -> Counts {
        let mut counts = Counts {
            page_outs: 20_000,
            page_out_writes: 320,
            clusters: 400,
            page_ins: 18_000,
            page_in_reads: 1200,
            read_ahead_pages: 16_000,
            read_ahead_mapped: 2_000,
            read_ahead_hits: 12_000,
            read_ahead_waste: 500,
            minor_faults: 7,
            major_faults: 1_234_567,
            fault_ns: 420_000_000,
            ..Counts::default()
        };
        counts.write_sizes[0] = 8;
        counts.write_sizes[6] = 312;
        counts
    }

    #[test]
    fn a_program_that_fits_gets_one_line() {
        let text = outcome(Counts::default()).summary(&Config::new(256 << 20));
        assert_eq!(
            text,
            "outpage: the program stayed within its 256 MiB; nothing was paged\n"
        );
    }

    fn shared(mib: u64) -> Unpaged {
        Unpaged {
            resident: (mib + 20) << 20,
            all: mib << 20,
            shared: mib << 20,
            ..Unpaged::default()
        }
    }

    #[test]
    fn what_is_not_paged_is_named_and_no_limit_claimed_that_did_not_hold() {
        let config = Config::new(256 << 20);
        let text = |mib, counts| outcome(counts).beside(shared(mib)).summary(&config);
        assert_eq!(
            text(100, Counts::default()),
            "outpage: the program stayed within its 256 MiB; nothing was paged\n  \
             not paged   at most 100 MiB shared memory\n"
        );
        assert_eq!(
            text(300, Counts::default()),
            "outpage: limit 256 MiB, but the program had 320 MiB in RAM; nothing was paged\n  \
             not paged   at most 300 MiB shared memory\n"
        );
        let paged = text(300, busy());
        let first =
            "outpage: limit 256 MiB, peak 256 MiB in RAM, 300 MiB more that are not paged, and ";
        assert!(paged.starts_with(first), "{paged}");
        assert!(
            paged.ends_with("  not paged   at most 300 MiB shared memory\n"),
            "{paged}"
        );
    }

    #[test]
    fn the_json_of_a_run_that_lasts_says_so() {
        let value = Outcome::before(false).json(&Config::new(256 << 20), &["sort".into()], None);
        assert_eq!(value["complete"], false);
        assert_eq!(
            (&value["exit_code"], &value["exit_signal"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(value["peak_unpaged_shared_bytes"], 0);
    }

    #[test]
    fn the_summary_has_every_figure() {
        let text = outcome(busy()).summary(&Config::new(256 << 20));
        for part in [
            "limit 256 MiB, peak 256 MiB",
            "(move, encrypted, page-out",
            "20,000 pages (78.1 MiB) in 320 writes, mean 62.5 pages, mean cluster 50.0 pages",
            "1 page: 8, 64-127: 312",
            "18,000 pages (70.3 MiB) in 1,200 reads",
            "16,000 pages: 2,000 mapped along, 12,000 hits, 500 wasted; hit rate 86 %; accuracy 96 %",
            "7 minor, 1,234,567 major, 0.42 s waited",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains("attention"));
    }

    #[test]
    fn latencies_stand_below_the_faults() {
        let mut outcome = outcome(busy());
        (1..=1000).for_each(|us| outcome.waits.major.record(us * 1000));
        let text = outcome.summary(&Config::new(256 << 20));
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        let at = lines
            .iter()
            .position(|l| l.starts_with("faults"))
            .expect("faults");
        assert!(
            lines[at + 1].starts_with("major") && lines[at + 1].contains("p99.9 1"),
            "{text}"
        );
        let value = latency(&outcome.waits.major);
        assert_eq!(value["count"], 1000);
        assert!(
            value["p50_ns"]
                .as_u64()
                .is_some_and(|ns| (500_000..=531_250).contains(&ns)),
            "{value}"
        );
    }

    #[test]
    fn trouble_is_told_even_by_a_program_that_never_paged() {
        let counts = Counts {
            swap_full: 1,
            ..Counts::default()
        };
        let text = outcome(counts).summary(&Config::new(256 << 20));
        assert!(
            text.contains("attention   1 page-outs found the swap file full"),
            "{text}"
        );
    }

    #[test]
    fn a_signal_is_explained_where_a_page_was_lost() {
        let config = Config::new(256 << 20);
        let mut outcome = outcome(Counts::default());
        let (bus, by_shell) = (ExitStatus::from_raw(7), ExitStatus::from_raw(135 << 8));
        assert_eq!(outcome.ended_by_loss(&config, bus), None);
        outcome.counts.poisoned = 3;
        for status in [bus, by_shell] {
            let line = outcome.ended_by_loss(&config, status).expect("a line");
            assert!(
                line.contains("3 of its pages") && line.contains("in /var/tmp"),
                "{line}"
            );
        }
        let others = [0, 9, 1 << 8].map(ExitStatus::from_raw);
        assert!(
            others
                .iter()
                .all(|status| outcome.ended_by_loss(&config, *status).is_none())
        );
    }

    #[test]
    fn the_json_has_every_counter_and_the_configuration() {
        let status = ExitStatus::from_raw(9);
        let value = outcome(busy()).json(&Config::new(256 << 20), &["sort".into()], Some(status));
        assert_eq!(value["complete"], true);
        assert_eq!(value["page_outs"], 20_000);
        assert_eq!(value["encrypted"], true);
        assert_eq!(value["exit_signal"], 9);
        assert_eq!(value["exit_code"], Value::Null);
        assert_eq!(value["peak_bytes"], 256 << 20);
        assert_eq!(value["config"]["memory"], (256 << 20).to_string());
        assert_eq!(
            value["write_histogram"][6],
            json!({"pages_min": 64, "pages_end": 128, "writes": 312})
        );
        for (name, _, _) in Counts::default().fields() {
            assert!(value[name].is_u64(), "{name}");
        }
    }
}
