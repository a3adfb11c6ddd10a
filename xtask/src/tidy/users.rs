//! Nothing without a user: public items that nothing names, variants of enums that nothing makes. Tests are no users.

use std::collections::BTreeMap;

use super::Finding;
use super::exceptions::Exceptions;
use super::tree::{Source, Tree};

/// What an item begins with.
const KINDS: &[&str] = &[
    "fn", "struct", "enum", "union", "trait", "type", "const", "static",
];

/// Public items that no code but tests names beside their definition.
pub fn public_items(tree: &Tree, exceptions: &mut Exceptions) -> Vec<Finding> {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for code in production(tree).map(|(_, code)| code) {
        words(code).for_each(|(_, word)| *named.entry(word).or_default() += 1);
    }
    let mut findings = Vec::new();
    for (file, code) in production(tree) {
        for (line, code) in (1..).zip(code.lines()) {
            let Some(name) = public_item(code) else {
                continue;
            };
            let place = format!("{}:{name}", file.path);
            if named[name] == 1 && !exceptions.allow("no-user", &place) {
                let text = format!("{name} is public, and nothing but tests uses it");
                findings.push(Finding::new(&file.path, line, text));
            }
        }
    }
    findings
}

/// Variants that no code but tests makes.
pub fn variants(tree: &Tree, exceptions: &mut Exceptions) -> Vec<Finding> {
    let mut made: BTreeMap<&str, bool> = BTreeMap::new();
    let mut defined = Vec::new();
    for (file, code) in production(tree) {
        for variant in variants_of(code) {
            made.insert(variant.name, false);
            defined.push((file, variant));
        }
    }
    for (file, code) in production(tree) {
        for (at, word) in words(code) {
            let definition = |(f, v): &(&Source, Variant<'_>)| f.path == file.path && v.at == at;
            if made.get(word) == Some(&false)
                && !is_pattern(code, at, word)
                && !defined.iter().any(definition)
            {
                made.insert(word, true);
            }
        }
    }
    let mut findings = Vec::new();
    for (file, variant) in defined {
        let Variant { of, name, line, .. } = variant;
        let place = format!("{}:{of}::{name}", file.path);
        if !made[name] && !exceptions.allow("not-made", &place) {
            let text = format!("{of}::{name} is made by nothing but tests");
            findings.push(Finding::new(&file.path, line, text));
        }
    }
    findings
}

/// Files with their code, tests left out.
fn production(tree: &Tree) -> impl Iterator<Item = (&Source, &str)> {
    let files = tree.rust().filter(|file| !file.is_test());
    files.map(|file| {
        let lines = file.code.split_inclusive('\n');
        let bytes = lines.take(file.production_lines()).map(str::len).sum();
        (file, &file.code[..bytes])
    })
}

/// Names and keywords, and where they begin.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let parts = code.split(move |c: char| !is_word(c));
    let start = code.as_ptr() as usize;
    let at = move |word: &str| word.as_ptr() as usize - start;
    parts
        .filter(|word| !word.is_empty())
        .map(move |word| (at(word), word))
}

/// The name, if a public item begins on this line. Of those that are visible within their crate the compiler knows.
fn public_item(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let mut words = rest.split_whitespace();
    let mut kind = words.next()?;
    while ["const", "unsafe", "async", "extern"].contains(&kind) {
        let next = words.next()?;
        // A constant, then; `extern` is followed by its name, which was blanked out.
        if kind == "const" && !["fn", "unsafe", "async", "extern"].contains(&next) {
            return name_of(next);
        }
        kind = next;
    }
    KINDS
        .contains(&kind)
        .then(|| words.next())?
        .and_then(name_of)
}

fn name_of(text: &str) -> Option<&str> {
    words(text).next().map(|(_, name)| name)
}

struct Variant<'a> {
    of: &'a str,
    name: &'a str,
    at: usize,
    line: usize,
}

/// The variants of the enums of formatted code, but for those whose values a macro makes (clap's).
fn variants_of(code: &str) -> Vec<Variant<'_>> {
    let mut found = Vec::new();
    // Name and indentation of the enum whose body this is; `None` in the name where a macro makes it.
    let mut inside: Option<(Option<&str>, usize)> = None;
    let (mut at, mut derived) = (0, false);
    for (line, text) in (1..).zip(code.split_inclusive('\n')) {
        let indent = text.len() - text.trim_start().len();
        let content = text.trim();
        if let Some((name, outer)) = inside {
            if content == "}" && indent == outer {
                inside = None;
            } else if indent == outer + 4
                && content.starts_with(char::is_uppercase)
                && let (Some(of), Some(name)) = (name, name_of(content))
            {
                let at = at + indent;
                found.push(Variant { of, name, at, line });
            }
        } else if let Some(name) = enum_name(content) {
            inside = Some(((!derived).then_some(name), indent));
        }
        if content.starts_with("#[derive(") {
            derived = ["Subcommand", "ValueEnum"]
                .iter()
                .any(|d| content.contains(d));
        } else if content.ends_with([';', '}']) {
            derived = false;
        }
        at += text.len();
    }
    found
}

fn enum_name(content: &str) -> Option<&str> {
    let (before, after) = content.split_once("enum ")?;
    let visible = before.is_empty() || before.starts_with("pub");
    (visible && content.ends_with('{')).then(|| name_of(after))?
}

/// Whether the name at `at` is compared with, not made: in a `let`, in `matches!`, or before the arrow of a match. What is not sure counts as made.
fn is_pattern(code: &str, at: usize, name: &str) -> bool {
    let statement = code[..at].rfind([';', '{', '}']).map_or(0, |end| end + 1);
    let before = &code[statement..at];
    let bound = words(before)
        .filter(|&(_, word)| word == "let")
        .last()
        .is_some_and(|(at, _)| !before[at..].contains('='));
    if bound || before.contains("matches!") {
        return true;
    }
    let mut rest = past_arguments(code[at + name.len()..].trim_start());
    // Out of the patterns around it.
    while let Some(outer) = rest.strip_prefix([')', '}']) {
        rest = outer.trim_start();
    }
    let or = rest.starts_with('|') && !rest.starts_with("||");
    or || rest.starts_with("=>") || rest.starts_with("if ")
}

/// What follows the arguments or fields of a variant, if `rest` begins with such.
fn past_arguments(rest: &str) -> &str {
    let mut depth = 0;
    for (at, character) in rest.char_indices() {
        match character {
            '(' | '{' => depth += 1,
            ')' | '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return rest[at + 1..].trim_start();
                }
            }
            _ => {}
        }
        if depth == 0 {
            return rest;
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Tree {
        let file = Source {
            path: "crates/a/src/x.rs".into(),
            text: text.into(),
            code: text.into(),
        };
        Tree {
            files: vec![file],
            ..Tree::default()
        }
    }

    fn found(check: super::super::Check, text: &str) -> Vec<usize> {
        let findings = check(&tree(text), &mut Exceptions::parse(""));
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_public_item_needs_somebody_who_names_it() {
        let text = "pub fn f() {\n    g(C);\n}\npub const fn g(x: u8) {}\npub const C: u8 = 1;\npub unsafe extern  fn h() {\n}\n\
                    pub(crate) fn i() {}\npub struct T;\nimpl T {\n    pub fn j() {}\n}\n#[cfg(test)]\nmod tests {\n    f();\n}\n";
        assert_eq!(found(public_items, text), [1, 6, 11]);
        let mut listed = Exceptions::parse("no-user crates/a/src/x.rs:f why\n");
        assert_eq!(public_items(&tree(text), &mut listed).len(), 2);
    }

    #[test]
    fn a_variant_needs_somebody_who_makes_it() {
        let text = "enum E {\n    A,\n    B(u8),\n    C { x: u8 },\n    D,\n    F,\n    G,\n}\nfn f(e: E) {\n    match e {\n        \
                    E::A | E::D => {}\n        E::B(x) if x > 1 => E::B(2),\n        Some(E::C { x: 1 }) => {}\n        _ => {}\n    }\n    \
                    if let E::F = e {}\n    let x = matches!(e, E::G);\n}\n#[derive(ValueEnum)]\nenum V {\n    H,\n}\n";
        assert_eq!(found(variants, text), [2, 4, 5, 6, 7]);
        let made = format!(
            "{text}fn g() {{\n    h(E::A, E::C {{ x: 1 }});\n    let d = E::D;\n    E::F\n}}\nconst G: E = E::G;\n"
        );
        assert_eq!(found(variants, &made), [] as [usize; 0]);
    }
}
