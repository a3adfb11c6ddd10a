//! How large types are: a type with more methods or fields than fit in a head is two types. Tests may have as many as
//! they need.

use std::collections::BTreeMap;

use super::Finding;
use super::exceptions::Exceptions;
use super::sizes::function_name;
use super::tree::{Source, Tree};

const METHODS_MAX: usize = 40;
const FIELDS_MAX: usize = 20;

/// Types with too many methods, in all inherent `impl` blocks that their crate has for them.
pub fn methods(tree: &Tree, exceptions: &mut Exceptions) -> Vec<Finding> {
    let size = |item: &Type| item.methods;
    too_large(tree, exceptions, "type-methods", METHODS_MAX, size)
}

/// Types with too many fields.
pub fn fields(tree: &Tree, exceptions: &mut Exceptions) -> Vec<Finding> {
    let size = |item: &Type| item.fields;
    too_large(tree, exceptions, "type-fields", FIELDS_MAX, size)
}

fn too_large(
    tree: &Tree,
    exceptions: &mut Exceptions,
    rule: &str,
    most: usize,
    size: fn(&Type) -> usize,
) -> Vec<Finding> {
    let what = rule.trim_start_matches("type-");
    let mut findings = Vec::new();
    for item in types(tree) {
        let place = format!("{}:{}", item.path, item.name);
        let has = size(&item);
        if has > most && !exceptions.allow(rule, &place) {
            let text = format!("{} has {has} {what}, at most {most}", item.name);
            findings.push(Finding::new(&item.path, item.line, text));
        }
    }
    findings
}

/// A struct, enum or union.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Type {
    name: String,
    /// Where it is defined.
    path: String,
    line: usize,
    fields: usize,
    methods: usize,
}

/// Every type of the tree.
fn types(tree: &Tree) -> Vec<Type> {
    let files: Vec<&Source> = tree.rust().filter(|file| !file.is_test()).collect();
    let mut found: BTreeMap<(&str, String), Vec<Type>> = BTreeMap::new();
    for file in &files {
        for item in definitions(file) {
            let key = (crate_of(&file.path), item.name.clone());
            found.entry(key).or_default().push(item);
        }
    }
    for file in &files {
        for (name, methods) in blocks(file) {
            let Some(named) = found.get_mut(&(crate_of(&file.path), name)) else {
                continue;
            };
            // Of several types of that name the one that is defined nearest.
            let near = named
                .iter_mut()
                .max_by_key(|item| (item.path == file.path, nearness(&item.path, &file.path)));
            near.expect("it has a definition").methods += methods;
        }
    }
    found.into_values().flatten().collect()
}

/// What comes before `src/`.
fn crate_of(path: &str) -> &str {
    path.split_once("src/").map_or("", |(before, _)| before)
}

/// How many parts of their paths two files share.
fn nearness(a: &str, b: &str) -> usize {
    let parts = |path: &str| path.trim_end_matches(".rs").replace("/mod", "");
    let (a, b) = (parts(a), parts(b));
    let both = a.split('/').zip(b.split('/'));
    both.take_while(|(a, b)| a == b).count()
}

/// Items of formatted code that begin with `word`: line, what follows the word up to the opening brace, and the lines of
/// the body one level further in.
fn items<'a>(file: &'a Source, word: &str) -> Vec<(usize, String, Vec<&'a str>)> {
    let production = file.production_lines();
    let lines: Vec<&str> = file.code.lines().take(production).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let visible = code
            .split_once(word)
            .filter(|(before, _)| before.is_empty() || is_visibility(before));
        let Some((_, rest)) = visible.filter(|(_, rest)| rest.starts_with([' ', '<'])) else {
            continue;
        };
        let mut header = rest.to_owned();
        let mut end = at;
        while !header.contains(['{', ';']) && end + 1 < lines.len() {
            end += 1;
            header = format!("{header} {}", lines[end].trim());
        }
        let Some((header, after)) = header.split_once('{') else {
            continue;
        };
        let indent = &line[..line.len() - code.len()];
        let (inner, closing) = (format!("{indent}    "), format!("{indent}}}"));
        let body = lines[end + 1..]
            .iter()
            .take_while(|line| after.trim().is_empty() && line.trim_end() != closing);
        let body = body.filter_map(|line| line.strip_prefix(&inner));
        let body = body.filter(|line| !line.starts_with([' ', '}']));
        found.push((at + 1, header.trim().to_owned(), body.collect()));
    }
    found
}

fn is_visibility(text: &str) -> bool {
    let text = text.trim_end();
    text == "pub" || text.starts_with("pub(") && text.find(')') == Some(text.len() - 1)
}

/// The types that a file defines, without methods.
fn definitions(file: &Source) -> Vec<Type> {
    let mut found = Vec::new();
    for word in ["struct", "enum", "union"] {
        for (line, header, body) in items(file, word) {
            let fields = if word == "struct" {
                body.iter().filter(|line| is_field(line)).count()
            } else {
                0
            };
            found.push(Type {
                name: first_name(&header).to_owned(),
                path: file.path.clone(),
                line,
                fields,
                methods: 0,
            });
        }
    }
    found
}

/// The inherent `impl` blocks of a file: the name of the type, and how many methods there are.
fn blocks(file: &Source) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (_, header, body) in items(file, "impl") {
        let of = after_generics(&header);
        let of = of.split(" where ").next().unwrap_or(of);
        if of.contains(" for ") {
            continue;
        }
        let path = of.split('<').next().unwrap_or(of).trim();
        let name = path.rsplit("::").next().unwrap_or(path);
        let methods = body.iter().filter(|line| function_name(line).is_some());
        found.push((first_name(name).to_owned(), methods.count()));
    }
    found
}

/// What follows a list of generics, if there is one.
fn after_generics(header: &str) -> &str {
    let mut depth = 0;
    for (at, character) in header.char_indices() {
        match character {
            '<' => depth += 1,
            // Not that of an arrow.
            '>' if !header[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let skipped = if character == '>' { at + 1 } else { at };
            return header[skipped..].trim_start();
        }
    }
    header
}

fn first_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// Whether the line of a struct's body begins a field.
fn is_field(line: &str) -> bool {
    let line = line.strip_prefix("pub").map_or(line, |rest| {
        let scope = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        scope.map_or(rest, |(_, rest)| rest).trim_start()
    });
    let rest = &line[first_name(line).len()..];
    !first_name(line).is_empty() && rest.starts_with(':') && !rest.starts_with("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|&(path, text)| Source {
            path: path.into(),
            text: text.into(),
            code: text.into(),
        });
        Tree {
            files: files.collect(),
            ..Tree::default()
        }
    }

    fn sizes(tree: &Tree) -> Vec<(String, usize, usize)> {
        let all = types(tree).into_iter();
        all.map(|item| (item.name, item.fields, item.methods))
            .collect()
    }

    #[test]
    fn fields_and_methods_of_all_blocks_are_counted() {
        let one = "pub(super) struct One<'a> {\n    pub a: u8,\n    #[x]\n    pub(in crate::b) b: &'a [\n        u8\n    ],\n}\n\
                   impl<'a> One<'a> {\n    const X: u8 = 1;\n    pub fn f() {\n        fn inner() {}\n    }\n}\n\
                   impl Clone for One<'_> {\n    fn clone(&self) -> Self {\n    }\n}\nstruct Two(u8);\nenum Three {\n    A,\n}\n";
        let more = "impl<F: Fn() -> u8> super::One<'_>\nwhere\n    F: for<'b> X<'b>,\n{\n    fn g();\n    pub const fn h() {}\n}\n\
                    impl Three {\n    fn only() {}\n}\n#[cfg(test)]\nmod tests {\n    impl One {\n        fn t() {}\n    }\n}\n";
        let tree = tree(&[("crates/a/src/one.rs", one), ("crates/a/src/b.rs", more)]);
        let expected = [("One", 2, 3), ("Three", 0, 1)];
        let expected = expected.map(|(name, fields, methods)| (name.to_owned(), fields, methods));
        assert_eq!(sizes(&tree), expected);
    }

    #[test]
    fn blocks_belong_to_the_type_that_is_nearest_in_their_crate() {
        let (defined, block) = (
            "struct T {\n    a: u8,\n}\n",
            "impl T {\n    fn f() {}\n}\n",
        );
        let tree = tree(&[
            ("crates/a/src/x.rs", defined),
            ("crates/a/src/y/mod.rs", defined),
            ("crates/a/src/y/more.rs", block),
            ("crates/b/src/x.rs", defined),
            ("crates/b/tests/t.rs", block),
        ]);
        let methods: Vec<usize> = types(&tree).iter().map(|item| item.methods).collect();
        assert_eq!(methods, [0, 1, 0]);
    }

    #[test]
    fn more_than_the_most_needs_an_exception() {
        let fields: String = (0..=FIELDS_MAX)
            .map(|n| format!("    f{n}: u8,\n"))
            .collect();
        let tree = tree(&[("crates/a/src/x.rs", &format!("struct T {{\n{fields}}}\n"))]);
        let mut none = Exceptions::parse("");
        let findings = super::fields(&tree, &mut none);
        assert_eq!(findings[0].text, "T has 21 fields, at most 20");
        assert_eq!(methods(&tree, &mut none), []);
        let mut listed = Exceptions::parse("type-fields crates/a/src/x.rs:T a reason\n");
        assert_eq!(super::fields(&tree, &mut listed), []);
    }
}
