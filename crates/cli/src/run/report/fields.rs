//! The JSON of a run: every field, what it means, and where its value comes from.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::Config;
use outpage_stats::{COUNTERS, Counts, Histogram, ObjectUses, Waits};
use serde_json::{Map, Value, json};

use super::{Outcome, QUANTILES, cache, objects, rates_json};

/// Version of the JSON's layout.
pub const SCHEMA: u32 = 1;

/// A field of a JSON object; `F` gives its value.
pub struct Field<F> {
    /// Its name.
    pub name: &'static str,
    /// Its unit; "-" where it is no number of anything.
    pub unit: &'static str,
    /// What it means, in Markdown.
    pub meaning: &'static str,
    /// Its value; where that is none the field is left out.
    pub value: F,
}

/// All that `--stats` writes about.
pub struct Written<'a> {
    /// What the run gave.
    pub outcome: &'a Outcome,
    /// Its settings.
    pub config: &'a Config,
    /// The program and its arguments.
    pub words: &'a [String],
    /// How it ended; `None` while it runs.
    pub status: Option<ExitStatus>,
}

/// What is counted of a run, or of one of its processes.
pub struct Counted<'a> {
    /// The counters.
    pub counts: &'a Counts,
    /// How long threads waited.
    pub waits: &'a Waits,
    /// The memory objects, where they are told.
    pub objects: Option<&'a ObjectUses>,
}

/// The value of a field of a run as a whole.
pub type OfRun = fn(&Written<'_>) -> Option<Value>;
/// The value of a field that is made of counters.
pub type OfCounts = fn(&Counted<'_>) -> Option<Value>;

/// Declares fields: a name, a unit, what it means, and its value.
macro_rules! fields {
    ($($name:literal, $unit:literal, $meaning:literal, $value:expr;)+) => {
        &[$(Field { name: $name, unit: $unit, meaning: $meaning, value: $value }),+]
    };
}

pub(crate) use fields;

/// Of the run as a whole.
pub const RUN: &[Field<OfRun>] = fields! {
    "schema", "-", "version of this layout",
        |_| Some(json!(SCHEMA));
    "complete", "-", "false while the program runs: the counters are those of that moment",
        |run| Some(json!(run.status.is_some()));
    "program", "-", "the program and its arguments",
        |run| Some(json!(run.words));
    "exit_code", "-", "how the program ended; null where a signal ended it, and while it runs",
        |run| Some(json!(run.status.and_then(|status| status.code())));
    "exit_signal", "-", "the signal that ended the program; else null",
        |run| Some(json!(run.status.and_then(|status| status.signal())));
    "elapsed_seconds", "s", "from the start of the program to its end, or to now",
        |run| Some(json!(run.outcome.elapsed.as_secs_f64()));
    "mechanism", "-", "`move` or `write-protect`; `auto` if no pager ever started",
        |run| Some(json!(run.outcome.mechanism.name()));
    "encrypted", "-", "whether the swap file is encrypted",
        |run| Some(json!(run.outcome.encrypted));
    "limit_bytes", "bytes", "the limit",
        |run| Some(json!(run.config.memory_bytes));
    "peak_bytes", "bytes", "most of the limit that was lent to the processes at once",
        |run| Some(json!(run.outcome.peak_pages.saturating_mul(PAGE_BYTES as u64)));
    "config", "-", "the settings, as texts",
        |run| Some(settings(run.config));
    "peak_resident_bytes", "bytes", "most of the program's memory in RAM at one look: private, shared and huge pages; files \
        that are only read are left out",
        |run| Some(json!(run.outcome.unpaged.resident));
    "peak_unpaged_bytes", "bytes", "most of it that is not paged at one look: the next four together",
        |run| Some(json!(run.outcome.unpaged.all));
    "peak_unpaged_shared_bytes", "bytes", "shared memory: anonymous, memfd, System V, tmpfs",
        |run| Some(json!(run.outcome.unpaged.shared));
    "peak_unpaged_huge_bytes", "bytes", "huge pages of hugetlbfs",
        |run| Some(json!(run.outcome.unpaged.huge));
    "peak_unpaged_unlimited_bytes", "bytes", "private memory, beyond 4 MiB each, of programs that run without a limit \
        because the library is not in them",
        |run| Some(json!(run.outcome.unpaged.unlimited));
    "peak_unpaged_private_bytes", "bytes", "other private memory beyond what the limit lent and 4 MiB a process: main \
        threads' stacks, changed pages of private file mappings, processes that said that they are not paged",
        |run| Some(json!(run.outcome.unpaged.private));
};

/// Of what was counted, beside the counters themselves.
pub const COUNTED: &[Field<OfCounts>] = fields! {
    "write_histogram", "writes", "array of `{pages_min, pages_end, writes}`: writes of `pages_min` up to but not including \
        `pages_end` pages",
        |counted| Some(histogram(counted.counts));
    "minor_fault_latency", "ns", "how long threads waited for faults without a read: `count`, `p50_ns`, `p90_ns`, `p99_ns`, \
        `p99.9_ns`, and `histogram`: array of `{ns_min, ns_end, faults}`",
        |counted| Some(latency(&counted.waits.minor));
    "major_fault_latency", "ns", "the same for faults with a read",
        |counted| Some(latency(&counted.waits.major));
    "read_ahead_hit_rate", "share", "hits of the pages read ahead (after section 4.1 of the ASP paper: hits by pages read \
        less swap-ins), those mapped along by their sample; null without a base",
        |counted| rate(counted, "hit_rate");
    "read_ahead_hit_rate_interval", "shares", "where it is an estimate: between these it lies with 95 % probability",
        |counted| rate(counted, "hit_rate_interval");
    "read_ahead_accuracy", "share", "hits of the pages whose fate is known, those mapped along by their sample",
        |counted| rate(counted, "accuracy");
    "read_ahead_accuracy_interval", "shares", "where it is an estimate: between these it lies with 95 % probability",
        |counted| rate(counted, "accuracy_interval");
    "read_ahead_coverage", "share", "hits of the touches that would have been major faults",
        |counted| rate(counted, "coverage");
    "read_ahead_timeliness", "share", "hits whose page was there already",
        |counted| rate(counted, "timeliness");
    "read_ahead_objects", "-", "the same counts and rates for each memory object: `largest` has the 16 that most was read \
        of, with `pid`, `address` (of the first page read) and `bytes` (to the last page read), `others` the sum of all \
        others. An object is a mapping: neighbours of equal protection are one, as the kernel has it; memory that moved \
        keeps its first address. Of each process 64 are told apart",
        |counted| Some(objects::json(counted.objects?));
};

/// The object of those `fields` that have a `value`.
pub fn object<F>(fields: &[Field<F>], value: impl Fn(&F) -> Option<Value>) -> Map<String, Value> {
    let values = fields.iter();
    values
        .filter_map(|field| Some((field.name.to_owned(), value(&field.value)?)))
        .collect()
}

/// All that was counted: the counters, and what is made of them.
pub fn counted(counted: &Counted<'_>) -> Map<String, Value> {
    let mut map = object(COUNTED, |value| value(counted));
    let counters = counted.counts.each();
    map.extend(counters.map(|(counter, value)| (counter.name.to_owned(), json!(value))));
    map
}

/// Name, unit and meaning of every field that [`RUN`] and [`counted`] give, in the order of the documents.
pub fn documented() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    let run = RUN.iter().map(|f| (f.name, f.unit, f.meaning.to_owned()));
    let counters = COUNTERS
        .iter()
        .map(|counter| (counter.name, counter.unit.name(), counter.phrase()));
    let made = COUNTED
        .iter()
        .map(|f| (f.name, f.unit, f.meaning.to_owned()));
    run.chain(counters).chain(made)
}

fn settings(config: &Config) -> Value {
    let settings = config.to_env().into_iter().map(|(name, value)| {
        let key = name.trim_start_matches("OUTPAGE_").to_lowercase();
        (key, json!(value.to_string_lossy()))
    });
    Value::Object(settings.collect())
}

fn rate(counted: &Counted<'_>, name: &str) -> Option<Value> {
    let rates = rates_json(&cache(counted.counts)).into_iter();
    rates
        .filter_map(|(found, value)| (found == name).then_some(value))
        .next()
}

/// Writes by size: half-open spans of pages and the writes in each.
fn histogram(counts: &Counts) -> Value {
    let spans = counts.write_sizes.iter().enumerate();
    spans
        .map(|(i, writes)| json!({"pages_min": 1_u64 << i, "pages_end": 2_u64 << i, "writes": writes}))
        .collect()
}

/// Quantiles in nanoseconds, and half-open spans of nanoseconds with the faults in each.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_declared_twice() {
        let mut names: Vec<&str> = documented().map(|(name, ..)| name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn what_is_written_is_what_is_declared() {
        let config = Config::new(64 << 20);
        let mut outcome = Outcome::before(false);
        // So that both estimates have their intervals.
        outcome.counts.read_ahead_pages = 9;
        outcome.counts.read_ahead_mapped = 9;
        outcome.counts.read_ahead_along_used = 5;
        outcome.counts.read_ahead_along_unused = 4;
        let Value::Object(written) = outcome.json(&config, &["job".into()], None) else {
            panic!("no object");
        };
        let mut declared: Vec<&str> = documented().map(|(name, ..)| name).collect();
        declared.sort_unstable();
        assert!(written.keys().eq(declared), "{:?}", written.keys());
    }
}
