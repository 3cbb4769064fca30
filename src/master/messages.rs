//! Receives what workers and handles send. The number of messages of a worker in one turn is
//! limited, so that a worker that never stops sending does not keep the master from other work.

use crate::handle::Command;
use crate::id::{Slot, WorkerId};
use crate::master::Master;
use crate::master::workers::process::{Intent, Process, Recv};
use crate::protocol::channel::ToMaster;
use crate::supervisor::{Asker, Event};

/// How many messages of one worker the master receives before signals and other workers have their
/// turn. A worker that works as it should sends one or two at a time.
const MESSAGES_PER_TURN: usize = 8;

/// How many messages the master receives from a process that has ended. The channel holds fewer
/// (unix(7), `SO_SNDBUF`), unless a program that the process started has it and goes on sending.
pub(super) const FINAL_MESSAGES_MAX: usize = 1024;

impl Master {
    pub(super) fn recv_from_workers(&mut self) {
        let workers: Vec<_> = self.workers.processes.keys().copied().collect();
        for worker in workers {
            self.recv_from_worker(worker, MESSAGES_PER_TURN);
        }
    }

    /// Receives up to `most` messages of a worker.
    fn recv_from_worker(&mut self, worker: WorkerId, most: usize) {
        for _ in 0..most {
            match self.workers.processes.get_mut(&worker).map(Process::recv) {
                Some(Recv::Message(message)) => self.on_message(worker, message),
                Some(Recv::Broken(error)) => self.on_protocol_error(worker, &error),
                Some(Recv::Nothing) | None => return,
            }
        }
    }

    /// Receives what a worker sent before it ended.
    pub(super) fn recv_final_messages(&mut self, worker: WorkerId) {
        self.recv_from_worker(worker, FINAL_MESSAGES_MAX);
    }

    pub(super) fn recv_commands(&mut self) {
        while let Some(command) = self.next_command() {
            self.apply_command(command);
        }
    }

    /// The next command of a handle in this process; `None` if there is none.
    pub(super) fn next_command(&self) -> Option<Command> {
        let mut bytes = [0; Command::LEN];
        let len = self.commands.socket.recv(&mut bytes).ok()?;
        Command::decode(&bytes[..len])
    }

    fn on_message(&mut self, worker: WorkerId, message: ToMaster) {
        match message {
            ToMaster::Ready(reads) => self.on_ready(worker, reads),
            ToMaster::Recycle => self.handle_event(Event::Recycle(worker, Asker::Worker)),
            ToMaster::Leaving => self.on_leaving(worker),
            ToMaster::Asked(command) => self.on_request(worker, command),
            ToMaster::NotAdopted(slot) => {
                let by = worker;
                self.handle_event(Event::NotAdopted { slot, by });
            }
            ToMaster::Drained { .. } | ToMaster::Failed(_) => {}
        }
    }

    fn on_leaving(&mut self, worker: WorkerId) {
        if let Some(process) = self.workers.processes.get_mut(&worker) {
            process.intent = Intent::Leave;
        }
        self.handle_event(Event::Leaving(worker));
    }

    /// The worker serves now. It may have said before that it leaves.
    pub(super) fn let_leave(&mut self, worker: WorkerId) {
        let process = self.workers.processes.get(&worker);
        if process.is_some_and(|process| process.intent == Intent::Leave) {
            self.handle_event(Event::Leaving(worker));
        }
    }

    pub(super) fn apply_command(&mut self, command: Command) {
        match command {
            Command::Reload => self.handle_event(Event::ReloadAsked),
            Command::Upgrade => self.handle_event(Event::Upgrade),
            Command::TryUpgrade => self.try_upgrade(),
            Command::Stop(stop) => self.handle_event(Event::Stop(stop)),
            Command::Resize(workers) => self.handle_event(Event::Resize(workers)),
            Command::ReopenLogs => self.reopen_logs(),
            Command::Recycle(slot) => self.recycle(slot, Asker::Operator),
        }
    }

    pub(super) fn recycle(&mut self, slot: Slot, asker: Asker) {
        if let Some(worker) = self.supervisor.serves(slot) {
            self.handle_event(Event::Recycle(worker, asker));
        }
    }
}
