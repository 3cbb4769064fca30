//! A handle on a running server: any thread of any of its processes may scale, reload, upgrade or
//! stop it.

use std::io;
use std::num::NonZeroU16;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::address::Address;
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
    /// The bytes of every command; the longest message of a handle's socket.
    pub(crate) const LEN: usize = 3;

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let (tag, value) = match self {
            Self::Reload => (b'r', 0),
            Self::Stop(Stop::Drain) => (b'd', 0),
            Self::Stop(Stop::Now) => (b'n', 0),
            Self::Resize(workers) => (b'w', workers.get()),
            Self::ReopenLogs => (b'l', 0),
            Self::Upgrade => (b'u', 0),
        };
        let [low, high] = value.to_le_bytes();
        [tag, low, high]
    }

    /// The command in these bytes; `None` if they are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let &[tag, low, high] = bytes else {
            return None;
        };
        match (tag, u16::from_le_bytes([low, high])) {
            (b'r', 0) => Some(Self::Reload),
            (b'd', 0) => Some(Self::Stop(Stop::Drain)),
            (b'n', 0) => Some(Self::Stop(Stop::Now)),
            (b'w', workers) => NonZeroU16::new(workers).map(Self::Resize),
            (b'l', 0) => Some(Self::ReopenLogs),
            (b'u', 0) => Some(Self::Upgrade),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_survives_the_way() {
        let (handle, asks) = Handle::pair().expect("a socket pair");
        let workers = NonZeroU16::new(300).expect("not zero");
        handle.resize(workers).expect("room for one");
        let mut bytes = [0; 8];
        let len = asks.recv(&mut bytes).expect("one is there");
        assert_eq!(
            Command::decode(&bytes[..len]),
            Some(Command::Resize(workers))
        );
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for bytes in [&b""[..], b"r", b"x\0\0", b"w\0\0", b"r\x01\0", b"r\0\0\0"] {
            assert_eq!(Command::decode(bytes), None, "{bytes:?}");
        }
    }
}
