//! The lines of the summary, the fields of `--stats` and those of `outpage status --json`.

use outpage_stats::{COUNTERS, LINES, Line};

use super::{markdown, quoted};
use crate::run::report::fields::documented;
use crate::status;

/// The lines of the closing summary.
pub fn summary() -> String {
    let rows = LINES.iter().map(|definition| {
        let of_line = COUNTERS
            .iter()
            .filter(|counter| counter.line == Some(definition.line));
        vec![
            label(definition.line),
            definition.meaning.to_owned(),
            quoted(of_line.map(|counter| counter.name)),
        ]
    });
    markdown(&["line", "meaning", "counters"], rows)
}

fn label(line: Line) -> String {
    match line.label().trim_start() {
        "" => "first".into(),
        label => format!("`{label}`"),
    }
}

/// The fields of the JSON of a run.
pub fn fields() -> String {
    let kind = |name: &str| {
        let counter = COUNTERS.iter().find(|counter| counter.name == name);
        counter
            .map_or("-", |counter| counter.kind.name())
            .to_owned()
    };
    let rows = documented().map(|(name, unit, meaning)| {
        vec![format!("`{name}`"), unit.to_owned(), kind(name), meaning]
    });
    markdown(&["field", "unit", "of several processes", "meaning"], rows)
}

/// The fields of a running run that are no counters.
pub fn status() -> String {
    let rows = status::FIELDS.iter().map(|field| {
        let name = format!("`{}`", field.name);
        vec![name, field.unit.to_owned(), field.meaning.to_owned()]
    });
    markdown(&["field", "unit", "meaning"], rows)
}
