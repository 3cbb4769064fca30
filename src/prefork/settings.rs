//! The settings of a server, one method for each.

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use super::Prefork;
use crate::address::{Address, AddressError};
#[cfg(feature = "metrics")]
use crate::config::Metrics;
use crate::config::{Balance, DeferAccept, Listeners, WorkerRequests};
use crate::hooks::{Hooks, Timed};
use crate::http::Http;
#[cfg(feature = "tls")]
use crate::http::Tls;
use crate::policy::{Backoff, CrashLimit};
use crate::proxy::Network;

impl Prefork {
    /// Number of worker processes, 1 to [`MAX_WORKERS`](crate::MAX_WORKERS).
    ///
    /// Default: the CPUs that this process may use, see [`usable_cpus`](crate::usable_cpus).
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.config.workers = Some(workers);
        self
    }

    /// How workers share an address.
    ///
    /// Default: [`Listeners::PerSlot`].
    #[must_use]
    pub fn listeners(mut self, listeners: Listeners) -> Self {
        self.config.listeners = listeners;
        self
    }

    /// Whether new connections, and busy ones, go to workers with less load.
    ///
    /// Default: [`Balance::Even`].
    #[must_use]
    pub fn balance(mut self, balance: Balance) -> Self {
        self.config.balance = balance;
        self
    }

    /// Most connections that wait in the queue of each listener (listen(2)). The kernel limits it
    /// to `net.core.somaxconn`.
    ///
    /// Default: 4096.
    #[must_use]
    pub fn backlog(mut self, connections: u32) -> Self {
        self.config.backlog = connections;
        self
    }

    /// When a TCP connection comes to a worker: with its first byte, or as soon as it is open.
    ///
    /// Default: [`DeferAccept::Auto`].
    #[must_use]
    pub fn defer_accept(mut self, when: DeferAccept) -> Self {
        self.config.defer_accept = when;
        self
    }

    /// How long a draining worker may take to finish open work. Then it cuts the connections that
    /// are still open, and counts them. The master kills a worker that has not left a second later.
    ///
    /// Default: 30 s.
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.config.drain_timeout = timeout;
        self
    }

    /// How long a new worker may take until it accepts connections. It also holds for the canary of
    /// an upgrade. The log has a warning if the app still waits after 10 s, or half of this time.
    ///
    /// Default: 60 s.
    #[must_use]
    pub fn ready_timeout(mut self, timeout: Duration) -> Self {
        self.config.ready_timeout = timeout;
        self
    }

    /// How many workers a reload or an upgrade replaces at a time. More are faster, but need memory
    /// for so many more workers.
    ///
    /// ```
    /// use std::num::NonZeroU16;
    ///
    /// use prefork_server::Prefork;
    ///
    /// const BATCH: NonZeroU16 = NonZeroU16::new(4).expect("not zero");
    ///
    /// let server = Prefork::bind("127.0.0.1:8080").workers(64).reload_batch(BATCH);
    /// ```
    ///
    /// Default: 1.
    #[must_use]
    pub fn reload_batch(mut self, slots: NonZeroU16) -> Self {
        self.config.reload_batch = slots;
        self
    }

    /// The master replaces a worker whose event loop does not turn for this long while work waits
    /// for it. It sends `SIGABRT`, so that the worker leaves a core, and `SIGKILL` a second later.
    /// That counts as a crash. Work is a connection: one that the worker has open, or one that it
    /// may accept and that waits. The master leaves idle and busy workers alone, but not a worker
    /// that a debugger has stopped. At least [`HANG_TIMEOUT_MIN`](crate::HANG_TIMEOUT_MIN), 1 s;
    /// `None` means never.
    ///
    /// Default: 30 s.
    #[must_use]
    pub fn hang_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.hang_timeout = timeout.into();
        self
    }

    /// More crashes than this end the server.
    ///
    /// Default: 10 per 60 s.
    #[must_use]
    pub fn crash_limit(mut self, limit: CrashLimit) -> Self {
        self.config.crash_limit = limit;
        self
    }

    /// How long a slot rests between its crashes. Another worker attends to its listeners
    /// meanwhile.
    ///
    /// Default: [`Backoff::new`].
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.config.backoff = backoff;
        self
    }

    /// Most connections of a worker, at least 1. When a worker has that many and another connection
    /// waits, [`serve`](Self::serve) closes the connection that has been idle longest, with GOAWAY
    /// in HTTP/2. It does not close a connection that was idle for less than
    /// [`Http::linger`](crate::Http::linger), or one that came less than a second ago, anew or
    /// from another worker, and has sent nothing since. A connection in its TLS handshake is busy.
    /// While all are busy, new connections wait in the queue of the listener; with
    /// [`run`](Self::run) they always do.
    ///
    /// Default: what `RLIMIT_NOFILE` allows, less a reserve for the app's own descriptors. If that
    /// limit has no room for so many, the default holds, and the log says so.
    #[must_use]
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.config.max_connections = Some(connections);
        self
    }

    /// Most connections of one client address in a worker. An address is an IPv4 address, or the
    /// first 64 bits of an IPv6 address. The worker accepts a further connection and closes it at
    /// once. Each worker counts alone, so the server holds up to this many connections for each
    /// worker, and more for a while after a reload. The open connections of limited clients stay
    /// with their worker until it ends, whatever [`balance`](Self::balance) says. Clients on Unix
    /// sockets and those of [`proxy_protocol`](Self::proxy_protocol) are not limited.
    ///
    /// Default: `None`, any number.
    #[must_use]
    pub fn max_connections_per_client(
        mut self,
        connections: impl Into<Option<NonZeroUsize>>,
    ) -> Self {
        self.config.max_connections_per_client = connections.into();
        self
    }

    /// Replaces a worker that has answered this many requests, or up to a quarter more, so that not
    /// all workers are replaced together. This helps against leaks in the app.
    /// [`Worker::recycle`](crate::Worker::recycle) says how. It counts the requests of
    /// [`serve`](Self::serve); with [`run`](Self::run) the app counts and calls `recycle` itself.
    /// At least 1.
    ///
    /// Default: `None`, which is never.
    #[must_use]
    pub fn max_requests(mut self, requests: impl Into<Option<u64>>) -> Self {
        self.config.max_requests = requests.into();
        self
    }

    /// Replaces a worker that is this old, or up to a quarter older.
    /// [`Worker::recycle`](crate::Worker::recycle) says how. More than zero.
    ///
    /// Default: `None`, which is never.
    #[must_use]
    pub fn max_worker_age(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.config.max_worker_age = age.into();
        self
    }

    /// Expects a PROXY header (HAProxy's `proxy-protocol.txt`, version 1 or 2) at the start of
    /// connections from these networks. A load balancer can send it. It names the client, for
    /// [`ConnectionInfo::client`](crate::ConnectionInfo::client). Name only the addresses of load
    /// balancers, because the server believes the header. A connection from these networks without
    /// the header, such as a health check, is closed. From elsewhere the header is no HTTP, and the
    /// response is 400.
    ///
    /// The header must come within [`Http::header_timeout`](crate::Http::header_timeout), and may
    /// be 4 KiB long. Only [`serve`](Self::serve) reads it.
    ///
    /// ```
    /// use std::io::{Write, read_to_string};
    /// use std::net::TcpStream;
    ///
    /// use prefork_server::{Network, Response, TestServer, handler};
    ///
    /// let balancers: [Network; 1] = ["127.0.0.1".parse()?];
    /// let server = TestServer::start_with(move |server| {
    ///     server.proxy_protocol(balancers).serve(async |_worker| {
    ///         Ok(handler(async |request| {
    ///             let client = request.body().connection().client();
    ///             Ok(Response::new(format!("you are {client}").into()))
    ///         }))
    ///     })
    /// })?;
    ///
    /// // As a load balancer does.
    /// let mut balancer = TcpStream::connect(server.address())?;
    /// balancer.write_all(b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n")?;
    /// balancer.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    /// assert!(read_to_string(balancer)?.ends_with("you are 192.0.2.7:56324"));
    /// # Ok::<(), prefork_server::BoxError>(())
    /// ```
    ///
    /// Default: none.
    #[must_use]
    pub fn proxy_protocol(mut self, networks: impl IntoIterator<Item = Network>) -> Self {
        self.config.proxy_protocol = networks.into_iter().collect();
        self
    }

    /// User that workers run as, by name or number (passwd(5)). They have no supplementary groups
    /// and cannot gain rights (prctl(2), `PR_SET_NO_NEW_PRIVS`). The master binds the addresses and
    /// keeps its user. Only root may name another user than itself. If the master runs as root and
    /// no user is named, it logs a warning; `"root"` confirms that workers run as root. The
    /// master's own user changes nothing, not even the supplementary groups. Has no effect [in
    /// process](Self::in_process).
    ///
    /// A worker opens its own files, such as a log, as that user, who must be allowed to execute
    /// the program. The master reads the files of TLS.
    ///
    /// ```no_run
    /// use prefork_server::{Exit, Prefork, Response, handler};
    ///
    /// // Started as root, which may bind port 80.
    /// fn main() -> Exit {
    ///     Prefork::bind("0.0.0.0:80")
    ///         .user("www-data")
    ///         .serve(async |_worker| Ok(handler(async |_request| Ok(Response::default()))))
    ///         .into()
    /// }
    /// ```
    ///
    /// Default: the master's user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.config.user = Some(user.into());
        self
    }

    /// Group that workers run as, by name or number (group(5)). Only root may name another group
    /// than its own.
    ///
    /// Default: the group of the [`user`](Self::user) in passwd(5).
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.config.group = Some(group.into());
        self
    }

    /// Mode of the files of Unix listeners, at most `0o777`. A user who may write to the file may
    /// connect (unix(7)). The group of the file is that of the workers. So with `0o660` the
    /// workers' group may connect, of which a reverse proxy can be a member; with `0o600` only the
    /// master's user may. The umask has no effect. Users who may not enter the directory cannot
    /// connect in any case.
    ///
    /// ```
    /// use prefork_server::Prefork;
    ///
    /// // For a reverse proxy that is a member of the group `www-data`.
    /// let server = Prefork::bind("unix:/run/app.sock").group("www-data").unix_mode(0o660);
    /// ```
    ///
    /// Default: `0o666`, every user of the machine, as with a TCP listener on loopback.
    #[must_use]
    pub fn unix_mode(mut self, mode: u32) -> Self {
        self.config.unix_mode = mode;
        self
    }

    /// Which commands workers may give to the master. The master logs those that it refuses.
    ///
    /// Default: [`WorkerRequests::Renewal`] if workers run as another [`user`](Self::user) than the
    /// master, so that an attacker in a worker cannot end the server; else [`WorkerRequests::All`].
    #[must_use]
    pub fn worker_requests(mut self, requests: WorkerRequests) -> Self {
        self.config.worker_requests = Some(requests);
        self
    }

    /// File that the master writes its pid to when the addresses are bound. It removes the file at
    /// the end. While it runs, it holds a lock on the file: no other server with this file starts.
    /// The file of a master that was killed is replaced.
    ///
    /// Default: none.
    #[must_use]
    pub fn pid_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.pid_file = Some(path.into());
        self
    }

    /// How long the server still serves after it was asked to drain (`SIGTERM`, `SIGQUIT`,
    /// [`Handle::stop`](crate::Handle::stop)). Meanwhile `/readyz` of the [admin
    /// address](Self::admin) is 503, so that load balancers send it nothing new. Choose a little
    /// more than the time in which they notice that.
    ///
    /// A second ask to drain, a second or more after the first, ends the wait. `SIGINT` and
    /// [`Stop::Now`](crate::Stop::Now) do not wait. A server that runs [in
    /// process](Self::in_process) does not wait either.
    ///
    /// Default: 0 s.
    #[must_use]
    pub fn pre_stop_delay(mut self, delay: Duration) -> Self {
        self.config.pre_stop_delay = delay;
        self
    }

    /// Open descriptor that the master writes each [notice](crate::Notice) to, as a JSON object on
    /// a line of its own. If the reader is slow, notices are lost.
    ///
    /// Default: none.
    #[must_use]
    pub fn announce_fd(mut self, fd: i32) -> Self {
        self.config.announce_fd = Some(fd);
        self
    }

    /// Adds an admin address, by which operators and their programs see what the server does. Only
    /// the user of the master and root can connect to a path, and give commands there. A TCP
    /// address is read-only. Everyone who can connect to it can read it, so only this machine or a
    /// private network should reach it. A server has up to 8.
    ///
    /// | path | what it is |
    /// |---|---|
    /// | `/` | the [live page](crate::guide::live_page), for browsers |
    /// | `/livez` | 200 as long as the master runs |
    /// | `/readyz` | 200 if the server should get requests, else 503; one line says why |
    /// | `/status` | [`Status`](crate::Status) as JSON, and the last exits and operations |
    /// | `/metrics` | all counts, in the text format of Prometheus or in OpenMetrics |
    /// | `/v1/reload` and others | [commands](crate::guide::verbs#by-http), at a path only |
    ///
    /// The master starts a process for each address, which is no worker: it has no slot, and its
    /// exits are no crashes of the server. It responds while all workers hang. In it
    /// [`role`](crate::role) returns [`Role::Admin`](crate::Role), and the app is not called. If
    /// the process ends, the master starts another one. A reload and an upgrade replace it last. An
    /// upgrade may add and remove addresses.
    ///
    /// ```no_run
    /// use prefork_server::{Exit, Prefork, Response, handler};
    ///
    /// fn main() -> Exit {
    ///     Prefork::bind("127.0.0.1:8080")
    ///         // For Prometheus, and for commands.
    ///         .admin("127.0.0.1:9180")
    ///         .admin("unix:/run/app/admin")
    ///         .serve(async |_worker| {
    ///             Ok(handler(async |_request| Ok(Response::new("hello".into()))))
    ///         })
    ///         .into()
    /// }
    /// ```
    ///
    /// Default: none.
    #[must_use]
    pub fn admin<A>(mut self, address: A) -> Self
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        match address.try_into() {
            Ok(address) => self.config.admin.push(address),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// Counts the app's own metrics, by the macros of the crate `metrics`. `/metrics` of the [admin
    /// address](Self::admin) has the sums over all workers. The
    /// [guide](crate::guide::metrics#your-own-metrics) has the rules. Needs the feature `metrics`.
    ///
    /// ```no_run
    /// use metrics::{counter, describe_counter};
    /// use prefork_server::{Exit, Metrics, Prefork, Response, handler};
    ///
    /// fn main() -> Exit {
    ///     Prefork::bind("127.0.0.1:8080")
    ///         .admin("127.0.0.1:9180")
    ///         .metrics(Metrics::new())
    ///         .serve(async |_worker| {
    ///             describe_counter!("orders_total", "Orders that were placed");
    ///             Ok(handler(async |_request| {
    ///                 counter!("orders_total", "kind" => "tea").increment(1);
    ///                 Ok(Response::new("ordered".into()))
    ///             }))
    ///         })
    ///         .into()
    /// }
    /// ```
    ///
    /// Default: the server sets no recorder, and the macros do what another recorder makes of them.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        if let Some(why) = metrics.refused() {
            self.refused.get_or_insert_with(|| why.to_owned());
        }
        self.config.metrics = Some(metrics);
        self
    }

    /// The HTTP options of [`serve`](Self::serve).
    ///
    /// Default: [`Http::new`].
    #[must_use]
    pub fn http(mut self, http: Http) -> Self {
        self.http = http;
        self
    }

    /// Speaks TLS on every address. Only for [`serve`](Self::serve): [`run`](Self::run) returns an
    /// error, because its app chooses the protocol. Needs the feature `tls`.
    ///
    /// Default: HTTP without TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Also listens on this address, speaks HTTP without TLS there, and redirects each request to
    /// the same host and path with https (308). Needs [`tls`](Self::tls).
    ///
    /// The place has the port of the first address with TLS, unless that is 443. It has no port if
    /// the client named none and this address has not port 80: then something before the server
    /// maps the ports.
    ///
    /// If a service manager passes listeners, those redirect that have this address; `0.0.0.0:80`
    /// and `[::]:80` count as the same. The log warns if no passed listener has this address. An
    /// address that redirects goes on doing so after an upgrade without this setting.
    ///
    /// Default: no such address.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn redirect_to_https<A>(mut self, address: A) -> Self
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        match address.try_into() {
            Ok(address) => self.config.redirects.push(address),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// The hooks of the program.
    ///
    /// Default: none.
    #[must_use]
    pub fn hooks(mut self, hooks: impl Hooks + 'static) -> Self {
        self.hooks = Box::new(Timed::new(Box::new(hooks)));
        self
    }
}
