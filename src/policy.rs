//! What the supervisor decides by and what it decides, where users see it.

use std::fmt;
use std::time::Duration;

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// Finish what is open, at most for the drain timeout.
    Drain,
    /// Cut what is open.
    Now,
}

/// More than `max` crashes within `per` end the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrashLimit {
    /// So many crashes within `per` do not end the server.
    pub max: u32,
    /// The length of the sliding window in which crashes are counted.
    pub per: Duration,
}

impl Default for CrashLimit {
    /// 10 crashes in 60 seconds.
    fn default() -> Self {
        Self {
            max: 10,
            per: Duration::from_secs(60),
        }
    }
}

/// How long a slot rests between its crashes: not at all after the first, then `first`, doubling up
/// to `max`, each pause with jitter. Workers that exit with 0, leave or ask to be replaced within a
/// second of being ready make it rest in the same way, and are not counted as crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// The pause after the second crash in a row.
    pub first: Duration,
    /// The longest pause.
    pub max: Duration,
    /// A worker that served for this long has proven its slot: the count begins anew.
    pub reset_after: Duration,
}

impl Default for Backoff {
    /// 100 ms, 30 s, 60 s.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            max: Duration::from_secs(30),
            reset_after: Duration::from_secs(60),
        }
    }
}

/// How a server ended. Its `Display` is what the announce stream and the log write: `drained`,
/// `stopped`, `never-ready`, `crash-limit`, `misconfigured` or `hook-refused`.
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
