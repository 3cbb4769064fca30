//! The builder: collects settings, and calls the master or the worker, depending on the process.

mod check;
mod in_process;
#[cfg(feature = "sandbox")]
mod sandbox;
mod settings;
mod test_server;

use std::fmt;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};

pub use self::test_server::TestServer;
use crate::address::{Address, AddressError};
use crate::config::Config;
use crate::error::{BoxError, Error};
use crate::handle::Handle;
use crate::hooks::{Hooks, NoHooks, WorkerInfo};
use crate::http::{Http, IntoService, Tls};
use crate::worker::Worker;
use crate::worker::incoming::Incoming;
use crate::worker::serve::Serving;
use crate::{admin, exit, master, worker};

/// The builder of a server: settings first, then [`serve`](Self::serve) or [`run`](Self::run).
///
/// **The program runs once in every process.** Every process calls `serve` or `run`: the master
/// supervises there, a worker serves. So code before the call runs N + 1 times. What only one
/// process should do belongs behind [`role`] or into a [hook](Hooks); what each worker needs
/// belongs into the app. In a worker the call never returns. In the master it returns when the
/// server has ended; then `main` returns the result as an [`Exit`](crate::Exit).
///
/// `main` must not be inside a tokio runtime, so it has no `#[tokio::main]`: each worker makes a
/// runtime of its own, in which the app runs. Otherwise `serve` and `run` return
/// [`Error::Config`].
///
/// ```no_run
/// use prefork_server::{Exit, Prefork, Response, handler};
///
/// fn main() -> Exit {
///     Prefork::bind("127.0.0.1:8080")
///         .serve(async |_worker| {
///             Ok(handler(async |_request| {
///                 Ok(Response::new("Hello, World!".into()))
///             }))
///         })
///         .into()
/// }
/// ```
pub struct Prefork {
    config: Config,
    http: Http,
    tls: Option<Tls>,
    hooks: Box<dyn Hooks>,
    processes: Processes,
    /// Why the first wrong setting is wrong.
    refused: Option<String>,
    handle: Option<(Handle, UnixDatagram)>,
}

/// Where the app runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Processes {
    Workers,
    ThisOne,
}

/// What this process is.
///
/// ```
/// use prefork_server::{Role, role};
///
/// // Each process has a log of its own.
/// let log = match role() {
///     Role::Master => "master.log".to_owned(),
///     _ => format!("process-{}.log", std::process::id()),
/// };
/// assert_eq!(log, "master.log");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// A user or a service manager has started it, or it was upgraded in place. It will supervise.
    Master,
    /// A master has spawned it. It will serve.
    Worker,
    /// A master has spawned it for an [admin address](Prefork::admin).
    Admin,
}

/// Whether this process is a master, a worker or an admin process. The role is the same from the
/// first line of `main` on. Programs that a worker starts are no workers.
///
/// For what only one process may do, such as a migration:
///
/// ```no_run
/// use prefork_server::{BoxError, Exit, Prefork, Response, Role, handler, role};
/// # fn migrate() -> Result<(), BoxError> { Ok(()) }
///
/// fn run() -> Result<(), BoxError> {
///     if role() == Role::Master {
///         migrate()?;
///     }
///     Prefork::bind("127.0.0.1:8080").serve(async |_worker| {
///         Ok(handler(async |_request| Ok(Response::new("hello".into()))))
///     })?;
///     Ok(())
/// }
///
/// fn main() -> Exit {
///     run().into()
/// }
/// ```
///
/// At the start no worker runs before the migration has ended. In an upgrade the master runs it
/// while the workers of the old binary and the first worker of the new binary serve. So both
/// binaries must work with the database as it is before and after. If the migration fails there,
/// the master ends, and the workers finish their open work and exit.
#[must_use]
pub fn role() -> Role {
    if worker::is_worker() {
        Role::Worker
    } else if admin::marker().is_some() {
        Role::Admin
    } else {
        Role::Master
    }
}

/// The worker that this process is; `None` in another process. It is the same from the first line
/// of `main` on, so that each line of a log can name its worker.
///
/// ```
/// assert_eq!(prefork_server::this_worker(), None);
/// ```
#[must_use]
pub fn this_worker() -> Option<WorkerInfo> {
    let marker = worker::marker()?;
    Some(WorkerInfo::new(
        marker.slot,
        marker.generation,
        std::process::id(),
    ))
}

/// Whether this process runs a server already. A worker takes its descriptors only once, and a
/// master has the signals of its process, so a second server in the same process would disturb the
/// first.
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Prefork {
    /// A server on one address: `"127.0.0.1:8080"`, `("127.0.0.1", 8080)`,
    /// `(Ipv4Addr::LOCALHOST, 8080)`, `"[::]:80"`, `"unix:/run/app.sock"`, a `SocketAddr` or an
    /// [`Address`]. For what is no address `serve` and `run` return an error. With port 0 the
    /// kernel chooses one port for all workers, which [`Hooks::serving`],
    /// [`Handle::wait_serving`](crate::Handle::wait_serving) and the log's line `serving` tell.
    ///
    /// If a service manager passes listeners (sd_listen_fds(3), a systemd `.socket` unit), the
    /// server listens on them instead of all addresses given here. All workers share each of them.
    #[must_use]
    pub fn bind<A>(address: A) -> Self
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let server = Self {
            config: Config::default(),
            http: Http::default(),
            tls: None,
            hooks: Box::new(NoHooks),
            processes: Processes::Workers,
            refused: None,
            handle: None,
        };
        server.also_bind(address)
    }

    /// Adds an address. A server has up to 252, because the listeners of a slot are sent in one
    /// message (unix(7), `SCM_MAX_FD`).
    ///
    /// ```
    /// use prefork_server::Prefork;
    ///
    /// // IPv4, IPv6, and a reverse proxy on the same machine.
    /// let server = Prefork::bind(("0.0.0.0", 80))
    ///     .also_bind("[::]:80")
    ///     .also_bind("unix:/run/app.sock");
    /// ```
    ///
    /// Default: only the first.
    #[must_use]
    pub fn also_bind<A>(mut self, address: A) -> Self
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        match address.try_into() {
            Ok(address) => self.config.addresses.push(address),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// Keeps the first address that is none, for the error.
    fn refuse(&mut self, error: impl Into<AddressError>) {
        self.refused.get_or_insert_with(|| error.into().to_string());
    }

    /// A handle on the server, for a thread that the program starts before [`serve`](Self::serve)
    /// or [`run`](Self::run). Every process runs that code, so such a thread runs in each worker
    /// too, unless the program starts it behind [`role`]. After an upgrade the program starts it
    /// again. The app uses [`Worker::handle`].
    ///
    /// ```
    /// use prefork_server::{Prefork, Response, Stop, handler};
    ///
    /// let mut server = Prefork::bind("127.0.0.1:0").in_process();
    /// let handle = server.handle()?;
    /// let client = std::thread::spawn(move || {
    ///     let addresses = handle.wait_serving();
    ///     // Send requests to the first address. Then end the server.
    ///     handle.stop(Stop::Drain).map(|()| addresses)
    /// });
    /// server.serve(async |_worker| Ok(handler(async |_request| Ok(Response::default()))))?;
    /// let addresses = client.join().expect("no panic")?.expect("it has served");
    /// assert!(addresses[0].to_string().starts_with("127.0.0.1:"));
    /// # Ok::<(), prefork_server::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// socketpair(2) failed.
    pub fn handle(&mut self) -> Result<Handle, Error> {
        if let Some((handle, _)) = &self.handle {
            return Ok(handle.clone());
        }
        let pair = Handle::pair().map_err(|error| Error::system("socketpair(2)", error))?;
        Ok(self.handle.insert(pair).0.clone())
    }

    /// Supervises in the master. In each worker it makes the service and serves HTTP with it.
    ///
    /// **Called in every process**: see [`Prefork`]. `app` runs once in each worker, inside its
    /// runtime. The worker is ready when `app` has returned and connections are accepted. `app`
    /// returns a hyper service, or with the feature `tower` a tower service: [`IntoService`]. The
    /// service and its futures need not be `Send`, because a worker has one thread. All connections
    /// of a worker share the service. If the worker is asked to drain before and no connection
    /// waits, `app` is dropped at its next `await`.
    ///
    /// When a worker drains and another worker attends to its slot from then on (in a reload, an
    /// upgrade, a resize or a recycling, or after a `TERM` to the worker), it hands its idle
    /// connections over to that worker, whose service answers later requests on them. So a service
    /// must not rely on what it keeps for a connection. An HTTP/2 connection with a request that
    /// takes long is not handed over; [`Http::linger`] says how it ends. Connections that were
    /// upgraded to another protocol stay, and end within [`Http::upgrade_grace`];
    /// [`Worker::drain`] has an example.
    ///
    /// axum, with the feature `axum`. The [guide](crate::guide) has other frameworks:
    ///
    /// ```no_run
    /// use axum::{Router, extract::State, routing::get};
    /// use prefork_server::{Exit, Prefork};
    ///
    /// async fn hello(State(greeting): State<&'static str>) -> String {
    ///     format!("{greeting}, World!")
    /// }
    ///
    /// fn main() -> Exit {
    ///     Prefork::bind("127.0.0.1:8080")
    ///         .serve(async |_worker| Ok(Router::new().route("/", get(hello)).with_state("Hello")))
    ///         .into()
    /// }
    /// ```
    ///
    /// Layers of tower, with the feature `tower`:
    ///
    /// ```no_run
    /// use std::{convert::Infallible, time::Duration};
    ///
    /// use http::StatusCode;
    /// use prefork_server::{Exit, Prefork, Request, Response};
    /// use tower::{ServiceBuilder, limit::ConcurrencyLimitLayer};
    /// use tower_http::timeout::TimeoutLayer;
    ///
    /// async fn hello(_request: Request) -> Result<Response, Infallible> {
    ///     Ok(Response::new("Hello, World!".into()))
    /// }
    ///
    /// fn main() -> Exit {
    ///     let (status, timeout) = (StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(5));
    ///     let ended = Prefork::bind("127.0.0.1:8080").serve(async |_worker| {
    ///         Ok(ServiceBuilder::new()
    ///             // For all requests of this worker together.
    ///             .layer(ConcurrencyLimitLayer::new(100))
    ///             .layer(TimeoutLayer::with_status_code(status, timeout))
    ///             .service_fn(hello))
    ///     });
    ///     ended.into()
    /// }
    /// ```
    ///
    /// # Errors
    /// In the master: a setting is wrong, an address cannot be bound, no worker becomes ready,
    /// there are more crashes than the limit, a hook refuses, an upgraded master cannot read its
    /// state, or a necessary system call fails. In process: the error that the app has returned.
    pub fn serve<A, S, Kind>(mut self, app: A) -> Result<(), Error>
    where
        A: AsyncFnOnce(Worker) -> Result<S, BoxError>,
        S: IntoService<Kind>,
    {
        let serving = Serving {
            http: std::mem::take(&mut self.http),
            tls: self.tls.clone(),
            balancers: self.config.proxy_protocol.clone(),
            max_requests: self.config.max_requests,
        };
        self.begin(async move |worker, incoming| serving.serve(app, worker, incoming).await)
    }

    /// Supervises in the master. In each worker it runs `app` on the worker's connections.
    ///
    /// **Called in every process**: see [`Prefork`]. This is for any server that takes tokio
    /// streams. The limits and timeouts of [`Http`], TLS, PROXY headers, the hand-over and the
    /// counts of requests are those of [`serve`](Self::serve), and are not there in `run`. A
    /// framework on tower, such as axum, is an app of `serve`. [`Incoming`] has an example with
    /// tonic's own server, and [`Connection`](crate::Connection) one with a protocol of its own.
    ///
    /// The worker is ready when `app` first asks `incoming` for a connection. `app` should return
    /// when [`Worker::drain`] has resolved and open work is finished. At the drain timeout the
    /// worker cuts what is not finished. No connection is handed over to another worker. If `app`
    /// returns unasked, a new worker runs it again: at once if it returned `Ok` at least a second
    /// after it was ready, else with the pauses of a [`Backoff`](crate::Backoff).
    ///
    /// # Errors
    /// As [`serve`](Self::serve). Also if the builder has TLS: with `run` the app speaks TLS
    /// itself.
    pub fn run<A>(mut self, app: A) -> Result<(), Error>
    where
        A: AsyncFnOnce(Worker, Incoming) -> Result<(), BoxError>,
    {
        if self.tls.is_some() {
            // Otherwise the server would speak plain HTTP without a warning.
            self.refused.get_or_insert_with(|| {
                "Prefork::tls is for serve; an app in run has to speak TLS itself".into()
            });
        }
        self.config.defer_accept = self.config.defer_accept.of_run();
        self.begin(async |worker, incoming| worker.run_in_sandbox(app, incoming).await)
    }

    fn begin<A>(mut self, app: A) -> Result<(), Error>
    where
        A: AsyncFnOnce(Worker, Incoming) -> Result<(), BoxError>,
    {
        let _ended = self.handle()?.end_guard();
        let result = match self.processes {
            Processes::ThisOne => self.run_in_process(app),
            Processes::Workers => self.run_in_workers(app),
        };
        result.inspect_err(exit::note)
    }

    fn run_in_workers<A>(mut self, app: A) -> Result<(), Error>
    where
        A: AsyncFnOnce(Worker, Incoming) -> Result<(), BoxError>,
    {
        if let Some(marker) = admin::marker() {
            admin::run_and_exit(marker);
        }
        let marker = worker::marker();
        if TAKEN.swap(true, Ordering::AcqRel) {
            return Err(Error::Config("this process already runs a server".into()));
        }
        let (handle, commands) = self.take_handle()?;
        let result = match marker {
            Some(marker) => {
                // The master has checked the settings, unless this is the canary of an upgrade.
                if let Err(error) = self.parsed() {
                    worker::refuse(marker, error);
                }
                let setup = self.worker_setup(handle, commands);
                worker::run_and_exit(setup, marker, app)
            }
            None => self.supervise(handle, commands),
        };
        TAKEN.store(false, Ordering::Release);
        result
    }

    fn supervise(mut self, handle: Handle, commands: UnixDatagram) -> Result<(), Error> {
        let workers = self.parsed()?;
        master::run(master::Setup {
            config: self.config,
            workers,
            tls: self.tls,
            hooks: self.hooks,
            handle,
            commands,
        })
    }

    fn worker_setup(self, handle: Handle, commands: UnixDatagram) -> worker::Setup {
        worker::Setup {
            config: self.config,
            hooks: self.hooks,
            handle,
            commands,
        }
    }

    fn take_handle(&mut self) -> Result<(Handle, UnixDatagram), Error> {
        self.handle()?;
        Ok(self.handle.take().expect("it was made a line above"))
    }
}

impl fmt::Debug for Prefork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefork")
            .field("config", &self.config)
            .field("http", &self.http)
            .field("tls", &self.tls)
            .field("processes", &self.processes)
            .finish_non_exhaustive()
    }
}
