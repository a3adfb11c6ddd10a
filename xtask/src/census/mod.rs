//! The census of system calls: `docs/census/*.toml`, what it says against what is there, and what is written from it.
//!
//! A row says what some system calls, or flags of one, do to memory, address spaces, processes or descriptors; how
//! Outpage comes to know; and which tests hold that. Rows name the exceptions.

mod agree;
mod headers;
mod render;
mod table;
mod tests_named;

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use table::Census;

/// What is wrong, and where: a file of the repository, and a sentence.
type Findings = Vec<String>;

/// Checks the census of the repository at `root`; with `--write` writes what is generated from it first.
pub fn run(root: &Path, write: bool) -> ExitCode {
    let census = match Census::read(root) {
        Ok(census) => census,
        Err(error) => {
            eprintln!("census: {error}");
            return ExitCode::from(65);
        }
    };
    if write && let Err(error) = render::write(root, &census) {
        eprintln!("census: {error}");
        return ExitCode::from(74);
    }
    match check(root, &census) {
        Ok(findings) => {
            for finding in &findings {
                println!("  {finding}");
            }
            let (calls, flags) = (census.calls().count(), census.flags().count());
            println!(
                "{calls} system calls and {flags} flags, {} findings",
                findings.len()
            );
            ExitCode::from(u8::from(!findings.is_empty()))
        }
        Err(error) => {
            eprintln!("census: {error}");
            ExitCode::from(74)
        }
    }
}

/// Everything that the census promises.
fn check(root: &Path, census: &Census) -> io::Result<Findings> {
    let mut findings = census.flaws();
    findings.extend(headers::missing(census));
    findings.extend(tests_named::missing(root, census)?);
    let hooks = |name: &str| read(root, &format!("crates/preload/src/{name}.rs"));
    let by_descriptor = hooks("hooks/by_descriptor")?;
    findings.extend(agree::differences(
        census,
        &(hooks("hooks")? + &by_descriptor),
        &(hooks("hooks/by_number")? + &by_descriptor),
    ));
    findings.extend(render::drift(root, census));
    Ok(findings)
}

/// A file of the repository; an error names it.
fn read(root: &Path, path: &str) -> io::Result<String> {
    fs::read_to_string(root.join(path))
        .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_census_is_complete_and_true() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("xtask lies in the repository");
        let census = Census::read(root).expect("the census");
        let findings = check(root, &census).expect("the repository");
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
