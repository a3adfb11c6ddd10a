//! `cargo xtask`: chores of this repository that need no tools but cargo.
#![forbid(unsafe_code)]

mod census;
mod tables;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["tidy"] => tidy::run(root),
        ["census"] => census::run(root, false),
        ["census", "--write"] => census::run(root, true),
        ["tables"] => tables::run(root, false),
        ["tables", "--write"] => tables::run(root, true),
        _ => {
            eprintln!(
                "usage: cargo xtask tidy              check the rules of the architecture and the style\n       \
                 cargo xtask census            check docs/census against the kernel's headers, the hooks and the tests\n       \
                 cargo xtask census --write    write docs/compatibility.md from it\n       \
                 cargo xtask tables            check the tables of the documents against the settings, counters and policies\n       \
                 cargo xtask tables --write    write them"
            );
            ExitCode::from(64)
        }
    }
}
