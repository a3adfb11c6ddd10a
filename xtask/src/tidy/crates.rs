//! Who may depend on whom.

use super::Finding;
use super::exceptions::Exceptions;
use super::tree::Tree;

/// Each crate and the crates of ours that it may use.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("sys", &["core"]),
    ("store", &["core"]),
    ("stats", &["core", "sys"]),
    ("engine", &["core", "sys", "store", "stats"]),
    ("preload", &["core", "sys", "engine"]),
    ("wire", &[]),
    ("client", &["sys", "wire"]),
    ("client-c", &["client"]),
    (
        "cli",
        &[
            "core", "sys", "store", "stats", "engine", "sim", "server", "client",
        ],
    ),
    ("sim", &["core", "store"]),
    ("server", &["core", "sys", "store", "engine", "wire"]),
    ("library", &["sys", "engine"]),
    ("capi", &["lib"]),
    ("python", &["lib"]),
];

/// Every crate's dependencies on crates of ours; `core` has none at all.
pub fn dependencies(tree: &Tree, _: &mut Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let Some(name) = file
            .path
            .strip_prefix("crates/")
            .and_then(|p| p.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let Some((_, allowed)) = ALLOWED.iter().find(|(n, _)| *n == name) else {
            findings.push(Finding::new(
                &file.path,
                0,
                format!("say in xtask/src/tidy/crates.rs what {name} may use"),
            ));
            continue;
        };
        for (line, dependency) in runtime_dependencies(&file.text) {
            let ours = dependency.strip_prefix("outpage-");
            if ours.is_some_and(|d| !allowed.contains(&d)) || name == "core" {
                findings.push(Finding::new(
                    &file.path,
                    line,
                    format!("{name} may not depend on {dependency}"),
                ));
            }
        }
    }
    findings
}

/// Line and name of each entry of the sections of dependencies, those for tests left out.
fn runtime_dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(manifest.lines()) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies") && !section.contains("dev-dependencies");
            if let Some((_, name)) = section
                .split_once("dependencies.")
                .filter(|_| !section.contains("dev-"))
            {
                found.push((number, name));
            }
        } else if inside && let Some((name, _)) = line.split_once(['=', '.']) {
            found.push((number, name.trim()));
        }
    }
    found.retain(|(_, name)| !name.starts_with('#'));
    found
}

/// `sys` and `store` use nothing of `core` but its units.
pub fn units_only(tree: &Tree, _: &mut Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    let low =
        |path: &str| path.starts_with("crates/sys/src/") || path.starts_with("crates/store/src/");
    for file in tree.rust().filter(|file| low(&file.path)) {
        for (number, line) in (1..).zip(file.code.lines()) {
            for (at, name) in line.match_indices("outpage_core") {
                if !line[at + name.len()..].starts_with("::units") {
                    findings.push(Finding::new(
                        &file.path,
                        number,
                        "use outpage_core::units only",
                    ));
                }
            }
        }
    }
    findings
}

/// What makes `core` build everywhere.
pub fn core_is_pure(tree: &Tree, _: &mut Exceptions) -> Vec<Finding> {
    const PATH: &str = "crates/core/src/lib.rs";
    let lib = tree.files.iter().find(|file| file.path == PATH);
    let lacks = |attribute: &&&str| !lib.is_some_and(|file| file.code.contains(**attribute));
    let wanted = ["#![no_std]", "#![forbid(unsafe_code)]"];
    wanted
        .iter()
        .filter(lacks)
        .map(|attribute| Finding::new(PATH, 0, format!("{attribute} is missing")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_for_tests_do_not_count() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\noutpage-core = {}\nlibc.workspace = true\n# note = 1\n\
                        [dev-dependencies]\nproptest = \"1\"\n[target.'cfg(unix)'.dependencies]\nrustix = \"1\"\n";
        let names: Vec<&str> = runtime_dependencies(manifest)
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        assert_eq!(names, ["outpage-core", "libc", "rustix"]);
    }
}
