//! A handle on a running server: any thread of any of its processes may scale, reload, upgrade or
//! stop it.

use std::io;
use std::num::NonZeroU16;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::address::Address;
use crate::codec::{self, record};
use crate::policy::Stop;

/// What a [`Handle`] asks of the master; the same bytes travel from a worker through its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Reload,
    Stop(Stop),
    Resize(NonZeroU16),
    ReopenLogs,
    Upgrade,
}

/// Asks things of a running server; cheap to clone, usable from any thread.
///
/// From [`Prefork::handle`](crate::Prefork::handle) or [`Worker::handle`](crate::Worker::handle).
/// In a worker the request travels to the master, which does what
/// [`Prefork::worker_requests`](crate::Prefork::worker_requests) allows. Asking returns at once;
/// what comes of it is told by notices. What is asked before the server runs waits until it does;
/// what its master has not read when it is upgraded is read by the next image.
///
/// A server that runs [in process](crate::Prefork::in_process) can be stopped and have its logs
/// reopened; all else needs a master and is only logged.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    asked: UnixDatagram,
    serving: Mutex<Serving>,
    changed: Condvar,
}

#[derive(Debug)]
enum Serving {
    NotYet,
    On(Vec<Address>),
    Ended,
}

impl Handle {
    pub(crate) fn pair() -> io::Result<(Self, UnixDatagram)> {
        let (asked, asks) = UnixDatagram::pair()?;
        // A server that does not read must not block the thread that asks.
        asked.set_nonblocking(true)?;
        asks.set_nonblocking(true)?;
        let shared = Shared {
            asked,
            serving: Mutex::new(Serving::NotYet),
            changed: Condvar::new(),
        };
        Ok((
            Self {
                shared: Arc::new(shared),
            },
            asks,
        ))
    }

    /// Replaces the workers slot by slot; see the signal `HUP`. One that is asked for during an
    /// upgrade follows it; one that is asked for during a reload begins it anew.
    ///
    /// # Errors
    /// The server has ended, or too many requests wait for it.
    pub fn reload(&self) -> io::Result<()> {
        self.ask(Command::Reload)
    }

    /// Tries the binary that is now where this program came from and, if it serves, becomes it;
    /// see the signal `USR2`.
    ///
    /// The master's process stays, and what runs in it begins anew: its other threads are gone, as
    /// after every execve(2), and `main` runs again up to the server. What `main` does there in the
    /// master alone is the one thing that the binary's first worker cannot try beforehand. What
    /// came of it is told by [`Notice::UpgradeFinished`](crate::Notice::UpgradeFinished), to the
    /// hooks of the new image, or [`Notice::UpgradeAbandoned`](crate::Notice::UpgradeAbandoned).
    /// One that is asked for during a reload follows it.
    ///
    /// # Errors
    /// As [`reload`](Self::reload).
    pub fn upgrade(&self) -> io::Result<()> {
        self.ask(Command::Upgrade)
    }

    /// Ends the server. Asked a second time, in whichever way, it is [`Stop::Now`]; but a second
    /// [`Stop::Drain`] within a second of the first ask is the same ask.
    ///
    /// # Errors
    /// As [`reload`](Self::reload).
    pub fn stop(&self, stop: Stop) -> io::Result<()> {
        self.ask(Command::Stop(stop))
    }

    /// Changes the number of slots; more than [`MAX_WORKERS`](crate::MAX_WORKERS) is taken as that
    /// many. It outlasts an upgrade, whatever number the new binary would have chosen.
    ///
    /// # Errors
    /// As [`reload`](Self::reload).
    pub fn resize(&self, workers: NonZeroU16) -> io::Result<()> {
        self.ask(Command::Resize(workers))
    }

    /// Calls [`Hooks::reopen_logs`](crate::Hooks::reopen_logs) in every process; see the signal
    /// `USR1`.
    ///
    /// # Errors
    /// As [`reload`](Self::reload).
    pub fn reopen_logs(&self) -> io::Result<()> {
        self.ask(Command::ReopenLogs)
    }

    /// Blocks until the server serves and tells where; `None` if it ended before that. For a thread
    /// of the master, or beside a server that runs in process; a worker does not learn of it, and
    /// there it is `None` at once.
    #[must_use]
    pub fn wait_serving(&self) -> Option<Vec<Address>> {
        let mut serving = self
            .shared
            .serving
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*serving {
                Serving::On(addresses) => return Some(addresses.clone()),
                Serving::Ended => return None,
                Serving::NotYet => {}
            }
            serving = self
                .shared
                .changed
                .wait(serving)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn set_serving(&self, addresses: &[Address]) {
        self.set(Serving::On(addresses.to_vec()));
    }

    pub(crate) fn set_ended(&self) {
        self.set(Serving::Ended);
    }

    fn set(&self, serving: Serving) {
        *self
            .shared
            .serving
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = serving;
        self.shared.changed.notify_all();
    }

    fn ask(&self, command: Command) -> io::Result<()> {
        self.shared.asked.send(&command.encode()).map(drop)
    }
}

impl Command {
    /// The most bytes that a command has.
    pub(crate) const LEN: usize = 3;

    pub(crate) fn encode(self) -> Vec<u8> {
        codec::to_bytes(&self)
    }

    /// The command in these bytes; `None` if they are not a command.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        codec::from_bytes(bytes).ok()
    }
}

record!(enum Command {
    b'r' = Reload,
    b's' = Stop(stop),
    b'w' = Resize(workers),
    b'l' = ReopenLogs,
    b'u' = Upgrade,
});

record!(enum Stop { 0 = Drain, 1 = Now });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_arrives() {
        let (handle, asks) = Handle::pair().expect("a socket pair");
        let workers = NonZeroU16::new(300).expect("not zero");
        for command in [
            Command::Reload,
            Command::Stop(Stop::Drain),
            Command::Stop(Stop::Now),
            Command::Resize(workers),
            Command::ReopenLogs,
            Command::Upgrade,
        ] {
            handle.ask(command).expect("room for one");
            let mut bytes = [0; Command::LEN];
            let len = asks.recv(&mut bytes).expect("one is there");
            assert_eq!(Command::decode(&bytes[..len]), Some(command));
        }
    }

    #[test]
    fn bytes_that_are_no_command_are_refused() {
        for bytes in [&b""[..], b"x", b"r\0", b"s", b"s\x02", b"w\0\0", b"w\x01"] {
            assert_eq!(Command::decode(bytes), None, "{bytes:?}");
        }
    }
}
