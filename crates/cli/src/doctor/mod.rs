//! `outpage doctor`: what this machine lacks, and the exact remedy.

mod checks;
pub mod remedy;

use std::path::PathBuf;
use std::process::ExitCode;

use outpage_engine::config::DEFAULT_SWAP_DIR;
use outpage_sys::fd::Fd;

use crate::error::{CliError, code};
use crate::output;
use checks::{Check, State};

/// Options of `outpage doctor`. Exit code 69 when `outpage run` would not work here, else 0.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Directory that is to hold the swap file
    #[arg(long, value_name = "DIR", default_value = DEFAULT_SWAP_DIR)]
    swap: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the checks.
///
/// # Errors
/// None: what is missing shows in the exit code.
pub fn run(args: &Args, device: Option<&Fd>) -> Result<ExitCode, CliError> {
    let checks = checks::all(&args.swap, device);
    if args.json {
        output::print_line(format_args!(
            "{:#}",
            serde_json::json!({"works": works(&checks), "checks": checks})
        ))?;
    } else {
        output::print(&table(&checks))?;
    }
    Ok(if works(&checks) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(code::UNAVAILABLE)
    })
}

fn works(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.state != State::Missing)
}

fn table(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let state = match check.state {
            State::Ok => "ok",
            State::Note => "note",
            State::Missing => "MISSING",
        };
        text += &format!("{state:8} {:18} {}\n", check.name, check.found);
        if let Some(remedy) = &check.remedy {
            text += &format!("{:8} {:18} -> {remedy}\n", "", "");
        }
    }
    let verdict = if works(checks) {
        "outpage run works here"
    } else {
        "outpage run does not work here"
    };
    text + verdict + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(state: State, remedy: Option<&str>) -> Check {
        Check {
            name: "thing",
            state,
            found: "found".into(),
            remedy: remedy.map(Into::into),
        }
    }

    #[test]
    fn the_table_ends_with_a_verdict() {
        let good = table(&[check(State::Ok, None), check(State::Note, Some("better"))]);
        assert!(
            good.ends_with("outpage run works here\n") && good.contains("-> better"),
            "{good}"
        );
        let bad = table(&[check(State::Missing, Some("buy one"))]);
        assert!(
            bad.ends_with("does not work here\n") && bad.contains("MISSING"),
            "{bad}"
        );
    }
}
