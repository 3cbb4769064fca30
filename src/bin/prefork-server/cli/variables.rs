//! The environment: the variable of each option, and variables of no option.

use std::ffi::{OsStr, OsString};

use clap::builder::{Resettable, ValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Error};

use super::config::SOURCES;

/// The prefix of the variables of options.
const PREFIX: &str = "PREFORK_";

/// The prefix of the variables with which a master starts its workers.
const OF_LIBRARY: &str = "PREFORK_SERVER_";

/// A variable with the prefix, of no option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub(crate) name: String,
    /// The variable of an option with a similar name.
    pub(crate) similar: Option<String>,
}

/// Ignores empty variables: in container tools and unit files that is the way to unset one.
pub(super) fn without_empty(command: Command) -> Command {
    command.mut_args(|arg| match arg.get_env().and_then(std::env::var_os) {
        Some(value) if value.is_empty() => without_variable(arg),
        _ => arg,
    })
}

/// Ignores the variables of what is to be served if the command line says it: one is enough.
pub(super) fn without_other_sources(command: Command, given: Option<&ArgMatches>) -> Command {
    let of_command_line = Some(ValueSource::CommandLine);
    let is_said = |given: &ArgMatches| {
        let mut sources = SOURCES.iter();
        sources.any(|id| given.value_source(id) == of_command_line)
    };
    if !given.is_some_and(is_said) {
        return command;
    }
    command.mut_args(|arg| match SOURCES.contains(&arg.get_id().as_str()) {
        true => without_variable(arg),
        false => arg,
    })
}

/// The values of the options. An error about a value that is no UTF-8 text names the option, which
/// that of clap does not.
pub(super) fn parse(command: &Command, args: &[OsString]) -> Result<ArgMatches, Error> {
    let parse = |command: Command| command.try_get_matches_from(args);
    let is_no_text = |error: &Error| error.kind() == ErrorKind::InvalidUtf8;
    let error = match parse(command.clone()) {
        Err(error) if is_no_text(&error) => error,
        parsed => return parsed,
    };
    let mut built = command.clone();
    built.build();
    let mut options = built
        .get_arguments()
        .filter(|option| option.get_action().takes_values());
    let is_cause = |option: &&Arg| {
        let parsed = parse(command.clone().mut_arg(option.get_id(), any_value));
        !parsed.is_err_and(|error| is_no_text(&error))
    };
    // None if there are two such values, or if it is the variable of a flag.
    let Some(option) = options.find(is_cause) else {
        return Err(error);
    };
    let mut error = Error::new(ErrorKind::InvalidValue).with_cmd(command);
    for (kind, text) in [
        (ContextKind::InvalidArg, option.to_string()),
        (ContextKind::InvalidValue, "(no UTF-8 text)".to_owned()),
    ] {
        error.insert(kind, ContextValue::String(text));
    }
    Err(error)
}

/// Makes an error about the value of a variable name the variable, where clap names the option. The
/// value comes from the variable if the arguments alone give no such error. `command` is not built
/// yet.
pub(super) fn name_source(mut error: Error, command: &Command, args: &[OsString]) -> Error {
    let Some(ContextValue::String(told)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let told = told.clone();
    let mut built = command.clone();
    built.build();
    let Some(arg) = built.get_arguments().find(|arg| arg.to_string() == told) else {
        return error;
    };
    let (id, variable) = (arg.get_id().clone(), arg.get_env().map(OsStr::to_owned));
    let other = command.clone().mut_arg(id, without_variable);
    let is_of_command_line = match parse(&other, args) {
        Ok(_) => false,
        Err(other) => other.get(ContextKind::InvalidArg) == error.get(ContextKind::InvalidArg),
    };
    if let (Some(variable), false) = (variable, is_of_command_line) {
        let variable = variable.to_string_lossy().into_owned();
        error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    }
    error
}

/// What the command line and the environment give, whatever the values are. `None` if that is not
/// clear: then the command line has an error, or asks for help.
pub(super) fn given(command: &Command, args: &[OsString]) -> Option<ArgMatches> {
    let command = command.clone().mut_args(any_value);
    match command.clone().try_get_matches_from(args) {
        // The file may have what an option needs.
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {
            let command = command.ignore_errors(true);
            command.try_get_matches_from(args).ok()
        }
        parsed => parsed.ok(),
    }
}

fn any_value(arg: Arg) -> Arg {
    match arg.get_action().takes_values() {
        true => arg.value_parser(ValueParser::os_string()),
        false => arg,
    }
}

/// Makes an error about a value of the file name the key, where clap names the option.
pub(super) fn name_key(
    mut error: Error,
    command: &Command,
    of_file: &[String],
    file: &str,
) -> Error {
    let Some(ContextValue::String(told)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let mut built = command.clone();
    built.build();
    let arg = built.get_arguments().find(|arg| arg.to_string() == *told);
    let id = arg.map(|arg| arg.get_id().as_str());
    if let Some(id) = id.filter(|id| of_file.iter().any(|it| it == id)) {
        let key = format!("{} in {file}", id.replace('_', "-"));
        error.insert(ContextKind::InvalidArg, ContextValue::String(key));
    }
    error
}

/// The names among these that have the prefix and belong to no option. clap finds similar names, as
/// it does for options.
pub(super) fn unknown(command: &Command, names: impl Iterator<Item = OsString>) -> Vec<Unknown> {
    let known = |name: &str| {
        let mut arguments = command.get_arguments();
        arguments.any(|arg| arg.get_env() == Some(OsStr::new(name)))
    };
    let names = names.filter_map(|name| name.into_string().ok());
    names
        .filter(|name| name.starts_with(PREFIX) && !name.starts_with(OF_LIBRARY) && !known(name))
        .map(|name| Unknown {
            similar: similar(command, &name),
            name,
        })
        .collect()
}

/// The long option whose name is most like this one.
pub(super) fn similar_option(command: &Command, name: &str) -> Option<String> {
    let args = [String::new(), format!("--{name}")];
    let error = command.clone().try_get_matches_from(args).err()?;
    match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(similar)) => similar.strip_prefix("--").map(str::to_owned),
        _ => None,
    }
}

fn similar(command: &Command, name: &str) -> Option<String> {
    let option = name.strip_prefix(PREFIX)?.replace('_', "-").to_lowercase();
    let similar = similar_option(command, &option)?;
    let is_it = |arg: &&Arg| arg.get_long() == Some(&similar);
    let variable = command.get_arguments().find(is_it)?.get_env()?;
    Some(variable.to_string_lossy().into_owned())
}

fn without_variable(arg: Arg) -> Arg {
    arg.env(Resettable::Reset)
}
