//! The settings of a server to be, one method each.

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use super::{Prefork, Processes};
use crate::config::{Backoff, Balance, CrashLimit, Listeners, WorkerRequests};
use crate::hooks::{Hooks, Timed};
use crate::http::Http;
#[cfg(feature = "tls")]
use crate::http::Tls;
use crate::proxy::Network;

impl Prefork {
    /// How many worker processes, 1 to [`MAX_WORKERS`](crate::MAX_WORKERS). Default: the CPUs that
    /// this process may use, see [`usable_cpus`](crate::usable_cpus).
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.config.workers = Some(workers);
        self
    }

    /// How workers share an address. Default: [`Listeners::PerSlot`].
    #[must_use]
    pub fn listeners(mut self, listeners: Listeners) -> Self {
        self.config.listeners = listeners;
        self
    }

    /// Whether connections move to workers that have less to do. Default: [`Balance::Even`].
    #[must_use]
    pub fn balance(mut self, balance: Balance) -> Self {
        self.config.balance = balance;
        self
    }

    /// How many connections may wait in each listener's queue (listen(2)); the kernel takes at
    /// most `net.core.somaxconn`. Default: 4096.
    #[must_use]
    pub fn backlog(mut self, connections: u32) -> Self {
        self.config.backlog = connections;
        self
    }

    /// How long a draining worker may take to finish what is open; the rest is cut and counted.
    /// Default: 30 s.
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.config.drain_timeout = timeout;
        self
    }

    /// How long a new worker may take until it accepts, an upgrade's canary too. Default: 60 s.
    #[must_use]
    pub fn ready_timeout(mut self, timeout: Duration) -> Self {
        self.config.ready_timeout = timeout;
        self
    }

    /// How many slots a reload replaces at a time, that of an upgrade too. More is faster, and
    /// needs memory for so many workers more. Default: 1.
    #[must_use]
    pub fn reload_batch(mut self, slots: NonZeroU16) -> Self {
        self.config.reload_batch = slots;
        self
    }

    /// A worker whose event loop stands still for so long while work waits for it is aborted
    /// (`SIGABRT`, so that it leaves a core; after a second `SIGKILL`) and replaced, which counts
    /// as a crash. Work is a request that was begun or a connection in the queue of the slot's own
    /// TCP listener: with [`run`](Self::run), whose requests are not seen, or on Unix and shared
    /// listeners, whose queues are not, less is noticed. An idle worker, or one that is merely
    /// busy, is left alone; one that a debugger has stopped is not. At least
    /// [`HANG_TIMEOUT_MIN`](crate::HANG_TIMEOUT_MIN), 1 s; `None` is never.
    /// Default: 30 s.
    #[must_use]
    pub fn hang_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.hang_timeout = timeout.into();
        self
    }

    /// More crashes than this end the server. Default: 10 per 60 s.
    #[must_use]
    pub fn crash_limit(mut self, limit: CrashLimit) -> Self {
        self.config.crash_limit = limit;
        self
    }

    /// How long a slot rests between its crashes; its listeners are attended by another worker
    /// meanwhile. Default: see [`Backoff`].
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.config.backoff = backoff;
        self
    }

    /// How many connections a worker holds. At least 1. When there are as many and another waits,
    /// [`serve`](Self::serve) closes the one that has been idle longest, with GOAWAY in HTTP/2. It
    /// closes none that was idle for less than [`Http::linger`](crate::Http::linger), and none
    /// that is less than a second old and has sent nothing. While all are busy, new ones wait in
    /// the listener's queue; in [`run`](Self::run) they always do. Default: what `RLIMIT_NOFILE`
    /// allows, less a reserve for the app's own descriptors.
    #[must_use]
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.config.max_connections = Some(connections);
        self
    }

    /// How many connections a worker holds of one client address: an IPv4 address, or the first 64
    /// bits of an IPv6 address. A further one is accepted and closed without a word. A server's
    /// workers count alone, so that the server holds up to this many for each worker. Clients on
    /// Unix sockets and those of [`proxy_protocol`](Self::proxy_protocol) are not limited. Default:
    /// `None`, which is any number.
    #[must_use]
    pub fn max_connections_per_client(
        mut self,
        connections: impl Into<Option<NonZeroUsize>>,
    ) -> Self {
        self.config.max_connections_per_client = connections.into();
        self
    }

    /// Replaces a worker that has answered this many requests, and up to a quarter more so that
    /// not all workers reach it together: against leaks in the app. See
    /// [`Worker::recycle`](crate::Worker::recycle) for how. Counts what [`serve`](Self::serve)
    /// answers; in [`run`](Self::run) the app counts and calls `recycle` itself. Default: never.
    #[must_use]
    pub fn max_requests(mut self, requests: impl Into<Option<u64>>) -> Self {
        self.config.max_requests = requests.into();
        self
    }

    /// Replaces a worker that is this old, or up to a quarter older. See
    /// [`Worker::recycle`](crate::Worker::recycle) for how. Default: never.
    #[must_use]
    pub fn max_worker_age(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.config.max_worker_age = age.into();
        self
    }

    /// Connections from these networks begin with a PROXY header (HAProxy's `proxy-protocol.txt`,
    /// version 1 or 2), as a load balancer sends it that is told to: it says who the client is, for
    /// [`ConnectionInfo::client`](crate::ConnectionInfo::client). Name the balancers' addresses and
    /// no others, because the header is believed. One that connects from there without it, as a
    /// health check might, is hung up on; from elsewhere the header is no HTTP, and answered 400.
    ///
    /// The header must come within [`Http::header_timeout`](crate::Http::header_timeout), and may
    /// be 4 KiB long. Only [`serve`](Self::serve) reads it. Default: none.
    #[must_use]
    pub fn proxy_protocol(mut self, networks: impl IntoIterator<Item = Network>) -> Self {
        self.config.proxy_protocol = networks.into_iter().collect();
        self
    }

    /// Workers run as this user, by name or number (passwd(5)), without supplementary groups and
    /// without a way to more rights (prctl(2), `PR_SET_NO_NEW_PRIVS`); the master binds and stays
    /// what it is. Only root may name another than itself. Default: as the master; if that is root
    /// a warning is logged, and `"root"` says that it is meant. To name who the master is already
    /// changes nothing, not the supplementary groups either. Of no effect
    /// [in process](Self::in_process).
    ///
    /// What a worker opens itself, such as a log, it opens as that user; the program's file must be
    /// executable for it. What TLS needs the master reads.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.config.user = Some(user.into());
        self
    }

    /// Workers run as this group, by name or number (group(5)). Only root may name another than
    /// its own. Default: that of the [`user`](Self::user) in passwd(5).
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.config.group = Some(group.into());
        self
    }

    /// The mode of the files of Unix listeners, at most `0o777`; whoever may write to the file may
    /// connect (unix(7)). Its group is that of the workers. So `0o660` lets the workers' group
    /// connect, of which a reverse proxy may be a member, and `0o600` the master's user alone. The
    /// umask has no effect. A directory that others may not enter keeps them out in any case.
    /// Default: `0o666`, everyone on this machine, as with a TCP listener on loopback.
    #[must_use]
    pub fn unix_mode(mut self, mode: u32) -> Self {
        self.config.unix_mode = mode;
        self
    }

    /// What workers may ask of the master. What the master refuses is only logged, by the master.
    /// Default: [`WorkerRequests::Renewal`] if workers run as another [`user`](Self::user) than the
    /// master, so that what takes over a worker cannot end the server; else
    /// [`WorkerRequests::All`].
    #[must_use]
    pub fn worker_requests(mut self, requests: WorkerRequests) -> Self {
        self.config.worker_requests = Some(requests);
        self
    }

    /// Writes the master's pid there when the addresses are bound and removes the file at the end.
    /// Default: none.
    #[must_use]
    pub fn pid_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.pid_file = Some(path.into());
        self
    }

    /// Writes each [notice](crate::Notice) to this open descriptor, as one JSON object a line. A
    /// reader that lags loses notices. Default: none.
    #[must_use]
    pub fn announce_fd(mut self, fd: i32) -> Self {
        self.config.announce_fd = Some(fd);
        self
    }

    /// The HTTP options that [`serve`](Self::serve) works by. Default: [`Http::default`].
    #[must_use]
    pub fn http(mut self, http: Http) -> Self {
        self.http = http;
        self
    }

    /// Has every address speak TLS. For [`serve`](Self::serve) only: with [`run`](Self::run) it is
    /// refused, as there the app speaks what it likes. Needs the feature `tls`. Default: HTTP in
    /// the open.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Who hears what happens. Default: nobody.
    #[must_use]
    pub fn hooks(mut self, hooks: impl Hooks + 'static) -> Self {
        self.hooks = Box::new(Timed::new(Box::new(hooks)));
        self
    }

    /// Serves in this very process instead of in workers: no master, no respawn, no signals, one
    /// thread. For tests (a re-executed test binary would run its tests again) and debuggers. It
    /// is ended by its [`handle`](Self::handle). Nothing that needs a master has an effect: no
    /// recycling, no hang detection, no other user, no pid file, no notice but
    /// [`Notice::Serving`](crate::Notice::Serving), and none on a descriptor. Default: workers.
    #[must_use]
    pub fn in_process(mut self) -> Self {
        self.processes = Processes::ThisOne;
        self
    }
}
