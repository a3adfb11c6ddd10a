//! Names of policies and numbers of pages, as people write them.

use outpage_core::contract::Body;
use outpage_core::{discard, reclaim, settings as policy, tier};
use outpage_core::{pageout, slots};

use super::{CHUNK_MAX, WINDOW_MAX};
use crate::world::Mechanism;

/// What a live body tells of touches, whichever mechanism it comes to.
fn live() -> Body {
    let bits = Mechanism::ALL
        .into_iter()
        .all(Mechanism::has_reference_bits);
    Body { bits }
}

/// A reclaim policy and what is set of it, as in `s3-fifo:small=20`.
///
/// # Errors
/// Lists what there is.
pub fn parse_reclaim(text: &str) -> Result<reclaim::Choice, String> {
    reclaim::Choice::parse(text, live()).map_err(|error| error.to_string())
}

/// A tier policy and what is set of it, as in `lz4:pool=50`.
///
/// # Errors
/// Says what there is.
pub fn parse_tier(text: &str) -> Result<tier::Choice, String> {
    tier::Choice::parse(text, tier::Written::Plain).map_err(|error| error.to_string())
}

/// Name, one-line summary and settings of each tier policy.
#[must_use]
pub fn tier_table() -> Vec<(&'static str, String)> {
    tier::offered(tier::Written::Plain)
        .map(|entry| (entry.name, told(entry.summary, entry.settings)))
        .collect()
}

/// A discard policy and what is set of it, as in `pf:pages=64`.
///
/// # Errors
/// Says what there is.
pub fn parse_discard(text: &str) -> Result<discard::Choice, String> {
    discard::Choice::parse(text).map_err(|error| error.to_string())
}

/// Name, one-line summary and settings of each discard policy.
#[must_use]
pub fn discard_table() -> Vec<(&'static str, String)> {
    discard::REGISTRY
        .iter()
        .map(|entry| (entry.name, told(entry.summary, entry.settings)))
        .collect()
}

/// Name, one-line summary and settings of each reclaim policy.
#[must_use]
pub fn reclaim_table() -> Vec<(&'static str, String)> {
    reclaim::offered(live())
        .map(|entry| (entry.name, told(entry.summary, entry.settings)))
        .collect()
}

/// The summary of a policy and its settings, as they are when nothing is set.
pub(super) fn told(summary: &str, settings: &[&policy::Setting]) -> String {
    if settings.is_empty() {
        return summary.to_owned();
    }
    let settings = settings
        .iter()
        .map(|s| format!("{}={}", s.name, s.by_default()));
    format!("{summary} ({})", settings.collect::<Vec<_>>().join(","))
}

/// A page-out policy's name.
///
/// # Errors
/// Lists the names there are.
pub fn parse_pageout(text: &str) -> Result<&'static str, String> {
    one_of(text, &pageout_names())
}

/// A slot allocator's name.
///
/// # Errors
/// Lists the names there are.
pub fn parse_slots(text: &str) -> Result<&'static str, String> {
    one_of(text, &slots_names())
}

/// The names of all slot allocators.
#[must_use]
pub fn slots_names() -> Vec<&'static str> {
    slots::REGISTRY.iter().map(|e| e.name).collect()
}

/// The names of all page-out policies.
#[must_use]
pub fn pageout_names() -> Vec<&'static str> {
    pageout::REGISTRY.iter().map(|e| e.name).collect()
}

/// Name and one-line summary of each page-out policy.
#[must_use]
pub fn pageout_table() -> Vec<(&'static str, &'static str)> {
    pageout::REGISTRY
        .iter()
        .map(|e| (e.name, e.summary))
        .collect()
}

/// Name and one-line summary of each slot allocator.
#[must_use]
pub fn slots_table() -> Vec<(&'static str, &'static str)> {
    slots::REGISTRY
        .iter()
        .map(|e| (e.name, e.summary))
        .collect()
}

/// A read-ahead window in pages.
///
/// # Errors
/// Outside 1 to [`WINDOW_MAX`].
pub fn parse_window(text: &str) -> Result<u32, String> {
    pages_within(text, WINDOW_MAX)
}

/// A page-out chunk in pages.
///
/// # Errors
/// Outside 1 to [`CHUNK_MAX`].
pub fn parse_chunk(text: &str) -> Result<u32, String> {
    pages_within(text, CHUNK_MAX)
}

fn pages_within(text: &str, max: u32) -> Result<u32, String> {
    match text.trim().parse() {
        Ok(pages) if (1..=max).contains(&pages) => Ok(pages),
        _ => Err(format!("'{text}' is not a number of pages from 1 to {max}")),
    }
}

fn one_of(text: &str, names: &[&'static str]) -> Result<&'static str, String> {
    names
        .iter()
        .copied()
        .find(|name| *name == text)
        .ok_or_else(|| unknown(text, names))
}

pub(super) fn unknown(text: &str, names: &[&str]) -> String {
    format!("'{text}' is unknown; choose one of {}", names.join(", "))
}

pub(super) fn parse_flag(text: &str) -> Result<bool, String> {
    match text {
        "1" | "yes" | "true" => Ok(true),
        "0" | "no" | "false" => Ok(false),
        _ => Err(unknown(text, &["1", "0"])),
    }
}
