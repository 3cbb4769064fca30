//! The words that users and the supervisor share: when to give up, how to end, how it ended.

use std::fmt;
use std::time::Duration;

use crate::named::named;

/// How to end a server.
///
/// ```
/// use prefork_server::{Handle, Stop};
/// # use prefork_server::TestServer;
///
/// /// Ends the server as SIGTERM to the master does.
/// fn end(handle: &Handle) -> std::io::Result<()> {
///     handle.stop(Stop::Drain)
/// }
/// # let server = TestServer::start_with(|server| {
/// #     server.run(async |_worker, mut incoming| {
/// #         while incoming.accept().await.is_some() {}
/// #         Ok(())
/// #     })
/// # })?;
/// # end(server.handle())?;
/// # server.stop()?;
/// # Ok::<(), prefork_server::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stop {
    /// Finish the open work, within the drain timeout.
    Drain,
    /// Cut the open work.
    Now,
}

/// What a server as a whole does. With the feature `serde` it can be serialized, as its name in
/// lower case.
///
/// ```
/// use prefork_server::{Handle, ServerState};
/// # use prefork_server::TestServer;
///
/// /// Whether a load balancer should choose this server.
/// fn is_ready(handle: &Handle) -> bool {
///     let state = handle.status().map(|status| status.state);
///     !matches!(state, None | Some(ServerState::Starting | ServerState::Draining))
/// }
/// # let server = TestServer::start_with(|server| {
/// #     server.run(async |_worker, mut incoming| {
/// #         while incoming.accept().await.is_some() {}
/// #         Ok(())
/// #     })
/// # })?;
/// # assert!(is_ready(server.handle()));
/// # Ok::<(), prefork_server::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerState {
    /// Not every slot has had a ready worker.
    Starting,
    /// Every slot has had a ready worker, and no reload or upgrade runs.
    Serving,
    /// The workers are being replaced, slot by slot.
    Reloading,
    /// A worker of the binary on disk, the canary, is being tried.
    Upgrading,
    /// The server was asked to end, and still serves for a while
    /// ([`Prefork::pre_stop_delay`](crate::Prefork::pre_stop_delay)).
    Stopping,
    /// The server finishes its open work and then ends.
    Draining,
}

named!(ServerState {
    "starting" = Starting,
    "serving" = Serving,
    "reloading" = Reloading,
    "upgrading" = Upgrading,
    "stopping" = Stopping,
    "draining" = Draining,
});

/// What a worker does. With the feature `serde` it can be serialized, as its name in lower case.
///
/// ```
/// use prefork_server::{Status, WorkerState};
/// # use prefork_server::TestServer;
///
/// /// How many workers accept connections.
/// fn serving(status: &Status) -> usize {
///     let workers = status.slots.iter().flat_map(|slot| &slot.workers);
///     workers.filter(|worker| worker.state == WorkerState::Serving).count()
/// }
/// # let server = TestServer::start_with(|server| {
/// #     server.run(async |_worker, mut incoming| {
/// #         while incoming.accept().await.is_some() {}
/// #         Ok(())
/// #     })
/// # })?;
/// # assert_eq!(server.handle().status().as_ref().map(serving), Some(1));
/// # Ok::<(), prefork_server::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkerState {
    /// Its process runs, and it does not accept connections yet.
    Starting,
    /// It accepts connections.
    Serving,
    /// It finishes its open work and then exits.
    Draining,
    /// The master has aborted or killed it: it hung, was not ready in time, or did not end its
    /// drain in time.
    Ending,
}

named!(WorkerState {
    "starting" = Starting,
    "serving" = Serving,
    "draining" = Draining,
    "ending" = Ending,
});

#[cfg(feature = "serde")]
mod serialize {
    use serde::{Serialize, Serializer};

    use super::{ServerState, WorkerState};

    impl Serialize for ServerState {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl Serialize for WorkerState {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }
}

/// More than `max` crashes within `per` end the server.
///
/// ```
/// use std::time::Duration;
///
/// use prefork_server::{CrashLimit, Prefork};
///
/// // The sixth crash within ten seconds ends the server.
/// let limit = CrashLimit::new(5, Duration::from_secs(10));
/// let server = Prefork::bind("127.0.0.1:8080").crash_limit(limit);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CrashLimit {
    /// So many crashes within `per` do not end the server.
    pub max: u32,
    /// The length of the sliding window in which crashes are counted.
    pub per: Duration,
}

impl CrashLimit {
    /// More than `max` crashes within `per` end the server.
    #[must_use]
    pub const fn new(max: u32, per: Duration) -> Self {
        Self { max, per }
    }
}

impl Default for CrashLimit {
    /// 10 crashes in 60 seconds.
    fn default() -> Self {
        Self::new(10, Duration::from_secs(60))
    }
}

/// How long a slot waits after a crash until it has a new worker: not at all after the first crash,
/// then [`first`](Self::first), and after each further one twice as long, up to
/// [`max`](Self::max). Each pause is shortened by chance, to no less than its half. A worker that
/// exits with 0, leaves or asks to be replaced within a second of being ready makes its slot wait
/// in the same way, and is not counted as a crash.
///
/// ```
/// use std::time::Duration;
///
/// use prefork_server::{Backoff, Prefork};
///
/// // At most 0, 250 ms, 500 ms, 1 s, 2 s, 4 s, and from then on 5 s.
/// let backoff = Backoff::new().first(Duration::from_millis(250)).max(Duration::from_secs(5));
/// let server = Prefork::bind("127.0.0.1:8080").backoff(backoff);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Backoff {
    pub(crate) first: Duration,
    pub(crate) max: Duration,
    pub(crate) reset_after: Duration,
}

impl Backoff {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The pause after the second crash in a row.
    ///
    /// Default: 100 ms.
    pub fn first(mut self, pause: Duration) -> Self {
        self.first = pause;
        self
    }

    /// The longest pause.
    ///
    /// Default: 30 s.
    pub fn max(mut self, pause: Duration) -> Self {
        self.max = pause;
        self
    }

    /// When a worker has served for this long, the crashes before it are forgotten.
    ///
    /// Default: 60 s.
    pub fn reset_after(mut self, served: Duration) -> Self {
        self.reset_after = served;
        self
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            // Short, because the slot's listener goes on receiving connections.
            first: Duration::from_millis(100),
            max: Duration::from_secs(30),
            reset_after: Duration::from_secs(60),
        }
    }
}

/// How a server ended. Its `Display` is what the announce stream and the log write: `drained`,
/// `stopped`, `never-ready`, `crash-limit`, `misconfigured` or `hook-refused`.
///
/// ```
/// use prefork_server::{Hooks, Notice, Outcome};
///
/// struct Last;
///
/// impl Hooks for Last {
///     fn notice(&mut self, notice: &Notice) {
///         let Notice::Finished { outcome, totals, .. } = notice else { return };
///         match outcome {
///             Outcome::Drained | Outcome::Stopped => println!("{outcome} after {totals}"),
///             _ => eprintln!("call the operator: {outcome}"),
///         }
///     }
/// }
///
/// assert_eq!(Outcome::NeverReady.to_string(), "never-ready");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The server was asked to drain, and every worker has left.
    Drained,
    /// The server was asked to stop now, or was asked to end a second time.
    Stopped,
    /// At the first start the first worker of every slot failed before any worker was ready.
    NeverReady,
    /// More workers crashed than the [`CrashLimit`] allows.
    #[non_exhaustive]
    CrashLimit {
        /// How many crashes there were.
        crashes: u32,
        /// Within which time.
        per: Duration,
    },
    /// A worker exited with [`EXIT_MISCONFIGURED`](crate::EXIT_MISCONFIGURED).
    Misconfigured,
    /// A hook refused to go on.
    HookRefused,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drained => "drained",
            Self::Stopped => "stopped",
            Self::NeverReady => "never-ready",
            Self::CrashLimit { .. } => "crash-limit",
            Self::Misconfigured => "misconfigured",
            Self::HookRefused => "hook-refused",
        })
    }
}
