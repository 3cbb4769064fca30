//! Checks of the settings.

use std::num::NonZeroU16;
use std::time::Duration;

use super::{Prefork, Processes};
use crate::config::{Config, HANG_TIMEOUT_MIN};
use crate::error::Error;
use crate::id::MAX_WORKERS;
use crate::master::{self, ADDRESSES_MAX};

/// The most admin addresses: each has a process.
const ADMIN_ADDRESSES_MAX: usize = 8;

/// Why a master refuses to start on a thread that has entered a runtime.
const INSIDE_A_RUNTIME: &str = "`main` is inside a tokio runtime; write `fn main() -> Exit` \
     without `#[tokio::main]` and `async`: each worker makes its own runtime, and runs the closure \
     of `serve` or `run` in it";

impl Prefork {
    /// Checks what a start needs, and starts nothing: the settings, the user and group, the files
    /// for TLS, and whether each address could be bound. A server that runs with the same settings
    /// does not notice it, and is no reason to fail. An app and its content are not checked.
    ///
    /// ```
    /// use prefork_server::Prefork;
    ///
    /// let error = Prefork::bind("unix:/missing/socket").check().expect_err("no directory");
    /// assert!(error.to_string().contains("/missing/socket"));
    /// ```
    ///
    /// # Errors
    /// As [`serve`](Self::serve) at its start.
    pub fn check(mut self) -> Result<(), Error> {
        self.parsed()?;
        if let Some(tls) = &self.tls {
            tls.read_files()?;
        }
        master::check::check(self.config)
    }

    /// Checks the settings before anything is bound. Returns the number of workers.
    ///
    /// An upgraded master cannot go back, and the canary has refused what is wrong in each process.
    /// If a setting is wrong in the master alone, the default replaces it, unless nothing can.
    pub(super) fn parsed(&mut self) -> Result<NonZeroU16, Error> {
        if let Some(error) = self.refused.take() {
            unless_upgraded(error)?;
        }
        if self.processes == Processes::Workers && tokio::runtime::Handle::try_current().is_ok() {
            return Err(Error::Config(INSIDE_A_RUNTIME.into()));
        }
        let addresses = self.config.wanted().count();
        if addresses > ADDRESSES_MAX {
            return Err(Error::Config(format!(
                "{addresses} addresses: there can be up to {ADDRESSES_MAX}"
            )));
        }
        let addresses = self.config.admin.len();
        if addresses > ADMIN_ADDRESSES_MAX {
            unless_upgraded(format!(
                "{addresses} admin addresses: there can be up to {ADMIN_ADDRESSES_MAX}"
            ))?;
            self.config.admin.truncate(ADMIN_ADDRESSES_MAX);
        }
        if !self.config.redirects.is_empty() && self.tls.is_none() {
            unless_upgraded("redirect_to_https needs tls".into())?;
            self.config.redirects.clear();
        }
        if self.config.max_connections == Some(0) {
            unless_upgraded("max_connections must be at least 1".into())?;
            self.config.max_connections = None;
        }
        if self.config.max_requests == Some(0) {
            unless_upgraded("max_requests 0: at least 1, or none".into())?;
            self.config.max_requests = None;
        }
        if self.config.max_worker_age == Some(Duration::ZERO) {
            unless_upgraded("max_worker_age 0s: more than that, or none".into())?;
            self.config.max_worker_age = None;
        }
        if self.config.unix_mode > 0o777 {
            let mode = self.config.unix_mode;
            unless_upgraded(format!("unix_mode {mode:o}: at most 777 (octal)"))?;
            // The default may let more users connect than the app allows.
            self.config.unix_mode &= 0o777;
        }
        if let Some(timeout) = self.config.hang_timeout
            && timeout < HANG_TIMEOUT_MIN
        {
            unless_upgraded(format!(
                "hang_timeout {timeout:?}: at least {HANG_TIMEOUT_MIN:?}, or none"
            ))?;
            self.config.hang_timeout = Config::default().hang_timeout;
        }
        if let Some(workers) = self.config.workers
            && !(1..=MAX_WORKERS).contains(&workers)
        {
            unless_upgraded(format!(
                "{workers} workers: there can be 1 to {MAX_WORKERS}"
            ))?;
            self.config.workers = None;
        }
        let workers = self.config.workers.unwrap_or_else(master::default_workers);
        let workers = u16::try_from(workers).ok().and_then(NonZeroU16::new);
        Ok(workers.expect("1 or more, and not too many"))
    }
}

/// Fails, or logs the error if this is a master that was upgraded.
fn unless_upgraded(why: String) -> Result<(), Error> {
    if !master::is_upgraded() {
        return Err(Error::Config(why));
    }
    tracing::error!("{why}; the server serves without it");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_few_admin_addresses() {
        let with = |addresses: usize| {
            let server = Prefork::bind("127.0.0.1:0");
            (0..addresses).fold(server, |server, _| server.admin("127.0.0.1:0"))
        };
        with(ADMIN_ADDRESSES_MAX).check().expect("ports are free");
        let error = with(ADMIN_ADDRESSES_MAX + 1).check().expect_err("too many");
        assert_eq!(error.exit_code(), 2);
        let told = "9 admin addresses: there can be up to 8";
        assert!(error.to_string().contains(told), "{error}");
    }

    #[test]
    fn a_limit_after_which_a_worker_is_replaced_is_not_zero() {
        for (server, named) in [
            (Prefork::bind("127.0.0.1:0").max_requests(0), "max_requests"),
            (
                Prefork::bind("127.0.0.1:0").max_worker_age(Duration::ZERO),
                "max_worker_age",
            ),
        ] {
            let error = server.check().expect_err("it is zero");
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().starts_with(named), "{error}");
        }
    }
}
