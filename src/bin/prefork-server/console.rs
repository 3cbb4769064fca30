//! What a person sees on standard error: the lines at the start, the log, and why the server ended.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, IsTerminal};
use std::panic;
use std::process::ExitCode;

use prefork_server::{
    Address, BoxError, Generation, Hooks, Slot, WorkerCommand, WorkerInfo, usable_cpus,
};

use crate::app::SharedLog;
use crate::cli::{Logs, Options, Scheme, Serve, UnknownVariable, Workers};
use crate::log::line::Lines;
use crate::log::{LINES, Stderr};

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
    let mut line = format!("prefork-server: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line.push_str(advice(error));
    Stderr.tell_end(&line);
    ExitCode::from(code)
}

fn advice(error: &(dyn Error + 'static)) -> &'static str {
    let Some(prefork_server::Error::Bind { source, .. }) = error.downcast_ref() else {
        return "";
    };
    match source.kind() {
        ErrorKind::AddrInUse => "; stop the program that has it, or choose another with --listen",
        ErrorKind::PermissionDenied => "; choose a port from 1024 up, or a path you may write to",
        _ => "; choose another address with --listen",
    }
}

/// Writes when the server serves, and reopens the access log.
#[derive(Debug)]
pub(crate) struct Console {
    what: String,
    why_workers: String,
    scheme: Scheme,
    log: SharedLog,
}

impl Console {
    pub(crate) fn new(options: &Options, log: SharedLog) -> Self {
        let what = match options.serving.serve() {
            Serve::Welcome => "a welcome page; give a directory to serve its files".to_owned(),
            Serve::Respond(_) => "a fixed text".to_owned(),
            Serve::Echo => "each request's own body".to_owned(),
            Serve::Files(directory) => format!("the files under {}", directory.display()),
        };
        let cpus = usable_cpus();
        let why_workers = match options.processes.workers {
            Workers::Auto => cpus.to_string(),
            Workers::Exactly(count) if usize::from(count.get()) > cpus.usable => {
                format!("as given, but this process may use {} CPUs", cpus.usable)
            }
            Workers::Exactly(_) => "as given".to_owned(),
        };
        Self {
            what,
            why_workers,
            scheme: options.scheme(),
            log,
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
        _generation: Generation,
        command: &mut WorkerCommand,
    ) -> Result<(), BoxError> {
        if env::var_os(PURGE_DELAY).is_none() {
            command.env(PURGE_DELAY, "0");
        }
        Ok(())
    }

    fn serving(&mut self, addresses: &[Address], workers: &[WorkerInfo]) -> Result<(), BoxError> {
        let urls: Vec<_> = addresses
            .iter()
            .map(|address| url(address, self.scheme))
            .collect();
        let Self {
            what, why_workers, ..
        } = self;
        let (count, pid) = (workers.len(), std::process::id());
        Stderr.tell(&format!(
            "{}\n  serves   {what}\n  workers  {count} ({why_workers})\n  master   pid {pid}: \
             TERM or Ctrl-C drains, HUP reloads",
            urls.join("  "),
        ));
        Ok(())
    }

    fn reopen_logs(&mut self) {
        if let Some(log) = self.log.get() {
            log.reopen();
        }
    }
}

fn url(address: &Address, scheme: Scheme) -> String {
    match (address.url(), scheme) {
        (Some(url), Scheme::Http) => url,
        #[cfg(feature = "tls")]
        (Some(url), Scheme::Https) => url.replacen("http:", "https:", 1),
        (None, _) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_is_honoured_unless_it_is_empty() {
        assert!(allows_color(None));
        assert!(allows_color(Some(OsStr::new(""))));
        for value in ["1", "0", "false"] {
            assert!(!allows_color(Some(OsStr::new(value))), "{value}");
        }
    }
}
