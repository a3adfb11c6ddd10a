//! `outpage replay --identical`: the events of a live run again, and the same actions.

use std::path::Path;
use std::process::ExitCode;

use outpage_core::record::{Reader, Replayed, Unequal, Unreadable, Why, replay};
use serde_json::json;

use crate::error::{CliError, code};
use crate::output;
use crate::run::report::grouped;
use crate::sim::table::put;
use crate::trace::load::damaged;

/// Replays the log and says whether all actions were the same.
///
/// # Errors
/// [`code::DATA`] with the offset where the log cannot be read; [`code::FAILED`] where the pager
/// did something else.
pub fn run(path: &Path, json_file: Option<&Path>) -> Result<ExitCode, CliError> {
    let bytes = std::fs::read(path).map_err(|e| CliError::unread(path, e))?;
    let (setup, policies) = {
        let reader = Reader::new(&bytes).map_err(|e| damaged(path, e))?;
        let header = reader.header();
        let policies = format!(
            "reclaim {}, page-out {}, read-ahead {}, slots {}, tier {}",
            header.reclaim, header.pageout, header.readahead, header.slots, header.tier
        );
        let setup = header
            .setup()
            .ok_or_else(|| damaged(path, format!("its policies are not known here: {policies}")))?;
        (setup, policies)
    };
    let equal = match replay(&bytes, setup) {
        Ok(replayed) => Ok((replayed, true)),
        // Without an end mark a process left its log by a signal or `_exit`, between two entries.
        Err(Unequal::Unreadable(Unreadable {
            offset,
            why: Why::Truncated,
        })) if offset == bytes.len() => Ok((counted(&bytes, path)?, false)),
        Err(Unequal::Unreadable(unreadable)) => return Err(damaged(path, unreadable)),
        Err(Unequal::Diverged(divergence)) => Err(divergence),
    };
    let value = match &equal {
        Ok((replayed, ended)) => json!({
            "identical": true, "events": replayed.events, "actions": replayed.actions,
            "bytes": bytes.len(), "ended": ended,
            "transfers": format!("{:016x}", replayed.transfers), "all": format!("{:016x}", replayed.all),
        }),
        Err(divergence) => json!({"identical": false, "offset": divergence.offset}),
    };
    if let Some(file) = json_file {
        put(file, &format!("{value:#}\n"))?;
    }
    match equal {
        Ok((replayed, ended)) => {
            if json_file.is_none_or(|file| file.as_os_str() != "-") {
                output::print_line(format_args!(
                    "identical: {} events led to the same {} actions, byte by byte ({policies}); decisions {:016x} {:016x}{}",
                    grouped(replayed.events),
                    grouped(replayed.actions),
                    replayed.transfers,
                    replayed.all,
                    if ended {
                        ""
                    } else {
                        "; the log has no end mark: its process was cut short"
                    }
                ))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(divergence) => {
            let text = format!(
                "{} diverged {}",
                path.display(),
                Unequal::Diverged(divergence)
            );
            Err(CliError::new(code::FAILED, text))
        }
    }
}

/// Events and actions of a log that is known to be whole up to its end.
fn counted(bytes: &[u8], path: &Path) -> Result<Replayed, CliError> {
    use crate::trace::references::next;
    use outpage_core::record::{Decisions, Logged};
    let mut reader = Reader::new(bytes).map_err(|e| damaged(path, e))?;
    let mut replayed = Replayed::default();
    let mut decisions = Decisions::new();
    while let Some(entry) = next(&mut reader, bytes.len()).map_err(|e| damaged(path, e))? {
        match entry {
            Logged::Event { .. } => replayed.events += 1,
            Logged::Action(action) => {
                replayed.actions += 1;
                decisions.action(&action);
            }
        }
    }
    (replayed.transfers, replayed.all) = (decisions.transfers(), decisions.all());
    Ok(replayed)
}
