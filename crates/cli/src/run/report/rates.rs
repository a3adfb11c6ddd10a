//! The rates of read-ahead, for people and as JSON.

use std::fmt::Write;

use outpage_core::swap_cache::{Rate, SwapCache};
use outpage_stats::Counts;
use serde_json::{Value, json};

/// "; hit rate 86 %; ...": those that have a base.
pub fn percents(cache: &SwapCache) -> String {
    let mut text = String::new();
    for (name, rate) in rates(cache) {
        let Some(rate) = rate else { continue };
        let _ = write!(text, "; {name} {:.0} %", 100.0 * rate.share);
        if rate.is_estimate() {
            let (low, high) = (100.0 * rate.low, 100.0 * rate.high);
            let _ = write!(text, " ({low:.0} to {high:.0} %)");
        }
    }
    text
}

/// What read-ahead did for all processes.
pub const fn cache(c: &Counts) -> SwapCache {
    SwapCache {
        major_faults: c.major_faults,
        page_ins: c.page_ins,
        read_ahead: c.read_ahead_pages,
        mapped: c.read_ahead_mapped,
        hits: c.read_ahead_hits,
        late: c.read_ahead_late,
        waste: c.read_ahead_waste,
        along_used: c.read_ahead_along_used,
        along_unused: c.read_ahead_along_unused,
        along_squares: c.read_ahead_along_squares,
    }
}

/// The rates of the swap cache; one without a base is `None`.
fn rates(cache: &SwapCache) -> [(&'static str, Option<Rate>); 4] {
    [
        ("hit rate", cache.hit_rate()),
        ("accuracy", cache.accuracy()),
        ("coverage", cache.coverage()),
        ("timeliness", cache.timeliness()),
    ]
}

/// The rates as JSON: the share, and beside an estimate the interval in which the true one lies with 95 %
/// probability.
pub fn rates_json(cache: &SwapCache) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (name, rate) in rates(cache) {
        let name = name.replace(' ', "_");
        if let Some(rate) = rate.filter(Rate::is_estimate) {
            all.push((format!("{name}_interval"), json!([rate.low, rate.high])));
        }
        all.push((name, json!(rate.map(|rate| rate.share))));
    }
    all
}
