//! Rules that no compiler checks: who depends on whom, where unsafe code is, sizes, words.

mod circles;
mod citations;
mod crates;
mod exceptions;
mod lex;
mod markdown;
mod policies;
mod sizes;
mod tree;
mod types;
mod unsafe_code;
mod users;
mod words;

use std::path::Path;
use std::process::ExitCode;

use exceptions::Exceptions;
use tree::Tree;

/// A broken rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// File, relative to the repository.
    pub path: String,
    /// Line, from 1; 0 for the whole file.
    pub line: usize,
    /// What is wrong and what would be right.
    pub text: String,
}

impl Finding {
    fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            text: text.into(),
        }
    }
}

type Check = fn(&Tree, &mut Exceptions) -> Vec<Finding>;

/// Every check, by the rule it holds.
const CHECKS: &[(&str, Check)] = &[
    ("crates depend downwards only", crates::dependencies),
    ("sys and store know core::units only", crates::units_only),
    (
        "core is no_std and forbids unsafe code",
        crates::core_is_pure,
    ),
    ("unsafe code is where it belongs", unsafe_code::check),
    ("files have at most 600 lines", sizes::files),
    ("functions have at most 70 lines", sizes::functions),
    ("types have at most 40 methods", types::methods),
    ("types have at most 20 fields", types::fields),
    ("imports go in no circle", circles::check),
    ("no public item without a user", users::public_items),
    ("every variant is made by somebody", users::variants),
    (
        "policies name no thread, lock, file, system call or clock",
        policies::check,
    ),
    ("words are those of the vocabulary", words::check),
    ("every source file says what it is", words::module_docs),
    ("every markdown file has one title", markdown::check),
    ("every document that is cited exists", citations::check),
    ("README has at most 8192 bytes", citations::readme),
    // Last: by now every exception in use has been asked for.
    ("no exception is left over", exceptions::leftovers),
];

/// Runs all checks on the repository at `root`.
pub fn run(root: &Path) -> ExitCode {
    let read = Tree::read(root).and_then(|tree| Ok((Exceptions::read(root)?, tree)));
    let (mut exceptions, tree) = match read {
        Ok(found) => found,
        Err(error) => {
            eprintln!("tidy: {error}");
            return ExitCode::from(74);
        }
    };
    let mut failed = 0;
    for (rule, check) in CHECKS {
        let mut findings = check(&tree, &mut exceptions);
        findings.sort();
        if !findings.is_empty() {
            failed += 1;
            println!("FAILED: {rule}");
        }
        for Finding { path, line, text } in findings {
            println!("  {path}:{line}: {text}");
        }
    }
    println!("{} checks passed, {failed} failed", CHECKS.len() - failed);
    ExitCode::from(u8::from(failed > 0))
}
