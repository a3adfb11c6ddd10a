//! `outpage trace convert`: from any format that is read to one that is written.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use outpage_core::units::PAGE_BYTES;
use outpage_sim::sizes::Sizes;
use outpage_sim::trace::{Header, Recorded, Run, Writer, write_oracle};

use super::load::{self, Format};
use crate::error::CliError;
use crate::output;
use crate::run::report::grouped;

/// Options of `outpage trace convert`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The trace to read
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// The file to write
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// What FROM holds
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    format: Format,
    /// What to write: page references, or libCacheSim's oracleGeneral
    #[arg(long = "as", value_name = "FORMAT", default_value = "refs")]
    target: Target,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Target {
    /// Page references: versioned, checksummed, compressed
    Refs,
    /// libCacheSim's oracleGeneral: what a reference did is lost
    Oracle,
}

/// Converts.
///
/// # Errors
/// [`crate::error::code::NO_INPUT`], [`crate::error::code::DATA`], [`crate::error::code::IO`].
pub fn run(options: &Options) -> Result<ExitCode, CliError> {
    let load::Trace { runs, sizes } = load::trace(&options.from, options.format)?;
    let references: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
    match options.target {
        Target::Refs => {
            let header = Header {
                page_bytes: PAGE_BYTES as u32,
                recorded: load::recorded(&options.from, options.format)?,
                program: load::program(&options.from, options.format)?,
            };
            write_refs(&options.to, &header, &runs, &sizes)?;
        }
        Target::Oracle => {
            let failed = |e| CliError::unwritten(&options.to, e);
            let file = File::create(&options.to).map_err(failed)?;
            let all = runs.iter().flat_map(|run| run.references());
            write_oracle(all, PAGE_BYTES as u32, BufWriter::new(file)).map_err(failed)?;
        }
    }
    let bytes = std::fs::metadata(&options.to).map_or(0, |m| m.len());
    let of_sizes = match options.target {
        Target::Refs if !sizes.is_empty() => {
            format!("compressed sizes of {} pages", grouped(sizes.len() as u64))
        }
        Target::Refs | Target::Oracle => "no compressed sizes".to_owned(),
    };
    output::print_line(format_args!(
        "{}: {} references, {of_sizes}, {} bytes",
        options.to.display(),
        grouped(references),
        grouped(bytes)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes `runs` as a trace of page references, with what their pages come to.
///
/// # Errors
/// [`crate::error::code::IO`].
pub fn write_refs(
    path: &Path,
    header: &Header,
    runs: &[Run],
    sizes: &Sizes,
) -> Result<(), CliError> {
    let failed = |e| CliError::unwritten(path, e);
    let file = File::create(path).map_err(failed)?;
    let mut writer = Writer::new(BufWriter::new(file), header).map_err(failed)?;
    for &run in runs {
        writer.run(run).map_err(failed)?;
    }
    writer.finish_with(sizes).map_err(failed)?;
    Ok(())
}

/// How references that missed `resident` pages were recorded.
#[must_use]
pub const fn filtered(resident: u64) -> Recorded {
    Recorded::Filtered { resident }
}
