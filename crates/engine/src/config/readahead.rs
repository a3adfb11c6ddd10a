//! The read-ahead policy and its settings, as in `asp:window=8,max=32`.

use std::fmt;
use std::str::FromStr;

use outpage_core::readahead::{Abilities, Params, REGISTRY, Refused, configure};

use super::{Config, ConfigError, Mechanism};

/// A policy of `outpage_core::readahead::REGISTRY` with what was set of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadAhead {
    name: &'static str,
    settings: String,
}

impl ReadAhead {
    /// The policy with its own defaults.
    ///
    /// # Panics
    /// When there is no policy called `name`.
    #[must_use]
    pub fn plain(name: &str) -> Self {
        name.parse().expect("a policy of the registry")
    }

    /// The policy's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The parameters, with a largest window of `window` slots instead of the policy's.
    fn params(
        &self,
        window: Option<u32>,
        frames: usize,
        can: Abilities,
    ) -> Result<Params, Refused> {
        let (entry, mut params) = configure(self.name, &self.settings, frames, Abilities::ALL)?;
        params.max_window = window.unwrap_or(params.max_window);
        entry.validate(&params, can)?;
        Ok(params)
    }
}

impl FromStr for ReadAhead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        // Whether its values fit together depends on other options too.
        match configure(name.trim(), settings, usize::MAX, Abilities::ALL) {
            Ok((entry, _)) => Ok(Self {
                name: entry.name,
                settings: settings.trim().to_owned(),
            }),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl fmt::Display for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if self.settings.is_empty() {
            return Ok(());
        }
        write!(f, ":{}", self.settings)
    }
}

/// What a body with this mechanism sees. A page that is protected in place can be read unseen.
#[must_use]
pub const fn abilities(mechanism: Mechanism) -> Abilities {
    Abilities {
        touches: !matches!(mechanism, Mechanism::WriteProtect),
        sources: true,
    }
}

impl Config {
    /// The parameters of the read-ahead policy under `mechanism`.
    ///
    /// # Errors
    /// When they do not fit together, or need what the mechanism cannot give: names what is allowed.
    pub fn readahead_params(&self, mechanism: Mechanism) -> Result<Params, ConfigError> {
        self.readahead
            .params(
                self.window_pages,
                self.limit_pages() as usize,
                abilities(mechanism),
            )
            .map_err(|refused| ConfigError {
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
        .map(|entry| {
            let (_, defaults) = configure(entry.name, "", usize::MAX, Abilities::ALL)
                .expect("its own defaults are allowed");
            let settings: Vec<String> = (entry.settings.iter())
                .map(|setting| format!("{}={}", setting.name, setting.value(&defaults)))
                .collect();
            let settings = if settings.is_empty() {
                String::new()
            } else {
                format!(" ({})", settings.join(","))
            };
            (entry.name, format!("{}{settings}", entry.summary))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use outpage_core::readahead::Govern;

    use super::*;

    fn with(text: &str, window: Option<u32>) -> Config {
        Config {
            readahead: text.parse().expect(text),
            window_pages: window,
            ..Config::new(64 << 20)
        }
    }

    #[test]
    fn settings_and_the_window_option_work_together() {
        let config = with("asp:window=4,step=4", Some(64));
        let params = config.readahead_params(Mechanism::Move).expect("allowed");
        assert_eq!((params.window, params.step, params.max_window), (4, 4, 64));
        assert_eq!(config.readahead.to_string(), "asp:window=4,step=4");
    }

    #[test]
    fn help_shows_what_holds_when_nothing_is_set() {
        let stream = with("stream", None).readahead_params(Mechanism::Move);
        let shown = readahead_table().into_iter().find(|row| row.0 == "stream");
        assert_eq!(stream.expect("allowed").govern, Govern::On);
        assert!(shown.expect("in the registry").1.contains("govern=on"));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        for (text, allowed) in [
            ("asp:window=0", "1 to 256"),
            ("asp:step=64", "at most 32"),
            ("asp:max=8,max=16", "max twice"),
            ("linux-slot:page-cluster=3,max=16", "page-cluster and max"),
            ("asp:windows=4", "mdis"),
            ("psychic", "linux-vma"),
        ] {
            let refused = text.parse::<ReadAhead>().expect_err(text);
            assert!(refused.contains(allowed), "{refused}");
        }
        let small = with("asp", Some(4)).readahead_params(Mechanism::Move);
        assert!(
            small
                .expect_err("window above max")
                .reason
                .contains("at most 4")
        );
        let unseen = with("asp", None).readahead_params(Mechanism::WriteProtect);
        let reason = unseen.expect_err("touches are not seen").reason;
        assert!(
            reason.contains("arrival=mapped") && reason.contains("stream"),
            "{reason}"
        );
    }
}
