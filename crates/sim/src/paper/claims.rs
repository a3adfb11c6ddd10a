//! The published figures, one row each.

use toml::{Table, Value};

/// A copy of the papers' figures.
const CLAIMS: &str = include_str!("claims.toml");

/// A published value.
#[derive(Clone, PartialEq, Debug)]
pub enum Published {
    /// A number.
    Number(f64),
    /// Words, or a list.
    Text(String),
}

/// One published figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// Where it stands in the table of claims, outermost first: `elapsed`, `512 MB`, `sor`, `bsd`.
    pub path: Vec<String>,
    /// The paper's table or section, if the table says so.
    pub place: String,
    /// The value.
    pub published: Published,
}

impl Claim {
    /// The path as slices, for matching.
    #[must_use]
    pub fn keys(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }
}

/// Every figure of a section. Lists of two numbers that are ranges become `min` and `max`; lists
/// named in `each` become one row an element, named after `each`.
///
/// # Panics
/// When the built-in table has no such section.
pub(super) fn section(name: &str, each: &[&str]) -> Vec<Claim> {
    let all: Table = CLAIMS.parse().expect("the built-in table is sound");
    let section = all[name].as_table().expect("a section is a table");
    let mut claims = Vec::new();
    for (key, value) in section {
        if !["paper", "setup", "workloads", "parameters"].contains(&key.as_str()) {
            flatten(vec![key.clone()], "", value, each, &mut claims);
        }
    }
    claims
}

fn flatten(path: Vec<String>, place: &str, value: &Value, each: &[&str], out: &mut Vec<Claim>) {
    let below = |key: &str| [path.clone(), vec![key.to_owned()]].concat();
    match value {
        Value::Table(table) => {
            let place = table.get("where").and_then(Value::as_str).unwrap_or(place);
            let memory = table.get("memory").and_then(Value::as_str);
            let path = memory.map_or_else(|| path.clone(), below);
            for (key, value) in table
                .iter()
                .filter(|(key, _)| !["where", "memory"].contains(&key.as_str()))
            {
                flatten(
                    [path.clone(), vec![key.clone()]].concat(),
                    place,
                    value,
                    each,
                    out,
                );
            }
        }
        Value::Array(items) if items.iter().all(Value::is_table) => {
            for item in items {
                flatten(path.clone(), place, item, each, out);
            }
        }
        Value::Array(items) => {
            let names = names_of(&path, items.len(), each);
            if names.is_empty() {
                let words: Vec<_> = items.iter().map(word).collect();
                let published = Published::Text(words.join(", "));
                out.push(Claim {
                    path,
                    place: place.to_owned(),
                    published,
                });
                return;
            }
            for (name, item) in names.iter().zip(items) {
                flatten(below(name), place, item, each, out);
            }
        }
        Value::String(text) => {
            let published = Published::Text(text.clone());
            out.push(Claim {
                path,
                place: place.to_owned(),
                published,
            });
        }
        number => {
            let integer = number.as_integer().map(|n| n as f64);
            let number = integer
                .or_else(|| number.as_float())
                .expect("claims are numbers or words");
            let published = Published::Number(number);
            out.push(Claim {
                path,
                place: place.to_owned(),
                published,
            });
        }
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// What the elements of a list are called; nothing if the list is one value.
fn names_of<'a>(path: &[String], len: usize, each: &[&'a str]) -> Vec<&'a str> {
    let range = path.iter().any(|key| key.contains("range"));
    if range && len == 2 {
        vec!["min", "max"]
    } else if len == each.len() {
        each.to_vec()
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_the_moc_paper_is_a_row() {
        let claims = section("moc", &[]);
        let find = |keys: &[&str]| {
            claims
                .iter()
                .find(|c| c.keys() == keys)
                .expect("a row")
                .published
                .clone()
        };
        assert_eq!(
            find(&["elapsed", "512 MB", "sor", "moc"]),
            Published::Number(356.0)
        );
        assert_eq!(
            find(&["elapsed", "1 GB", "all_larger", "bsd"]),
            Published::Number(6635.0)
        );
        assert_eq!(
            find(&["pageouts_saved_range_percent", "conclusion", "max"]),
            Published::Number(83.0)
        );
        assert_eq!(
            find(&["shape", "bsd_common_cluster_sizes"]),
            Published::Text("1, 2, 16".to_owned())
        );
        // Tables 1, 2 and 3; the requests; the times and their range; two ranges; the
        // microbenchmark; the mean difference; reads apart; the shape.
        assert_eq!(claims.len(), 16 + 2 + 16 + 5 + 6 + 2 + 4 + 4 + 1 + 6 + 4);
    }

    #[test]
    fn lists_by_memory_size_are_rows_of_their_own() {
        let claims = section("mclustering", &["1.3 GB", "1.5 GB", "1.7 GB"]);
        let sor = claims
            .iter()
            .find(|c| c.keys() == ["elapsed_saved_percent", "sor", "1.7 GB"]);
        assert_eq!(sor.expect("a row").published, Published::Number(23.0));
        assert_eq!(claims.len(), 6 + 6 + 4);
    }
}
