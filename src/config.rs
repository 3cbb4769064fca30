//! What a server is told before it starts: plain values, parsed once.

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use crate::address::Address;
use crate::named::named;
use crate::policy::{Backoff, CrashLimit};
use crate::proxy::Network;

/// The shortest hang timeout: ten heartbeats. Below this a busy machine looks like a hang.
pub const HANG_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// How the workers share an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listeners {
    /// One `SO_REUSEPORT` listener for each slot (socket(7)): the kernel spreads new connections,
    /// no two workers are woken for the same one. Unix sockets are always shared. The default.
    #[default]
    PerSlot,
    /// One listener that every worker accepts from.
    Shared,
}

named!(Listeners { "per-slot" = PerSlot, "shared" = Shared });

/// Whether connections move between workers so that none has much more to do than another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Balance {
    /// Four times a second a worker that serves more connections than another gives it some, as
    /// soon as each has been answered; their clients notice nothing. What counts are the
    /// connections on which something has come lately. The default.
    ///
    /// It is for HTTP/1 without TLS, of [`Prefork::serve`](crate::Prefork::serve). Others stay with
    /// the worker that the kernel has picked.
    #[default]
    Even,
    /// A connection stays with its worker for as long as the worker lives.
    Off,
}

named!(Balance { "even" = Even, "off" = Off });

/// What the master does when a worker asks for it by its [`Handle`](crate::Handle).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerRequests {
    /// All that a handle can ask for, but no upgrade if workers run as another user than the
    /// master: the master would execute a program because that user says so.
    All,
    /// A reload, and reopening the logs. A worker may also ask to be replaced itself
    /// ([`Worker::recycle`](crate::Worker::recycle)). A request to stop, resize or upgrade the
    /// server is refused.
    Renewal,
}

/// Everything the master and the workers need to know, HTTP apart.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) addresses: Vec<Address>,
    /// `None`: as many as this process may use CPUs.
    pub(crate) workers: Option<usize>,
    pub(crate) listeners: Listeners,
    pub(crate) balance: Balance,
    pub(crate) backlog: u32,
    pub(crate) drain_timeout: Duration,
    pub(crate) ready_timeout: Duration,
    pub(crate) reload_batch: NonZeroU16,
    /// `None`: workers are never taken for hung.
    pub(crate) hang_timeout: Option<Duration>,
    pub(crate) crash_limit: CrashLimit,
    pub(crate) backoff: Backoff,
    /// Per worker. `None`: from `RLIMIT_NOFILE`.
    pub(crate) max_connections: Option<usize>,
    /// Per worker and client address. `None`: any number.
    pub(crate) max_connections_per_client: Option<NonZeroUsize>,
    /// Per worker, before it is replaced.
    pub(crate) max_requests: Option<u64>,
    pub(crate) max_worker_age: Option<Duration>,
    /// From where connections begin with a PROXY header.
    pub(crate) proxy_protocol: Vec<Network>,
    /// Whom workers run as, by name or number. `None`: as their master.
    pub(crate) user: Option<String>,
    /// `None`: the user's own.
    pub(crate) group: Option<String>,
    /// Of the files of Unix listeners: who may connect.
    pub(crate) unix_mode: u32,
    /// As a number. `None`: the master's own.
    pub(crate) unix_group: Option<u32>,
    /// `None`: by whether workers run as another user.
    pub(crate) worker_requests: Option<WorkerRequests>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) announce_fd: Option<i32>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            workers: None,
            listeners: Listeners::default(),
            balance: Balance::default(),
            backlog: 4096,
            drain_timeout: Duration::from_secs(30),
            ready_timeout: Duration::from_secs(60),
            reload_batch: NonZeroU16::MIN,
            hang_timeout: Some(Duration::from_secs(30)),
            crash_limit: CrashLimit::default(),
            backoff: Backoff::default(),
            max_connections: None,
            max_connections_per_client: None,
            max_requests: None,
            max_worker_age: None,
            proxy_protocol: Vec::new(),
            user: None,
            group: None,
            unix_mode: 0o666,
            unix_group: None,
            worker_requests: None,
            pid_file: None,
            announce_fd: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_by_the_name_that_it_shows() {
        for name in Listeners::NAMES {
            let value: Listeners = name.parse().expect(name);
            assert_eq!(value.to_string(), *name);
        }
        assert_eq!("off".parse(), Ok(Balance::Off));
        let error = "Off".parse::<Balance>().expect_err("no such value");
        assert_eq!(error.to_string(), "`Off` is not one of: even, off");
    }
}
