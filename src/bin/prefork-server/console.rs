//! What a person sees: the lines at the start, the log, and why it ended.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, IsTerminal};
use std::process::ExitCode;

use prefork_server::{
    Address, BoxError, Generation, Hooks, Slot, WorkerCommand, WorkerInfo, usable_cpus,
};
use tracing::level_filters::LevelFilter;

use crate::app::SharedLog;
use crate::cli::{Options, Scheme, Serve, UnknownVariable, Workers};
use crate::log::Stderr;

/// The log goes to standard error: standard output may be the access log or the announce stream.
pub(crate) fn log(level: LevelFilter) {
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| Stderr)
        .with_ansi(io::stderr().is_terminal() && allows_color(env::var_os("NO_COLOR").as_deref()))
        .with_target(false)
        // It would tell them by `eprintln!`, which blocks and panics where this log does neither.
        .log_internal_errors(false)
        .init();
}

/// Any value but the empty one asks for none (no-color.org).
fn allows_color(no_color: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty)
}

/// A variable with a typo has no effect, which nothing else would tell.
pub(crate) fn warn_of_variables(unknown: &[UnknownVariable]) {
    for UnknownVariable { name, similar } in unknown {
        match similar {
            Some(similar) => tracing::warn!("{name} is no option's variable: is {similar} meant?"),
            None => tracing::warn!("{name} is no option's variable"),
        }
    }
}

/// Says why there is no server, on one line.
pub(crate) fn refuse(error: &(dyn Error + 'static), code: u8) -> ExitCode {
    let mut line = format!("prefork-server: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line.push_str(advice(error));
    line.push('\n');
    Stderr.final_line(&line);
    ExitCode::from(code)
}

fn advice(error: &(dyn Error + 'static)) -> &'static str {
    let Some(prefork_server::Error::Bind { source, .. }) = error.downcast_ref() else {
        return "";
    };
    match source.kind() {
        ErrorKind::AddrInUse => "; end who has it, or choose another address with --listen",
        ErrorKind::PermissionDenied => "; choose a port from 1024 up, or a path you may write to",
        _ => "; choose another address with --listen",
    }
}

/// Tells when it serves, and reopens the access log.
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
                format!("as asked, though it may use {} CPUs", cpus.usable)
            }
            Workers::Exactly(_) => "as asked".to_owned(),
        };
        Self {
            what,
            why_workers,
            scheme: options.scheme(),
            log,
        }
    }
}

/// How long the allocator keeps freed memory before the system has it back, in milliseconds.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";

impl Hooks for Console {
    /// The buffers of connections that go to rest are to go back to the system at once: by default
    /// that waits for the allocator's next work, and a worker at rest has none. A connection is not
    /// served often enough anew for this to cost anything.
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
        Stderr.line(&format!(
            "{}\n  serves   {what}\n  workers  {count} ({why_workers})\n  master   pid {pid}: \
             TERM or Ctrl-C drains, HUP reloads\n",
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
