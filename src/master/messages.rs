//! What workers say, as far as the master listens: a bound on messages, so that a worker that never
//! stops sending keeps the master from nothing else.

use crate::id::WorkerId;
use crate::master::Master;
use crate::master::process::{Process, Recv};

/// How many messages of one worker are taken in before signals and other workers have their turn.
/// An honest worker says one or two things at a time.
const MESSAGES_PER_TURN: usize = 8;

/// How many messages of a worker that is gone are taken in. Its channel holds fewer (unix(7),
/// `SO_SNDBUF`), unless a program that it started has the channel and goes on sending.
const FINAL_MESSAGES_MAX: usize = 1024;

impl Master {
    pub(super) fn recv_from_workers(&mut self) {
        let workers: Vec<_> = self.processes.keys().copied().collect();
        for worker in workers {
            self.recv_from_worker(worker, MESSAGES_PER_TURN);
        }
    }

    /// Takes in what a worker has said, up to so many messages.
    fn recv_from_worker(&mut self, worker: WorkerId, most: usize) {
        for _ in 0..most {
            match self.processes.get_mut(&worker).map(Process::recv) {
                Some(Recv::Message(message)) => self.on_message(worker, message),
                Some(Recv::Broken(error)) => self.on_protocol_error(worker, &error),
                Some(Recv::Nothing) | None => return,
            }
        }
    }

    /// Takes in what a worker has said that is gone.
    pub(super) fn recv_final_messages(&mut self, worker: WorkerId) {
        self.recv_from_worker(worker, FINAL_MESSAGES_MAX);
    }
}
