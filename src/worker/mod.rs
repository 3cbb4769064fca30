//! A worker: takes what the master has left it, builds the runtime, runs the app on incoming
//! connections until it drains, reports to the master and exits.

pub(crate) mod alone;
mod at_exit;
pub(crate) mod background;
pub(crate) mod clients;
pub(crate) mod connection;
mod control;
pub(crate) mod drain;
mod first_of;
mod heartbeat;
pub(crate) mod incoming;
pub(crate) mod outgoing;
#[cfg(feature = "metrics")]
mod own_metrics;
mod page;
mod placing;
mod proxied;
pub(crate) mod recycle;
pub(crate) mod redirect;
mod sandbox;
pub(crate) mod serve;
pub(crate) mod sharing;
mod source;
pub(crate) mod span;
mod stream;
mod tls;
pub(crate) mod until_drain;

use std::cell::Cell;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::task::spawn_local;
use tokio::time::Instant;
use tokio::time::error::Elapsed;

use crate::config::{Config, ListenerUse};
use crate::error::{BoxError, EXIT_FAILED, EXIT_NOT_READY, Error, chain, said_by, with_limit};
use crate::handle::Handle;
use crate::hooks::{Hooks, WorkerInfo};
use crate::id::{Generation, Slot};
use crate::protocol::channel::{Channel, ToMaster};
use crate::protocol::inbox::Sender;
use crate::protocol::inheritance::{Marker, ProcessRole};
use crate::stats::{Gauge, State, WorkerStats};
use crate::sys::{limits, spawn};
use crate::worker::at_exit::AtExit;
use crate::worker::clients::Clients;
use crate::worker::drain::{Drain, DrainSwitch};
use crate::worker::first_of::first_of;
use crate::worker::incoming::{Incoming, Queue};
use crate::worker::outgoing::Outgoing;
use crate::worker::redirect::Redirect;
use crate::worker::sandbox::Entrance;
use crate::worker::sharing::Shares;

/// The exit code of a program whose `main` panics.
const EXIT_PANICKED: i32 = 101;

/// Threads of the blocking pool (`tokio::fs`, `spawn_blocking`). Tokio's default of 512 is for one
/// process per machine, not for one per core.
const BLOCKING_THREADS_MAX: usize = 16;

/// How long the connections that a drain cuts may take to end before the work at the exit begins.
/// Together with the least time of that work it is less than the time after which the master kills
/// the worker.
const CUT_MAX: Duration = Duration::from_millis(100);

/// The worker that the app runs in. Cheap to clone.
///
/// The app gets it before it makes its service. So each worker has a pool of its own, with its part
/// of what the database allows:
///
/// ```no_run
/// use axum::{Router, extract::State, routing::get};
/// use prefork_server::{Exit, Prefork};
/// # #[derive(Clone)]
/// # struct Pool;
/// # impl Pool {
/// #     async fn connect(_connections: u16) -> std::io::Result<Self> { Ok(Self) }
/// #     async fn user(&self) -> String { String::new() }
/// # }
///
/// async fn user(State(pool): State<Pool>) -> String {
///     pool.user().await
/// }
///
/// fn main() -> Exit {
///     let ended = Prefork::bind("127.0.0.1:8080").serve(async |worker| {
///         // The database allows 100. In a reload, the old worker of a slot still has its pool.
///         let pool = Pool::connect(100 / 2 / worker.workers()).await?;
///         Ok(Router::new().route("/user", get(user)).with_state(pool))
///     });
///     ended.into()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Worker {
    slot: Slot,
    generation: Generation,
    workers: u16,
    drain: Drain,
    handle: Handle,
    /// The channel to the master; `None` if there is no master.
    channel: Option<Channel>,
    /// Sends connections to the slot's next worker; `None` if there is no master.
    outbound: Option<Sender>,
    shares: Shares,
    drain_timeout: Duration,
    stats: WorkerStats,
    tls: tls::Inherited,
    redirect: Arc<Redirect>,
    at_exit: AtExit,
    sandbox: Entrance,
}

impl Worker {
    /// The slot of this worker, `0..workers`.
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// The generation of this worker; 1 until the first reload or upgrade.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Number of slots at spawn time. Divide a database connection limit by twice this number: in a
    /// reload, the old worker of each slot keeps its pool until it has drained. If reloads follow
    /// each other at once, up to four old workers drain in a slot.
    #[must_use]
    pub fn workers(&self) -> u16 {
        self.workers
    }

    /// Asks the master to replace this worker, for example because it leaks memory. The master
    /// starts another worker in its slot, and this one drains when that one is ready. One slot is
    /// replaced at a time. A slot whose workers ask within a second of being ready pauses as a
    /// [`Backoff`](crate::Backoff) says. If the new worker fails, this one serves on until it asks
    /// again; that is no crash. Without a master nothing happens.
    ///
    /// ```
    /// use prefork_server::{BoxError, Worker};
    ///
    /// /// Called from time to time by a task of the worker.
    /// fn recycle_if_large(worker: &Worker) -> Result<(), BoxError> {
    ///     // The second number is that of the pages in memory (proc_pid_statm(5)).
    ///     let sizes = std::fs::read_to_string("/proc/self/statm")?;
    ///     let pages: u64 = sizes.split(' ').nth(1).ok_or("no second number")?.parse()?;
    ///     if pages * 4096 > 512 * 1024 * 1024 {
    ///         worker.recycle();
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn recycle(&self) {
        if let Some(channel) = &self.channel
            && let Err(error) = channel.send_to_master(&ToMaster::Recycle)
        {
            tracing::debug!(%error, "could not ask the master to replace the worker");
        }
    }

    /// Runs `work` after the last request, before this worker exits: to close a pool, or to send
    /// what a logger or tracer has kept. A worker exits without dropping what `main` has made, so
    /// what is to be flushed belongs here. Of several, the last one runs first.
    ///
    /// It runs inside the runtime of the worker, when the app has returned: after a drain, also if
    /// that has cut connections, and after an error. It may take as long as is left of the [drain
    /// timeout](crate::Prefork::drain_timeout), and at least half a second. It does not run if the
    /// worker panics or is killed.
    ///
    /// It runs on the thread of the worker, although `work` has to be `Send`. So it reaches state
    /// in a `thread_local!`, but cannot hold an `Rc`.
    ///
    /// ```no_run
    /// use prefork_server::{Exit, Prefork, Response, handler};
    /// # struct Tracer;
    /// # impl Tracer {
    /// #     fn install() -> Self { Self }
    /// #     fn shutdown(self) {}
    /// # }
    ///
    /// fn main() -> Exit {
    ///     Prefork::bind("127.0.0.1:8080")
    ///         .serve(async |worker| {
    ///             let tracer = Tracer::install();
    ///             worker.at_exit(async {
    ///                 // It blocks until its last spans are sent.
    ///                 let _ = tokio::task::spawn_blocking(|| tracer.shutdown()).await;
    ///             });
    ///             Ok(handler(async |_request| Ok(Response::new("traced".into()))))
    ///         })
    ///         .into()
    /// }
    /// ```
    pub fn at_exit(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.at_exit.push(work);
    }

    /// A handle on the whole server. Its commands go to the master.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The drain, and what becomes of idle connections in it.
    pub(crate) fn drain_asked(&self) -> Drain {
        self.drain.clone()
    }

    /// Where its connections go when it drains, or when it has more of them than other workers.
    pub(crate) fn outgoing(&self) -> Option<Outgoing> {
        let sender = self.outbound.clone()?;
        let (drain, stats) = (self.drain.clone(), self.stats.clone());
        let wait_max = outgoing::wait_max(self.drain_timeout);
        Some(Outgoing::new(sender, drain, wait_max, stats))
    }

    /// As [`Drain::closing_within`], shortly before the drain timeout.
    pub(crate) fn closing(&self) -> impl Future<Output = ()> + use<> {
        let wait_max = outgoing::wait_max(self.drain_timeout);
        self.drain.clone().closing_within(wait_max)
    }

    /// The connections that it is to give to other slots.
    pub(crate) fn shares(&self) -> Shares {
        self.shares.clone()
    }

    /// The page that it counts in.
    pub(crate) fn stats(&self) -> &WorkerStats {
        &self.stats
    }

    /// The keys and files of TLS that the master has left it.
    pub(crate) fn tls(&self) -> &tls::Inherited {
        &self.tls
    }

    /// How notices identify this worker.
    #[must_use]
    pub fn info(&self) -> WorkerInfo {
        let pid = std::process::id();
        WorkerInfo {
            slot: self.slot,
            generation: self.generation,
            pid,
        }
    }
}

/// What a worker needs from the builder, which runs in every process.
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) hooks: Box<dyn Hooks>,
    pub(crate) handle: Handle,
    pub(crate) commands: UnixDatagram,
}

/// How the app ended.
enum End {
    /// By itself or at the drain. `open` connections were still open.
    Left { open: usize },
    /// With an error.
    Failed(BoxError),
}

/// Whether this process was started as a worker.
pub(crate) fn is_worker() -> bool {
    match ProcessRole::of_this_process() {
        ProcessRole::Worker(_) | ProcessRole::Orphan => true,
        ProcessRole::Master { .. } | ProcessRole::Upgraded { .. } | ProcessRole::Admin(_) => false,
    }
}

/// What the master has left to this process; `None` if this process is no worker. Exits the process
/// if the master ended while it was started, because no master will ever send it anything.
pub(crate) fn marker() -> Option<Marker> {
    match ProcessRole::of_this_process() {
        ProcessRole::Worker(marker) => Some(marker),
        ProcessRole::Master { .. } | ProcessRole::Upgraded { .. } | ProcessRole::Admin(_) => None,
        ProcessRole::Orphan => std::process::exit(0),
    }
}

/// Runs the app as a worker of the master, and exits the process.
pub(crate) fn run_and_exit<A>(setup: Setup, marker: Marker, app: A) -> !
where
    A: AsyncFnOnce(Worker, Incoming) -> Result<(), BoxError>,
{
    let name = format!("worker {} gen {}", marker.slot, marker.generation);
    spawn::set_name(&CString::new(name).expect("digits and letters hold no NUL"));
    let _entered = span::of_worker(marker.slot, marker.generation).entered();
    let run = AssertUnwindSafe(|| run_with_master(setup, marker, app));
    std::process::exit(catch_unwind(run).unwrap_or(EXIT_PANICKED))
}

/// Reports to the master that the settings are wrong, and exits the process.
pub(crate) fn refuse(marker: Marker, error: Error) -> ! {
    if let Ok(inheritance) = marker.take() {
        let failed = ToMaster::Failed(chain(&error));
        report(&inheritance.channel, (failed, EXIT_NOT_READY));
    }
    std::process::exit(EXIT_NOT_READY)
}

fn run_with_master<A>(setup: Setup, marker: Marker, app: A) -> i32
where
    A: AsyncFnOnce(Worker, Incoming) -> Result<(), BoxError>,
{
    let Setup {
        config,
        hooks,
        handle,
        commands,
    } = setup;
    let left = match marker.take() {
        Ok(left) => left,
        Err(error) => {
            tracing::error!(%error, "cannot take the inherited descriptors");
            return EXIT_NOT_READY;
        }
    };
    let stats = page::join(left.stats, &config);
    let (switch, drain) = DrainSwitch::new();
    // In a worker the handle never learns the addresses of the server.
    handle.set_ended();
    let worker = Worker {
        slot: left.marker.slot,
        generation: left.marker.generation,
        workers: left.marker.workers,
        drain,
        handle,
        channel: Some(left.channel.clone()),
        outbound: Some(left.outbound),
        shares: Shares::default(),
        drain_timeout: config.drain_timeout,
        stats: stats.clone(),
        tls: tls::Inherited::new(left.ticket_keys, left.tls_files),
        redirect: Redirect::new(&left.listeners),
        at_exit: AtExit::default(),
        sandbox: Entrance::of(&config),
    };
    let channel = left.channel;
    let pending = commands.try_clone();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        block_on(runtime()?, async {
            let queue = queue(left.listeners, Some(left.inbox), &config, stats.clone())?;
            let control::Started { ready, tasks } = control::start(control::Controls {
                config: &config,
                channel: channel.clone(),
                queue: Arc::clone(&queue),
                switch,
                commands,
                hooks,
                stats,
                shares: worker.shares(),
            })?;
            if let Some(age) = config.max_worker_age {
                spawn_local(recycle::by_age(worker.clone(), age));
            }
            let end = run(app, worker, &queue, config.drain_timeout);
            let end = background::run_with(tasks, end).await;
            // An app may accept and return before the task that reports it has run. Without the
            // report its clean exit would count as a failure to start.
            if queue.is_accepting() && !ready.is_finished() {
                control::send_ready(&channel);
            }
            Ok(end)
        })
    }));
    if let Ok(pending) = pending {
        control::forward_pending(&pending, &channel);
    }
    report(&channel, outcome(ended))
}

/// How the worker ended: for the master, and as its exit code.
fn outcome(ended: std::thread::Result<io::Result<(End, Started)>>) -> (ToMaster, i32) {
    let (why, code) = match ended {
        Ok(Ok((End::Left { open }, _))) => {
            let cut = u32::try_from(open).unwrap_or(u32::MAX);
            return (ToMaster::Drained { cut }, 0);
        }
        Ok(Ok((End::Failed(error), Started::No))) => (chain(&*error), EXIT_NOT_READY),
        Ok(Ok((End::Failed(error), Started::Yes))) => (chain(&*error), EXIT_FAILED),
        Ok(Err(error)) => {
            let error = with_limit(error);
            (format!("it could not be set up: {error}"), EXIT_NOT_READY)
        }
        Err(panic) => (format!("it panicked: {}", said_by(&*panic)), EXIT_PANICKED),
    };
    (ToMaster::Failed(why), code)
}

/// Reports to the master how the worker ended, and returns its exit code.
fn report(channel: &Channel, (message, code): (ToMaster, i32)) -> i32 {
    if let Err(error) = channel.send_to_master(&message) {
        tracing::debug!(%error, "could not report to the master how the worker ended");
    }
    code
}

/// Whether the app has begun to accept connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Started {
    Yes,
    No,
}

/// Runs the app until it returns or the drain timeout is over, then what is to be done at the exit.
async fn run<A>(app: A, worker: Worker, queue: &Arc<Queue>, timeout: Duration) -> (End, Started)
where
    A: AsyncFnOnce(Worker, Incoming) -> Result<(), BoxError>,
{
    let (drain, stats) = (worker.drain.clone(), worker.stats.clone());
    let at_exit = worker.at_exit.clone();
    let asked = Cell::new(None);
    let deadline = async {
        let idle = drain.asked().await;
        asked.set(Some(Instant::now()));
        stats.set_state(State::Draining);
        queue.drain(idle);
        tokio::time::sleep(timeout).await;
    };
    let left = || End::Left {
        open: queue.active(),
    };
    let cut = async {
        deadline.await;
        left()
    };
    let app = async {
        match app(worker, Incoming::new(Arc::clone(queue))).await {
            Ok(()) => left(),
            Err(error) => End::Failed(error),
        }
    };
    // An app that has not ended is dropped, which cuts what is open.
    let end = first_of(cut, app).await;
    let _: Result<(), Elapsed> = tokio::time::timeout(CUT_MAX, queue.vacated()).await;
    let started = match queue.is_accepting() {
        true => Started::Yes,
        false => Started::No,
    };
    let spent = asked.get().map_or(Duration::ZERO, |asked| asked.elapsed());
    at_exit.run(timeout.saturating_sub(spent)).await;
    (end, started)
}

fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build_local(LocalOptions::default())
}

/// Runs the future to its end, then shuts the runtime down. It does not wait for blocking work that
/// still runs, not after a panic either: otherwise the worker would neither serve nor exit.
fn block_on<T>(runtime: LocalRuntime, future: impl Future<Output = T>) -> T {
    let end = catch_unwind(AssertUnwindSafe(|| runtime.block_on(future)));
    runtime.shutdown_background();
    end.unwrap_or_else(|panic| resume_unwind(panic))
}

fn queue(
    listeners: Vec<(OwnedFd, ListenerUse)>,
    inbox: Option<OwnedFd>,
    config: &Config,
    stats: WorkerStats,
) -> io::Result<Arc<Queue>> {
    let cap = incoming::connections_max(config.max_connections, limits::open_files());
    stats.set(Gauge::ConnectionsMax, cap as u64);
    let clients = config.max_connections_per_client;
    let clients = clients.map(|max| Clients::new(max, &config.proxy_protocol));
    let listeners = listeners.into_iter().map(|(listener, _)| listener);
    Queue::new(listeners.collect(), inbox, cap, clients, stats)
}
