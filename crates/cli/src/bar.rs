//! Progress bars of what computes: on a terminal only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `total` steps named `what`; it shows the time that is left.
pub fn steps(what: &'static str, total: u64) -> ProgressBar {
    with_template(
        total,
        what,
        "{prefix:10} {bar:30} {pos}/{len} {elapsed} (about {eta} left) {msg}",
    )
}

/// A bar of `total` bytes named `what`.
pub fn bytes(what: &'static str, total: u64) -> ProgressBar {
    with_template(
        total,
        what,
        "{prefix:10} {bar:30} {bytes}/{total_bytes} {elapsed} (about {eta} left)",
    )
}

fn with_template(total: u64, what: &'static str, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(what);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
