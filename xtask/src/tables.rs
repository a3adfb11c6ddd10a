//! The tables of the documents: `outpage` has what they are written from, and writes them.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Has `outpage` check the documents of the repository at `root`, or write their tables.
pub fn run(root: &Path, write: bool) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--package", "outpage", "--", "tables"]);
    command.arg(root).args(write.then_some("--write"));
    match command.status() {
        Ok(status) => ExitCode::from(status.code().map_or(1, |code| code as u8)),
        Err(error) => {
            eprintln!("tables: cannot run cargo: {error}");
            ExitCode::from(71)
        }
    }
}
