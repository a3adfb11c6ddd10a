//! `cargo xtask`: chores of this repository that need no tools but cargo.
#![forbid(unsafe_code)]

mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository");
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::run(root),
        _ => {
            eprintln!(
                "usage: cargo xtask tidy    check the rules of the architecture and the style"
            );
            ExitCode::from(64)
        }
    }
}
