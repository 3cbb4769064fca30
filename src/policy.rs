//! What the supervisor decides by and what it decides, where users see it.

use std::fmt;
use std::time::Duration;

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
    /// More workers crashed than the [`CrashLimit`](crate::CrashLimit) allows.
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
