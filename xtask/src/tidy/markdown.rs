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
    let first_heading = headings(text).next().map(|(line, _)| line);
    let titles: Vec<usize> = headings(text)
        .map(|(number, _)| number)
        .filter(|number| {
            let line = text.lines().nth(number - 1);
            line.is_some_and(|line| line.starts_with("# "))
        })
        .collect();
    match titles[..] {
        [] => Some((0, "it has no title (# ...)")),
        [title] if first_heading == Some(title) => None,
        [title] => Some((title, "the title comes after another heading")),
        [_, second, ..] => Some((second, "it has a second title")),
    }
}

/// The headings outside of code, each with its line.
pub fn headings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        fenced ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#').strip_prefix(' ')?;
        (!fenced && line.starts_with('#')).then(|| (number, heading.trim()))
    })
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
