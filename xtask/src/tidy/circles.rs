//! No circle of imports: of two files of a crate, one is read first. That a part names what it is a part of is no circle.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::exceptions::Exceptions;
use super::tree::{Source, Tree};

/// A module by the names that lead to it from its crate's root.
type Module<'a> = Vec<&'a str>;
/// The modules of a crate, and the files that they are.
type Modules<'a> = BTreeMap<Module<'a>, &'a Source>;
/// Which modules each names.
type Names<'a> = BTreeMap<Module<'a>, BTreeSet<Module<'a>>>;

/// Circles among the files of each crate; a finding for each, at the first of its files.
pub fn check(tree: &Tree, exceptions: &mut Exceptions) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Modules<'_>> = BTreeMap::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        if let Some((name, inside)) = file.path.split_once("/src/") {
            let modules = crates.entry(name).or_default();
            modules.insert(module_of(inside), file);
        }
    }
    let mut findings = Vec::new();
    for modules in crates.values() {
        for circle in circles(&names(modules)) {
            let mut paths: Vec<&str> = circle.iter().map(|m| modules[m].path.as_str()).collect();
            paths.sort_unstable();
            if !exceptions.allow("circle", paths[0]) {
                let text = format!("imports go in a circle: {}", paths.join(", "));
                findings.push(Finding::new(paths[0], 0, text));
            }
        }
    }
    findings
}

/// The module that a file is, by its path below `src/`.
fn module_of(inside: &str) -> Module<'_> {
    let mut parts: Module<'_> = inside.trim_end_matches(".rs").split('/').collect();
    if parts.last() == Some(&"mod") || ["lib", "main"].contains(&parts[0]) && parts.len() == 1 {
        parts.pop();
    }
    parts
}

/// What each module names, but for what it is a part of.
fn names<'a>(modules: &Modules<'a>) -> Names<'a> {
    let mut names = Names::new();
    for (module, file) in modules {
        let named = names.entry(module.clone()).or_default();
        let lines = file.code.lines().take(file.production_lines());
        let code: String = lines.flat_map(|line| [line, "\n"]).collect();
        for path in paths(&code) {
            if let Some(target) = target(modules, module, &path)
                && !module.starts_with(&target)
            {
                named.insert(target);
            }
        }
    }
    names
}

/// Paths of names, those of lists written out: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut open: Vec<Vec<String>> = Vec::new();
    let mut path: Vec<String> = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let word = &rest[..word.unwrap_or(rest.len())];
        if !word.is_empty() {
            path.push(word.to_owned());
            rest = &rest[word.len()..];
            continue;
        }
        if let Some(after) = rest.strip_prefix("::") {
            rest = after;
            if let Some(inner) = after.strip_prefix('{') {
                let within = open.last().into_iter().flatten().cloned();
                open.push(within.chain(path.drain(..)).collect());
                rest = inner;
            }
            continue;
        }
        if !path.is_empty() {
            let within = open.last().into_iter().flatten().cloned();
            found.push(within.chain(path.drain(..)).collect());
        }
        match first {
            // Braces that belong to no list are counted as lists after nothing.
            '{' => open.push(Vec::new()),
            '}' => drop(open.pop()),
            _ => {}
        }
        rest = &rest[first.len_utf8()..];
    }
    found
}

/// The module that a path in `module` leads into; `None` for another crate's or a mere name.
fn target<'a>(modules: &Modules<'a>, module: &[&'a str], path: &[String]) -> Option<Module<'a>> {
    let mut at = module.to_vec();
    let mut rest = path;
    match path[0].as_str() {
        "crate" => {
            at.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|name| name == "super") {
                at.pop();
                rest = &rest[1..];
            }
        }
        // A part of this module.
        _ if path.len() < 2 => return None,
        name => child(modules, &at, name).map(drop)?,
    }
    for name in rest {
        match child(modules, &at, name) {
            Some(inner) => at = inner,
            None => break,
        }
    }
    modules.contains_key(&at).then_some(at)
}

fn child<'a>(modules: &Modules<'a>, of: &[&'a str], name: &str) -> Option<Module<'a>> {
    let is_child =
        |m: &&Module<'a>| m.len() == of.len() + 1 && m.starts_with(of) && m[of.len()] == name;
    modules.keys().find(is_child).cloned()
}

/// Modules each of which leads to every other: found by walking from each one, which the few files of a crate allow.
fn circles<'a>(names: &Names<'a>) -> Vec<BTreeSet<Module<'a>>> {
    let reach: BTreeMap<&Module<'a>, BTreeSet<Module<'a>>> =
        names.keys().map(|m| (m, reached(names, m))).collect();
    let mut found: Vec<BTreeSet<Module<'a>>> = Vec::new();
    for (&module, from_here) in &reach {
        if !from_here.contains(module) || found.iter().any(|circle| circle.contains(module)) {
            continue;
        }
        let back = |other: &&Module<'a>| {
            reach
                .get(*other)
                .is_some_and(|there| there.contains(module))
        };
        found.push(from_here.iter().filter(back).cloned().collect());
    }
    found
}

fn reached<'a>(names: &Names<'a>, from: &Module<'a>) -> BTreeSet<Module<'a>> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in names.get(module).into_iter().flatten() {
            if reached.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle_of(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|&(path, text)| Source {
            path: format!("crates/a/src/{path}"),
            text: text.into(),
            code: text.into(),
        });
        let tree = Tree {
            files: files.collect(),
            ..Tree::default()
        };
        let findings = check(&tree, &mut Exceptions::parse(""));
        findings.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn lists_are_written_out() {
        let found = paths("use a::{b, c::{d, self}};\nfn f() { super::x::y(z); }");
        let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
        for path in ["a::b", "a::c::d", "a::c::self", "super::x::y", "z"] {
            assert!(found.iter().any(|p| p == path), "{path} in {found:?}");
        }
    }

    #[test]
    fn two_files_that_name_each_other_are_a_circle() {
        let (one, two) = (
            "use crate::b::{C, d};\n",
            "fn f() {\n    super::one::g();\n}\n",
        );
        let text = "imports go in a circle: crates/a/src/b/mod.rs, crates/a/src/one.rs";
        assert_eq!(circle_of(&[("one.rs", one), ("b/mod.rs", two)]), [text]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n    {one}}}\n");
        assert_eq!(
            circle_of(&[("one.rs", &tests), ("b/mod.rs", two)]),
            [] as [&str; 0]
        );
    }

    #[test]
    fn a_part_may_name_its_whole_but_not_its_wholes_neighbour_that_uses_it() {
        let whole = "mod part;\nfn f() {\n    part::g();\n}\n";
        let files = [("x/mod.rs", whole), ("x/part.rs", "use super::f;\n")];
        assert_eq!(circle_of(&files), [] as [&str; 0]);
        let files = [
            ("x/mod.rs", whole),
            ("x/part.rs", "use crate::y;\n"),
            ("y.rs", "use crate::x;\n"),
        ];
        assert_eq!(circle_of(&files).len(), 1);
    }
}
