//! The settings of a server, apart from HTTP and TLS.

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "sandbox")]
mod sandbox;

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "sandbox")]
pub use self::sandbox::Sandbox;
#[cfg(feature = "sandbox")]
pub(crate) use self::sandbox::{Access, Connections};
use crate::address::Address;
use crate::named::named;
use crate::policy::{Backoff, CrashLimit};
use crate::proxy::Network;

/// The shortest hang timeout: ten heartbeats. Below this a busy machine looks like a hang.
///
/// ```
/// use prefork_server::{HANG_TIMEOUT_MIN, Prefork};
///
/// let server = Prefork::bind("127.0.0.1:8080").hang_timeout(HANG_TIMEOUT_MIN / 2);
/// let ended = server.run(async |_worker, _incoming| Ok(()));
/// let error = ended.expect_err("it is too short");
/// assert_eq!(error.to_string(), "hang_timeout 500ms: at least 1s, or none");
/// ```
pub const HANG_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// How the workers share an address.
///
/// ```
/// use prefork_server::{Listeners, Prefork};
///
/// // As a program reads its settings: by name.
/// let name = std::env::var("LISTENERS").unwrap_or("shared".into());
/// let listeners: Listeners = name.parse()?;
/// let server = Prefork::bind("127.0.0.1:8080").listeners(listeners);
/// # Ok::<(), prefork_server::NameError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listeners {
    /// The default. Each slot has a listener of its own (`SO_REUSEPORT`, socket(7)). The kernel
    /// spreads new connections over the slots, and wakes one worker for each. Unix sockets are
    /// always shared.
    #[default]
    PerSlot,
    /// All workers accept from one listener.
    Shared,
}

named!(Listeners { "per-slot" = PerSlot, "shared" = Shared });

/// What workers do with the connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerUse {
    /// The app serves them, with TLS if the server speaks it.
    App,
    /// They speak HTTP without TLS, and each request is redirected to https.
    Redirect,
}

/// Whether workers give connections to workers that have less to do.
///
/// ```
/// use prefork_server::{Balance, Prefork};
///
/// // Each worker caches the sessions of its own clients, so they stay with it.
/// let server = Prefork::bind("127.0.0.1:8080").balance(Balance::Off);
///
/// assert_eq!("off".parse(), Ok(Balance::Off));
/// assert_eq!(Balance::NAMES, ["even", "off"]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Balance {
    /// The default. Clients notice nothing.
    ///
    /// Every connection is *placed*: if the worker that accepts it has more to do than another
    /// worker, it gives the connection to that one before it reads a byte. So TLS, HTTP/2, Unix
    /// addresses and [`Prefork::run`](crate::Prefork::run) are even from the beginning. A worker
    /// places up to 250 connections at once, and then 250 per second, because to place one costs as
    /// much as a request. It gives them to the workers of the eight slots after its own.
    ///
    /// Connections also *move*, in [`Prefork::serve`](crate::Prefork::serve): four times a second a
    /// worker that serves more connections than another gives some of them to it, each when no
    /// request is open. So does a worker that is busy all the time while another one is not; a
    /// connection that takes most of its time stays. For this the master reads
    /// `/proc/PID/schedstat` of each worker; without that file only the numbers count.
    ///
    /// In `serve` only connections count on which something has arrived lately, and new ones. In
    /// `run` all open connections count.
    #[default]
    Even,
    /// A connection stays with the worker that accepts it until that worker exits.
    Off,
}

named!(Balance { "even" = Even, "off" = Off });

/// When a TCP connection comes to a worker: with its first byte (tcp(7), `TCP_DEFER_ACCEPT`), or as
/// soon as it is open.
///
/// With its first byte the worker is woken up once for a new connection and its request, not twice.
/// Where each request has a connection of its own, a worker that is busy then needs two thirds of
/// the CPU time. A worker that has time gets slower: it begins with a connection later.
///
/// A connection on which the client sends nothing comes to a worker after a second. Until then no
/// timeout runs for it, and it is in no count. A crash, a reload or an upgrade does not lose it.
///
/// ```
/// use prefork_server::{DeferAccept, Prefork};
///
/// // Clients open connections before they need them.
/// let server = Prefork::bind("127.0.0.1:8080").defer_accept(DeferAccept::Off);
///
/// assert_eq!("off".parse(), Ok(DeferAccept::Off));
/// assert_eq!(DeferAccept::NAMES, ["auto", "on", "off"]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeferAccept {
    /// The default. With the first byte while the worker has a rush of new connections: it accepts
    /// many, and seldom sleeps between two of them. The master looks at that four times a second.
    /// It reads `/proc/PID/schedstat` of each worker; without that file this is `Off`. A drain of
    /// the server that is asked for in a rush begins 1.2 s later, so that each connection that the
    /// kernel has comes to a worker.
    ///
    /// This holds for the listeners that one slot has. One that all workers share, such as that of
    /// a systemd socket, stays as it is. In [`Prefork::run`](crate::Prefork::run), whose app may
    /// send first, and [in process](crate::Prefork::in_process) this is `Off`.
    #[default]
    Auto,
    /// Always with the first byte, on every TCP listener. At the end of the server, a connection
    /// that has not come to a worker is reset. Do not use this if the app of
    /// [`Prefork::run`](crate::Prefork::run) sends first.
    On,
    /// As soon as it is open. A listener of a systemd socket stays as it is.
    Off,
}

named!(DeferAccept { "auto" = Auto, "on" = On, "off" = Off });

impl DeferAccept {
    /// What it means for an app that may send first.
    pub(crate) fn of_run(self) -> Self {
        match self {
            Self::Auto | Self::Off => Self::Off,
            Self::On => Self::On,
        }
    }
}

/// Which requests of its workers the master grants. A worker asks by its
/// [`Handle`](crate::Handle).
///
/// ```
/// use prefork_server::{Prefork, WorkerRequests};
///
/// // The app may reload the server, and cannot stop it, whatever a client makes it do.
/// let server = Prefork::bind("127.0.0.1:8080").worker_requests(WorkerRequests::Renewal);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerRequests {
    /// Every request. Only an upgrade is refused if workers run as another user than the master:
    /// that user would decide when the master executes a program.
    All,
    /// A reload and reopening the logs. Requests to stop, resize or upgrade the server are refused.
    /// In any case a worker may ask to be replaced ([`Worker::recycle`](crate::Worker::recycle)).
    Renewal,
}

/// All settings that the master and the workers need, apart from HTTP and TLS.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The addresses that the app serves.
    pub(crate) addresses: Vec<Address>,
    /// The addresses that redirect each request.
    pub(crate) redirects: Vec<Address>,
    /// `None`: one for each CPU that this process may use.
    pub(crate) workers: Option<usize>,
    pub(crate) listeners: Listeners,
    pub(crate) balance: Balance,
    pub(crate) backlog: u32,
    pub(crate) defer_accept: DeferAccept,
    /// How long the server still serves after it was asked to drain.
    pub(crate) pre_stop_delay: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) ready_timeout: Duration,
    pub(crate) reload_batch: NonZeroU16,
    /// `None`: no worker counts as hung.
    pub(crate) hang_timeout: Option<Duration>,
    pub(crate) crash_limit: CrashLimit,
    pub(crate) backoff: Backoff,
    /// Per worker. `None`: from `RLIMIT_NOFILE`.
    pub(crate) max_connections: Option<usize>,
    /// Per worker and client address. `None`: any number.
    pub(crate) max_connections_per_client: Option<NonZeroUsize>,
    /// Per worker: after this many requests it is replaced.
    pub(crate) max_requests: Option<u64>,
    pub(crate) max_worker_age: Option<Duration>,
    /// Connections from these networks begin with a PROXY header.
    pub(crate) proxy_protocol: Vec<Network>,
    /// The user that workers run as, by name or number. `None`: the user of the master.
    pub(crate) user: Option<String>,
    /// The group that workers run as. `None`: the group of the user in passwd(5).
    pub(crate) group: Option<String>,
    /// The mode of the files of Unix listeners.
    pub(crate) unix_mode: u32,
    /// The group of these files, as a number. `None`: the group of the master.
    pub(crate) unix_group: Option<u32>,
    /// `None`: depends on whether workers run as another user than the master.
    pub(crate) worker_requests: Option<WorkerRequests>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) announce_fd: Option<i32>,
    /// The admin addresses. Each has a process of its own.
    pub(crate) admin: Vec<Address>,
    /// What the app counts by the facade `metrics`. `None`: workers have no recorder.
    #[cfg(feature = "metrics")]
    pub(crate) metrics: Option<Metrics>,
    /// What workers may open and reach. `None`: what their user may.
    #[cfg(feature = "sandbox")]
    pub(crate) sandbox: Option<Sandbox>,
}

impl Config {
    /// All addresses of the workers. Those that the app serves come first.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (&Address, ListenerUse)> {
        let app = self.addresses.iter().map(|it| (it, ListenerUse::App));
        let redirects = self.redirects.iter();
        app.chain(redirects.map(|it| (it, ListenerUse::Redirect)))
    }

    /// What a listener that the service manager has bound is for; `None` if no setting names its
    /// address.
    pub(crate) fn use_of(&self, bound: &Address) -> Option<ListenerUse> {
        if self.redirects.contains(bound) {
            return Some(ListenerUse::Redirect);
        }
        if self.addresses.contains(bound) {
            return Some(ListenerUse::App);
        }
        let mut redirects = self.redirects.iter();
        let is_redirect = redirects.any(|asked| asked.is_met_by(bound));
        is_redirect.then_some(ListenerUse::Redirect)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            redirects: Vec::new(),
            workers: None,
            listeners: Listeners::default(),
            balance: Balance::default(),
            backlog: 4096,
            defer_accept: DeferAccept::default(),
            pre_stop_delay: Duration::ZERO,
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
            admin: Vec::new(),
            #[cfg(feature = "metrics")]
            metrics: None,
            #[cfg(feature = "sandbox")]
            sandbox: None,
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
        assert_eq!("auto".parse(), Ok(DeferAccept::default()));
        let error = "Off".parse::<Balance>().expect_err("no such value");
        assert_eq!(error.to_string(), "`Off` is not one of: even, off");
    }

    #[test]
    fn only_a_choice_keeps_connections_from_an_app_that_may_send_first() {
        let of_run =
            [DeferAccept::Auto, DeferAccept::On, DeferAccept::Off].map(DeferAccept::of_run);
        assert_eq!(
            of_run,
            [DeferAccept::Off, DeferAccept::On, DeferAccept::Off]
        );
    }
}
