//! A server without a master: one worker in the process of the program, for tests and debuggers.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram as StdUnixDatagram;
use std::rc::Rc;
use std::sync::Arc;

use tokio::net::UnixDatagram;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::Span;

use crate::address::{self, Address};
use crate::config::ListenerUse;
use crate::drain::Idle;
use crate::error::{BoxError, Error};
use crate::handle::{Command, Handle};
use crate::hooks::{Hooks, Notice, WorkerInfo};
use crate::id::{Generation, Slot};
use crate::policy::{ServerState, Stop, WorkerState};
use crate::stats::{Gauge, State, WorkerStats};
use crate::status::{SlotStatus, Status, WorkerStatus};
use crate::worker::at_exit::AtExit;
use crate::worker::control::{call, next_command};
use crate::worker::drain::DrainSwitch;
use crate::worker::first_of::first_of;
use crate::worker::incoming::{Incoming, Queue};
use crate::worker::redirect::Redirect;
use crate::worker::sandbox::Entrance;
use crate::worker::sharing::Shares;
use crate::worker::{End, Setup, Started, Worker, background, block_on, page, queue, runtime, tls};

/// What a server without a master is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The app of a user.
    App,
    /// The admin process, whose master logs what it does.
    Admin,
}

/// Runs the app in this process until the app returns or a handle stops it.
pub(crate) fn run<A>(
    purpose: Purpose,
    setup: Setup,
    listeners: Vec<(OwnedFd, ListenerUse)>,
    addresses: Vec<Address>,
    app: A,
) -> Result<(), Error>
where
    A: AsyncFnOnce(Worker, Incoming) -> Result<(), BoxError>,
{
    let Setup {
        config,
        hooks,
        handle,
        commands,
    } = setup;
    let (slot, generation) = (Slot(0), Generation::FIRST);
    let span = match purpose {
        Purpose::App => super::span::of_worker(slot, generation),
        Purpose::Admin => Span::current(),
    };
    let _entered = span.entered();
    let (switch, drain) = DrainSwitch::new();
    let worker = Worker {
        slot,
        generation,
        workers: 1,
        drain,
        handle: handle.clone(),
        channel: None,
        outbound: None,
        shares: Shares::default(),
        drain_timeout: config.drain_timeout,
        stats: page::alone(&config),
        tls: tls::Inherited::default(),
        redirect: Redirect::new(&listeners),
        at_exit: AtExit::default(),
        sandbox: Entrance::default(),
    };
    let stats = worker.stats.clone();
    let runtime = runtime().map_err(|error| Error::system("epoll_create1(2)", error))?;
    let end = block_on(runtime, async {
        let queue = queue(listeners, None, &config, stats.clone())?;
        let (stopped, tasks) = start(Controls {
            purpose,
            queue: Arc::clone(&queue),
            switch,
            commands,
            hooks,
            handle,
            addresses,
            worker: worker.info(),
            stats,
        })?;
        let run = super::run(app, worker, &queue, config.drain_timeout);
        let run = background::run_with(tasks, stopped.unless(run));
        Ok::<_, io::Error>(run.await)
    });
    match end {
        Ok(End::Left { .. }) => Ok(()),
        Ok(End::Failed(error)) => match error.downcast::<Error>() {
            Ok(refused) => Err(*refused),
            Err(error) => Err(Error::App(error)),
        },
        Err(error) => Err(Error::system("epoll_ctl(2)", error)),
    }
}

/// What the tasks of the only worker use.
struct Controls {
    purpose: Purpose,
    queue: Arc<Queue>,
    switch: DrainSwitch,
    commands: StdUnixDatagram,
    hooks: Box<dyn Hooks>,
    handle: Handle,
    addresses: Vec<Address>,
    worker: WorkerInfo,
    stats: WorkerStats,
}

/// Ends the app when a handle asks for `Stop::Now`, or when a hook refuses.
#[derive(Clone, Default)]
struct Stopped {
    asked: Rc<Notify>,
    refused: Rc<RefCell<Option<Error>>>,
}

/// Starts the tasks, inside the runtime. The server must not go on without one of them.
fn start(controls: Controls) -> io::Result<(Stopped, JoinSet<()>)> {
    let Controls {
        purpose,
        queue,
        switch,
        commands,
        hooks,
        handle,
        addresses,
        worker,
        stats,
    } = controls;
    publish_status(&handle, addresses.clone(), worker, stats.clone());
    let stopped = Stopped::default();
    let hooks = Rc::new(RefCell::new(hooks));
    let commands = UnixDatagram::from_std(commands)?;
    let (stop, reopen) = (stopped.clone(), Rc::clone(&hooks));
    let mut tasks = JoinSet::new();
    tasks.spawn_local(async move {
        while let Some(command) = next_command(&commands).await {
            match command {
                Command::Stop(Stop::Drain) => switch.start(Idle::Close),
                Command::Stop(Stop::Now) => stop.asked.notify_one(),
                Command::ReopenLogs => call(|| reopen.borrow_mut().reopen_logs()),
                command => {
                    tracing::warn!(%command, "needs a master; this server runs in process");
                }
            }
        }
    });
    let stop = stopped.clone();
    tasks.spawn_local(async move {
        queue.accepting().await;
        let mut hooks = hooks.borrow_mut();
        if let Err(source) = hooks.serving(&addresses, &[worker]) {
            *stop.refused.borrow_mut() = Some(Error::Hook {
                hook: "serving",
                source,
            });
            stop.asked.notify_one();
            return;
        }
        hooks.notice(&Notice::Serving {
            addresses: addresses.clone(),
            workers: 1,
            pid: worker.pid,
        });
        if purpose == Purpose::App {
            tracing::info!(addresses = %address::list(&addresses), "serving");
        }
        stats.set_state(State::Serving);
        handle.set_serving(&addresses);
    });
    Ok((stopped, tasks))
}

/// Gives the handles the state of the server. The counts are read when a handle asks.
fn publish_status(
    handle: &Handle,
    addresses: Vec<Address>,
    worker: WorkerInfo,
    stats: WorkerStats,
) {
    let source = Box::new(move || {
        let (server, state) = match stats.gauge(Gauge::State) {
            state if state == State::Starting as u64 => {
                (ServerState::Starting, WorkerState::Starting)
            }
            state if state == State::Serving as u64 => (ServerState::Serving, WorkerState::Serving),
            _ => (ServerState::Draining, WorkerState::Draining),
        };
        let gauge = |gauge| u32::try_from(stats.gauge(gauge)).unwrap_or(u32::MAX);
        let workers = vec![WorkerStatus {
            worker,
            state,
            connections: gauge(Gauge::Connections),
            requests: gauge(Gauge::Requests),
        }];
        Status {
            state: server,
            addresses: addresses.clone(),
            workers: 1,
            generation: worker.generation,
            slots: vec![SlotStatus {
                slot: worker.slot,
                workers,
                adopted_by: None,
                backing_off: false,
            }],
            totals: stats.totals(),
        }
    });
    handle.publish(|| source);
}

impl Stopped {
    /// Runs the app unless it is stopped first.
    async fn unless(&self, app: impl Future<Output = (End, Started)>) -> End {
        let asked = async {
            self.asked.notified().await;
            match self.refused.borrow_mut().take() {
                Some(error) => End::Failed(error.into()),
                None => End::Left { open: 0 },
            }
        };
        first_of(asked, async { app.await.0 }).await
    }
}
