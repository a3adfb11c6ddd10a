//! Progress on stderr: a bar on a terminal, a line a run elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::message;

/// Counts the runs of a benchmark.
#[derive(Debug)]
pub struct Steps {
    bar: Option<ProgressBar>,
    done: usize,
    total: usize,
}

impl Steps {
    /// A benchmark of `total` runs.
    pub fn new(total: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total as u64);
            let style = ProgressStyle::with_template(
                "{bar:30} {pos}/{len} {elapsed} (about {eta} left) {wide_msg}",
            );
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Self {
            bar,
            done: 0,
            total,
        }
    }

    /// The next run begins.
    pub fn begin(&mut self, what: &str) {
        self.done += 1;
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.done as u64 - 1);
                bar.set_message(what.to_owned());
            }
            None => message::line(format_args!("{}/{} {what}", self.done, self.total)),
        }
    }

    /// Something worth a line of its own.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| message::line(format_args!("{line}"))),
            None => message::line(format_args!("{line}")),
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
