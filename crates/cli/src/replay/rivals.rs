//! Other replacement policies on the same references.

use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::format_size;
use outpage_sim::rivals::{self, OPT, REGISTRY, Table};

use crate::bar;
use crate::bench::summary::table;
use crate::run::report::grouped;
use crate::sim::programs::Source;

/// Longer strings are left out: eight passes over each size.
const REFERENCES_MAX: usize = 100_000_000;

/// All rivals and the optimum at each of `frames`; `None` when the trace is too long.
#[must_use]
pub fn compare(source: &Source, frames: &[u64]) -> Option<Table> {
    let string = source.string(REFERENCES_MAX)?;
    let mut sizes: Vec<u32> = frames
        .iter()
        .filter_map(|&f| u32::try_from(f).ok())
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    let bar = bar::steps("rivals", (sizes.len() * (REGISTRY.len() + 1)) as u64);
    let compared = rivals::compare(&[(&source.text, &string)], REGISTRY, &sizes, |progress| {
        bar.set_position(progress.done as u64);
    });
    bar.finish_and_clear();
    Some(compared)
}

/// Misses and their distance to the optimum: policies down, sizes across; of program `name`.
#[must_use]
pub fn text(name: Option<&str>, compared: &Table) -> String {
    let mut sizes: Vec<u32> = compared.cells.iter().map(|cell| cell.frames).collect();
    sizes.dedup();
    let mut head = vec!["misses".to_owned()];
    for &frames in &sizes {
        head.extend([
            format_size(u64::from(frames) * PAGE_BYTES as u64),
            "over opt".to_owned(),
        ]);
    }
    let mut rows = vec![head];
    let policies = std::iter::once(OPT).chain(REGISTRY.iter().map(|entry| entry.name));
    for policy in policies {
        let mut row = vec![policy.to_owned()];
        for &frames in &sizes {
            let cell = compared
                .cells
                .iter()
                .find(|c| c.frames == frames && c.policy == policy);
            row.extend(cell.map_or_else(
                || ["-".to_owned(), "-".to_owned()],
                |c| [grouped(c.misses), format!("{:+.1} %", 100.0 * c.above_opt)],
            ));
        }
        rows.push(row);
    }
    let of = name.map_or_else(String::new, |name| format!("{name}: "));
    format!(
        "{of}Replacement alone, page by page, without read-ahead or clusters:\n{}",
        table(&rows)
    )
}
