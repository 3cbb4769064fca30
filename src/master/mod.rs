//! The master: one thread, no async runtime. It waits for facts, feeds them to the supervisor, and
//! carries out what the supervisor says.

mod announce;
mod apply;
pub(crate) mod listeners;
mod pid_file;
mod process;
mod program;
mod signal_map;
mod state;
mod upgrade;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::config::Config;
use crate::error::{EXIT_MISCONFIGURED, Error};
use crate::handle::{Command, Handle, Stop};
use crate::hooks::{ExitStatus, Hooks, Notice, WorkerInfo};
use crate::id::{Slot, WorkerId};
use crate::master::announce::Announcer;
use crate::master::listeners::Listeners;
use crate::master::pid_file::PidFile;
use crate::master::process::{Asked, Process};
use crate::master::program::Program;
use crate::master::signal_map::Order;
use crate::master::upgrade::Trial;
use crate::protocol::channel::ToMaster;
use crate::supervisor::{self, Event, Exit, Outcome, Policy, Supervisor, Time};
use crate::sys::signals::Signals;
use crate::sys::{limits, reap};

/// How many deaths an error tells of.
const DEATHS_TOLD: usize = 3;

/// What the master is given by the builder.
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) workers: NonZeroU16,
    pub(crate) hooks: Box<dyn Hooks>,
    pub(crate) handle: Handle,
    pub(crate) asks: UnixDatagram,
}

/// Where a master comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// Somebody has started it.
    Started { nesting: u8 },
    /// It was another image a moment ago, which has left its state in this descriptor.
    Upgraded { state: RawFd },
}

struct Master {
    supervisor: Supervisor,
    /// What the supervisor's time was when `started` was now.
    epoch: Time,
    started: Instant,
    program: Program,
    /// The latest upgrade's canary.
    trial: Option<Trial>,
    nesting: u8,
    workers: u16,
    signals: Signals,
    asks: UnixDatagram,
    listeners: Listeners,
    processes: BTreeMap<WorkerId, Process>,
    /// Workers that ended unasked, until another is spawned in their slot.
    respawning: BTreeMap<Slot, (WorkerInfo, ExitStatus)>,
    deaths: VecDeque<String>,
    refused: Option<Error>,
    hooks: Box<dyn Hooks>,
    handle: Handle,
    announcer: Option<Announcer>,
    pid_file: Option<PidFile>,
}

/// Supervises until the server has ended.
pub(crate) fn run(setup: Setup, origin: Origin) -> Result<(), Error> {
    let mut master = match origin {
        Origin::Started { nesting } => begin(setup, nesting)?,
        Origin::Upgraded { state } => upgrade::resume(setup, state)?,
    };
    let result = master.supervise();
    master.handle.set_ended();
    result
}

fn begin(setup: Setup, nesting: u8) -> Result<Master, Error> {
    let Setup {
        config,
        workers,
        hooks,
        handle,
        asks,
    } = setup;
    let announcer = match config.announce_fd {
        Some(fd) => Some(Announcer::new(fd).map_err(|error| {
            Error::Config(format!("cannot announce on descriptor {fd}: {error}"))
        })?),
        None => None,
    };
    limits::raise_open_files().map_err(|error| Error::system("setrlimit(2)", error))?;
    let signals = Signals::block().map_err(|error| Error::system("signalfd(2)", error))?;
    let listeners = Listeners::bind(&config, workers.get())?;
    let pid_file = config.pid_file.as_deref().map(|path| {
        PidFile::write(path).map_err(|error| {
            Error::Config(format!(
                "cannot write the pid file {}: {error}",
                path.display()
            ))
        })
    });
    let pid_file = pid_file.transpose()?;
    Ok(Master {
        supervisor: Supervisor::new(policy(&config, workers), Time::ZERO),
        epoch: Time::ZERO,
        started: Instant::now(),
        program: Program::of_this_process(),
        trial: None,
        nesting,
        workers: workers.get(),
        signals,
        asks,
        listeners,
        processes: BTreeMap::new(),
        respawning: BTreeMap::new(),
        deaths: VecDeque::new(),
        refused: None,
        hooks,
        handle,
        announcer,
        pid_file,
    })
}

fn policy(config: &Config, workers: NonZeroU16) -> Policy {
    let (limit, backoff) = (config.crash_limit, config.backoff);
    Policy {
        workers,
        drain_timeout: config.drain_timeout,
        ready_timeout: config.ready_timeout,
        crash_limit: supervisor::CrashLimit {
            max: limit.max,
            per: limit.per,
        },
        backoff: supervisor::Backoff {
            first: backoff.first,
            max: backoff.max,
            reset_after: backoff.reset_after,
        },
        seed: u64::from(std::process::id()),
        ..Policy::default()
    }
}

impl Master {
    fn supervise(&mut self) -> Result<(), Error> {
        loop {
            while let Some(action) = self.supervisor.next_action() {
                if let Some(outcome) = self.apply(action) {
                    return self.finish(outcome);
                }
            }
            self.wait()?;
            self.hear_workers();
            self.hear_handles();
            self.hear_signals();
            let now = self.now();
            self.supervisor.handle_timeout(now);
        }
    }

    fn now(&self) -> Time {
        self.epoch + self.started.elapsed()
    }

    fn tell_supervisor(&mut self, event: Event) {
        let now = self.now();
        self.supervisor.handle(event, now);
    }

    /// Sleeps until a descriptor has something to say or a deadline comes.
    fn wait(&self) -> Result<(), Error> {
        let timeout = match self.supervisor.next_deadline() {
            None => PollTimeout::NONE,
            Some(deadline) => {
                let left = deadline.since(self.now());
                // Rounded up: waking a moment early would mean to spin until the deadline.
                let left = left + Duration::from_micros(999);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        let channels = self
            .processes
            .values()
            .filter_map(Process::channel)
            .map(AsFd::as_fd);
        let mut fds: Vec<_> = [self.signals.as_fd(), self.asks.as_fd()]
            .into_iter()
            .chain(channels)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(Error::system("poll(2)", error)),
        }
    }

    fn hear_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            match signal_map::order(signal) {
                Order::Supervise(event) => {
                    tracing::info!("{signal} received");
                    self.tell_supervisor(event);
                }
                Order::ReopenLogs => self.reopen_logs(),
                Order::Reap => self.reap(),
                Order::Ignore => tracing::debug!("{signal} ignored"),
            }
        }
    }

    fn hear_handles(&mut self) {
        while let Some(command) = self.asked() {
            self.obey(command);
        }
    }

    /// The next thing that a handle in this process has asked for. A handle that sends nonsense
    /// does not exist.
    fn asked(&self) -> Option<Command> {
        let mut bytes = [0; Command::LEN];
        let len = self.asks.recv(&mut bytes).ok()?;
        Command::decode(&bytes[..len])
    }

    fn hear_workers(&mut self) {
        let workers: Vec<_> = self.processes.keys().copied().collect();
        for worker in workers {
            while let Some(message) = self.processes.get_mut(&worker).and_then(Process::hear) {
                match message {
                    ToMaster::Ready(reads) => self.heard_ready(worker, reads),
                    ToMaster::Asked(command) => self.obey(command),
                    ToMaster::Drained { .. } | ToMaster::Failed(_) => {}
                }
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Reload => self.tell_supervisor(Event::Reload),
            Command::Upgrade => self.tell_supervisor(Event::Upgrade),
            Command::Stop(Stop::Drain) => {
                self.tell_supervisor(Event::Stop(supervisor::Stop::Drain));
            }
            Command::Stop(Stop::Now) => self.tell_supervisor(Event::Stop(supervisor::Stop::Now)),
            Command::Resize(workers) => self.tell_supervisor(Event::Resize(workers)),
            Command::ReopenLogs => self.reopen_logs(),
        }
    }

    /// Takes every process that has ended; as PID 1 strangers among them.
    fn reap(&mut self) {
        while let Some((pid, status)) = reap::next() {
            let worker = self
                .processes
                .iter()
                .find(|(_, process)| process.pid == pid);
            match worker.map(|(&worker, _)| worker) {
                Some(worker) => self.bury(worker, status),
                None => tracing::debug!(%pid, %status, "reaped a process that is no worker"),
            }
        }
    }

    fn bury(&mut self, worker: WorkerId, status: ExitStatus) {
        // What it said before it died may still wait in the channel.
        self.hear_workers();
        let process = self
            .processes
            .remove(&worker)
            .expect("the worker was found a moment ago");
        let obituary = process.obituary(status);
        let exit = match status {
            ExitStatus::Code(0) => Exit::Clean,
            ExitStatus::Code(EXIT_MISCONFIGURED) => Exit::Misconfigured,
            _ => Exit::Crash,
        };
        let info = process.info();
        match (process.asked, exit) {
            (Asked::Nothing, Exit::Clean) => tracing::info!("{obituary}"),
            (Asked::Nothing, _) => tracing::warn!("{obituary}"),
            (Asked::ToDrain | Asked::Killed, _) => tracing::debug!("{obituary}"),
        }
        if process.cut() > 0 {
            let (slot, cut) = (info.slot, process.cut());
            tracing::warn!(%slot, cut, "connections were cut at the drain deadline");
        }
        if self.trial_of(worker).is_some() {
            self.canary_failed(obituary);
        } else {
            if process.asked == Asked::Nothing {
                self.respawning.insert(info.slot, (info, status));
            }
            if exit != Exit::Clean {
                self.remember(obituary);
            }
        }
        self.notify(&Notice::WorkerExited {
            worker: info,
            status,
            cut: process.cut(),
        });
        self.tell_supervisor(Event::Exited(worker, exit));
    }

    fn remember(&mut self, death: String) {
        self.deaths.push_back(death);
        if self.deaths.len() > DEATHS_TOLD {
            self.deaths.pop_front();
        }
    }

    fn finish(&mut self, outcome: Outcome) -> Result<(), Error> {
        self.listeners.close();
        let name = match outcome {
            Outcome::Drained => "drained",
            Outcome::Stopped => "stopped",
            Outcome::NeverReady => "never-ready",
            Outcome::CrashLimit { .. } => "crash-limit",
            Outcome::Misconfigured => "misconfigured",
            Outcome::HookRefused => "hook-refused",
        };
        self.notify(&Notice::Finished {
            outcome: name.to_owned(),
        });
        let deaths = self.deaths.drain(..).collect();
        match outcome {
            Outcome::Drained | Outcome::Stopped => Ok(()),
            Outcome::NeverReady => Err(Error::NeverReady { deaths }),
            Outcome::CrashLimit { crashes, per } => Err(Error::CrashLimit {
                crashes,
                per,
                deaths,
            }),
            Outcome::Misconfigured => Err(Error::Misconfigured { deaths }),
            Outcome::HookRefused => Err(self
                .refused
                .take()
                .expect("a refusal is kept when the supervisor is told")),
        }
    }
}
