//! A handle to a running server: by it any thread of any of its processes can resize, reload,
//! upgrade or stop the server.

use std::fmt;
use std::io::{self, ErrorKind};
use std::num::NonZeroU16;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use crate::address::Address;
use crate::codec::{self, record};
use crate::id::Slot;
use crate::policy::Stop;
use crate::status::Status;

/// A command to a server that runs, with what `Control::run` waits for.
///
/// ```
/// use prefork_server::control::Command;
///
/// /// After new files for TLS, or a new configuration.
/// fn after_new_files() -> Command {
///     Command::Reload
/// }
/// # assert_eq!(after_new_files().to_string(), "reload");
/// ```
///
/// It is displayed as the verb of the binary that gives it, such as `scale 3` or `stop --now`.
// A request of a `Handle` to the master. A worker sends the same bytes through its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Replace every worker. Done when workers of the new generation serve every slot, and the old
    /// ones have drained and exited.
    Reload,
    /// End the server. Done when it has ended.
    Stop(Stop),
    /// Have so many slots. Done when each has one worker, which serves.
    Resize(NonZeroU16),
    /// Open the log files anew. Done at once.
    ReopenLogs,
    /// Become the binary that is now on disk, and reload. Done when that reload is.
    Upgrade,
    /// Start a worker of the binary that is now on disk, as an upgrade does, and end it when it
    /// serves. Done then.
    TryUpgrade,
    /// Replace the worker of this slot. Done when another one serves.
    Recycle(Slot),
}

/// Sends requests to a running server. It is cheap to clone, and any thread can use it.
///
/// [`Prefork::handle`](crate::Prefork::handle) and [`Worker::handle`](crate::Worker::handle) return
/// one. A worker sends its requests to the master, which grants those that
/// [`Prefork::worker_requests`](crate::Prefork::worker_requests) allows. Each method returns at
/// once; notices report the result. A request that is sent before the server runs waits until it
/// runs. A request that the master has not read when it is upgraded is read by the next image.
///
/// A server that runs [in process](crate::Prefork::in_process) can stop and reopen its logs. It
/// only logs the other requests, which need a master.
///
/// ```no_run
/// use std::{thread, time::Duration};
///
/// use prefork_server::{Error, Exit, Prefork, Response, Role, handler, role};
///
/// fn run() -> Result<(), Error> {
///     let mut server = Prefork::bind("127.0.0.1:8080");
///     if role() == Role::Master {
///         let handle = server.handle()?;
///         thread::spawn(move || -> std::io::Result<()> {
///             loop {
///                 // Each hour, new workers read the newest data.
///                 thread::sleep(Duration::from_secs(60 * 60));
///                 handle.reload()?;
///             }
///         });
///     }
///     server.serve(async |_worker| {
///         let data = std::fs::read_to_string("data.txt")?;
///         Ok(handler(move |_request| {
///             let response = Response::new(data.clone().into());
///             async { Ok(response) }
///         }))
///     })
/// }
///
/// fn main() -> Exit {
///     run().into()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    asked: UnixDatagram,
    serving: Mutex<Serving>,
    changed: Condvar,
    status: Mutex<Published>,
}

/// Makes the status of the server when a handle asks.
pub(crate) type StatusSource = Box<dyn Fn() -> Status + Send>;

/// `None` before the server runs, after its end, and in a worker.
#[derive(Default)]
struct Published(Option<StatusSource>);

#[derive(Debug)]
enum Serving {
    NotYet,
    On(Vec<Address>),
    Ended,
}

impl Handle {
    pub(crate) fn pair() -> io::Result<(Self, UnixDatagram)> {
        let (asked, asks) = UnixDatagram::pair()?;
        // A server that does not read must not block the thread that sends.
        asked.set_nonblocking(true)?;
        asks.set_nonblocking(true)?;
        let shared = Shared {
            asked,
            serving: Mutex::new(Serving::NotYet),
            changed: Condvar::new(),
            status: Mutex::default(),
        };
        Ok((
            Self {
                shared: Arc::new(shared),
            },
            asks,
        ))
    }

    /// Replaces the workers slot by slot, as the signal `HUP` does. During an upgrade, the reload
    /// follows the upgrade. During a reload, the reload begins again.
    ///
    /// # Errors
    /// The server has ended, or too many requests are waiting.
    pub fn reload(&self) -> io::Result<()> {
        self.ask(Command::Reload)
    }

    /// Starts a worker of the binary that is now at the path of this program. If that worker
    /// serves, the master becomes the new binary. The signal `USR2` does the same.
    ///
    /// The process of the master stays, and its program starts again: the other threads of the
    /// master are gone, as after every execve(2), and `main` runs again up to the server. The first
    /// worker cannot test what `main` does in the master alone. The hooks of the new image get
    /// [`Notice::UpgradeFinished`](crate::Notice::UpgradeFinished); if the upgrade fails, the hooks
    /// of the old image get [`Notice::UpgradeAbandoned`](crate::Notice::UpgradeAbandoned). During a
    /// reload, the upgrade follows the reload.
    ///
    /// # Errors
    /// As [`reload`](Self::reload).
    pub fn upgrade(&self) -> io::Result<()> {
        self.ask(Command::Upgrade)
    }

    /// Ends the server. If the server drains, another request to end it, by a handle or a signal,
    /// counts as [`Stop::Now`]. During [`pre_stop_delay`](crate::Prefork::pre_stop_delay) a second
    /// [`Stop::Drain`] begins the drain. A second [`Stop::Drain`] within a second of the first
    /// request changes nothing.
    ///
    /// # Errors
    /// As [`reload`](Self::reload).
    pub fn stop(&self, stop: Stop) -> io::Result<()> {
        self.ask(Command::Stop(stop))
    }

    /// Changes the number of slots, to [`MAX_WORKERS`](crate::MAX_WORKERS) at most. After an
    /// upgrade the server still has this number, not the one that the new binary sets.
    ///
    /// ```
    /// use std::num::NonZeroU16;
    ///
    /// use prefork_server::{BoxError, Handle};
    ///
    /// fn on_admin_request(handle: &Handle, body: &str) -> Result<(), BoxError> {
    ///     let workers: NonZeroU16 = body.parse()?;
    ///     Ok(handle.resize(workers)?)
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`reload`](Self::reload).
    pub fn resize(&self, workers: NonZeroU16) -> io::Result<()> {
        self.ask(Command::Resize(workers))
    }

    /// Replaces the worker that serves a slot, as [`Worker::recycle`](crate::Worker::recycle) does.
    /// If no worker serves the slot, nothing happens.
    ///
    /// # Errors
    /// As [`reload`](Self::reload).
    pub fn recycle(&self, slot: Slot) -> io::Result<()> {
        self.ask(Command::Recycle(slot))
    }

    /// Calls [`Hooks::reopen_logs`](crate::Hooks::reopen_logs) in every process, as the signal
    /// `USR1` does.
    ///
    /// # Errors
    /// As [`reload`](Self::reload).
    pub fn reopen_logs(&self) -> io::Result<()> {
        self.ask(Command::ReopenLogs)
    }

    /// Blocks until the server serves, and returns its addresses; `None` if the server ended before
    /// that. For a thread in the master, or a thread beside a server that runs in process. In a
    /// worker it returns `None` at once.
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

    /// The state of the server now: slots, generations, workers and counts. `None` before the
    /// server runs and after its end. A worker knows only itself, so in a worker it is `None` too.
    ///
    /// It waits for nobody: it works in a [hook](crate::Hooks), and while all workers hang. For a
    /// thread in the master, a hook of the master, or a server that runs [in
    /// process](crate::Prefork::in_process), which has one slot with one worker.
    ///
    /// ```
    /// use prefork_server::ServerState;
    /// # use prefork_server::TestServer;
    ///
    /// # let server = TestServer::start_with(|server| {
    /// #     server.run(async |_worker, mut incoming| {
    /// #         while incoming.accept().await.is_some() {}
    /// #         Ok(())
    /// #     })
    /// # })?;
    /// # let handle = server.handle();
    /// let status = handle.status().expect("the server runs");
    /// assert_eq!(status.state, ServerState::Serving);
    /// assert_eq!(status.totals.requests, 0);
    /// # Ok::<(), prefork_server::Error>(())
    /// ```
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let published = self.published();
        published.0.as_ref().map(|source| source())
    }

    /// Whether the server alone has it. Then nobody asks for the status, now and later.
    pub(crate) fn is_private(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Tells the handles that the server has ended, when it is dropped.
    pub(crate) fn end_guard(&self) -> EndGuard {
        EndGuard(Arc::downgrade(&self.shared))
    }

    /// Changes what [`status`](Self::status) returns. No handle sees the status while `change`
    /// runs.
    pub(crate) fn publish(&self, change: impl FnOnce() -> StatusSource) {
        let mut published = self.published();
        published.0 = Some(change());
    }

    fn published(&self) -> MutexGuard<'_, Published> {
        let status = self.shared.status.lock();
        status.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_serving(&self, addresses: &[Address]) {
        self.set(Serving::On(addresses.to_vec()));
    }

    pub(crate) fn set_ended(&self) {
        self.published().0 = None;
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
        let sent = self.shared.asked.send(&command.encode());
        sent.map(drop).map_err(explained)
    }
}

/// Wakes the threads that wait for the server, however it ends: also by an error before the start,
/// or by a panic.
pub(crate) struct EndGuard(Weak<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            Handle { shared }.set_ended();
        }
    }
}

/// The error of a send, with what it means for the caller.
fn explained(error: io::Error) -> io::Error {
    let kind = error.kind();
    match kind {
        ErrorKind::WouldBlock => io::Error::new(kind, "too many requests are waiting"),
        ErrorKind::ConnectionRefused | ErrorKind::NotConnected => {
            io::Error::new(kind, "the server has ended")
        }
        _ => error,
    }
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(_) => f.write_str("Running"),
            None => f.write_str("NotRunning"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reload => f.write_str("reload"),
            Self::Stop(Stop::Drain) => f.write_str("stop"),
            Self::Stop(Stop::Now) => f.write_str("stop --now"),
            Self::Resize(workers) => write!(f, "scale {workers}"),
            Self::ReopenLogs => f.write_str("logs reopen"),
            Self::Upgrade => f.write_str("upgrade"),
            Self::TryUpgrade => f.write_str("upgrade --dry-run"),
            Self::Recycle(slot) => write!(f, "recycle {slot}"),
        }
    }
}

impl Command {
    /// The most bytes that a command has.
    pub(crate) const LEN: usize = 3;

    /// The path of the admin address to which a POST gives the command.
    pub(crate) fn path(self) -> String {
        match self {
            Self::Reload => "/v1/reload".to_owned(),
            Self::Stop(Stop::Drain) => "/v1/stop".to_owned(),
            Self::Stop(Stop::Now) => "/v1/stop?now".to_owned(),
            Self::Resize(workers) => format!("/v1/workers/{workers}"),
            Self::ReopenLogs => "/v1/logs/reopen".to_owned(),
            Self::Upgrade => "/v1/upgrade".to_owned(),
            Self::TryUpgrade => "/v1/upgrade?dry-run".to_owned(),
            Self::Recycle(slot) => format!("/v1/slots/{slot}/recycle"),
        }
    }

    /// The name of the operation.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reload => "reload",
            Self::Upgrade | Self::TryUpgrade => "upgrade",
            Self::Resize(_) => "scale",
            Self::Stop(Stop::Drain | Stop::Now) => "stop",
            Self::ReopenLogs => "reopen_logs",
            Self::Recycle(_) => "recycle",
        }
    }

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
    b'c' = Recycle(slot),
    b't' = TryUpgrade,
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
            Command::TryUpgrade,
            Command::Recycle(Slot(300)),
        ] {
            handle.ask(command).expect("room for one");
            let mut bytes = [0; Command::LEN];
            let len = asks.recv(&mut bytes).expect("one is there");
            assert_eq!(Command::decode(&bytes[..len]), Some(command));
        }
    }

    #[test]
    fn a_handle_is_private_until_there_is_another() {
        let (handle, _asks) = Handle::pair().expect("a socket pair");
        let guard = handle.end_guard();
        assert!(handle.is_private());
        let other = handle.clone();
        assert!(!handle.is_private());
        drop(handle);
        drop(guard);
        assert_eq!(other.wait_serving(), None, "the server has ended");
    }

    #[test]
    fn a_request_that_cannot_be_sent_says_why() {
        let (handle, asks) = Handle::pair().expect("a socket pair");
        let full = (0..100_000).find_map(|_| handle.reload().err());
        let full = full.expect("nobody reads").to_string();
        assert_eq!(full, "too many requests are waiting");
        drop(asks);
        for _ in 0..2 {
            let ended = handle.stop(Stop::Drain).expect_err("nobody can read");
            assert_eq!(ended.to_string(), "the server has ended");
        }
    }

    #[test]
    fn bytes_that_are_no_command_are_refused() {
        for bytes in [&b""[..], b"x", b"r\0", b"s", b"s\x02", b"w\0\0", b"w\x01"] {
            assert_eq!(Command::decode(bytes), None, "{bytes:?}");
        }
    }
}
