//! The settings of `outpage run`.

use outpage_engine::config::{SETTINGS, Setting, Value};

use super::{markdown, quoted};

/// Every setting that is not hidden.
pub fn table() -> String {
    let head = ["option", "variable", "meaning", "values", "without it"];
    let shown = SETTINGS.iter().filter(|setting| !setting.hidden);
    markdown(&head, shown.map(row))
}

fn row(setting: &Setting) -> Vec<String> {
    let default = setting.default();
    let is_own = setting.unset.is_empty();
    vec![
        option(setting),
        format!("`{}`", setting.variable),
        lowercase(setting.meaning),
        values(setting),
        if is_own {
            format!("`{default}`")
        } else {
            default
        },
    ]
}

/// "`--memory SIZE`, `-m`".
fn option(setting: &Setting) -> String {
    let name = setting.option.unwrap_or_default();
    let value = setting
        .value
        .placeholder()
        .map(|value| match setting.value {
            Value::WordsOrNone(_) => format!(" [{value}]"),
            _ => format!(" {value}"),
        });
    let long = format!("`--{name}{}`", value.unwrap_or_default());
    match setting.short {
        Some(letter) => format!("{long}, `-{letter}`"),
        None => long,
    }
}

fn values(setting: &Setting) -> String {
    let words = setting.value.words();
    match setting.value {
        Value::Flag => "as a variable `1` or `0`".into(),
        Value::Policy(..) => quoted(words.iter().map(|(word, _)| *word)),
        Value::Words(_) | Value::WordsOrNone(_) => {
            let words = words
                .iter()
                .map(|(word, what)| format!("`{word}` ({what})"));
            words.collect::<Vec<_>>().join(", ")
        }
        Value::Text(_) => setting.range.to_owned(),
        Value::Directory => "a directory".into(),
        Value::File => "a file, or a pipe or device".into(),
    }
}

/// As it stands in a cell.
fn lowercase(sentence: &str) -> String {
    let acronym = sentence.chars().nth(1).is_some_and(char::is_uppercase);
    let mut letters = sentence.chars();
    match letters.next().filter(|_| !acronym) {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => sentence.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_begin_small_but_for_acronyms() {
        assert_eq!(lowercase("Largest write"), "largest write");
        assert_eq!(lowercase("RAM for all"), "RAM for all");
    }
}
