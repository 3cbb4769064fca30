//! The environment: the variable of each option, and variables of no option.

use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command, Error};

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
    let is_of_command_line = match other.try_get_matches_from(args) {
        Ok(_) => false,
        Err(other) => other.get(ContextKind::InvalidArg) == error.get(ContextKind::InvalidArg),
    };
    if let (Some(variable), false) = (variable, is_of_command_line) {
        let variable = variable.to_string_lossy().into_owned();
        error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
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

fn similar(command: &Command, name: &str) -> Option<String> {
    let option = name.strip_prefix(PREFIX)?.replace('_', "-").to_lowercase();
    let args = [String::new(), format!("--{option}")];
    let error = command.clone().try_get_matches_from(args).err()?;
    let Some(ContextValue::String(similar)) = error.get(ContextKind::SuggestedArg) else {
        return None;
    };
    let is_it = |arg: &&Arg| arg.get_long() == similar.strip_prefix("--");
    let variable = command.get_arguments().find(is_it)?.get_env()?;
    Some(variable.to_string_lossy().into_owned())
}

fn without_variable(arg: Arg) -> Arg {
    arg.env(Resettable::Reset)
}
