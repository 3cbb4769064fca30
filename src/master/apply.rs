//! Carries out the supervisor's actions, with one function for each. It decides nothing.

use std::io;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};

use crate::address;
use crate::drain::Idle;
use crate::error::{BoxError, Error, chain};
use crate::hooks::Notice;
use crate::id::{Generation, Slot, WorkerId};
use crate::master::Master;
use crate::master::listeners::Ensured;
use crate::master::workers::outbox::{Message, SendFailed};
use crate::master::workers::process::{EndRequest, Process};
use crate::master::workers::spawn::Image;
use crate::policy::Outcome;
use crate::supervisor::{Abandoned, Action, Change, ENDS_WITHIN, Event};
use crate::sys::clock;

impl Master {
    /// Carries out one action. The last one returns the outcome.
    pub(super) fn apply(&mut self, action: Action) -> Option<Outcome> {
        match action {
            Action::Spawn {
                worker,
                slot,
                generation,
            } => self.spawn(worker, slot, generation, Image::Running),
            Action::Drain(worker, idle) => self.drain(worker, idle),
            Action::Abort(worker) => self.abort(worker),
            Action::Kill(worker) => self.kill(worker),
            Action::Adopt { slot, by } => self.adopt(slot, by),
            Action::Release { slot, by } => self.send(by, Message::Release(slot)),
            Action::CloseListeners => self.listeners.close(&self.workers.slots_of_killed()),
            Action::StartCanary {
                worker,
                slot,
                generation,
            } => match self.begin_canary(worker) {
                Ok(()) => self.spawn(worker, slot, generation, Image::OnDisk),
                Err(why) => {
                    self.canary_failed(why);
                    self.handle_event(Event::SpawnFailed(worker));
                }
            },
            Action::CheckReload => self.check_reload(),
            Action::ExecInPlace => self.exec_in_place(),
            Action::Notify(change) => self.on_change(change),
            Action::Finish(outcome) => return Some(outcome),
        }
        None
    }

    /// Makes the listeners of a new slot here and not with its worker, which may take long to
    /// start: the kernel sends new connections to them at once.
    fn adopt(&mut self, slot: Slot, by: WorkerId) {
        match self.ensure_listeners(slot) {
            // It has got them.
            Ok(Ensured::New { .. }) if self.supervisor.adopter_of(slot) == Some(by) => {}
            Ok(_) => self.send(by, Message::Adopt(slot)),
            Err(error) => {
                let why = chain(&error);
                tracing::warn!(%slot, "the listeners are made with the slot's worker: {why}");
            }
        }
    }

    fn drain(&mut self, worker: WorkerId, idle: Idle) {
        if let Some(process) = self.workers.processes.get_mut(&worker) {
            process.end_request = EndRequest::Drain;
        }
        self.send(worker, Message::Drain(idle));
    }

    fn abort(&mut self, worker: WorkerId) {
        if let Some(process) = self.workers.processes.get_mut(&worker) {
            process.end_request = EndRequest::Abort;
            signal(process, Signal::SIGABRT);
        }
    }

    fn kill(&mut self, worker: WorkerId) {
        if let Some(process) = self.workers.processes.get_mut(&worker) {
            if process.is_wanted() && !self.supervisor.is_draining() {
                process.blame("it was not ready in time".into());
            }
            // A worker that hung and did not end by SIGABRT still counts as hung.
            if process.end_request != EndRequest::Abort {
                process.end_request = EndRequest::Kill;
            }
            signal(process, Signal::SIGKILL);
            self.publish_status();
        }
    }

    /// Kills a worker that has broken the protocol, because the master can send it nothing more.
    /// Its exit report says why.
    pub(super) fn on_protocol_error(&mut self, worker: WorkerId, error: &io::Error) {
        if let Some(process) = self.workers.processes.get(&worker) {
            let (slot, pid) = (process.slot, process.pid);
            tracing::error!(%slot, %pid, %error, "a worker broke the protocol and is killed");
            signal(process, Signal::SIGKILL);
        }
    }

    pub(super) fn send(&mut self, worker: WorkerId, message: Message) {
        if let Some(process) = self.workers.processes.get_mut(&worker) {
            let failed = process.send(message, &self.listeners).err();
            self.on_send_failed(worker, failed);
        }
    }

    /// Sends the messages that did not fit into the workers' channels before.
    pub(super) fn send_pending(&mut self) {
        let send_pending = |process: &mut Process| process.send_pending(&self.listeners).err();
        let failed = self.workers.processes.iter_mut();
        let failed = failed.filter_map(|(&worker, process)| Some((worker, send_pending(process)?)));
        for (worker, failed) in failed.collect::<Vec<_>>() {
            self.on_send_failed(worker, Some(failed));
        }
    }

    /// If a worker did not get the message to adopt a slot, another worker has to adopt it.
    fn on_send_failed(&mut self, by: WorkerId, failed: Option<SendFailed>) {
        // A worker that has just ended will be reaped.
        let failed = failed.filter(|failed| !failed.has_ended());
        let Some(SendFailed { message, error }) = failed else {
            return;
        };
        tracing::error!(worker = %by, %message, %error, "a message to a worker was lost");
        if let Message::Adopt(slot) = message {
            self.handle_event(Event::NotAdopted { slot, by });
        }
    }

    pub(super) fn reopen_logs(&mut self) {
        tracing::info!("logs are reopened");
        self.observers.hooks.reopen_logs();
        self.send_to_all(Message::ReopenLogs);
    }

    pub(super) fn send_to_all(&mut self, message: Message) {
        let workers: Vec<_> = self.workers.processes.keys().copied().collect();
        for worker in workers {
            self.send(worker, message);
        }
    }

    pub(super) fn on_change(&mut self, change: Change) {
        if let Change::Resized { workers } = &change {
            self.workers.count = workers.get();
        }
        if change == Change::Draining {
            self.pre_stop.end();
        }
        // Before the hooks, which may look at it.
        self.publish_status();
        match change {
            Change::Serving => self.on_serving(),
            Change::WorkerReady(worker, ..) => self.notify_of(worker, Notice::WorkerReady),
            Change::WorkerDraining(worker, ..) => self.notify_of(worker, Notice::WorkerDraining),
            Change::WorkerHung(worker, ..) => self.notify_of(worker, Notice::WorkerHung),
            Change::WorkerStuck(worker, ..) => self.on_stuck(worker),
            Change::Draining => {
                tracing::info!("draining");
                self.send_to_all(Message::Stopping);
                self.observers.notify(&Notice::Draining);
            }
            Change::ReloadStarted { generation } => {
                tracing::info!(%generation, "reload started");
                self.observers.notify(&Notice::ReloadStarted { generation });
            }
            Change::ReloadFinished { generation } => {
                tracing::info!(%generation, "reload finished");
                self.observers
                    .notify(&Notice::ReloadFinished { generation });
                self.renew_admin();
            }
            Change::ReloadAbandoned { generation, why } => {
                self.on_reload_abandoned(generation, why)
            }
            Change::UpgradeStarted => {
                tracing::info!(program = %self.upgrade.program.path().display(), "upgrade started");
                self.observers.notify(&Notice::UpgradeStarted);
            }
            Change::UpgradeFinished => {
                tracing::info!("upgrade finished");
                self.observers.notify(&Notice::UpgradeFinished);
            }
            Change::UpgradeAbandoned { why } => self.on_upgrade_abandoned(why),
            Change::Resized { workers } => {
                tracing::info!(%workers, "resized");
                self.observers.notify(&Notice::Resized {
                    workers: workers.get(),
                });
            }
            Change::Adopted { slot, by } => {
                self.notify_of_adoption(slot, by, |slot, by| Notice::Adopted { slot, by });
            }
            Change::NotAdopted { slot, by } => {
                self.notify_of_adoption(slot, by, |slot, by| {
                    tracing::warn!(%slot, %by, "a worker cannot adopt a slot");
                    Notice::NotAdopted { slot, by }
                });
            }
            Change::Released { slot, by } => {
                self.notify_of_adoption(slot, by, |slot, by| Notice::Released { slot, by });
            }
            Change::BackingOff { slot, pause } => {
                tracing::warn!(%slot, "the next spawn waits {pause:.1?}");
                self.observers.notify(&Notice::BackingOff { slot, pause });
            }
        }
    }

    fn on_serving(&mut self) {
        let addresses = self.listeners.addresses();
        let workers: Vec<_> = self.workers.wanted().collect();
        if let Err(source) = self.observers.hooks.serving(&addresses, &workers) {
            return self.on_hook_refused("serving", source);
        }
        // Before the log and the notice: who has read them and then asks an admin process gets this
        // state.
        self.tell_view(clock::monotonic());
        let workers = self.workers.count;
        tracing::info!(addresses = %address::list(&addresses), workers, "serving");
        self.commands.handle.set_serving(&addresses);
        let pid = std::process::id();
        self.observers.notify(&Notice::Serving {
            addresses,
            workers,
            pid,
        });
    }

    fn on_reload_abandoned(&mut self, generation: Generation, why: Abandoned) {
        let is_refused = why == Abandoned::Refused;
        let why = match (why, self.failures.last_of(generation)) {
            (Abandoned::Refused, _) => self.failures.check.take().unwrap_or(why.to_string()),
            (Abandoned::Died | Abandoned::Misconfigured | Abandoned::NotSpawned, Some(report)) => {
                format!("{why}: {report}")
            }
            _ => why.to_string(),
        };
        tracing::warn!(%generation, "reload abandoned: {why}");
        self.observers
            .notify(&Notice::ReloadAbandoned { generation, why });
        // It may run the image from before an upgrade. A reload that was refused follows none, and
        // workers may ask for one without end.
        if !is_refused {
            self.renew_admin();
        }
    }

    fn notify_of(&mut self, worker: WorkerId, notice: impl Fn(crate::WorkerInfo) -> Notice) {
        if let Some(process) = self.workers.processes.get(&worker) {
            let notice = notice(process.info());
            tracing::debug!(?notice, "notice");
            self.observers.notify(&notice);
        }
    }

    fn on_stuck(&mut self, worker: WorkerId) {
        if let Some(Process { slot, pid, .. }) = self.workers.processes.get(&worker)
            && kill(*pid, None) != Err(Errno::EPERM)
        {
            tracing::error!(
                %slot, %pid,
                "a worker was sent SIGKILL {ENDS_WITHIN:?} ago, and the kernel has not ended it: \
                 it may wait for a disk (state D in ps(1)), or a debugger may hold it. The server \
                 goes on without it"
            );
        }
        self.notify_of(worker, Notice::WorkerStuck);
    }

    pub(super) fn on_hook_refused(&mut self, hook: &'static str, source: BoxError) {
        tracing::error!(hook, error = chain(&*source), "a hook refused");
        self.failures
            .hook
            .get_or_insert(Error::Hook { hook, source });
        self.handle_event(Event::HookRefused);
    }

    /// If the slot has no listener that no other slot has, an adoption concerns only its inbox,
    /// which is not worth a notice.
    fn notify_of_adoption(&mut self, slot: Slot, by: WorkerId, notice: fn(Slot, Slot) -> Notice) {
        if slot.0 < self.listeners.slots()
            && let Some(by) = self.workers.processes.get(&by)
        {
            self.observers.notify(&notice(slot, by.slot));
        }
    }
}

/// The process is not reaped yet, so the pid is still its own.
fn signal(process: &Process, signal: Signal) {
    let (slot, pid) = (process.slot, process.pid);
    match kill(pid, signal) {
        Ok(()) => {}
        // SIGKILL follows.
        Err(Errno::EPERM) if signal == Signal::SIGABRT => {}
        Err(Errno::EPERM) => tracing::error!(
            %slot, %pid,
            "the kernel does not let the master send SIGKILL to a worker of another user: give the \
             master CAP_KILL (capabilities(7)). The server goes on without the worker"
        ),
        Err(error) => tracing::error!(%slot, %pid, %signal, %error, "kill(2) failed"),
    }
}
