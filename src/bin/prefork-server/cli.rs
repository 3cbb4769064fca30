//! The command line, parsed once: whatever comes out of here is meant and makes sense.

use std::{any::TypeId, ffi::OsString, num::NonZeroU16, path::PathBuf, time::Duration};

use clap::{
    Arg, Args, Command, CommandFactory, FromArgMatches, Parser, ValueEnum,
    builder::NonEmptyStringValueParser, error::ErrorKind,
};
use prefork_server::{Balance, CrashLimit, DeferAccept, Listeners};
use tracing::level_filters::LevelFilter;

pub(crate) mod admin;
pub(crate) mod config;
mod files;
mod limits;
mod origin;
mod print;
mod serving;
#[cfg(feature = "tls")]
mod tls;
pub(crate) mod value;
mod variables;

pub(crate) use self::admin::{Admin, is_running, runtime_directory, sockets};
pub(crate) use self::config::ConfigFile;
pub(crate) use self::files::FileOptions;
use self::origin::Known;
use self::serving::default_address;
pub(crate) use self::serving::{Serve, Serving};
use self::value::HangTimeout;
pub(crate) use self::value::{LogTarget, SandboxMode, Workers};
pub(crate) use self::variables::Unknown as UnknownVariable;
use crate::console::escaped;
use crate::one_line::shown;

/// What `--log-level` takes.
const LOG_LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

const EXAMPLES: &str = "\
Examples:
  prefork-server ./public                                  serve the files under ./public
  prefork-server --listen 0.0.0.0:80 --workers 4 /srv/www  on every interface, with four workers
  prefork-server --listen unix:/run/app.sock ./public      behind another server
  prefork-server --respond hello --delay 20ms              for a load test

Verbs for a server that runs: status, events, reload, upgrade, scale, recycle, logs reopen, stop;
`prefork-server reload --help` says more. `prefork-server generate --help`: completions for shells,
and pages for man(1). A directory with the name of a verb is served as ./NAME.

Environment: each option has a variable too: PREFORK_WORKERS=4, PREFORK_ECHO=true. Commas separate
several values of a variable; PREFORK_HEADER has one rule per line. An empty variable counts as not
set. The command line wins over the environment, and both win over the file of --config.
Listeners that systemd passes (LISTEN_FDS) replace every --listen.

Signals to the master: TERM, QUIT and INT drain, a second one stops at once, but during
--pre-stop-delay it begins the drain; HUP replaces every worker; USR1 reopens the logs; USR2
upgrades to the program that is now on disk; TTIN adds a slot, TTOU removes one.

Exit codes: 0 drained, 1 runtime error, 2 wrong usage, 3 no worker became ready, 4 crash limit,
5 cannot listen on an address.";

/// A prefork HTTP server: one supervised process per core, each with its own listener.
#[derive(Clone, Debug, Parser)]
#[command(name = "prefork-server", version, after_help = EXAMPLES)]
#[command(allow_negative_numbers = true, max_term_width = 100)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) serving: Serving,
    #[command(flatten)]
    pub(crate) files: FileOptions,
    #[command(flatten)]
    pub(crate) processes: Processes,
    #[command(flatten)]
    pub(crate) limits: limits::Limits,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    pub(crate) tls: tls::Secure,
    #[command(flatten)]
    pub(crate) logs: Logs,
    #[command(flatten)]
    pub(crate) config: config::Config,
    /// The file that `--config` names.
    #[arg(skip)]
    pub(crate) file: Option<ConfigFile>,
    /// What `--print-config` prints.
    #[arg(skip)]
    pub(crate) printed: Option<String>,
}

/// How many processes, and when they are given up.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Processes")]
pub(crate) struct Processes {
    /// Number of workers, or auto for the number of CPUs that this process may use
    #[arg(long, value_name = "N", env = "PREFORK_WORKERS")]
    #[arg(default_value = "auto", value_parser = value::workers)]
    pub(crate) workers: Workers,

    /// per-slot: each slot has its own listener. shared: all workers accept from one listener
    #[arg(long, value_name = "MODE", env = "PREFORK_LISTENERS")]
    #[arg(default_value = "per-slot")]
    #[arg(value_parser = value::named::<Listeners>(Listeners::NAMES))]
    pub(crate) listeners: Listeners,

    /// even: workers give new connections to workers with fewer, and move busy ones. off: a
    /// connection stays with the worker that accepted it
    #[arg(long, value_name = "MODE", env = "PREFORK_BALANCE")]
    #[arg(default_value = "even")]
    #[arg(value_parser = value::named::<Balance>(Balance::NAMES))]
    pub(crate) balance: Balance,

    /// When a TCP connection comes to a worker. on: with its first byte (TCP_DEFER_ACCEPT). off: as
    /// soon as it is open. auto: with its first byte while the worker has a rush of new
    /// connections; off for a listener that all workers share
    #[arg(long, value_name = "MODE", env = "PREFORK_DEFER_ACCEPT")]
    #[arg(default_value = "auto")]
    #[arg(value_parser = value::named::<DeferAccept>(DeferAccept::NAMES))]
    pub(crate) defer_accept: DeferAccept,

    /// Time that a draining worker has to finish what is open; then it closes the connections that
    /// are left
    #[arg(long, value_name = "DURATION", env = "PREFORK_DRAIN_TIMEOUT")]
    #[arg(default_value = "30s", value_parser = value::positive_duration)]
    pub(crate) drain_timeout: Duration,

    /// Time for which the server still serves after it was asked to drain (TERM, QUIT), while
    /// /readyz is 503: load balancers send it nothing new then
    #[arg(long, value_name = "DURATION", env = "PREFORK_PRE_STOP_DELAY")]
    #[arg(default_value = "0s", value_parser = value::duration)]
    pub(crate) pre_stop_delay: Duration,

    /// Number of workers that a reload replaces at the same time
    #[arg(long, value_name = "N", env = "PREFORK_RELOAD_BATCH")]
    #[arg(default_value = "1", value_parser = value::count::<NonZeroU16>)]
    pub(crate) reload_batch: NonZeroU16,

    /// Replace a worker whose event loop has not run for this long while work waits; at least 1s,
    /// or 0 for no limit
    #[arg(long, value_name = "DURATION", env = "PREFORK_HANG_TIMEOUT")]
    #[arg(default_value = "30s", value_parser = value::hang_timeout)]
    pub(crate) hang_timeout: HangTimeout,

    /// End the server after more than N worker crashes within DURATION
    #[arg(long, value_name = "N/DURATION", env = "PREFORK_CRASH_LIMIT")]
    #[arg(default_value = "10/60s", value_parser = value::crash_limit)]
    pub(crate) crash_limit: CrashLimit,

    /// User (name or id) that workers run as. Required if the server starts as root and other
    /// machines can reach it
    #[arg(long, value_name = "USER", env = "PREFORK_USER")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) user: Option<String>,

    /// Group (name or id) that workers run as [default: the user's own group]
    #[arg(long, value_name = "GROUP", env = "PREFORK_GROUP")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: Option<String>,

    /// Mode of the socket files of Unix addresses, in octal. Their group is the workers' group. 660
    /// lets that group connect, 666 every user of this machine
    #[arg(long, value_name = "MODE", env = "PREFORK_UNIX_MODE")]
    #[arg(default_value = "666", value_parser = value::mode)]
    pub(crate) unix_mode: u32,

    /// Write the master's process id to this file. Another server with this file does not start
    #[arg(long, value_name = "PATH", env = "PREFORK_PID_FILE")]
    pub(crate) pid_file: Option<PathBuf>,

    /// Address at which operators see what the server does: unix:/PATH, HOST:PORT, off, or auto for
    /// a socket in the runtime directory; may be given several times. It has a page for browsers,
    /// /metrics, /status and /readyz. Verbs need a socket: HOST:PORT adds that of auto, unless
    /// there is a unix:/PATH
    #[arg(long, value_name = "ADDR", env = "PREFORK_ADMIN")]
    #[arg(default_value = "auto", value_delimiter = ',', value_parser = admin::admin)]
    pub(crate) admin: Vec<Admin>,

    /// on: workers can read DIR and write the access log, and can open, start and reach nothing
    /// else, as far as the kernel can refuse it (Landlock). off: they can do what their user may
    #[arg(long, value_name = "MODE", env = "PREFORK_SANDBOX")]
    #[arg(default_value = "on")]
    pub(crate) sandbox: SandboxMode,
}

/// Options of the log and of notices.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logs")]
pub(crate) struct Logs {
    /// Write one line for each request to this file; - is standard output. Each response then has
    /// its id in X-Request-Id
    #[arg(long, value_name = "PATH", env = "PREFORK_ACCESS_LOG", value_parser = value::log_target)]
    pub(crate) access_log: Option<LogTarget>,

    /// Format of the lines in the access log and in the log on standard error. json: one object per
    /// line
    #[arg(long, value_name = "FORMAT", env = "PREFORK_LOG_FORMAT")]
    #[arg(default_value = "text")]
    pub(crate) log_format: LogFormat,

    /// Lowest level that the log on standard error has
    #[arg(long, value_name = "LEVEL", env = "PREFORK_LOG_LEVEL")]
    #[arg(default_value = "info")]
    #[arg(value_parser = value::named::<LevelFilter>(LOG_LEVELS))]
    pub(crate) log_level: LevelFilter,

    /// Warn of each request whose handler takes this long or longer to respond, with its method and
    /// its target [default: no warning]
    #[arg(long, value_name = "DURATION", env = "PREFORK_SLOW_REQUEST")]
    #[arg(value_parser = value::positive_duration)]
    pub(crate) slow_request: Option<Duration>,

    /// Write each notice as one line of JSON to this open file descriptor
    #[arg(long, value_name = "FD", env = "PREFORK_ANNOUNCE_FD", value_parser = value::open_fd)]
    pub(crate) announce_fd: Option<i32>,
}

/// How the URLs of the server begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    #[cfg(feature = "tls")]
    Https,
}

/// How lines of logs are written. The variants have no docs: clap would print them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Options {
    /// The options of this process. An error names the flag, the variable, or the key in the file.
    pub(crate) fn from_process() -> Result<Self, clap::Error> {
        let port = std::env::var_os("PORT");
        Self::parse_from_args(std::env::args_os(), port).map_err(escaped)
    }

    fn parse_from_args(
        args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
        port: Option<OsString>,
    ) -> Result<Self, clap::Error> {
        // The variable of each flag is told once, below the examples; at each it would be noise.
        let command = with_short_help(Self::command()).mut_args(|arg| arg.hide_env(true));
        let command = variables::without_empty(command.mut_args(with_bad_values));
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        let given = variables::given(&command, &args);
        let command = variables::without_other_sources(command, given.as_ref());
        let refuse = |reason: String| {
            let reason = shown(&reason);
            command.clone().error(ErrorKind::ValueValidation, reason)
        };
        let file = given.as_ref().map(ConfigFile::of_this_process);
        let file = file.transpose().map_err(refuse)?.flatten();
        let (mut of_file, mut all) = (Vec::new(), args[..args.len().min(1)].to_vec());
        if let (Some(file), Some(given)) = (&file, &given) {
            for (id, argument) in file.arguments(&command, given).map_err(refuse)? {
                of_file.push(id);
                all.push(argument);
            }
        }
        all.extend(args.iter().skip(1).cloned());
        let matches = variables::parse(&command, &all);
        let shown = file
            .as_ref()
            .map_or_else(String::new, |it| it.path.display().to_string());
        let matches = matches.map_err(|error| {
            let error = variables::name_key(error, &command, &of_file, &shown);
            variables::name_source(error, &command, &args)
        })?;
        let mut options = Self::from_arg_matches(&matches)?;
        let known = Known {
            command: &command,
            matches: &matches,
            of_file: &of_file,
            file: &shown,
        };
        serving::check_sources(&known).map_err(refuse)?;
        admin::check(&known, &options.processes.admin).map_err(refuse)?;
        if !matches!(options.serving.serve(), Serve::Files(_)) {
            files::check_without_files(&known).map_err(refuse)?;
        }
        #[cfg(feature = "tls")]
        {
            tls::Secure::check_needs(&known).map_err(refuse)?;
            let pairs = options.tls.check_pairs();
            pairs.map_err(|reason| refuse(reason.into()))?;
        }
        if options.serving.listen.is_empty() {
            let address = default_address(port).map_err(refuse)?;
            options.serving.listen.push(address);
        }
        if let Some(format) = options.config.print_config {
            let listen = options.serving.listen[0].to_string();
            options.printed = Some(print::page(&known, &listen, format).map_err(refuse)?);
        }
        options.file = file;
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

/// Whether there is a long option with this name.
pub(crate) fn is_option(name: &str) -> bool {
    let mut command = Options::command();
    // It adds --help and --version.
    command.build();
    let mut options = command.get_arguments();
    options.any(|option| option.get_long() == Some(name))
}

/// Makes what begins with `-` a value of the option before it, if that option can have no such
/// value: `--delay -5s` has a bad value, not an unknown option. A path or a text may begin with
/// `-`, so `--pid-file --echo` stays an option without its value.
fn with_bad_values(option: Arg) -> Arg {
    let of_any_text = [
        TypeId::of::<PathBuf>(),
        TypeId::of::<String>(),
        TypeId::of::<LogTarget>(),
    ];
    let values = option.get_value_parser().type_id();
    let is_of_any_text = of_any_text.iter().any(|text| values == *text);
    match option.get_action().takes_values() && !is_of_any_text {
        true => option.allow_hyphen_values(true),
        false => option,
    }
}

/// `-h` prints the first sentence about each option, and `--help` all of them.
fn with_short_help(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get_help().map(ToString::to_string) {
        Some(help) => {
            let first = help.split(". ").next().unwrap_or_default().to_owned();
            arg.long_help(help).help(first)
        }
        None => arg,
    });
    command
        .after_long_help(EXAMPLES)
        .after_help("--help says more, and names the verbs for a server that runs.")
}

#[cfg(all(test, feature = "http2", feature = "tls"))]
mod options_page;
#[cfg(test)]
mod tests;
