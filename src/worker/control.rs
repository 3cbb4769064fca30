//! What reaches a worker from outside: the master's messages, signals, and what handles ask for.
//! One small task for each source.

use std::io;
use std::os::unix::net::UnixDatagram as StdUnixDatagram;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tokio::net::UnixDatagram;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::drain::Idle;
use crate::handle::Command;
use crate::hooks::Hooks;
use crate::id::Slot;
use crate::protocol::channel::{Channel, Received, ToMaster, ToWorker};
use crate::protocol::inbox::Sender;
use crate::protocol::state::Versions;
use crate::row::{Row, State};
use crate::sys::fds::Spares;
use crate::sys::signals;
use crate::worker::drain::DrainSwitch;
use crate::worker::heartbeat;
use crate::worker::incoming::Queue;
use crate::worker::sharing::{Share, Shares};

/// How much longer than its drain timeout a worker lives after a `TERM` that it cannot heed.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// How long the master may take to answer a worker that leaves. Less than [`KILL_GRACE`], which
/// runs from the same moment.
const MASTERS_WORD: Duration = Duration::from_millis(500);

/// What the tasks of a worker with a master work on.
pub(crate) struct Controls {
    pub(crate) channel: Channel,
    pub(crate) queue: Arc<Queue>,
    pub(crate) switch: DrainSwitch,
    pub(crate) commands: StdUnixDatagram,
    pub(crate) hooks: Box<dyn Hooks>,
    pub(crate) drain_timeout: Duration,
    pub(crate) row: Row,
    pub(crate) shares: Shares,
}

/// The tasks of a worker with a master, at work.
pub(crate) struct Started {
    /// Tells the master once that the worker is ready.
    pub(crate) ready: AbortHandle,
    /// All of them. A worker must not go on without one.
    pub(crate) tasks: JoinSet<()>,
}

/// Starts them, inside the worker's runtime.
pub(crate) fn start(controls: Controls) -> io::Result<Started> {
    let Controls {
        channel,
        queue,
        switch,
        commands,
        hooks,
        drain_timeout,
        row,
        shares,
    } = controls;
    // What the drain itself cannot end, because the loop does not turn.
    signals::end_after_term(drain_timeout.saturating_add(KILL_GRACE))?;
    let mut tasks = JoinSet::new();
    handle_signals(&mut tasks, &switch, &channel)?;
    let commands = UnixDatagram::from_std(commands)?;
    let to_master = channel.clone();
    tasks.spawn_local(async move {
        while let Some(command) = next_command(&commands).await {
            forward(command, &to_master);
        }
    });
    tasks.spawn_local(heartbeat::run(row.clone(), Arc::clone(&queue)));
    let ready = channel.clone();
    let (accepting, accepts) = (Arc::clone(&queue), row.clone());
    let ready = tasks.spawn_local(async move {
        accepting.accepting().await;
        accepts.set_state(State::Serving);
        heartbeat::stamp(&accepts);
        send_ready(&ready);
    });
    let watch = channel.watch()?;
    // As many as an adoption has: every slot has as many listeners as this one, and an inbox.
    let spares = Spares::new(queue.own_listeners() + 1);
    let mut control = ControlTask {
        queue,
        switch,
        hooks,
        row,
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
        tracing::debug!(%error, "the master did not hear that the worker is ready");
    }
}

/// `TERM` and `QUIT` drain, which the master is told: it knows whether somebody comes after, and
/// says so by a drain of its own. The others mean something to the master alone, but a terminal or
/// a `kill` of the whole group sends them to everybody: they are caught and dropped. Caught, not
/// ignored, because a program started here would inherit being ignored.
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
                    Ok(()) => sleep(MASTERS_WORD).await,
                    Err(error) => {
                        tracing::debug!(%error, "the master did not hear that the worker leaves");
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
    // Tokio keeps its handlers for good, so what arrives needs nobody to take it.
    dropped
        .into_iter()
        .map(signal)
        .collect::<io::Result<Vec<Signal>>>()?;
    signals::unblock()
}

/// Whether the master still lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifeline {
    Held,
    Cut,
}

/// What the master's messages work on.
struct ControlTask {
    queue: Arc<Queue>,
    switch: DrainSwitch,
    hooks: Box<dyn Hooks>,
    row: Row,
    shares: Shares,
    spares: Spares,
}

impl ControlTask {
    /// Does what the master has said. Its end is a cause to drain as well.
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
            ToWorker::Beat => drop(heartbeat::stamp(&self.row)),
            ToWorker::Share { connections, inbox } => self.shares.ask(Share {
                inbox: Sender::new(inbox),
                connections,
            }),
        }
    }
}

/// The master has another worker adopt the slot.
fn send_not_adopted(channel: &Channel, slot: Slot, error: &io::Error) {
    tracing::warn!(%slot, %error, "cannot adopt a slot");
    if let Err(error) = channel.send_to_master(&ToMaster::NotAdopted(slot)) {
        tracing::error!(%slot, %error, "the master did not hear that a slot is not adopted");
    }
}

/// Calls a hook. One that panics must not take the task with it that hears the master.
pub(super) fn call(hook: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(hook)).is_err() {
        tracing::error!("a hook panicked");
    }
}

/// The next command that a handle in this process asks for; `None` when no handle is left.
pub(super) async fn next_command(commands: &UnixDatagram) -> Option<Command> {
    let mut bytes = [0; Command::LEN];
    loop {
        match commands.recv(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(len) => match Command::decode(&bytes[..len]) {
                Some(command) => return Some(command),
                None => tracing::error!("a handle asked for something unknown"),
            },
        }
    }
}

/// Passes on what was asked for just before the worker's runtime ended.
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
        tracing::warn!(?command, %error, "the master did not hear");
    }
}
