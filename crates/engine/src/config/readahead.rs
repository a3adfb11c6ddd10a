//! The read-ahead policy and its settings, as in `asp:window=8,max=32`.

use outpage_core::readahead::{Choice, REGISTRY, Refused, find};

use super::names::told;
use super::{Config, ConfigError};

/// A read-ahead policy and what is set of it, as in `asp:window=8,max=32`.
///
/// # Errors
/// When there is none of that name, or something cannot be set of it: names what can.
pub fn parse_readahead(text: &str) -> Result<Choice, String> {
    text.parse().map_err(|refused: Refused| refused.to_string())
}

/// The read-ahead policy of this name where nothing is set.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn plain_readahead(name: &str) -> Choice {
    Choice::plain(find(name).expect("a policy of the registry"))
}

impl Config {
    /// The read-ahead policy, its largest window as for this memory or as it is set.
    ///
    /// # Errors
    /// When its values do not fit together: names what is allowed.
    pub fn fitted_readahead(&self) -> Result<Choice, ConfigError> {
        let fitted = match self.window_pages {
            Some(window) => self.readahead.with_window(window),
            None => Ok(self.readahead.for_frames(self.limit_pages() as usize)),
        };
        let checked = fitted.and_then(|choice| {
            choice.check()?;
            Ok(choice)
        });
        checked.map_err(|refused| ConfigError {
            setting: match self.window_pages {
                Some(window) => format!("read-ahead {} with max={window}", self.readahead),
                None => format!("read-ahead {}", self.readahead),
            },
            reason: refused.to_string(),
        })
    }
}

/// Name, one-line summary and settings of each read-ahead policy, as they are when nothing is set.
#[must_use]
pub fn readahead_table() -> Vec<(&'static str, String)> {
    REGISTRY
        .iter()
        .map(|entry| (entry.name, told(entry.summary, entry.settings)))
        .collect()
}

#[cfg(test)]
mod tests {
    use outpage_core::readahead::Govern;

    use super::*;

    fn with(text: &str, window: Option<u32>) -> Config {
        Config {
            readahead: parse_readahead(text).expect(text),
            window_pages: window,
            ..Config::new(64 << 20)
        }
    }

    #[test]
    fn settings_and_the_window_option_work_together() {
        let config = with("asp:window=4,step=4", Some(64));
        let choice = config.fitted_readahead().expect("allowed");
        let values = ["window", "step", "max"].map(|name| choice.values().of(name));
        assert_eq!(values, [4, 4, 64]);
        assert_eq!(config.readahead.to_string(), "asp:window=4,step=4");
    }

    #[test]
    fn help_shows_what_holds_when_nothing_is_set() {
        let stream = with("stream", None).fitted_readahead();
        let shown = readahead_table().into_iter().find(|row| row.0 == "stream");
        assert_eq!(stream.expect("allowed").manner().govern, Govern::On);
        assert!(shown.expect("in the registry").1.contains("govern=on"));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        for (text, allowed) in [
            ("asp:window=0", "1 to 256"),
            ("asp:step=64", "at most 32"),
            ("asp:max=8,max=16", "max is given twice"),
            ("linux-slot:page-cluster=3,max=16", "max and page-cluster"),
            ("asp:windows=4", "mdis"),
            ("psychic", "linux-vma"),
        ] {
            let refused = parse_readahead(text).expect_err(text);
            assert!(refused.contains(allowed), "{refused}");
        }
        let small = with("asp", Some(4)).fitted_readahead();
        assert!(
            small
                .expect_err("window above max")
                .reason
                .contains("at most 4")
        );
    }
}
