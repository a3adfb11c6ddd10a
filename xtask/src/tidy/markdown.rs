//! Markdown files have one title, and it comes first.

use super::Finding;
use super::exceptions::Exceptions;
use super::tree::Tree;

/// Files with no title, several, or one that comes late.
pub fn check(tree: &Tree, _: &mut Exceptions) -> Vec<Finding> {
    let files = tree.files.iter().filter(|file| file.path.ends_with(".md"));
    files
        .filter_map(|file| {
            flaw(&file.text).map(|(line, text)| Finding::new(&file.path, line, text))
        })
        .collect()
}

fn flaw(text: &str) -> Option<(usize, &'static str)> {
    let mut fenced = false;
    let mut titles = Vec::new();
    let mut first_heading = None;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if !fenced && line.starts_with('#') && line.trim_start_matches('#').starts_with(' ') {
            first_heading.get_or_insert(number);
            if line.starts_with("# ") {
                titles.push(number);
            }
        }
    }
    match titles[..] {
        [] => Some((0, "it has no title (# ...)")),
        [title] if first_heading == Some(title) => None,
        [title] => Some((title, "the title comes after another heading")),
        [_, second, ..] => Some((second, "it has a second title")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles() {
        assert_eq!(flaw("# One\n## Two\n```\n# comment\n```\n#hash\n"), None);
        assert_eq!(flaw("text\n").map(|f| f.0), Some(0));
        assert_eq!(flaw("# One\n# Two\n").map(|f| f.0), Some(2));
        assert_eq!(flaw("## Two\n# One\n").map(|f| f.0), Some(2));
    }
}
