//! What workers say, as far as the master listens: a bound on messages, so that a worker that never
//! stops sending keeps the master from nothing else.

use crate::id::WorkerId;
use crate::master::Master;
use crate::master::process::{Heard, Process};

/// How many messages of one worker are taken in before signals and other workers have their turn.
/// An honest worker says one or two things at a time.
const HEARD_IN_A_TURN: usize = 8;

/// How many messages of a worker that is gone are taken in. Its channel holds fewer (unix(7),
/// `SO_SNDBUF`), unless a program that it started has the channel and goes on sending.
const HEARD_AT_THE_END: usize = 1024;

impl Master {
    pub(super) fn hear_workers(&mut self) {
        let workers: Vec<_> = self.processes.keys().copied().collect();
        for worker in workers {
            self.hear_worker(worker, HEARD_IN_A_TURN);
        }
    }

    /// Takes in what a worker has said, up to so many messages.
    fn hear_worker(&mut self, worker: WorkerId, most: usize) {
        for _ in 0..most {
            match self.processes.get_mut(&worker).map(Process::hear) {
                Some(Heard::Message(message)) => self.heed(worker, message),
                Some(Heard::Broken(error)) => self.cut_off(worker, &error),
                Some(Heard::Nothing) | None => return,
            }
        }
    }

    /// Takes in what a worker has said that is gone.
    pub(super) fn hear_last_words(&mut self, worker: WorkerId) {
        self.hear_worker(worker, HEARD_AT_THE_END);
    }
}
