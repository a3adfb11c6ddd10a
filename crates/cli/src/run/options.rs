//! The options of `outpage run`, made of the engine's table of settings.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, PathBufValueParser, PossibleValue, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, ValueHint};
use outpage_engine::config::{Config, SETTINGS, Setting, Value};

use crate::error::{CliError, code};

/// The name of the argument that is the program.
const PROGRAM: &str = "program";

/// What was written on the command line of `outpage run`.
#[derive(Clone, Debug)]
pub struct Args {
    /// Variables of the settings, and their values.
    given: Vec<(&'static str, OsString)>,
    /// The program and its arguments.
    program: Vec<OsString>,
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let program = Arg::new(PROGRAM)
            .required(true)
            .num_args(1..)
            .trailing_var_arg(true)
            .value_name("PROGRAM")
            .value_parser(OsStringValueParser::new())
            .value_hint(ValueHint::CommandWithArguments)
            .help("The program and its arguments, best after \"--\"");
        let options = SETTINGS.iter().filter_map(option);
        command.args(options).arg(program)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |setting: &Setting| -> Option<(&'static str, OsString)> {
            let name = setting.option?;
            let value = match setting.value {
                Value::Flag => matches.get_flag(name).then(|| "1".into()),
                _ => matches.get_one(name).cloned(),
            };
            Some((setting.variable, value?))
        };
        let program = matches.get_many(PROGRAM).into_iter().flatten().cloned();
        Ok(Self {
            given: SETTINGS.iter().filter_map(given).collect(),
            program: program.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args {
    /// The program and its arguments.
    #[must_use]
    pub fn program(&self) -> &[OsString] {
        &self.program
    }

    /// The configuration: what the options say, else the environment, else the defaults.
    ///
    /// # Errors
    /// [`code::USAGE`].
    pub fn config(&self) -> Result<Config, CliError> {
        let usage = |text: String| CliError::new(code::USAGE, text);
        let given = |name: &str| {
            let option = self.given.iter().find(|(variable, _)| *variable == name);
            option.map_or_else(|| std::env::var_os(name), |(_, value)| Some(value.clone()))
        };
        let config = Config::from_env(given).map_err(|e| usage(e.to_string()))?;
        let config = config.ok_or_else(|| {
            usage("no limit: say how much memory PROGRAM may use, for example --memory 4G".into())
        })?;
        let readahead = config.fitted_readahead();
        readahead.map_err(|e| usage(e.to_string()))?;
        Ok(config)
    }
}

/// The option of a setting that has one.
fn option(setting: &'static Setting) -> Option<Arg> {
    let name = setting.option?;
    let arg = Arg::new(name)
        .long(name)
        .hide(setting.hidden)
        .help(help(setting));
    let arg = match setting.short {
        Some(letter) => arg.short(letter),
        None => arg,
    };
    let Some(placeholder) = setting.value.placeholder() else {
        return Some(arg.action(ArgAction::SetTrue));
    };
    let arg = arg.value_name(placeholder).value_parser(Checked(setting));
    Some(match setting.value {
        Value::Directory => arg.value_hint(ValueHint::DirPath),
        Value::File => arg.value_hint(ValueHint::FilePath),
        Value::WordsOrNone(words) => arg.num_args(0..=1).default_missing_value(words[0].0),
        _ => arg,
    })
}

/// "Meaning, range [default: ...] [env: ...]".
fn help(setting: &Setting) -> String {
    let Setting { meaning, range, .. } = setting;
    let comma = if range.is_empty() { "" } else { ", " };
    let value = if matches!(setting.value, Value::Flag) {
        "=1"
    } else {
        ""
    };
    let default = setting.default().replace('`', "");
    format!(
        "{meaning}{comma}{range} [default: {default}] [env: {}{value}]",
        setting.variable
    )
}

/// Takes a value of this setting as it was written, if it can be used.
#[derive(Clone, Copy)]
struct Checked(&'static Setting);

impl TypedValueParser for Checked {
    type Value = OsString;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OsString, clap::Error> {
        // An empty value would count as none.
        let path = matches!(self.0.value, Value::Directory | Value::File);
        if path || value.is_empty() {
            let path = PathBufValueParser::new().parse_ref(command, arg, value);
            return path.map(PathBuf::into_os_string);
        }
        let setting = self.0;
        let checked = move |text: &str| {
            let checked = setting.check(text.as_ref());
            checked.map(|()| OsString::from(text))
        };
        checked.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let words = self.0.value.words();
        let values = words.into_iter();
        let values: Vec<_> = values
            .map(|(word, what)| PossibleValue::new(word).help(what))
            .collect();
        (!values.is_empty()).then(|| Box::new(values.into_iter()) as Box<dyn Iterator<Item = _>>)
    }
}
