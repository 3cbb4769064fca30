//! The file with options: its keys are the names of the long options, and `dir`.
//!
//! A value counts if neither the command line nor the environment has one. It is put into the
//! command line, so that every check of an option holds for it too.
//!
//! Workers get the content from the master, so that a file that is being edited does not matter
//! when a worker crashes. A reload reads the file again.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, ValueEnum};
use prefork_server::{Role, role};
use toml::de::DeTable;
use toml::{Table, Value};

use super::variables;

/// The variable by which the master gives the content to workers.
pub(crate) const CONTENT: &str = "PREFORK_SERVER_CONFIG";

/// The variable by which a master gives the content that the canary has tried to the image that it
/// becomes, after the pid of both.
pub(crate) const TRIED: &str = "PREFORK_SERVER_CONFIG_TRIED";

/// The variable by which a master tells the image that it becomes that there is no way back: the
/// pid of both.
const UPGRADED: &str = "PREFORK_SERVER_UPGRADED";

/// The variable by which a master tells a canary that its own file has options.
pub(crate) const HAD_OPTIONS: &str = "PREFORK_SERVER_CONFIG_HAD_OPTIONS";

/// Why a file without options is refused if it had some. Many programs empty a file before they
/// write it, and the defaults would listen and serve otherwise.
pub(crate) const EMPTIED: &str = "it has no options any more; only a restart takes the defaults";

/// A variable of a process cannot be longer than twice this (execve(2)).
const BYTES_MAX: u64 = 64 << 10;

/// These cannot be in the file.
pub(super) const NOT_IN_FILE: [&str; 5] = ["config", "check", "print_config", "help", "version"];

/// One of these is enough, so the environment has no say if the command line has one, and the file
/// has no say if one of the two has one.
pub(super) const SOURCES: [&str; 3] = ["dir", "respond", "echo"];

/// What only a new master can change. The others are read by each worker.
const OF_MASTER: [&str; 26] = [
    "workers",
    "listen",
    "listeners",
    "balance",
    "defer_accept",
    "drain_timeout",
    "pre_stop_delay",
    "reload_batch",
    "hang_timeout",
    "crash_limit",
    "user",
    "group",
    "unix_mode",
    "pid_file",
    "admin",
    "announce_fd",
    "log_format",
    "log_level",
    "tls_cert",
    "tls_key",
    "tls_ocsp",
    "tls_min_version",
    "tls_ciphers",
    "tls_client_ca",
    "tls_client_auth",
    "redirect_to_https",
];

/// Options that are about the options.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct Config {
    /// Read options from this TOML file, whose keys are the long options and dir. The command line
    /// and the environment win over it. HUP reads it again
    #[arg(long, value_name = "FILE", env = "PREFORK_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Check the options, the files and the addresses, say what would be served, and exit. A server
    /// that runs does not notice it
    #[arg(long)]
    pub(crate) check: bool,

    /// Print the options and exit. table: each value and where it is from. toml: as a file for
    /// --config. env: as variables. args: as a command line
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "table")]
    pub(crate) print_config: Option<PrintFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrintFormat {
    Table,
    Toml,
    Env,
    Args,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    /// What errors call it: the option or the variable, and the path.
    name: String,
    values: Table,
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    File,
    /// A pipe, which cannot be read again.
    Pipe,
    /// The master of this process.
    Master,
}

/// The variables for the next image of this process, with the content that the canary has tried.
pub(crate) fn of_next_image(content: Option<&str>) -> Vec<(OsString, OsString)> {
    let pid = std::process::id();
    let tried = content.map(|content| (TRIED.into(), format!("{pid} {content}").into()));
    let upgraded = (UPGRADED.into(), pid.to_string().into());
    tried.into_iter().chain([upgraded]).collect()
}

/// Whether this process was a master already, as another image. A canary has tried what can be
/// tried, so what is wrong all the same must not end the server.
pub(crate) fn is_upgraded() -> bool {
    let pid = std::env::var(UPGRADED);
    pid.is_ok_and(|pid| pid.parse() == Ok(std::process::id()))
}

/// What the image before this one has left; once, because a reload reads the file again.
fn tried() -> Option<String> {
    static IS_READ: AtomicBool = AtomicBool::new(false);
    let value = std::env::var(TRIED).ok()?;
    let (pid, content) = value.split_once(' ')?;
    let is_of_this = pid.parse() == Ok(std::process::id());
    (is_of_this && !IS_READ.swap(true, Ordering::Relaxed)).then(|| content.to_owned())
}

impl ConfigFile {
    /// The file that `given`, the command line and the environment, names.
    pub(super) fn of_this_process(given: &ArgMatches) -> Result<Option<Self>, String> {
        let mut paths = given.get_raw("config").into_iter().flatten();
        let Some(path) = paths.next().map(PathBuf::from) else {
            return Ok(None);
        };
        let name = match given.value_source("config") {
            Some(ValueSource::EnvVariable) => format!("PREFORK_CONFIG={}", path.display()),
            _ => format!("--config {}", path.display()),
        };
        let file = Self::inherited_or_read(path, name.clone());
        file.map(Some).map_err(|why| format!("{name}: {why}"))
    }

    /// What was read of the file before, by the master of this worker or by the image before this
    /// one, or what it has now.
    fn inherited_or_read(path: PathBuf, name: String) -> Result<Self, String> {
        let inherited = match role() {
            Role::Master => tried().map(|content| (content, Source::File)),
            _ => (std::env::var(CONTENT).ok()).map(|content| (content, Source::Master)),
        };
        let (content, source) = match inherited {
            Some(inherited) => inherited,
            None => read(&path)?,
        };
        // The master gives the content to every worker but a canary.
        if source == Source::Pipe && role() == Role::Worker {
            return Err(
                "it came through a pipe and cannot be read again: a restart reads it".into(),
            );
        }
        let file = Self::parse(path, name, &content, source)?;
        match std::env::var_os(HAD_OPTIONS).is_some() && !file.has_options() {
            true => Err(EMPTIED.into()),
            false => Ok(file),
        }
    }

    pub(crate) fn parse(
        path: PathBuf,
        name: String,
        content: &str,
        source: Source,
    ) -> Result<Self, String> {
        match values(content) {
            Ok(values) => Ok(Self {
                path,
                name,
                values,
                source,
            }),
            Err(error) => {
                // The other lines show the place in the file.
                let place = error.to_string();
                let place = place.lines().next().unwrap_or_default();
                Err(format!("{place}: {}", error.message()))
            }
        }
    }

    /// Why something cannot be done with it.
    pub(crate) fn told(&self, why: &str) -> String {
        format!("{}: {why}", self.name)
    }

    /// Whether it can be read again.
    pub(crate) fn is_lasting(&self) -> bool {
        self.source == Source::File
    }

    /// Fails if something else has the path now. To open a FIFO waits for its writer (fifo(7)), and
    /// a master that serves must not wait.
    pub(crate) fn check_is_still_file(&self) -> Result<(), String> {
        match std::fs::metadata(&self.path) {
            Ok(now) if !now.is_file() => Err(self.told("it is not a file any more")),
            _ => Ok(()),
        }
    }

    pub(crate) fn has_options(&self) -> bool {
        !self.values.is_empty()
    }

    /// What a new master would read now; `None` if it would fail or wait.
    pub(crate) fn now(&self) -> Option<String> {
        self.check_is_still_file().ok()?;
        read(&self.path).ok().map(|(content, _)| content)
    }

    /// For the workers of a reload: the values of this file, except those that only a new master
    /// can change, which stay as in `old`. Returns their names too.
    pub(crate) fn for_workers_after(&self, old: &Self) -> (Self, Vec<String>) {
        let mut merged = self.clone();
        let mut kept = Vec::new();
        for id in OF_MASTER {
            let key = id.replace('_', "-");
            let before = old.values.get(&key);
            if self.values.get(&key) != before {
                match before {
                    Some(value) => merged.values.insert(key.clone(), value.clone()),
                    None => merged.values.remove(&key),
                };
                kept.push(key);
            }
        }
        (merged, kept)
    }

    /// What workers read in place of the file.
    pub(crate) fn content(&self) -> String {
        self.values.to_string()
    }

    /// The options of the file that `given`, the command line and the environment, leaves open: as
    /// arguments, with the ids.
    pub(super) fn arguments(
        &self,
        command: &Command,
        given: &ArgMatches,
    ) -> Result<Vec<(String, OsString)>, String> {
        let is_given = |id: &str| {
            let source = given.value_source(id);
            matches!(
                source,
                Some(ValueSource::CommandLine | ValueSource::EnvVariable)
            )
        };
        // A variable may be PREFORK_ECHO=false, which is no source.
        let has_source = is_given("dir") || is_given("respond") || given.get_flag("echo");
        let mut arguments = Vec::new();
        for (key, value) in &self.values {
            let told = |why: String| format!("{key} in {}: {why}", self.path.display());
            if value.is_table() {
                return Err(told(
                    "the file has no sections and no tables, only KEY = VALUE".into(),
                ));
            }
            let option = option(command, key).map_err(told)?;
            let id = option.get_id().as_str();
            let texts = texts(option, value).map_err(told)?;
            if is_given(id) || (has_source && SOURCES.contains(&id)) {
                continue;
            }
            for text in texts {
                let argument = match option.get_long() {
                    None if text.starts_with('-') => format!("./{text}").into(),
                    None => text.into(),
                    Some(long) if is_flag(option) => format!("--{long}").into(),
                    Some(long) => format!("--{long}={text}").into(),
                };
                arguments.push((id.to_owned(), argument));
            }
        }
        Ok(arguments)
    }
}

/// The values in the file. A number that [`Value`] cannot hold becomes a text, so that the error
/// says what the option takes.
fn values(content: &str) -> Result<Table, toml::de::Error> {
    content.parse().or_else(|error: toml::de::Error| {
        // Such a number is the only fault that the parser finds after the syntax.
        let number = error.span().filter(|_| DeTable::parse(content).is_ok());
        let Some((start, end)) = number.map(|it| (it.start, it.end)) else {
            return Err(error);
        };
        let (before, after) = (&content[..start], &content[end..]);
        let number = content[start..end].replace('_', "");
        values(&format!("{before}\"{number}\"{after}")).map_err(|_| error)
    })
}

fn read(path: &Path) -> Result<(String, Source), String> {
    let mut content = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let source = match file.metadata() {
        Ok(metadata) if metadata.is_file() => Source::File,
        _ => Source::Pipe,
    };
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut content);
    read.map_err(|error| error.to_string())?;
    if content.len() as u64 > BYTES_MAX {
        return Err(format!("it is longer than {} KiB", BYTES_MAX >> 10));
    }
    match String::from_utf8(content) {
        Ok(content) => Ok((content, source)),
        Err(error) => {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
            Err(format!("line {line} is not UTF-8: save the file as UTF-8"))
        }
    }
}

/// The option with this key.
fn option<'a>(command: &'a Command, key: &str) -> Result<&'a Arg, String> {
    match command
        .get_arguments()
        .find(|option| self::key(option) == key)
    {
        Some(option) if NOT_IN_FILE.contains(&option.get_id().as_str()) => {
            Err("it is for the command line only".into())
        }
        Some(option) => Ok(option),
        None => Err(match variables::similar_option(command, key) {
            Some(similar) => format!("no such option: did you mean {similar}?"),
            None => "no such option".into(),
        }),
    }
}

/// The value as it would be on the command line. An option that may be repeated takes a list too.
fn texts(option: &Arg, value: &Value) -> Result<Vec<String>, String> {
    let is_flag = is_flag(option);
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        // TOML has read 0o660 as 432, and nothing tells it from 432 itself.
        Value::Integer(_) if option.get_id() == "unix_mode" => {
            Err("a mode is a text, such as \"660\"".into())
        }
        Value::Integer(number) => Ok(number.to_string()),
        other => Err(wrong_type(option, other)),
    };
    match value {
        Value::Boolean(true) if is_flag => Ok(vec![String::new()]),
        Value::Boolean(false) if is_flag => Ok(Vec::new()),
        _ if is_flag => Err("it is true or false".into()),
        // It would mean the default: admin = [] a socket, listen = [] port 8080.
        Value::Array(values) if values.is_empty() => {
            Err("the list is empty: give a value, or leave the key out".into())
        }
        Value::Array(values) if is_repeatable(option) => values.iter().map(text).collect(),
        value => Ok(vec![text(value)?]),
    }
}

/// Why a value of this type cannot be the option's, as in `sandbox = true`.
fn wrong_type(option: &Arg, value: &Value) -> String {
    let names = option.get_possible_values();
    let texts: Vec<_> = (names.iter().map(|name| format!("\"{}\"", name.get_name()))).collect();
    match texts.is_empty() {
        true => format!("{value} is no text and no whole number"),
        false => format!("{value} is not one of {}", texts.join(", ")),
    }
}

/// The name of the option in the file.
pub(super) fn key(option: &Arg) -> &str {
    option.get_long().unwrap_or("dir")
}

pub(super) fn is_flag(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::SetTrue)
}

pub(super) fn is_repeatable(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Append)
}

#[cfg(test)]
mod tests;
