//! What became of the requests.

use std::fmt;
use std::time::Duration;

use crate::support::named;

named! {
    /// How a request went unanswered, in the order of the table's columns.
    enum Loss {
        /// `ECONNREFUSED`: no socket listened.
        Refused = "refused",
        /// Reset before any byte of a response, on a connection that never had one: it waited in a
        /// queue that was closed, or was accepted and dropped.
        ResetNew = "reset new",
        /// The same at the second or a later request of a connection.
        ResetKept = "reset kept",
        /// End of file instead of a response, on a connection that never had one.
        EndNew = "eof new",
        /// The same at the second or a later request of a connection.
        EndKept = "eof kept",
        /// Nothing within [`TIMEOUT`](crate::connection::TIMEOUT).
        Silence = "silent",
        /// Bytes that are not the response, or a response that was cut.
        Garbled = "garbled",
        /// The worker that had accepted the connection was killed: no server can save those.
        Held = "(held)",
    }
}

/// One request that was lost, to look for the cause.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) loss: Loss,
    /// Since the load began.
    pub(crate) at: Duration,
    /// How many events had begun.
    pub(crate) event: usize,
    /// The client's side of the connection; 0 if there was none.
    pub(crate) port: u16,
    /// How many responses the connection had brought before.
    pub(crate) answered_before: u32,
    pub(crate) detail: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at {:.4} s, event {}, client port {}, after {} responses on this connection: {}",
            self.loss.name(),
            self.at.as_secs_f64(),
            self.event,
            self.port,
            self.answered_before,
            self.detail,
        )
    }
}

/// Requests counted by what became of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answered: u64,
    /// Connections that the server closed while nothing was asked, which is no loss.
    pub(crate) closed: usize,
    /// All of them, since a server that loses much ends the case early: see `load::LOST_MAX`.
    pub(crate) lost: Vec<Lost>,
}

impl Tally {
    pub(crate) fn count(&self, loss: Loss) -> usize {
        self.lost.iter().filter(|lost| lost.loss == loss).count()
    }

    /// Those that a better server would have answered.
    pub(crate) fn avoidable(&self) -> usize {
        self.lost.len() - self.count(Loss::Held)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.closed += other.closed;
        self.lost.extend(other.lost);
    }
}
