//! From decisions to system calls: one function for each action. Nothing is decided here.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{BoxError, Error};
use crate::hooks::{Notice, WorkerCommand};
use crate::id::{Generation, Slot, WorkerId};
use crate::master::Master;
use crate::master::process::{Asked, Process};
use crate::protocol::channel::{Channel, ToWorker};
use crate::protocol::inheritance::{MARKER, Marker, Seat};
use crate::supervisor::{Abandoned, Action, Change, Event, Outcome};
use crate::sys::spawn::{Inherit, spawn};

/// The running program, whatever has become of the file it came from (proc(5)).
const RUNNING_IMAGE: &str = "/proc/self/exe";

/// What a new worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Image {
    /// What the master is.
    Running,
    /// What it may become.
    OnDisk,
}

/// Why there is no new worker.
enum NotSpawned {
    Failed(Error),
    Refused(&'static str, BoxError),
}

impl Master {
    /// Carries out one action; the last one gives the outcome.
    pub(super) fn apply(&mut self, action: Action) -> Option<Outcome> {
        match action {
            Action::Spawn {
                worker,
                slot,
                generation,
            } => self.spawn(worker, slot, generation, Image::Running),
            Action::Drain(worker) => self.drain(worker),
            Action::Kill(worker) => self.kill(worker),
            Action::Adopt { slot, by } => self.adopt(slot, by),
            Action::Release { slot, by } => self.tell(by, &ToWorker::Release(slot)),
            Action::CloseListeners => self.listeners.close(),
            Action::StartCanary {
                worker,
                slot,
                generation,
            } => {
                self.begin_trial(worker);
                self.spawn(worker, slot, generation, Image::OnDisk);
            }
            Action::ExecInPlace => self.exec_in_place(),
            Action::Notify(change) => self.tell_change(change),
            Action::Finish(outcome) => return Some(outcome),
        }
        None
    }

    fn spawn(&mut self, worker: WorkerId, slot: Slot, generation: Generation, image: Image) {
        match self.start(slot, generation, image) {
            Ok(process) => {
                let info = process.info();
                self.processes.insert(worker, process);
                self.tell_supervisor(Event::Spawned(worker));
                if let Err(source) = self.hooks.worker_spawned(&info) {
                    self.refuse("worker_spawned", source);
                }
                if image == Image::Running
                    && let Some((old, status)) = self.respawning.remove(&slot)
                {
                    self.hooks.worker_respawned(&old, status, &info);
                }
                self.notify(&Notice::WorkerSpawned(info));
            }
            Err(NotSpawned::Failed(error)) => {
                let why = format!(
                    "worker {slot} could not be spawned: {}",
                    with_causes(&error)
                );
                tracing::warn!("{why}");
                match image {
                    Image::Running => self.remember(why),
                    Image::OnDisk => self.canary_failed(why),
                }
                self.tell_supervisor(Event::SpawnFailed(worker));
            }
            Err(NotSpawned::Refused(hook, source)) => {
                self.tell_supervisor(Event::SpawnFailed(worker));
                self.refuse(hook, source);
            }
        }
    }

    fn start(
        &mut self,
        slot: Slot,
        generation: Generation,
        image: Image,
    ) -> Result<Process, NotSpawned> {
        self.listeners.seat(slot).map_err(NotSpawned::Failed)?;
        let (ours, theirs) = Channel::pair()
            .map_err(|error| NotSpawned::Failed(Error::system("socketpair(2)", error)))?;
        let listeners = self.listeners.numbers(slot);
        let mut fds = vec![theirs.as_raw_fd()];
        fds.extend(&listeners);
        let marker = Marker {
            master: Pid::this(),
            slot,
            generation,
            workers: self.workers,
            nesting: self.nesting,
            channel: theirs.as_raw_fd(),
            listeners,
        };
        let mut asked = WorkerCommand {
            arguments: std::env::args_os().skip(1).collect(),
            ..WorkerCommand::default()
        };
        self.hooks
            .worker_command(slot, generation, &mut asked)
            .map_err(|source| NotSpawned::Refused("worker_command", source))?;
        let WorkerCommand {
            arguments,
            environment,
            limits,
        } = asked;
        let mut command = Command::new(match image {
            Image::Running => Path::new(RUNNING_IMAGE),
            Image::OnDisk => self.program.path(),
        });
        command.arg0(title(slot, generation)).args(arguments);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Seat::hide_upgrade(&mut command);
        command.env(MARKER, marker.encode());
        let pid = spawn(&mut command, Inherit { fds, limits })
            .map_err(|error| NotSpawned::Failed(Error::system("execve(2)", error)))?;
        Ok(Process::new(pid, slot, generation, ours))
    }

    fn drain(&mut self, worker: WorkerId) {
        if let Some(process) = self.processes.get_mut(&worker) {
            process.asked = Asked::ToDrain;
        }
        self.tell(worker, &ToWorker::Drain);
    }

    /// Only processes that are not reaped yet are in the table, so the pid is still theirs.
    fn kill(&mut self, worker: WorkerId) {
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        process.asked = Asked::Killed;
        if let Err(error) = kill(process.pid, Signal::SIGKILL) {
            tracing::error!(pid = %process.pid, %error, "kill(2) failed");
        }
    }

    fn adopt(&mut self, slot: Slot, by: WorkerId) {
        let listeners = self.listeners.of_alone(slot);
        if listeners.is_empty() {
            return;
        }
        let Some(channel) = self.processes.get(&by).and_then(Process::channel) else {
            return;
        };
        let message = ToWorker::Adopt {
            slot,
            listeners: Vec::new(),
        };
        if let Err(error) = channel.tell_worker(&message, &listeners) {
            tracing::error!(%slot, %error, "the listeners could not be handed over");
        }
    }

    fn tell(&mut self, worker: WorkerId, message: &ToWorker) {
        let Some(process) = self.processes.get(&worker) else {
            return;
        };
        let Some(channel) = process.channel() else {
            return;
        };
        match channel.tell_worker(message, &[]) {
            Ok(()) => {}
            // It has just died; its exit will be reaped.
            Err(error) if error.raw_os_error() == Some(Errno::EPIPE as i32) => {}
            Err(error) => {
                tracing::error!(slot = %process.slot, ?message, %error, "a worker did not hear");
            }
        }
    }

    pub(super) fn reopen_logs(&mut self) {
        self.hooks.reopen_logs();
        let workers: Vec<_> = self.processes.keys().copied().collect();
        for worker in workers {
            self.tell(worker, &ToWorker::ReopenLogs);
        }
    }

    fn tell_change(&mut self, change: Change) {
        match change {
            Change::Serving => self.tell_serving(),
            Change::WorkerReady(worker, ..) => self.tell_worker(worker, Notice::WorkerReady),
            Change::WorkerDraining(worker, ..) => self.tell_worker(worker, Notice::WorkerDraining),
            Change::WorkerHung(worker, ..) => self.tell_worker(worker, Notice::WorkerHung),
            Change::Draining => {
                tracing::info!("draining");
                self.notify(&Notice::Draining);
            }
            Change::ReloadStarted { generation } => {
                tracing::info!(%generation, "reload started");
                self.notify(&Notice::ReloadStarted { generation });
            }
            Change::ReloadFinished { generation } => {
                tracing::info!(%generation, "reload finished");
                self.notify(&Notice::ReloadFinished { generation });
            }
            Change::ReloadAbandoned { generation, why } => self.tell_abandoned(generation, why),
            Change::UpgradeStarted => {
                tracing::info!(program = %self.program.path().display(), "upgrade started");
                self.notify(&Notice::UpgradeStarted);
            }
            Change::UpgradeFinished => {
                tracing::info!("upgrade finished");
                self.notify(&Notice::UpgradeFinished);
            }
            Change::UpgradeAbandoned { why } => self.tell_upgrade_abandoned(why),
            Change::Resized { workers } => {
                self.workers = workers.get();
                tracing::info!(%workers, "resized");
                self.notify(&Notice::Resized {
                    workers: workers.get(),
                });
            }
            Change::Adopted { slot, by } => {
                if let Some(by) = self.slot_of(by) {
                    self.notify(&Notice::Adopted { slot, by });
                }
            }
            Change::Released { slot, by } => {
                if let Some(by) = self.slot_of(by) {
                    self.notify(&Notice::Released { slot, by });
                }
            }
            Change::BackingOff { slot, pause } => {
                tracing::warn!(%slot, "the next spawn waits {pause:.1?}");
                self.notify(&Notice::BackingOff { slot, pause });
            }
        }
    }

    fn tell_serving(&mut self) {
        let addresses = self.listeners.addresses();
        let workers: Vec<_> = self.processes.values().map(Process::info).collect();
        if let Err(source) = self.hooks.serving(&addresses, &workers) {
            return self.refuse("serving", source);
        }
        self.handle.set_serving(&addresses);
        let pid = std::process::id();
        self.notify(&Notice::Serving {
            addresses,
            workers: self.workers,
            pid,
        });
    }

    fn tell_abandoned(&mut self, generation: Generation, why: Abandoned) {
        let mut why = why.to_string();
        if let Some(death) = self.deaths.back() {
            why = format!("{why}: {death}");
        }
        tracing::warn!(%generation, "reload abandoned: {why}");
        self.notify(&Notice::ReloadAbandoned { generation, why });
    }

    fn tell_worker(&mut self, worker: WorkerId, notice: impl Fn(crate::WorkerInfo) -> Notice) {
        if let Some(process) = self.processes.get(&worker) {
            let notice = notice(process.info());
            tracing::debug!(?notice);
            self.notify(&notice);
        }
    }

    pub(super) fn notify(&mut self, notice: &Notice) {
        self.hooks.notice(notice);
        if let Some(announcer) = &mut self.announcer {
            announcer.announce(notice);
        }
    }

    fn refuse(&mut self, hook: &'static str, source: BoxError) {
        tracing::error!(hook, error = %source, "a hook refused");
        self.refused.get_or_insert(Error::Hook { hook, source });
        self.tell_supervisor(Event::HookRefused);
    }

    fn slot_of(&self, worker: WorkerId) -> Option<Slot> {
        self.processes.get(&worker).map(|process| process.slot)
    }
}

/// What ps(1) shows as the worker's name: the program's own, then which worker it is.
fn title(slot: Slot, generation: Generation) -> OsString {
    let program = std::env::args_os().next().unwrap_or_default();
    let mut title = Path::new(&program)
        .file_name()
        .unwrap_or(OsStr::new("prefork"))
        .to_owned();
    title.push(format!(": worker slot={slot} generation={generation}"));
    title
}

fn with_causes(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
