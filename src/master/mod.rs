//! The master: one thread, no async runtime. It waits for facts, reports them to the supervisor and
//! carries out the supervisor's actions.

mod admin;
mod apply;
mod balance;
pub(crate) mod check;
mod clock;
mod commands;
mod failures;
mod hang;
mod init;
mod listeners;
mod messages;
mod observers;
mod pid_file;
mod schedule;
mod signal_map;
mod start;
mod status;
mod tls;
mod upgrade;
mod workers;

use std::num::NonZeroU16;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::address::Address;
use crate::config::{Config, ListenerUse};
use crate::error::Error;
use crate::handle::Handle;
use crate::hooks::{Hooks, Notice};
use crate::http::Tls;
use crate::id::MAX_WORKERS;
use crate::master::admin::Admin;
use crate::master::balance::Balancing;
use crate::master::clock::Clock;
use crate::master::commands::Commands;
use crate::master::failures::Failures;
use crate::master::hang::HangPolicy;
use crate::master::init::Inherited;
use crate::master::listeners::{ListenerWatch, Listeners};
use crate::master::observers::Observers;
use crate::master::pid_file::PidFile;
use crate::master::signal_map::SignalMeaning;
use crate::master::tls::Secrets;
use crate::master::upgrade::Upgrade;
use crate::master::workers::Workers;
use crate::master::workers::outbox::Message;
use crate::master::workers::spawn::Spawner;
use crate::policy::{Outcome, Stop};
pub(crate) use crate::protocol::channel::ADDRESSES_MAX;
use crate::protocol::inheritance::ProcessRole;
use crate::supervisor::{Action, Event, Passage, PreStop, Supervisor};
use crate::sys::clock::monotonic;
use crate::sys::limits;
use crate::sys::listener::unix::UnixFile;
use crate::sys::signals::Signals;

/// How long a turn of the loop sleeps if poll(2) fails, in milliseconds.
const TURN_WITHOUT_POLL: u8 = 10;

/// So long the kernel keeps a connection until its first byte: a second, and its timer may be late.
const KEPT_MAX: Duration = Duration::from_millis(1200);

/// What the builder gives to the master.
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) workers: NonZeroU16,
    pub(crate) tls: Option<Tls>,
    pub(crate) hooks: Box<dyn Hooks>,
    pub(crate) handle: Handle,
    pub(crate) commands: UnixDatagram,
}

struct Master {
    supervisor: Supervisor,
    pre_stop: PreStop,
    clock: Clock,
    signals: Signals,
    commands: Commands,
    listeners: Listeners,
    listener_watch: ListenerWatch,
    workers: Workers,
    spawner: Spawner,
    upgrade: Upgrade,
    failures: Failures,
    observers: Observers,
    /// `None` if the server does not speak TLS.
    secrets: Option<Secrets>,
    /// `None` if there is no hang timeout.
    hang: Option<HangPolicy>,
    balance: Balancing,
    pid_file: Option<PidFile>,
}

/// The default number of workers: one for each CPU that this process may use.
pub(crate) fn default_workers() -> usize {
    limits::usable_cpus().usable.min(MAX_WORKERS)
}

/// What a server without workers listens on.
pub(crate) struct Opened {
    pub(crate) listeners: Vec<(OwnedFd, ListenerUse)>,
    pub(crate) addresses: Vec<Address>,
    /// The files of Unix listeners, which are removed when they are dropped.
    pub(crate) _files: Vec<UnixFile>,
}

/// Opens each address once, for a server without workers.
pub(crate) fn listen_once(config: &Config) -> Result<Opened, Error> {
    let listeners = Listeners::open(config, NonZeroU16::MIN, Inherited::default())?;
    let addresses = listeners.addresses();
    let (listeners, _files) = listeners.into_first();
    Ok(Opened {
        listeners,
        addresses,
        _files,
    })
}

/// Whether this process was a master already, as another image. It cannot go back to that image.
pub(crate) fn is_upgraded() -> bool {
    matches!(ProcessRole::of_this_process(), ProcessRole::Upgraded { .. })
}

/// Supervises until the server has ended.
pub(crate) fn run(mut setup: Setup) -> Result<(), Error> {
    let credentials = start::choose_credentials(&mut setup.config);
    let mut master = match ProcessRole::of_this_process() {
        ProcessRole::Upgraded { state } => upgrade::resume(setup, credentials, state)?,
        ProcessRole::Master { nesting } => start::begin(setup, credentials, nesting)?,
        ProcessRole::Worker(_) | ProcessRole::Admin(_) | ProcessRole::Orphan => {
            unreachable!("only a master supervises")
        }
    };
    master.supervise()
}

impl Master {
    /// The loop. In each turn the master reaps the workers that have ended, does the tasks that are
    /// due, carries out the supervisor's actions, sleeps, and receives what has come.
    fn supervise(&mut self) -> Result<(), Error> {
        self.publish_status();
        // Those of the image before hear each notice of this one.
        self.inform_new_ones();
        loop {
            while let Some(worker) = self.next_ended() {
                // The master acts first on what the worker sent before it ended, while no other
                // process can have its pid.
                self.recv_final_messages(worker);
                let outcome = self.carry_out();
                self.reap(worker);
                // A worker that was stuck has ended, and nothing waited for it.
                if let Some(outcome) = outcome {
                    return self.finish(outcome);
                }
            }
            self.run_due_tasks();
            // Before a notice says that the workers serve.
            self.tell_siblings();
            if let Some(outcome) = self.carry_out() {
                return self.finish(outcome);
            }
            self.carry_out_admin();
            self.wait();
            self.receive();
        }
    }

    /// Carries out the supervisor's actions. The last one returns the outcome. To spawn many
    /// workers takes long, so signals are received after each of them, and the watchdog is told.
    fn carry_out(&mut self) -> Option<Outcome> {
        while let Some(action) = self.supervisor.next_action() {
            let is_spawn = matches!(action, Action::Spawn { .. });
            if let Some(outcome) = self.apply(action) {
                return Some(outcome);
            }
            if is_spawn {
                self.recv_signals();
                self.tell_watchdog();
            }
        }
        None
    }

    /// Receives what has come, and reports it to the supervisor.
    fn receive(&mut self) {
        self.send_pending();
        self.recv_from_workers();
        self.exchange_with_admin();
        self.recv_commands();
        self.recv_signals();
        self.watch_listeners();
    }

    fn handle_event(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Upgrade => self.upgrade.is_trial = false,
            Event::Stop(Stop::Drain) => {
                // The drain waits until the workers have what the kernel keeps, also of a rush that
                // has just ended.
                self.listeners.defer(|_| false);
                let keeps_for = self.listeners.keeps_for(monotonic());
                self.pre_stop.last_at_least(keeps_for);
            }
            _ => {}
        }
        match self.pre_stop.on_event(event, now) {
            Passage::Pass => self.supervisor.handle(event, now),
            Passage::Begin => self.on_stopping(),
            Passage::Drop => {}
        }
    }

    /// The drain begins later.
    fn on_stopping(&mut self) {
        tracing::info!("the server will drain, and serves until then");
        self.publish_status();
        self.send_to_all(Message::Stopping);
        self.observers.notify(&Notice::Stopping);
    }

    fn on_pre_stop_deadline(&mut self) {
        let now = self.clock.now();
        if let Some(event) = self.pre_stop.on_timeout(now) {
            self.supervisor.handle(event, now);
        }
    }

    /// Sleeps until a descriptor is ready or a task is due.
    fn wait(&mut self) {
        let timeout = match self.fall_asleep() {
            None => PollTimeout::NONE,
            Some(left) => {
                // Rounded up: if the master woke early, it would spin until the task is due.
                let left = left.saturating_add(Duration::from_micros(999));
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        let ours = [self.signals.as_fd(), self.commands.socket.as_fd()];
        let ours = ours.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let channels = self.workers.processes.values().filter_map(|process| {
            let mut flags = PollFlags::POLLIN;
            flags.set(PollFlags::POLLOUT, process.has_pending());
            Some(PollFd::new(process.channel()?.as_fd(), flags))
        });
        let mut fds: Vec<_> = ours.into_iter().chain(channels).collect();
        fds.extend(self.watched_listeners());
        fds.extend(self.observers.admin.iter().flat_map(Admin::channels));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => self.wait_without_poll(error),
        }
        self.awake();
    }

    /// poll(2) refuses more descriptors than the limit, which another process may have lowered
    /// (prlimit(2)). If it cannot be raised again, the loop goes on: each turn receives from all
    /// descriptors, whether poll(2) has reported them or not.
    fn wait_without_poll(&mut self, error: Errno) {
        let limit = limits::raise_open_files().unwrap_or_default();
        self.failures.polls += 1;
        let failures = self.failures.polls;
        // At 1, 2, 4, 8, ... failures.
        if failures.is_power_of_two() {
            tracing::warn!(
                %error, failures, limit,
                "poll(2) failed; the master looks at its descriptors every 10 ms while it does"
            );
        }
        // Without descriptors it only sleeps.
        let _ = poll(&mut [], TURN_WITHOUT_POLL);
    }

    fn recv_signals(&mut self) {
        while let Some(received) = self.signals.next() {
            match signal_map::meaning(received) {
                SignalMeaning::Supervise(event) => {
                    tracing::info!("{received} received");
                    self.handle_event(event);
                }
                SignalMeaning::ReopenLogs => self.reopen_logs(),
                // The loop is awake now, and reaps in each turn.
                SignalMeaning::Ended => {}
                SignalMeaning::Ignore => tracing::debug!("{received} ignored"),
            }
        }
    }

    fn finish(&mut self, outcome: Outcome) -> Result<(), Error> {
        self.listeners.close_rest(&self.workers.slots_of_killed());
        let stats = self
            .workers
            .processes
            .values()
            .map(|process| &*process.stats);
        let totals = self.workers.scoreboard.totals(stats);
        tracing::info!("{outcome}: {totals}");
        self.observers.notify(&Notice::Finished { outcome, totals });
        self.end_admin();
        let failures = self.failures.recent.drain(..).collect();
        match outcome {
            Outcome::Drained | Outcome::Stopped => Ok(()),
            Outcome::NeverReady => Err(Error::NeverReady { failures }),
            Outcome::CrashLimit { crashes, per } => Err(Error::CrashLimit {
                crashes,
                per,
                failures,
            }),
            Outcome::Misconfigured => Err(Error::Misconfigured { failures }),
            Outcome::HookRefused => Err(self
                .failures
                .hook
                .take()
                .expect("the error of a hook is kept when it is reported")),
        }
    }
}
