//! The command line, parsed once: whatever comes out of here is meant and makes sense.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU16,
    path::PathBuf,
    time::Duration,
};

use bytes::Bytes;
use clap::{
    Args, CommandFactory, FromArgMatches, Parser, ValueEnum,
    builder::{BoolishValueParser, NonEmptyStringValueParser},
    error::ErrorKind,
};
use prefork_server::{Address, CrashLimit};

mod limits;
#[cfg(feature = "tls")]
mod tls;
mod value;
mod variables;

pub(crate) use self::value::{HangTimeout, LogTarget, Workers};
pub(crate) use self::variables::Unknown as UnknownVariable;

const EXAMPLES: &str = "\
Examples:
  prefork-server ./public                                  serve the files under ./public
  prefork-server --listen 0.0.0.0:80 --workers 4 /srv/www  on every interface, with four workers
  prefork-server --listen unix:/run/app.sock ./public      behind another server
  prefork-server --respond hello --delay 20ms              something for a load test to hit

Each option but DIR can be set by the environment too: PREFORK_WORKERS=4, PREFORK_ECHO=true. An
empty variable is as one that is not set.
PREFORK_LISTEN takes several addresses with commas between. The command line wins; but what
systemd hands in (LISTEN_FDS) wins over every --listen.

Signals to the master: TERM, QUIT and the first INT drain, a second stops now; HUP replaces every
worker; USR1 opens the logs anew; USR2 upgrades to the program now on disk; TTIN and TTOU add and
remove a slot.
Exit codes: 0 drained, 1 runtime error, 2 usage, 3 no worker became ready, 4 crash limit, 5 cannot
bind.";

/// A prefork HTTP server: one supervised process per core, each with its own listener.
#[derive(Clone, Debug, Parser)]
#[command(name = "prefork-server", version, after_help = EXAMPLES)]
#[command(allow_negative_numbers = true, max_term_width = 100)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) serving: Serving,
    #[command(flatten)]
    pub(crate) processes: Processes,
    #[command(flatten)]
    pub(crate) limits: limits::Limits,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    pub(crate) tls: tls::Secure,
    #[command(flatten)]
    pub(crate) logs: Logs,
}

/// What is served, and where.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Serving")]
pub(crate) struct Serving {
    /// Serve the files under this directory [default: a page that says it works]
    #[arg(value_name = "DIR", help_heading = None)]
    dir: Option<PathBuf>,

    /// Answer every request 200 with TEXT
    #[arg(
        long,
        value_name = "TEXT",
        env = "PREFORK_RESPOND",
        allow_hyphen_values = true
    )]
    respond: Option<String>,

    /// Answer every request 200 with its own body
    #[arg(long, env = "PREFORK_ECHO", value_parser = BoolishValueParser::new())]
    echo: bool,

    /// Wait this long before each answer, without using the processor
    #[arg(
        long,
        value_name = "DURATION",
        env = "PREFORK_DELAY",
        default_value = "0s"
    )]
    #[arg(value_parser = value::duration)]
    pub(crate) delay: Duration,

    /// Where to listen, may be given again: HOST:PORT, [::]:PORT, unix:/PATH; PORT or :PORT is
    /// 0.0.0.0:PORT, all IPv4 addresses; port 0 takes a free one [default: 127.0.0.1:8080, or
    /// 0.0.0.0:$PORT if PORT is set]
    #[arg(
        long,
        value_name = "ADDR",
        env = "PREFORK_LISTEN",
        value_delimiter = ','
    )]
    #[arg(value_parser = value::address)]
    pub(crate) listen: Vec<Address>,

    /// Tell in each answer which worker gave it, by an x-prefork-worker header
    #[arg(long, env = "PREFORK_WORKER_HEADER", value_parser = BoolishValueParser::new())]
    pub(crate) worker_header: bool,
}

/// How many processes, and when they are given up.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Processes")]
pub(crate) struct Processes {
    /// How many workers: a number, or auto for the CPUs this process may use
    #[arg(
        long,
        value_name = "N",
        env = "PREFORK_WORKERS",
        default_value = "auto"
    )]
    #[arg(value_parser = value::workers)]
    pub(crate) workers: Workers,

    /// One listener for each slot, or a single one that all share
    #[arg(
        long,
        value_name = "MODE",
        env = "PREFORK_LISTENERS",
        default_value = "per-slot"
    )]
    pub(crate) listeners: Listeners,

    /// Whether connections move to workers that have less to do, so that all have as much
    #[arg(
        long,
        value_name = "MODE",
        env = "PREFORK_BALANCE",
        default_value = "even"
    )]
    pub(crate) balance: Balance,

    /// How long open requests may take to finish when a worker drains
    #[arg(
        long,
        value_name = "DURATION",
        env = "PREFORK_DRAIN_TIMEOUT",
        default_value = "30s"
    )]
    #[arg(value_parser = value::positive_duration)]
    pub(crate) drain_timeout: Duration,

    /// How many workers a reload replaces at a time
    #[arg(
        long,
        value_name = "N",
        env = "PREFORK_RELOAD_BATCH",
        default_value = "1"
    )]
    #[arg(value_parser = value::count::<NonZeroU16>)]
    pub(crate) reload_batch: NonZeroU16,

    /// How long a worker may stand still while work waits before it is replaced, at least 1s; 0 is
    /// no limit
    #[arg(
        long,
        value_name = "DURATION",
        env = "PREFORK_HANG_TIMEOUT",
        default_value = "30s"
    )]
    #[arg(value_parser = value::hang_timeout)]
    pub(crate) hang_timeout: HangTimeout,

    /// More than N crashes of workers within DURATION end the server
    #[arg(
        long,
        value_name = "N/DURATION",
        env = "PREFORK_CRASH_LIMIT",
        default_value = "10/60s"
    )]
    #[arg(value_parser = value::crash_limit)]
    pub(crate) crash_limit: CrashLimit,

    /// Whom the workers run as, by name or number; root has to say it, if it means root
    #[arg(long, value_name = "USER", env = "PREFORK_USER")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) user: Option<String>,

    /// The group the workers run as [default: the user's own]
    #[arg(long, value_name = "GROUP", env = "PREFORK_GROUP")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: Option<String>,

    /// Mode of the files of Unix addresses, in octal; their group is the workers'. 660 lets that
    /// group connect, 666 everyone on this machine
    #[arg(
        long,
        value_name = "MODE",
        env = "PREFORK_UNIX_MODE",
        default_value = "666"
    )]
    #[arg(value_parser = value::mode)]
    pub(crate) unix_mode: u32,

    /// Write the master's process id to this file
    #[arg(long, value_name = "PATH", env = "PREFORK_PID_FILE")]
    pub(crate) pid_file: Option<PathBuf>,
}

/// What is told, and to whom.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logs")]
pub(crate) struct Logs {
    /// Write a line for each request to this file, or to standard output if it is -
    #[arg(long, value_name = "PATH", env = "PREFORK_ACCESS_LOG", value_parser = value::log_target)]
    pub(crate) access_log: Option<LogTarget>,

    /// How the lines of the access log are written
    #[arg(
        long,
        value_name = "FORMAT",
        env = "PREFORK_LOG_FORMAT",
        default_value = "text"
    )]
    pub(crate) log_format: LogFormat,

    /// The least important thing that is still told, on standard error
    #[arg(
        long,
        value_name = "LEVEL",
        env = "PREFORK_LOG_LEVEL",
        default_value = "info"
    )]
    pub(crate) log_level: LogLevel,

    /// Write each notice as a line of JSON to this open file descriptor
    #[arg(long, value_name = "FD", env = "PREFORK_ANNOUNCE_FD", value_parser = value::open_fd)]
    pub(crate) announce_fd: Option<i32>,
}

/// The one thing that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Serve {
    /// Nothing was asked for.
    Welcome,
    /// `--respond TEXT`.
    Respond(Bytes),
    /// `--echo`.
    Echo,
    /// `DIR`.
    Files(PathBuf),
}

/// How the URLs of the server begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    #[cfg(feature = "tls")]
    Https,
}

// The variants below have no docs of their own: clap would print them, and double the help.

/// Who holds a listener: each slot its own (`SO_REUSEPORT`), so that the kernel spreads the
/// connections; or one for all workers, who then compete for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listeners {
    PerSlot,
    Shared,
}

/// Between requests, without the client noticing; or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Balance {
    Even,
    Off,
}

/// To clients that begin with it, or not at all.
#[cfg(feature = "http2")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Http2 {
    On,
    Off,
}

/// How the lines of the access log are written: for people, or one object per line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// The least important thing that is still told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Options {
    /// The options of this process. What cannot be understood ends it with exit code 2 and one
    /// line that names the flag; `--help` and `--version` end it with 0.
    pub(crate) fn from_process() -> Self {
        let port = std::env::var_os("PORT");
        Self::parse_from_args(std::env::args_os(), port).unwrap_or_else(|error| error.exit())
    }

    fn parse_from_args(
        args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
        port: Option<OsString>,
    ) -> Result<Self, clap::Error> {
        // The variable of each flag is told once, below the examples; at each it would be noise.
        let command = Self::command().mut_args(|arg| arg.hide_env(true));
        let mut command = variables::without_empty(command);
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        let matches = command.clone().try_get_matches_from(&args);
        let matches = matches.map_err(|error| variables::name_source(error, &command, &args))?;
        let mut options = Self::from_arg_matches(&matches)?;
        let refuse = |reason: String| command.clone().error(ErrorKind::ValueValidation, reason);
        if options.serving.sources() > 1 {
            let reason = "DIR, --respond and --echo exclude each other: give one of them";
            return Err(command.error(ErrorKind::ArgumentConflict, reason));
        }
        if options.serving.listen.is_empty() {
            let address = default_address(port).map_err(refuse)?;
            options.serving.listen.push(address);
        }
        Ok(options)
    }

    /// The variables of this process that look like an option's and are none.
    pub(crate) fn unknown_variables() -> Vec<UnknownVariable> {
        let names = std::env::vars_os().map(|(name, _)| name);
        variables::unknown(&Self::command(), names)
    }

    /// Whether HTTP is spoken in the open.
    pub(crate) fn scheme(&self) -> Scheme {
        #[cfg(feature = "tls")]
        if self.tls.tls().is_some() {
            return Scheme::Https;
        }
        Scheme::Http
    }
}

impl Serving {
    /// The one thing that is served.
    pub(crate) fn serve(&self) -> Serve {
        match (&self.dir, &self.respond) {
            (Some(dir), _) => Serve::Files(dir.clone()),
            (None, Some(text)) => Serve::Respond(text.clone().into()),
            (None, None) if self.echo => Serve::Echo,
            (None, None) => Serve::Welcome,
        }
    }

    fn sources(&self) -> usize {
        usize::from(self.dir.is_some())
            + usize::from(self.respond.is_some())
            + usize::from(self.echo)
    }
}

impl From<Balance> for prefork_server::Balance {
    fn from(balance: Balance) -> Self {
        match balance {
            Balance::Even => Self::Even,
            Balance::Off => Self::Off,
        }
    }
}

impl From<Listeners> for prefork_server::Listeners {
    fn from(listeners: Listeners) -> Self {
        match listeners {
            Listeners::PerSlot => Self::PerSlot,
            Listeners::Shared => Self::Shared,
        }
    }
}

#[cfg(feature = "http2")]
impl From<Http2> for prefork_server::Http2 {
    fn from(http2: Http2) -> Self {
        match http2 {
            Http2::On => Self::Enabled,
            Http2::Off => Self::Disabled,
        }
    }
}

impl From<LogLevel> for tracing::level_filters::LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// Who sets PORT is a platform that sends traffic from outside, so then every interface; else
/// nobody has asked to be reachable from elsewhere.
fn default_address(port: Option<OsString>) -> Result<Address, String> {
    let Some(port) = port else {
        return Ok(Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))));
    };
    let number = port
        .to_str()
        .and_then(|port| port.parse::<u16>().ok())
        .ok_or_else(|| {
            format!(
                "the environment's PORT is {port:?}, not a port such as 8080; --listen overrides it"
            )
        })?;
    Ok(Address::Tcp(SocketAddr::from((
        Ipv4Addr::UNSPECIFIED,
        number,
    ))))
}

#[cfg(test)]
mod tests;
