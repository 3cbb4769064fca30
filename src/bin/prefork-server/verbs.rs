//! The verbs: commands to a server that runs, by its admin address.

mod find;
mod generate;
mod summary;
mod watch;

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use prefork_server::control::{Command, Control, ControlError, Progress};
use prefork_server::{Address, MAX_WORKERS, Slot, Stop};
use serde_json::Value;

use self::summary::{plain, summary};
use crate::cli::value;
use crate::console;
use crate::one_line::chain;

const CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused or abandoned (the reason is printed), 4 not
done in time (it goes on), 5 no server found, or it does not respond, 6 not allowed to connect.";

/// Tell a server that runs what to do, or ask what it does.
#[derive(Clone, Debug, Parser)]
#[command(name = "prefork-server", version)]
#[command(max_term_width = 100, disable_help_subcommand = true)]
struct Verbs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Debug, Subcommand)]
enum Verb {
    /// Show the state of the server
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Show it again after each DURATION, with the requests per second
        #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true)]
        #[arg(default_missing_value = "1s", conflicts_with = "json")]
        #[arg(value_parser = value::positive_duration)]
        watch: Option<Duration>,
        #[command(flatten)]
        server: Server,
    },
    /// Replace every worker, slot by slot
    Reload(Operation),
    /// Become the binary that is now on disk
    Upgrade {
        /// Only start a worker of the new binary, and end it when it serves
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        operation: Operation,
    },
    /// Change the number of slots
    Scale {
        /// The new number: N, or +N or -N for so many more or fewer
        #[arg(value_name = "N", allow_hyphen_values = true)]
        workers: Scale,
        #[command(flatten)]
        operation: Operation,
    },
    /// Finish the open requests and end the server
    Stop {
        /// Cut the open requests
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        operation: Operation,
    },
    /// Replace the worker of one slot
    Recycle {
        /// The slot, from 0
        #[arg(allow_negative_numbers = true)]
        slot: u16,
        #[command(flatten)]
        operation: Operation,
    },
    /// Handle the logs of the server
    Logs {
        #[command(subcommand)]
        verb: LogVerb,
    },
    /// Show the notices: those that are kept, then each new one
    Events {
        /// As JSON, one object on each line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: Server,
    },
    /// Write completions for a shell, or pages for man(1)
    Generate {
        #[command(subcommand)]
        what: Generate,
    },
}

/// What is made from the definition of the command line.
#[derive(Clone, Debug, Subcommand)]
enum Generate {
    /// Completions for a shell, to standard output
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Pages for man(1), one for the server and one for each verb
    Man {
        /// The directory that they are written to
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

#[derive(Clone, Debug, Subcommand)]
enum LogVerb {
    /// Open the log files anew, in every process
    Reopen(Operation),
}

/// Which server.
#[derive(Clone, Debug, Args)]
struct Server {
    /// Admin address of the server [default: PREFORK_ADMIN, or the only server of this user]
    #[arg(long, value_name = "ADDR", value_parser = find::address)]
    admin: Option<Address>,

    /// File with the process id of the server
    #[arg(long, value_name = "PATH", conflicts_with = "admin")]
    pid_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
struct Operation {
    #[command(flatten)]
    server: Server,

    /// Wait until it is done, at most for DURATION, or for a day
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "24h", value_parser = value::duration)]
    wait: Option<Duration>,
}

/// Why a verb is not done.
#[derive(Debug)]
enum Failure {
    /// The server has begun it and given it up.
    Abandoned(String),
    /// The server does not begin it.
    Refused(String),
    NotInTime(Duration),
    NoServer(String),
    Control(ControlError),
    Output(io::Error),
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Output(_) => 1,
            Self::Abandoned(_) | Self::Refused(_) | Self::Control(ControlError::Refused(_)) => 3,
            Self::NotInTime(_) => 4,
            Self::NoServer(_) | Self::Control(ControlError::Unreachable(..)) => 5,
            Self::Control(ControlError::NotAllowed(_)) => 6,
            Self::Control(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abandoned(why) => write!(f, "abandoned: {why}"),
            Self::NoServer(why) => f.write_str(why),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::NotInTime(wait) => write!(f, "not done within {wait:?}; it goes on"),
            Self::Control(error) => error.fmt(f),
            Self::Output(error) => write!(f, "cannot write: {error}"),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Control(error) => error.source(),
            _ => None,
        }
    }
}

/// A number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    To(NonZeroU16),
    By(i32),
}

impl std::str::FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| format!("a number from 1 to {MAX_WORKERS}, or one such as +1 or -1");
        match text.starts_with(['+', '-']) {
            true => text.parse().map(Self::By).map_err(wrong),
            false => text.parse().map(Self::To).map_err(wrong),
        }
    }
}

/// The names of the verbs. A directory with such a name is served as `./NAME`.
pub(crate) fn is_verb(argument: &str) -> bool {
    Verbs::command().find_subcommand(argument).is_some()
}

/// The verb that a misspelt name is close to.
pub(crate) fn similar_verb(name: &str) -> Option<String> {
    let error = Verbs::command().try_get_matches_from(["", name]).err()?;
    match error.get(ContextKind::SuggestedSubcommand) {
        // The most similar name comes last.
        Some(ContextValue::Strings(similar)) => similar.last().cloned(),
        _ => None,
    }
}

/// The command line of the verbs. The help of each one has the exit codes.
fn definition() -> clap::Command {
    fn with_codes(command: clap::Command) -> clap::Command {
        command.mut_subcommands(with_codes).after_help(CODES)
    }
    with_codes(Verbs::command())
}

/// Runs the verb of this process's command line.
pub(crate) fn run() -> ExitCode {
    let matches = definition().try_get_matches();
    let Verbs { verb } = match matches.and_then(|matches| Verbs::from_arg_matches(&matches)) {
        Ok(verbs) => verbs,
        Err(error) => return console::print_of_clap(&console::escaped(error)),
    };
    let Err(failure) = carry_out(verb) else {
        return ExitCode::SUCCESS;
    };
    // A reader that has closed standard output wants no more.
    if !matches!(&failure, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
        let why = chain(&failure);
        let _ = writeln!(io::stderr(), "prefork-server: {why}");
    }
    ExitCode::from(failure.code())
}

fn carry_out(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Status {
            watch: Some(pause),
            server,
            ..
        } => watch::watch(&server, pause),
        Verb::Status {
            json: true, server, ..
        } => print(&server.find()?.get("/status")?),
        Verb::Status { server, .. } => print(&summary(&server.status()?)),
        Verb::Events { json, server } => server.find()?.follow(|event| match json {
            true => print(&format!("{event}\n")),
            false => print(&plain(event)),
        }),
        Verb::Reload(operation) => operation.give(Command::Reload),
        Verb::Upgrade { dry_run, operation } => operation.give(match dry_run {
            true => Command::TryUpgrade,
            false => Command::Upgrade,
        }),
        Verb::Stop { now, operation } => operation.give(Command::Stop(match now {
            true => Stop::Now,
            false => Stop::Drain,
        })),
        Verb::Recycle { slot, operation } => operation.give(Command::Recycle(Slot(slot))),
        Verb::Logs {
            verb: LogVerb::Reopen(operation),
        } => operation.give(Command::ReopenLogs),
        Verb::Generate {
            what: Generate::Completions { shell },
        } => print(&generate::completions(shell)),
        Verb::Generate {
            what: Generate::Man { directory },
        } => generate::man(&directory).map_err(Failure::Output),
        Verb::Scale { workers, operation } => {
            let workers = match workers {
                Scale::To(workers) => workers.get().into(),
                Scale::By(more) => {
                    let now = operation.server.status()?["workers"].as_i64();
                    now.unwrap_or_default() + i64::from(more)
                }
            };
            let workers = u16::try_from(workers).ok().and_then(NonZeroU16::new);
            let why = || Failure::Refused(format!("a server has 1 to {MAX_WORKERS} slots"));
            operation.give(Command::Resize(workers.ok_or_else(why)?))
        }
    }
}

impl Server {
    fn find(&self) -> Result<Control, Failure> {
        match (&self.admin, &self.pid_file) {
            (Some(address), _) => Ok(Control::at(address.clone())),
            (None, Some(file)) => find::by_pid_file(file),
            (None, None) => match find::by_environment()? {
                Some(address) => Ok(Control::at(address)),
                None => find::only_one(),
            },
        }
    }

    fn status(&self) -> Result<Value, Failure> {
        let text = self.find()?.get("/status")?;
        serde_json::from_str(&text).map_err(|_| ControlError::Unexpected(text).into())
    }
}

impl Operation {
    /// Gives the command, and waits for it if that was asked for.
    fn give(&self, command: Command) -> Result<(), Failure> {
        let server = self.server.find()?;
        let begun = server.begin(command)?;
        if let Some(note) = &begun.note {
            print(&format!("{note}\n"))?;
        }
        let progress = match self.wait {
            Some(wait) => server.wait(&begun, wait)?,
            None => begun.progress,
        };
        match (progress, self.wait) {
            (Progress::Done, _) => print("done\n"),
            (Progress::Failed(why), _) => Err(Failure::Abandoned(why)),
            (Progress::Running, Some(wait)) => Err(Failure::NotInTime(wait)),
            (Progress::Running, None) => print("asked for; --wait waits until it is done\n"),
        }
    }
}

/// Fails if the reader of standard output has left.
fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(Failure::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_holds_together_and_the_guide_has_each_verb() {
        let command = definition();
        command.clone().debug_assert();
        let guide = include_str!("../../guide/verbs.md");
        for verb in command.get_subcommands() {
            let row = format!("| `{}", verb.get_name());
            assert!(guide.contains(&row), "{row}");
            let help = verb.clone().render_help().to_string();
            assert!(help.contains("6 not allowed to connect"), "{help}");
        }
    }

    #[test]
    fn a_number_of_slots_that_cannot_be_is_refused_with_the_limits() {
        assert_eq!("-1".parse(), Ok(Scale::By(-1)));
        for text in ["0", "65536", "many", "", "+99999999999"] {
            let why = text.parse::<Scale>().expect_err(text);
            assert!(why.contains("from 1 to 1024"), "{why}");
        }
    }

    #[test]
    fn a_command_is_displayed_as_the_verb_that_gives_it() {
        for (command, verb) in [
            (Command::Reload, "reload"),
            (Command::Stop(Stop::Drain), "stop"),
            (Command::Stop(Stop::Now), "stop --now"),
            (Command::Resize(NonZeroU16::MIN), "scale 1"),
            (Command::ReopenLogs, "logs reopen"),
            (Command::Upgrade, "upgrade"),
            (Command::TryUpgrade, "upgrade --dry-run"),
            (Command::Recycle(Slot(2)), "recycle 2"),
        ] {
            assert_eq!(command.to_string(), verb);
            let words = ["prefork-server"].into_iter().chain(verb.split(' '));
            definition().try_get_matches_from(words).expect(verb);
        }
    }

    #[test]
    fn a_slot_below_zero_is_a_bad_value_and_no_unknown_option() {
        let parsed = definition().try_get_matches_from(["", "recycle", "-1"]);
        let why = parsed.expect_err("there is none").to_string();
        assert!(why.contains("invalid value '-1' for '<SLOT>'"), "{why}");
    }

    #[test]
    fn a_verb_is_known_by_its_name_alone() {
        assert!(is_verb("reload") && is_verb("status"));
        for other in ["./reload", "help", "public", "--listen", ""] {
            assert!(!is_verb(other), "{other}");
        }
    }

    #[test]
    fn a_misspelt_verb_is_taken_for_the_most_similar_one() {
        for (misspelt, verb) in [
            ("relod", Some("reload")),
            ("stops", Some("stop")),
            ("recyle", Some("recycle")),
            ("statsu", Some("status")),
            ("public", None),
        ] {
            assert_eq!(similar_verb(misspelt).as_deref(), verb, "{misspelt}");
        }
    }
}
