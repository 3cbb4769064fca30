//! Where the value of an option comes from.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::config::{is_flag, key};

/// What is known of the options of this process.
pub(super) struct Known<'a> {
    pub(super) command: &'a Command,
    pub(super) matches: &'a ArgMatches,
    /// The ids of the options that the file has given.
    pub(super) of_file: &'a [String],
    pub(super) file: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin<'a> {
    Default,
    CommandLine,
    Variable,
    File(&'a str),
}

impl<'a> Known<'a> {
    pub(super) fn origin(&self, option: &Arg) -> Origin<'a> {
        let id = option.get_id().as_str();
        match self.matches.value_source(id) {
            _ if self.of_file.iter().any(|it| it == id) => Origin::File(self.file),
            Some(ValueSource::CommandLine) => Origin::CommandLine,
            Some(ValueSource::EnvVariable) => Origin::Variable,
            _ => Origin::Default,
        }
    }

    /// Whether it has a value of its own. A variable may turn a flag off, which is the default.
    pub(super) fn is_given(&self, option: &Arg) -> bool {
        let is_off = is_flag(option) && !self.matches.get_flag(option.get_id().as_str());
        self.origin(option) != Origin::Default && !is_off
    }

    /// The option as it was given: the flag, the variable, or the key in the file.
    pub(super) fn name(&self, option: &Arg) -> String {
        match (self.origin(option), option.get_env(), option.get_long()) {
            (Origin::File(file), ..) => format!("{} in {file}", key(option)),
            (Origin::Variable, Some(variable), _) => variable.to_string_lossy().into_owned(),
            (_, _, Some(long)) => format!("--{long}"),
            (_, _, None) => "DIR".to_owned(),
        }
    }
}
