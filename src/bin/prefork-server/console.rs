//! What a person sees on standard error: the lines at the start, the log, and why the server ended.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::panic;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use nix::errno::Errno;
use prefork_server::{
    Address, BoxError, Generation, Hooks, Notice, Prefork, Role, Slot, WorkerCommand, WorkerInfo,
    role, usable_cpus,
};

use crate::app::{Setup, SharedLog};
use crate::cli::config::{CONTENT, ConfigFile, EMPTIED, HAD_OPTIONS, TRIED, of_next_image};
use crate::cli::{Logs, Options, Scheme, Serve, UnknownVariable, Workers};
use crate::contents::{Contents, Upgrade};
use crate::log::line::Lines;
use crate::log::{LINES, Stderr, open};
use crate::one_line::{chain, shown};
use crate::{ACTIVATED, is_activated};

/// Starts the log. It goes to standard error, because standard output may be the access log or the
/// announce stream.
pub(crate) fn log(logs: &Logs) {
    let lines = LINES.get_or_init(|| Lines::of_this_process(logs.log_format));
    tracing_subscriber::fmt()
        .with_max_level(logs.log_level)
        .with_writer(|| Stderr)
        .with_ansi(io::stderr().is_terminal() && allows_color(env::var_os("NO_COLOR").as_deref()))
        // They would go through `eprintln!`, which may block or panic. This log does neither.
        .log_internal_errors(false)
        .event_format(lines.clone())
        .init();
    if role() == Role::Worker {
        open();
    }
    // The hook of std writes text of several lines to standard error, and waits for its reader.
    panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let message = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message = message.unwrap_or("(not a string)");
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then_some(backtrace);
        let backtrace = backtrace.map(|it| it.to_string());
        tracing::error!(place, backtrace, "panic: {message}");
    }));
}

/// Any value but the empty one turns color off (no-color.org).
fn allows_color(no_color: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty)
}

/// Warns of misspelled variables, which have no effect.
pub(crate) fn warn_of_variables(unknown: &[UnknownVariable]) {
    for UnknownVariable { name, similar } in unknown {
        match similar {
            Some(similar) => tracing::warn!("unknown variable {name}: did you mean {similar}?"),
            None => tracing::warn!("unknown variable {name}"),
        }
    }
}

/// Writes on one line why the server cannot run, or why it ended.
pub(crate) fn refuse(error: &(dyn Error + 'static), code: u8) -> ExitCode {
    let line = format!("prefork-server: {}{}", chain(error), advice(error));
    Stderr.tell_end(&line);
    ExitCode::from(code)
}

/// Reports to the master why this worker cannot understand its options.
pub(crate) fn refuse_in_worker(error: &clap::Error) -> ExitCode {
    let why = reason(error);
    let app = async move |_worker, _incoming| Err(why.into());
    // A worker never returns.
    match Prefork::bind("127.0.0.1:0").run(app) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error, error.exit_code()),
    }
}

/// What is wrong, on one line. An empty line follows it in the error, and then advice.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.trim_start_matches("error: ");
    let what = text.lines().take_while(|line| !line.is_empty());
    what.map(str::trim).collect::<Vec<_>>().join(" ")
}

/// An error of clap with the values of the user as they can be shown.
pub(crate) fn escaped(mut error: clap::Error) -> clap::Error {
    let changed = error.context().filter_map(|(kind, value)| match value {
        ContextValue::String(text) => Some((kind, shown(text))).filter(|(_, it)| it != text),
        _ => None,
    });
    for (kind, text) in changed.collect::<Vec<_>>() {
        error.insert(kind, ContextValue::String(text));
        // It has the value too, with the colors of the terminal.
        error.remove(ContextKind::Suggested);
    }
    error
}

/// Prints to standard output.
pub(crate) fn print(text: &str) -> ExitCode {
    let written = io::stdout().write_all(text.as_bytes());
    after_print(written.and_then(|()| io::stdout().flush()))
}

/// Prints help or the version to standard output, or to standard error what is wrong with the
/// command line.
pub(crate) fn print_of_clap(told: &clap::Error) -> ExitCode {
    let written = told.print();
    match told.use_stderr() {
        true => ExitCode::from(2),
        false => after_print(written.and_then(|()| io::stdout().flush())),
    }
}

/// A reader that has closed standard output wants no more.
fn after_print(written: io::Result<()>) -> ExitCode {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let why: BoxError = format!("cannot write: {error}").into();
            refuse(&*why, 1)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// What a start would serve, and by how many workers.
pub(crate) fn summary(options: &Options) -> String {
    format!(
        "{}\n  serves   {}\n  workers  {} ({})\n",
        Urls::new(options).list(&[&options.serving.listen, redirects(options)].concat()),
        what(options),
        options.processes.workers.count(),
        why_workers(options),
    )
}

fn advice(error: &(dyn Error + 'static)) -> &'static str {
    let Some(prefork_server::Error::Bind { source, .. }) = error.downcast_ref() else {
        return "";
    };
    advice_to_bind(source)
}

fn advice_to_bind(source: &io::Error) -> &'static str {
    if source.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32) {
        return "; this system has no addresses of that kind, or a setting refuses them, such as \
                systemd's RestrictAddressFamilies=";
    }
    match source.kind() {
        ErrorKind::AddrInUse => "; stop the program that has it, or choose another address",
        ErrorKind::PermissionDenied => "; choose a port from 1024 up, or a path you may write to",
        // A file that is no socket or cannot be changed, or too few descriptors: the error says
        // what to do.
        ErrorKind::AlreadyExists | ErrorKind::QuotaExceeded | ErrorKind::Other => "",
        _ => "; choose another address",
    }
}

/// Writes when the server serves, and reopens the access log.
#[derive(Debug)]
pub(crate) struct Console {
    what: String,
    why_workers: String,
    urls: Urls,
    log: SharedLog,
    contents: Contents,
    /// The file with options as it was when the upgrade began.
    tried: Option<String>,
}

fn what(options: &Options) -> String {
    match options.serving.serve() {
        Serve::Welcome => "a welcome page; give a directory to serve its files".to_owned(),
        Serve::Respond(_) => "a fixed text".to_owned(),
        Serve::Echo => "each request's own body".to_owned(),
        Serve::Files(directory) => {
            let directory = directory.display().to_string();
            format!("the files under {}", shown(&directory))
        }
    }
}

fn why_workers(options: &Options) -> String {
    let cpus = usable_cpus();
    match options.processes.workers {
        Workers::Auto => cpus.to_string(),
        Workers::Exactly(count) if usize::from(count.get()) > cpus.usable => {
            format!("as given, but this process may use {} CPUs", cpus.usable)
        }
        Workers::Exactly(_) => "as given".to_owned(),
    }
}

impl Console {
    pub(crate) fn new(options: &Options, log: SharedLog) -> Self {
        Self {
            what: what(options),
            why_workers: why_workers(options),
            urls: Urls::new(options),
            log,
            contents: Contents::new(options.file.clone()),
            tried: None,
        }
    }
}

/// After how many milliseconds the allocator returns freed memory to the system.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";

impl Hooks for Console {
    /// Makes the allocator return freed memory at once. By default it waits until it is called
    /// again, which an idle worker does not do: the buffers of idle connections would stay.
    fn worker_command(
        &mut self,
        _slot: Slot,
        generation: Generation,
        command: &mut WorkerCommand,
    ) -> Result<(), BoxError> {
        if env::var_os(PURGE_DELAY).is_none() {
            command.env(PURGE_DELAY, "0");
        }
        command.env_remove(TRIED);
        if is_activated() {
            command.env(ACTIVATED, "1");
        }
        let had_options = self.contents.first().is_some_and(ConfigFile::has_options);
        match self.contents.give(generation) {
            Some(file) => command.env(CONTENT, file.content()),
            None if had_options => command.env(HAD_OPTIONS, "1"),
            None => command,
        };
        Ok(())
    }

    /// Reads the file with options again. Workers get what can change; the log names the rest.
    fn check_reload(&mut self) -> Result<(), BoxError> {
        let Some(old) = self.contents.first().filter(|old| old.is_lasting()) else {
            return Ok(());
        };
        old.check_is_still_file()?;
        let options = Options::from_process().map_err(|error| reason(&error))?;
        Setup::new(&options).check()?;
        let Some(new) = options.file else {
            return Ok(());
        };
        if old.has_options() && !new.has_options() {
            return Err(old.told(EMPTIED).into());
        }
        let (new, kept) = new.for_workers_after(old);
        for option in kept {
            let when = when_changed(&option);
            tracing::warn!(
                "the option {option} in {} changes in {when}",
                new.path.display()
            );
        }
        self.contents.prepare(new);
        Ok(())
    }

    /// The canary has read the file with options, and this process reads it again as the new
    /// binary, when there is no way back. So that one gets what was tried.
    fn check_upgrade(&mut self) -> Result<Vec<(OsString, OsString)>, BoxError> {
        let file = self.contents.first();
        let now = file.and_then(ConfigFile::now);
        match file.filter(|_| now != self.tried) {
            Some(file) => Err(file.told("it was changed while the upgrade ran").into()),
            None => Ok(of_next_image(now.as_deref())),
        }
    }

    fn notice(&mut self, notice: &Notice) {
        let contents = &mut self.contents;
        match notice {
            Notice::ReloadStarted { generation, .. } => contents.reload_started(*generation),
            Notice::ReloadAbandoned { generation, .. } => contents.reload_abandoned(*generation),
            Notice::ReloadFinished { generation, .. } => contents.reload_finished(*generation),
            Notice::WorkerReady(worker) => contents.worker_ready(worker.generation),
            Notice::UpgradeStarted => {
                self.tried = contents.first().and_then(ConfigFile::now);
                contents.set_upgrade(Upgrade::Running);
            }
            Notice::UpgradeAbandoned { .. } => contents.set_upgrade(Upgrade::None),
            _ => {}
        }
    }

    fn serving(&mut self, addresses: &[Address], workers: &[WorkerInfo]) -> Result<(), BoxError> {
        let urls = self.urls.list(addresses);
        let Self {
            what, why_workers, ..
        } = self;
        let (count, pid) = (workers.len(), std::process::id());
        Stderr.tell(&format!(
            "{urls}\n  serves   {what}\n  workers  {count} ({why_workers})\n  master   pid {pid}: \
             TERM or Ctrl-C drains, HUP reloads",
        ));
        Ok(())
    }

    fn reopen_logs(&mut self) {
        if let Some(log) = self.log.get() {
            log.reopen();
        }
    }
}

/// When a master takes another value of an option.
fn when_changed(option: &str) -> &'static str {
    match option {
        "workers" => {
            "a restart only, or in an upgrade if no signal or verb has changed their number"
        }
        // An address that stays keeps its sockets and its file.
        "listeners" | "unix-mode" => "a restart only",
        _ => "an upgrade or a restart only",
    }
}

/// How the addresses are shown.
#[derive(Debug)]
struct Urls {
    scheme: Scheme,
    redirects: Vec<Address>,
}

impl Urls {
    fn new(options: &Options) -> Self {
        Self {
            scheme: options.scheme(),
            redirects: redirects(options).to_vec(),
        }
    }

    /// The addresses that redirect come last, unless a service manager has passed the listeners.
    fn list(&self, addresses: &[Address]) -> String {
        let app = addresses.len().saturating_sub(self.redirects.len());
        let urls = addresses.iter().enumerate().map(|(at, address)| {
            let mut redirects = self.redirects.iter();
            if redirects.any(|asked| is_bound_for(asked, address, at >= app)) {
                return format!("{} (redirects to https)", url(address, Scheme::Http));
            }
            url(address, self.scheme)
        });
        urls.collect::<Vec<_>>().join("  ")
    }
}

/// Whether a redirect that was asked for listens on this address. The kernel chooses a port for
/// port 0. Passed listeners on all IPv4 and on all IPv6 addresses count as the same.
fn is_bound_for(asked: &Address, address: &Address, is_last: bool) -> bool {
    let (Address::Tcp(asked), Address::Tcp(address)) = (asked, address) else {
        return asked == address;
    };
    let is_all = asked.ip().is_unspecified() && address.ip().is_unspecified();
    let is_port = asked.port() == address.port() || (asked.port() == 0 && is_last);
    is_port && (is_all || asked.ip() == address.ip())
}

/// The addresses of `--redirect-to-https`.
pub(crate) fn redirects(options: &Options) -> &[Address] {
    #[cfg(feature = "tls")]
    let redirects = &options.tls.redirect_to_https;
    #[cfg(not(feature = "tls"))]
    let (redirects, _) = (&[], options);
    redirects
}

fn url(address: &Address, scheme: Scheme) -> String {
    match (address.url(), scheme) {
        (Some(url), Scheme::Http) => url,
        #[cfg(feature = "tls")]
        (Some(url), Scheme::Https) => url.replacen("http:", "https:", 1),
        (None, _) => shown(&address.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn no_color_is_honoured_unless_it_is_empty() {
        assert!(allows_color(None));
        assert!(allows_color(Some(OsStr::new(""))));
        for value in ["1", "0", "false"] {
            assert!(!allows_color(Some(OsStr::new(value))), "{value}");
        }
    }

    #[test]
    fn a_reason_is_one_line_and_names_what_is_possible() {
        let arguments = ["prefork-server", "--balance", "odd"];
        let parsed = Options::command().try_get_matches_from(arguments);
        let why = reason(&parsed.expect_err("it is wrong"));
        let told = "[possible values: even, off]";
        assert!(why.ends_with(told) && !why.contains('\n'), "{why}");
    }

    #[test]
    fn the_advice_for_an_address_of_a_kind_that_is_refused_names_the_setting_of_systemd() {
        let of = |number: Errno| advice_to_bind(&io::Error::from_raw_os_error(number as i32));
        assert!(of(Errno::EAFNOSUPPORT).ends_with("systemd's RestrictAddressFamilies="));
        assert_eq!(of(Errno::EADDRNOTAVAIL), "; choose another address");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn an_address_that_redirects_is_shown_as_what_it_is() {
        let addresses = |texts: &[&str]| -> Vec<Address> {
            let addresses = texts.iter().map(|text| text.parse().expect("an address"));
            addresses.collect()
        };
        for (redirects, bound, shown) in [
            (
                &["127.0.0.1:0"][..],
                &["127.0.0.1:1", "127.0.0.1:2"][..],
                "https://127.0.0.1:1/  http://127.0.0.1:2/ (redirects to https)",
            ),
            (
                &["0.0.0.0:80", "unix:/s"],
                &["[::]:80", "[::]:443"],
                "http://[::]:80/ (redirects to https)  https://[::]:443/",
            ),
            (
                &["unix:/s"],
                &["127.0.0.1:1", "unix:/s"],
                "https://127.0.0.1:1/  unix:/s (redirects to https)",
            ),
        ] {
            let urls = Urls {
                scheme: Scheme::Https,
                redirects: addresses(redirects),
            };
            assert_eq!(urls.list(&addresses(bound)), shown);
        }
    }
}
