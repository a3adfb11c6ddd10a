//! Documents that are cited exist: files, headings and sections, in comments, scripts, messages and Markdown.

use super::Finding;
use super::exceptions::Exceptions;
use super::markdown::headings;
use super::tree::{Source, Tree};

/// README is to be read in one go.
const README_BYTES_MAX: usize = 8192;

/// What is cited and is not there.
pub fn check(tree: &Tree, exceptions: &mut Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let mut cited = documents(file);
        if file.path.ends_with(".md") {
            cited.extend(links(&file.text));
        }
        for citation in cited {
            let place = format!("{}:{}", file.path, citation.target);
            if let Some(text) = flaw(tree, file, &citation)
                && !exceptions.allow("citation", &place)
            {
                findings.push(Finding::new(&file.path, citation.line, text));
            }
        }
    }
    findings
}

/// README when it is too long.
pub fn readme(tree: &Tree, _: &mut Exceptions) -> Vec<Finding> {
    let readme = tree.files.iter().filter(|file| file.path == "README.md");
    readme
        .filter(|file| file.text.len() > README_BYTES_MAX)
        .map(|file| {
            let text = format!("{} bytes, at most {README_BYTES_MAX}", file.text.len());
            Finding::new(&file.path, 0, text)
        })
        .collect()
}

/// A document, as it is named.
#[derive(PartialEq, Eq, Debug)]
struct Citation {
    line: usize,
    /// The path; empty for the file itself.
    target: String,
    /// Where in it.
    place: Place,
}

#[derive(PartialEq, Eq, Debug)]
enum Place {
    Whole,
    /// As a link has it, `#the-largest-window`.
    Anchor(String),
    /// As a comment has it, `docs/readahead.md, "The largest window"`.
    Heading(String),
}

/// What is wrong with a citation.
fn flaw(tree: &Tree, file: &Source, citation: &Citation) -> Option<String> {
    let Citation { target, place, .. } = citation;
    let Some(path) = resolve(tree, &file.path, target) else {
        return Some(format!("{target} is cited and does not exist"));
    };
    let cited = tree.files.iter().find(|file| file.path == path);
    let has = |wanted: &dyn Fn(&str) -> bool| {
        cited.is_some_and(|file| headings(&file.text).any(|(_, heading)| wanted(heading)))
    };
    match place {
        Place::Anchor(anchor) if !has(&|heading| slug(heading) == *anchor) => {
            Some(format!("{path} has no heading for #{anchor}"))
        }
        Place::Heading(name) if !has(&|heading| heading == name) => {
            Some(format!("{path} has no heading \"{name}\""))
        }
        _ => None,
    }
}

/// The path in the repository: from the directory of the citing file, or from the root.
fn resolve(tree: &Tree, from: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some(from.to_owned());
    }
    let directory = from.rsplit_once('/').map_or("", |(directory, _)| directory);
    let candidates = [joined(directory, target), joined("", target)];
    candidates
        .into_iter()
        .flatten()
        .find(|path| tree.paths.contains(path.as_str()))
}

/// `target` seen from `directory`; `None` outside the repository.
fn joined(directory: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = directory
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Markdown files and files of `docs/` that are named anywhere, inline tests left out: they make names up.
fn documents(file: &Source) -> Vec<Citation> {
    let mut found = Vec::new();
    let text = &file.text;
    let end = text
        .lines()
        .take(file.production_lines())
        .map(|line| line.len() + 1)
        .sum::<usize>()
        .min(text.len());
    let part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let mut at = 0;
    while let Some(start) = text[at..end].find(part).map(|offset| at + offset) {
        let len = text[start..end].find(|c| !part(c)).unwrap_or(end - start);
        at = start + len;
        let word = text[start..at].trim_end_matches('.');
        let document = word.ends_with(".md") && word.len() > 3 || word.starts_with("docs/");
        if document && !word.contains("//") && !text[..start].ends_with(['*', '$', '}', '~']) {
            found.push(Citation {
                line: text[..start].matches('\n').count() + 1,
                target: word.to_owned(),
                place: section(&text[start + word.len()..]),
            });
        }
    }
    found
}

/// The section that is named behind a document: `, "The heading"`, broken over two lines of comment at most.
fn section(rest: &str) -> Place {
    let rest = rest.strip_prefix('`').unwrap_or(rest);
    let Some(quoted) = rest.strip_prefix(',').map(unbroken) else {
        return Place::Whole;
    };
    let heading = quoted
        .strip_prefix('"')
        .and_then(|text| text.split_once('"'));
    heading.map_or(Place::Whole, |(heading, _)| {
        Place::Heading(heading.to_owned())
    })
}

/// The next two lines as one, without the marks of comments.
fn unbroken(text: &str) -> String {
    let lines = text.lines().take(2);
    let lines = lines.map(|line| {
        line.trim_start_matches([' ', '/', '!', '#', '*'])
            .trim_end()
    });
    lines.collect::<Vec<_>>().join(" ").trim_start().to_owned()
}

/// The links of a Markdown file that stay in the repository.
fn links(text: &str) -> Vec<Citation> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (line, content) in (1..).zip(text.lines()) {
        fenced ^= content.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for (at, _) in content.match_indices("](") {
            let Some((link, _)) = content[at + 2..].split_once(')') else {
                continue;
            };
            if link.contains(':') || link.is_empty() {
                continue;
            }
            let (target, place) = match link.split_once('#') {
                Some((target, anchor)) => (target, Place::Anchor(anchor.to_owned())),
                None => (link, Place::Whole),
            };
            found.push(Citation {
                line,
                target: target.to_owned(),
                place,
            });
        }
    }
    found
}

/// The anchor that a heading gets.
fn slug(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c => c.is_alphanumeric().then_some(c),
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.into(),
            text: text.into(),
            code: String::new(),
        }
    }

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<Source> = files
            .iter()
            .map(|(path, text)| source(path, text))
            .collect();
        let mut paths: std::collections::BTreeSet<String> =
            files.iter().map(|file| file.path.clone()).collect();
        paths.extend(["docs".into(), "docs/census".into(), "docs/run.svg".into()]);
        let mut exceptions = Exceptions::parse("citation a.rs:moc.md the report of an evaluation");
        let mut found = check(&Tree { files, paths }, &mut exceptions);
        found.sort();
        let line = |f: &Finding| format!("{}:{} {}", f.path, f.line, f.text);
        found.iter().map(line).collect()
    }

    const RUN: (&str, &str) = (
        "docs/run.md",
        "# Run\n\n## How it ends\n\n```\n# no heading\n```\n### `run --memory`, 1 & 2\n",
    );

    #[test]
    fn a_document_is_looked_for_at_the_root_and_beside_the_file() {
        let rust = "// see docs/run.md. Also `gone.md` section 2,\n// docs/census/*.toml, docs/gone.toml\n\
                    let x = \"README.md, and moc.md\";\n";
        assert_eq!(
            findings(&[
                ("a.rs", rust),
                RUN,
                ("README.md", "# R\n[x](docs/run.svg)\n")
            ]),
            [
                "a.rs:1 gone.md is cited and does not exist",
                "a.rs:2 docs/gone.toml is cited and does not exist"
            ]
        );
        let beside = (
            "docs/sim.md",
            "# S\n`run.md` [r](run.md) [up](../docs/run.md)\n",
        );
        assert!(findings(&[beside, RUN]).is_empty());
        assert_eq!(findings(&[("docs/a.md", "# A\n[o](../../o)\n")]).len(), 1);
    }

    #[test]
    fn what_only_looks_like_a_document_is_none() {
        let text = "// https://example.org/a.md, *.md, {name}.md and .md\n\
                    #[cfg(test)]\nmod tests {\n    // made-up.md\n}\n";
        assert_eq!(findings(&[("a.rs", text)]), Vec::<String>::new());
    }

    #[test]
    fn anchors_and_sections_are_headings() {
        let links = "# L\n[a](run.md#how-it-ends) [b](#l) [c](run.md#run---memory-1--2)\n\
                     [d](run.md#no-heading) [e](#m) [f](https://example.org/x#y)\n";
        assert_eq!(
            findings(&[("docs/l.md", links), RUN]),
            [
                "docs/l.md:3 docs/l.md has no heading for #m",
                "docs/l.md:3 docs/run.md has no heading for #no-heading"
            ]
        );
        let rust = "// docs/run.md, \"How it\n    // ends\".\n// docs/run.md, \"How it begins\"\n";
        assert_eq!(
            findings(&[("a.rs", rust), RUN]),
            ["a.rs:3 docs/run.md has no heading \"How it begins\""]
        );
    }

    #[test]
    fn a_readme_has_a_size() {
        let mut exceptions = Exceptions::parse("");
        let mut long = |len| {
            let files = vec![source("README.md", &"x".repeat(len))];
            let paths = std::collections::BTreeSet::new();
            readme(&Tree { files, paths }, &mut exceptions).len()
        };
        assert_eq!((long(8192), long(8193)), (0, 1));
    }
}
