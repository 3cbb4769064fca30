//! What comes to a worker from outside: messages of the master, signals, and commands of handles.
//! Each source has a small task.

use std::io;
use std::os::unix::net::UnixDatagram as StdUnixDatagram;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tokio::net::UnixDatagram;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::config::Config;
use crate::drain::Idle;
use crate::handle::Command;
use crate::hooks::Hooks;
use crate::id::Slot;
use crate::protocol::channel::{Channel, Received, ToMaster, ToWorker};
use crate::protocol::inbox::Sender;
use crate::protocol::state::Versions;
use crate::stats::{State, WorkerStats};
use crate::sys::fds::{self, Spares};
use crate::sys::signals;
use crate::worker::drain::DrainSwitch;
use crate::worker::heartbeat;
use crate::worker::incoming::Queue;
use crate::worker::sharing::{Share, Shares};

/// How long after its drain timeout a worker ends if it cannot react to a `TERM`.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// How long a worker that got a `TERM` waits for the master to say how it drains. Less than
/// [`KILL_GRACE`], which begins at the same moment.
const MASTER_TIMEOUT: Duration = Duration::from_millis(500);

/// A worker that is not ready after this time, or half of its time to become ready, says so.
const SLOW_START: Duration = Duration::from_secs(10);

/// What the tasks of a worker with a master use.
pub(crate) struct Controls<'a> {
    pub(crate) config: &'a Config,
    pub(crate) channel: Channel,
    pub(crate) queue: Arc<Queue>,
    pub(crate) switch: DrainSwitch,
    pub(crate) commands: StdUnixDatagram,
    pub(crate) hooks: Box<dyn Hooks>,
    pub(crate) stats: WorkerStats,
    pub(crate) shares: Shares,
}

/// The tasks of a worker with a master, which run.
pub(crate) struct Started {
    /// The task that reports to the master once that the worker is ready.
    pub(crate) ready: AbortHandle,
    /// All tasks. A worker must not go on without one of them.
    pub(crate) tasks: JoinSet<()>,
}

/// Starts the tasks, inside the worker's runtime.
pub(crate) fn start(controls: Controls<'_>) -> io::Result<Started> {
    let Controls {
        config,
        channel,
        queue,
        switch,
        commands,
        hooks,
        stats,
        shares,
    } = controls;
    let ready_timeout = config.ready_timeout;
    // For a worker that cannot drain because its event loop does not turn.
    signals::end_after_term(config.drain_timeout.saturating_add(KILL_GRACE))?;
    let mut tasks = JoinSet::new();
    handle_signals(&mut tasks, &switch, &channel)?;
    let commands = UnixDatagram::from_std(commands)?;
    let to_master = channel.clone();
    tasks.spawn_local(async move {
        while let Some(command) = next_command(&commands).await {
            forward(command, &to_master);
        }
    });
    tasks.spawn_local(heartbeat::run(stats.clone(), Arc::clone(&queue)));
    let ready = channel.clone();
    let (accepting, accepts) = (Arc::clone(&queue), stats.clone());
    let ready = tasks.spawn_local(async move {
        let slow = SLOW_START.min(ready_timeout / 2);
        if timeout(slow, accepting.accepting()).await.is_err() {
            tracing::warn!(
                ?ready_timeout,
                "not ready yet: the app is still being set up"
            );
            accepting.accepting().await;
        }
        accepts.set_state(State::Serving);
        heartbeat::stamp(&accepts);
        send_ready(&ready);
    });
    let watch = channel.watch()?;
    // As many descriptors as an adoption has: each slot has as many listeners, and an inbox.
    let spares = Spares::new(queue.own_listeners() + 1);
    // For a connection: without one the worker would be ready and accept none.
    fds::has_room(io::stdin(), 1)?;
    let mut control = ControlTask {
        queue,
        switch,
        hooks,
        stats,
        shares,
        spares,
    };
    tasks.spawn_local(async move {
        loop {
            let Ok(mut readable) = watch.readable().await else {
                return;
            };
            readable.clear_ready();
            if control.recv(&channel) == Lifeline::Cut {
                return;
            }
        }
    });
    Ok(Started { ready, tasks })
}

pub(crate) fn send_ready(channel: &Channel) {
    if let Err(error) = channel.send_to_master(&ToMaster::Ready(Versions::OURS)) {
        tracing::debug!(%error, "could not report to the master that the worker is ready");
    }
}

/// `TERM` and `QUIT` drain. The worker reports them to the master, which knows whether the slot
/// gets another worker and answers with a drain that says so. The other signals are for the master
/// alone, but a terminal, or a `kill` of the group, sends them to all processes. So workers catch
/// and drop them. They do not ignore them, because programs that they start would inherit that.
fn handle_signals(
    tasks: &mut JoinSet<()>,
    switch: &DrainSwitch,
    channel: &Channel,
) -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::quit()] {
        let (mut arrived, switch, channel) = (signal(kind)?, switch.clone(), channel.clone());
        tasks.spawn_local(async move {
            while arrived.recv().await.is_some() {
                match channel.send_to_master(&ToMaster::Leaving) {
                    Ok(()) => sleep(MASTER_TIMEOUT).await,
                    Err(error) => {
                        tracing::debug!(%error, "could not report to the master that it leaves");
                    }
                }
                if !switch.is_started() {
                    switch.start(Idle::Close);
                }
            }
        });
    }
    let (ttin, ttou) = (nix::libc::SIGTTIN, nix::libc::SIGTTOU);
    let dropped = [
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
        SignalKind::from_raw(ttin),
        SignalKind::from_raw(ttou),
    ];
    // Tokio never removes its handlers, so no task has to receive these.
    dropped
        .into_iter()
        .map(signal)
        .collect::<io::Result<Vec<Signal>>>()?;
    signals::unblock()
}

/// Whether the master still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifeline {
    Held,
    Cut,
}

/// Receives the messages of the master and applies them.
struct ControlTask {
    queue: Arc<Queue>,
    switch: DrainSwitch,
    hooks: Box<dyn Hooks>,
    stats: WorkerStats,
    shares: Shares,
    spares: Spares,
}

impl ControlTask {
    /// Receives all messages that have come. If the master has ended, the worker drains.
    fn recv(&mut self, channel: &Channel) -> Lifeline {
        loop {
            match self.spares.lend(|| channel.recv_from_master()) {
                Ok(Received::Nothing) => return Lifeline::Held,
                Ok(Received::Message(message)) => self.apply(message, channel),
                Ok(Received::End) => {
                    tracing::warn!("the master is gone; draining");
                    call(|| self.hooks.master_died());
                    self.switch.start(Idle::Close);
                    return Lifeline::Cut;
                }
                Err(error) => tracing::error!(%error, "the control channel does not work"),
            }
        }
    }

    fn apply(&mut self, message: ToWorker, channel: &Channel) {
        match message {
            ToWorker::Drain(idle) => self.switch.start(idle),
            ToWorker::Stopping => self.switch.note_stop(),
            ToWorker::Adopt {
                slot,
                inbox,
                listeners,
            } => {
                if let Err(error) = self.queue.adopt(slot, inbox, listeners) {
                    send_not_adopted(channel, slot, &error);
                }
            }
            ToWorker::NotReceived(slot) => {
                send_not_adopted(channel, slot, &Errno::EMFILE.into());
            }
            ToWorker::Release(slot) => self.queue.release(slot),
            ToWorker::ReopenLogs => call(|| self.hooks.reopen_logs()),
            ToWorker::Beat => drop(heartbeat::stamp(&self.stats)),
            ToWorker::Share { connections, inbox } => self.shares.ask(Share {
                inbox: Sender::new(inbox),
                connections,
            }),
            ToWorker::Siblings(siblings) => self.queue.set_siblings(siblings),
        }
    }
}

/// Reports to the master that the slot is not adopted. It asks another worker then.
fn send_not_adopted(channel: &Channel, slot: Slot, error: &io::Error) {
    tracing::warn!(%slot, %error, "cannot adopt a slot");
    if let Err(error) = channel.send_to_master(&ToMaster::NotAdopted(slot)) {
        tracing::error!(%slot, %error, "could not report that a slot is not adopted");
    }
}

/// Calls a hook. A panic in it must not end the task that receives the master's messages.
pub(super) fn call(hook: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(hook)).is_err() {
        tracing::error!("a hook panicked");
    }
}

/// The next command of a handle in this process; `None` when no handle is left.
pub(super) async fn next_command(commands: &UnixDatagram) -> Option<Command> {
    let mut bytes = [0; Command::LEN];
    loop {
        match commands.recv(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(len) => match Command::decode(&bytes[..len]) {
                Some(command) => return Some(command),
                None => tracing::error!("a handle has sent an unknown command"),
            },
        }
    }
}

/// Forwards the commands that have come just before the runtime ended.
pub(crate) fn forward_pending(commands: &StdUnixDatagram, channel: &Channel) {
    let mut bytes = [0; Command::LEN];
    while let Ok(len @ 1..) = commands.recv(&mut bytes) {
        if let Some(command) = Command::decode(&bytes[..len]) {
            forward(command, channel);
        }
    }
}

fn forward(command: Command, channel: &Channel) {
    if let Err(error) = channel.send_to_master(&ToMaster::Asked(command)) {
        tracing::warn!(%command, %error, "could not forward a command to the master");
    }
}
