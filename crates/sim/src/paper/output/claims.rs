//! Rows by claim: what the paper says of one thing, in one line.

use super::{Evaluation, Row, short};
use crate::paper::claims::Published;
use crate::paper::table::Table;
use crate::paper::verdict::{Class, Verdict};

impl Evaluation {
    /// The rows that say the same thing of several runs, as one line; those of different classes apart. Words have no range.
    pub(super) fn by_claim(&self) -> Table {
        let mut groups: Vec<(&str, Class, Vec<&Row>)> = Vec::new();
        for row in &self.rows {
            let name = row.claim.path[0].as_str();
            let same = |(other, class, _): &&mut (&str, Class, Vec<&Row>)| {
                *other == name && *class == row.class
            };
            match groups.iter_mut().find(same) {
                Some((_, _, rows)) => rows.push(row),
                None => groups.push((name, row.class, vec![row])),
            }
        }
        groups.sort_by_key(|&(_, class, _)| class);
        let head = [
            "claim",
            "class",
            "published",
            "ours, medians",
            "met",
            "missed",
            "undetermined",
        ];
        Table {
            title: "Claims: what the paper says of one thing, over all its rows".to_owned(),
            head: head.map(str::to_owned).to_vec(),
            rows: groups.iter().map(line).collect(),
        }
    }
}

fn line((_, class, rows): &(&str, Class, Vec<&Row>)) -> Vec<String> {
    let published = rows.iter().filter_map(|row| match row.claim.published {
        Published::Number(number) => Some(number),
        Published::Text(_) => None,
    });
    let ours = rows.iter().filter_map(|row| row.ours.number());
    let ours = range(ours);
    // A number that nothing is compared with is none of the claim's.
    let published = match ours.as_str() {
        WORDS => WORDS.to_owned(),
        _ => range(published),
    };
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    vec![
        rows[0].subject(),
        class.name().to_owned(),
        published,
        ours,
        count(Verdict::Met).to_string(),
        count(Verdict::Missed).to_string(),
        count(Verdict::Undetermined).to_string(),
    ]
}

/// What stands where there is no number.
const WORDS: &str = "in words";

/// From the least to the most.
fn range(values: impl Iterator<Item = f64>) -> String {
    let ends = values.map(|value| (value, value));
    let ends = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    match ends {
        None => WORDS.to_owned(),
        Some((low, high)) if low == high => short(low),
        Some((low, high)) => format!("{} to {}", short(low), short(high)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_two_ends_or_one() {
        assert_eq!(range([].into_iter()), "in words");
        assert_eq!(range([7.0, 7.0].into_iter()), "7");
        assert_eq!(range([3.0, 12.5, -1.0].into_iter()), "-1 to 12.5");
    }
}
