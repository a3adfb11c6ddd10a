//! The policies of the registries, and their settings.

use outpage_core::contract::Body;
use outpage_core::readahead::{Choice, Entry};
use outpage_core::settings::Setting;
use outpage_core::units::PAGE_BYTES;
use outpage_core::{discard, pageout, readahead, reclaim, slots, tier};

use super::{markdown, quoted};

/// Reclaim policies that can run live.
pub fn reclaim() -> String {
    let rows = reclaim::offered(Body::default()).map(|policy| {
        let name = format!("`{}`", policy.name);
        vec![name, policy.summary.into(), policy.source.into()]
    });
    markdown(&["`--reclaim`", "what it does", "source"], rows)
}

/// Their settings.
pub fn reclaim_settings() -> String {
    let policies = reclaim::offered(Body::default());
    settings_of(policies.map(|policy| (policy.name, policy.settings)))
}

/// Tier policies that can run live.
pub fn tier() -> String {
    let rows = tier::offered(tier::Written::Plain).map(|policy| {
        let name = format!("`{}`", policy.name);
        vec![name, policy.summary.into(), policy.source.into()]
    });
    markdown(&["`--tier`", "what it does", "source"], rows)
}

/// Their settings.
pub fn tier_settings() -> String {
    let policies = tier::offered(tier::Written::Plain);
    settings_of(policies.map(|policy| (policy.name, policy.settings)))
}

/// Discard policies.
pub fn discard() -> String {
    let rows = discard::REGISTRY.iter().map(|policy| {
        let name = format!("`{}`", policy.name);
        vec![name, policy.summary.into(), policy.source.into()]
    });
    markdown(&["`--discard`", "what it does", "source"], rows)
}

/// Their settings.
pub fn discard_settings() -> String {
    let policies = discard::REGISTRY.iter();
    settings_of(policies.map(|policy| (policy.name, policy.settings)))
}

/// The settings of policies that have few: a row for each.
fn settings_of(
    policies: impl Iterator<Item = (&'static str, &'static [&'static Setting])>,
) -> String {
    let of = |(name, settings): (&'static str, &'static [&'static Setting])| {
        settings.iter().map(move |setting| (name, setting))
    };
    let rows = policies.flat_map(of).map(|(name, setting)| {
        vec![
            format!("`{name}`"),
            format!("`{}`", setting.name),
            setting.summary.into(),
            setting.allowed.to_string(),
            setting.by_default(),
        ]
    });
    let head = ["policy", "setting", "meaning", "values", "without it"];
    markdown(&head, rows)
}

/// Ways to group pages for writing.
pub fn pageout() -> String {
    let rows = pageout::REGISTRY.iter().map(|policy| {
        let pages = policy.buffer_pages;
        let buffer = match pages {
            1 => "1 page, fixed".to_owned(),
            pages => format!("{pages} pages"),
        };
        let name = format!("`{}`", policy.name);
        vec![name, policy.summary.into(), policy.source.into(), buffer]
    });
    markdown(&["`--pageout`", "what it does", "source", "buffer"], rows)
}

/// Slot allocators.
pub fn slots() -> String {
    let rows = slots::REGISTRY.iter().map(|policy| {
        let name = format!("`{}`", policy.name);
        vec![name, policy.summary.into(), policy.source.into()]
    });
    markdown(&["`--slots`", "what it does", "source"], rows)
}

/// Read-ahead policies.
pub fn readahead() -> String {
    let rows = readahead::REGISTRY.iter().map(|policy| {
        let name = format!("`{}`", policy.name);
        vec![
            name,
            policy.summary.into(),
            policy.source.into(),
            window(policy),
        ]
    });
    let head = ["`--readahead`", "what it does", "source", "largest window"];
    markdown(&head, rows)
}

/// "128 pages, 64 below 48 MiB of RAM".
fn window(policy: &'static Entry) -> String {
    let pages = match Choice::plain(policy).max_window() {
        1 => "1 page".to_owned(),
        pages => format!("{pages} pages"),
    };
    let Some(little) = policy.little else {
        return pages;
    };
    let below = (little.below * PAGE_BYTES) >> 20;
    format!("{pages}, {} below {below} MiB of RAM", little.max_window)
}

/// The settings of read-ahead policies: a row for each name.
pub fn settings() -> String {
    let all = || {
        readahead::REGISTRY
            .iter()
            .flat_map(|policy| policy.settings)
    };
    let mut names: Vec<&str> = Vec::new();
    for setting in all() {
        if !names.contains(&setting.name) {
            names.push(setting.name);
        }
    }
    let rows = names.into_iter().map(|name| {
        let having: Vec<(&Entry, &Setting)> = readahead::REGISTRY
            .iter()
            .filter_map(|policy| Some((policy, *policy.settings.iter().find(|s| s.name == name)?)))
            .collect();
        vec![
            format!("`{name}`"),
            having[0].1.summary.to_owned(),
            grouped(&having, |setting| setting.allowed.to_string()),
            grouped(&having, |setting| setting.by_default()),
        ]
    });
    markdown(&["setting", "meaning", "values", "without it"], rows)
}

/// Each of the texts and the policies that have it.
fn grouped(having: &[(&Entry, &Setting)], text: impl Fn(&Setting) -> String) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (policy, setting) in having {
        let text = text(setting);
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(policy.name),
            None => groups.push((text, vec![policy.name])),
        }
    }
    let texts = groups.into_iter();
    let texts: Vec<String> = texts
        .map(|(text, names)| format!("{text}: {}", quoted(names.into_iter())))
        .collect();
    texts.join("; ")
}
