//! `outpage man` and `outpage completions`: what belongs to the command line on an installed system, made of the command
//! line itself.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Command, ValueEnum};
use clap_complete::Shell;

use crate::error::CliError;
use crate::output::print;

/// Options of `outpage man`.
#[derive(Clone, Debug, clap::Args)]
pub struct ManArgs {
    /// Directory to write outpage.1, outpage-run.1 and so on to; made where it is missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Options of `outpage completions`.
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Known,
}

/// A shell that commands can be completed in.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

/// Writes a page for `outpage`, which is `whole`, and for each of its commands.
///
/// # Errors
/// [`crate::error::code::IO`].
pub fn man(args: &ManArgs, whole: Command) -> Result<ExitCode, CliError> {
    let written = std::fs::create_dir_all(&args.out)
        .and_then(|()| clap_mangen::generate_to(whole, &args.out));
    written.map_err(|error| CliError::unwritten(&args.out, error))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what a shell needs to complete the commands of `outpage`, which is `whole`.
///
/// # Errors
/// [`crate::error::code::IO`].
pub fn completions(args: &CompletionsArgs, whole: &Command) -> Result<ExitCode, CliError> {
    let shell = match args.shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    // The generator takes a full disk for an impossibility.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(whole), "outpage", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// The command line without what is hidden: the generators do not ask.
fn shown(whole: &Command) -> Command {
    let shown = whole
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let shown = Command::new("outpage").subcommands(shown.cloned());
    shown.version(env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;
    use std::collections::BTreeSet;

    /// Names of the pages of `command` and what is below it.
    fn names(command: &clap::Command, name: &str, found: &mut BTreeSet<String>) {
        found.insert(format!("{name}.1"));
        let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
        for below in shown {
            names(below, &format!("{name}-{}", below.get_name()), found);
        }
    }

    #[test]
    fn every_command_has_a_page_and_every_option_stands_in_it() {
        let out = tempfile::tempdir().expect("directory");
        let args = ManArgs {
            out: out.path().join("man1"),
        };
        man(&args, Cli::command()).expect("pages");
        let files = std::fs::read_dir(&args.out).expect("directory");
        let files = files.map(|file| {
            file.expect("a file")
                .file_name()
                .into_string()
                .expect("UTF-8")
        });
        let mut wanted = BTreeSet::new();
        names(&Cli::command(), "outpage", &mut wanted);
        assert_eq!(files.collect::<BTreeSet<_>>(), wanted);
        assert!(wanted.contains("outpage-bench-kernel.1"), "{wanted:?}");
        let page = std::fs::read_to_string(args.out.join("outpage-run.1")).expect("a page");
        for setting in outpage_engine::config::SETTINGS {
            let Some(option) = setting.option else {
                continue;
            };
            let told = page.contains(&format!("\\-\\-{}", option.replace('-', "\\-")));
            assert_eq!(told, !setting.hidden, "{option}");
        }
    }

    #[test]
    fn every_shell_is_told_of_commands_and_of_the_names_of_policies() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut shown(&Cli::command()), "outpage", &mut script);
            let script = String::from_utf8(script).expect("UTF-8");
            for word in ["doctor", "allow-unmanaged", "mclustering", "write-protect"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
            // Sentences have the word too.
            for hidden in [
                "subcmd__workload",
                "workload_commands",
                "using_subcommand workload",
            ] {
                assert!(!script.contains(hidden), "{shell}: {hidden}");
            }
        }
    }
}
