//! The builder: collects settings, finds out which process this is, and opens the right door.

mod settings;

use std::fmt;
use std::num::NonZeroU16;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::service::Service;

use crate::address::{Address, AddressError};
use crate::config::{Config, HANG_TIMEOUT_MIN};
use crate::error::{BoxError, Error};
use crate::handle::Handle;
use crate::hooks::{Hooks, NoHooks};
use crate::http::{Http, Request, Tls};
use crate::id::MAX_WORKERS;
use crate::master::ADDRESSES_MAX;
use crate::worker::Worker;
use crate::worker::incoming::Incoming;
use crate::worker::serve::Serving;
use crate::{master, worker};

/// A server to be: settings first, then [`serve`](Self::serve) or [`run`](Self::run).
///
/// **The program runs once in every process.** `serve` and `run` are called in all of them: in the
/// master they supervise, in a worker they serve. So code before them runs N + 1 times; what only
/// one process should do belongs behind [`role`] or into a [hook](Hooks), what each worker needs
/// into the app. In a worker they never return; in the master they return when the server has
/// ended.
///
/// ```no_run
/// use std::convert::Infallible;
///
/// use prefork_server::{Prefork, Request, Response, service_fn};
///
/// async fn hello(_request: Request) -> Result<Response, Infallible> {
///     Ok(Response::new("Hello, World!".into()))
/// }
///
/// fn main() -> Result<(), prefork_server::Error> {
///     Prefork::bind("127.0.0.1:8080").serve(async |_worker| Ok(service_fn(hello)))
/// }
/// ```
pub struct Prefork {
    config: Config,
    http: Http,
    tls: Option<Tls>,
    hooks: Box<dyn Hooks>,
    processes: Processes,
    /// The first setting that cannot work, by the reason.
    refused: Option<String>,
    handle: Option<(Handle, UnixDatagram)>,
}

/// Where the app runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Processes {
    Workers,
    ThisOne,
}

/// What the process that asks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It was started by a user, or upgraded in place, and will supervise.
    Master,
    /// It was spawned by a master, and will serve.
    Worker,
}

/// Whether this process is a worker; true from the first line of `main` on, and false in the
/// programs that a worker starts.
#[must_use]
pub fn role() -> Role {
    match worker::is_worker() {
        true => Role::Worker,
        false => Role::Master,
    }
}

/// A worker takes its inheritance once, and a master waits for any process that ends: a second
/// server in the same process would take what is not its own.
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Prefork {
    /// A server on one address: `"127.0.0.1:8080"`, `"[::]:80"`, `"unix:/run/app.sock"`, a
    /// `SocketAddr` or an [`Address`]. A text that is none is reported by `serve` or `run`.
    ///
    /// Listeners that a service manager hands in (sd_listen_fds(3), a systemd `.socket` unit) are
    /// served instead of every address given here; each is shared by all workers.
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

    /// One more address. Default: only the first. A server has up to 252: what workers adopt from
    /// each other travels in one message (unix(7), `SCM_MAX_FD`).
    #[must_use]
    pub fn also_bind<A>(mut self, address: A) -> Self
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        match address.try_into() {
            Ok(address) => self.config.addresses.push(address),
            Err(error) => {
                self.refused
                    .get_or_insert_with(|| AddressError::from(error).to_string());
            }
        }
        self
    }

    /// A handle on the server to be: for a thread of the program's own, which has to be started
    /// before [`serve`](Self::serve) or [`run`](Self::run). As this is called in every process,
    /// such a thread runs in each worker too, unless it is started behind [`role`]; after an
    /// upgrade it is started anew. Within the app there is [`Worker::handle`].
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

    /// Supervises in the master; in each worker it makes the service and serves HTTP with it.
    ///
    /// **Called in every process**: see [`Prefork`]. `app` runs once in each worker, inside its
    /// runtime; the worker is ready when `app` has returned and connections are accepted. Neither
    /// the service nor its futures need be `Send`: a worker has one thread. The service is cloned
    /// for each connection.
    ///
    /// A worker that leaves while its slot lives on (in a reload, an upgrade, a resize, a recycling
    /// or for a `TERM` of its own) hands its idle connections over to the next one, whose service
    /// answers what comes on them. What a service keeps for a connection has to allow for that.
    /// Those that speak TLS or HTTP/2 are not handed over: how they end says [`Http::linger`].
    /// Connections that were upgraded to another protocol stay, and end within
    /// [`Http::upgrade_grace`]; [`Worker::drain`] shows how they say goodbye.
    ///
    /// # Errors
    /// In the master: a setting that cannot work, an address that cannot be bound, no worker that
    /// becomes ready, more crashes than the limit, a hook that refuses, a state that an upgraded
    /// master cannot go on from, a system call that it cannot do without. In process: what the app
    /// returned.
    pub fn serve<A, S, B>(mut self, app: A) -> Result<(), Error>
    where
        A: AsyncFnOnce(Worker) -> Result<S, BoxError>,
        S: Service<Request, Response = hyper::Response<B>> + 'static,
        S::Error: Into<BoxError>,
        B: hyper::body::Body + 'static,
        B::Error: Into<BoxError>,
    {
        let serving = Serving {
            http: std::mem::take(&mut self.http),
            tls: self.tls.clone(),
            balancers: self.config.proxy_protocol.clone(),
            max_requests: self.config.max_requests,
        };
        self.begin(async move |worker, incoming| serving.serve(app, worker, incoming).await)
    }

    /// Supervises in the master; in each worker it runs `app` on the worker's connections.
    ///
    /// **Called in every process**: see [`Prefork`]. This is for servers other than our own: any
    /// that takes tokio streams. The worker is ready when `app` first asks `incoming` for a
    /// connection. `app` should return once [`Worker::drain`] has resolved and what was open is
    /// finished; what is not finished at the drain timeout is cut. Its connections stay its own:
    /// none is handed over to another worker. An `app` that returns unasked
    /// is run again in a new worker: at once if it returned `Ok` a second after it was ready or
    /// later, else with the pauses of a [`Backoff`](crate::Backoff).
    ///
    /// # Errors
    /// As [`serve`](Self::serve). Also if TLS was asked for: the app has to speak it here.
    pub fn run<A>(mut self, app: A) -> Result<(), Error>
    where
        A: AsyncFnOnce(Worker, Incoming) -> Result<(), BoxError>,
    {
        if self.tls.is_some() {
            // Served in the open, what was meant to be private would go unnoticed.
            self.refused.get_or_insert_with(|| {
                "Prefork::tls is for serve; an app in run has to speak TLS itself".into()
            });
        }
        self.begin(app)
    }

    fn begin<A>(mut self, app: A) -> Result<(), Error>
    where
        A: AsyncFnOnce(Worker, Incoming) -> Result<(), BoxError>,
    {
        let _ended = EndGuard(self.handle()?);
        match self.processes {
            Processes::ThisOne => self.run_in_process(app),
            Processes::Workers => self.run_in_workers(app),
        }
    }

    fn run_in_workers<A>(mut self, app: A) -> Result<(), Error>
    where
        A: AsyncFnOnce(Worker, Incoming) -> Result<(), BoxError>,
    {
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

    fn run_in_process<A>(mut self, app: A) -> Result<(), Error>
    where
        A: AsyncFnOnce(Worker, Incoming) -> Result<(), BoxError>,
    {
        self.parsed()?;
        if let Some(tls) = &self.tls {
            tls.read_files()?;
        }
        let (handle, commands) = self.take_handle()?;
        // The files of Unix listeners are removed at the end.
        let opened = master::listen_once(&self.config)?;
        let setup = self.worker_setup(handle, commands);
        worker::alone::run(setup, opened.listeners, opened.addresses, app)
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

    /// Checks the settings, which is done before anything is bound, and counts the workers.
    fn parsed(&mut self) -> Result<NonZeroU16, Error> {
        if let Some(error) = self.refused.take() {
            return Err(Error::Config(error));
        }
        let addresses = self.config.addresses.len();
        if addresses > ADDRESSES_MAX {
            return Err(Error::Config(format!(
                "{addresses} addresses: there can be up to {ADDRESSES_MAX}"
            )));
        }
        if self.config.max_connections == Some(0) {
            return Err(Error::Config("max_connections must be at least 1".into()));
        }
        if self.config.unix_mode > 0o777 {
            let mode = self.config.unix_mode;
            return Err(Error::Config(format!(
                "unix_mode {mode:o}: at most 777 (octal)"
            )));
        }
        if let Some(timeout) = self.config.hang_timeout
            && timeout < HANG_TIMEOUT_MIN
        {
            return Err(Error::Config(format!(
                "hang_timeout {timeout:?}: at least {HANG_TIMEOUT_MIN:?}, or none"
            )));
        }
        let workers = self.config.workers.unwrap_or_else(master::default_workers);
        u16::try_from(workers)
            .ok()
            .filter(|&workers| usize::from(workers) <= MAX_WORKERS)
            .and_then(NonZeroU16::new)
            .ok_or_else(|| {
                Error::Config(format!(
                    "{workers} workers: there can be 1 to {MAX_WORKERS}"
                ))
            })
    }
}

/// Lets go of who waits for the server, however it ends: also by an error before it has begun, or
/// by a panic.
struct EndGuard(Handle);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.set_ended();
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
