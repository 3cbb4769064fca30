//! What can end a server, and the exit codes that are part of the protocol between processes.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::address::Address;

/// Any error a user's code may return: `?` turns every error type into it.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// A worker that exits with this code (`EX_CONFIG`, sysexits(3head)) says that spawning it again
/// cannot help: the server drains and ends with [`Error::Misconfigured`]. A new worker of a reload
/// or of an upgrade ends only that, and the old ones serve on.
pub const EXIT_MISCONFIGURED: i32 = 78;

/// How a worker leaves whose app could not be set up. The master counts it as a crash before
/// ready and tries again.
pub(crate) const EXIT_NOT_READY: i32 = 3;

/// How a worker leaves whose app returned an error after it was ready.
pub(crate) const EXIT_FAILED: i32 = 1;

/// Why a server could not start or had to end.
///
/// Each variant prints its own level only; the cause is in [`source`](StdError::source).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A setting that cannot work, found before anything was bound.
    Config(String),
    /// An address that cannot be listened on.
    #[non_exhaustive]
    Bind {
        /// The address as it was given.
        address: Address,
        /// What bind(2) or listen(2) said.
        source: io::Error,
    },
    /// At the first start every slot's worker failed before it was ready.
    #[non_exhaustive]
    NeverReady {
        /// The reasons the last workers gave, newest last.
        deaths: Vec<String>,
    },
    /// Workers crashed more often than the crash limit allows.
    #[non_exhaustive]
    CrashLimit {
        /// How many crashes there were.
        crashes: u32,
        /// Within which time.
        per: Duration,
        /// How the last workers died, newest last.
        deaths: Vec<String>,
    },
    /// A worker exited with [`EXIT_MISCONFIGURED`].
    #[non_exhaustive]
    Misconfigured {
        /// How the last workers died, newest last.
        deaths: Vec<String>,
    },
    /// A hook refused to go on.
    #[non_exhaustive]
    Hook {
        /// The hook's name.
        hook: &'static str,
        /// What it returned.
        source: BoxError,
    },
    /// The image before this one has left a state that this one cannot go on from. Its workers
    /// finish what is open and leave.
    Upgrade(String),
    /// The app returned an error in this very process (see [`Prefork::in_process`]).
    ///
    /// [`Prefork::in_process`]: crate::Prefork::in_process
    App(BoxError),
    /// A system call failed that a running server cannot do without.
    #[non_exhaustive]
    System {
        /// The call, by its man page.
        call: &'static str,
        /// What it returned.
        source: io::Error,
    },
}

impl Error {
    /// The code a program should exit with: 2 for a bad setting, 3 if no worker became ready, 4
    /// for the crash limit, 5 if an address cannot be bound, 1 for the rest.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => 2,
            Self::NeverReady { .. } | Self::Misconfigured { .. } => 3,
            Self::CrashLimit { .. } => 4,
            Self::Bind { .. } => 5,
            Self::Hook { .. } | Self::Upgrade(_) | Self::App(_) | Self::System { .. } => 1,
        }
    }

    pub(crate) fn system(call: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System {
            call,
            source: source.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(what) => f.write_str(what),
            Self::Bind { address, .. } => write!(f, "cannot listen on {address}"),
            Self::NeverReady { deaths } => {
                write!(f, "no worker became ready: {}", deaths.join("; "))
            }
            Self::CrashLimit {
                crashes,
                per,
                deaths,
            } => {
                write!(
                    f,
                    "{crashes} crashes within {per:?}, the last: {}",
                    deaths.join("; ")
                )
            }
            Self::Misconfigured { deaths } => {
                write!(
                    f,
                    "a worker asked not to be respawned: {}",
                    deaths.join("; ")
                )
            }
            Self::Hook { hook, .. } => write!(f, "the hook {hook} refused"),
            Self::Upgrade(why) => write!(f, "cannot go on from the former image's state: {why}"),
            Self::App(_) => f.write_str("the app failed"),
            Self::System { call, .. } => write!(f, "{call} failed"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Bind { source, .. } | Self::System { source, .. } => Some(source),
            Self::Hook { source, .. } | Self::App(source) => Some(&**source),
            _ => None,
        }
    }
}
