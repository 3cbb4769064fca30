//! What can end a server, and the exit codes that are part of the protocol between processes.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use nix::errno::Errno;

use crate::address::Address;
pub(crate) use crate::one_line::chain;

/// Any error that the code of a user may return. `?` converts every error type to it.
///
/// ```
/// use prefork_server::BoxError;
///
/// fn port(setting: Option<&str>) -> Result<u16, BoxError> {
///     let text = setting.ok_or("no port is set")?;
///     Ok(text.parse()?)
/// }
///
/// assert_eq!(port(Some("8080"))?, 8080);
/// assert_eq!(port(None).unwrap_err().to_string(), "no port is set");
/// # Ok::<(), BoxError>(())
/// ```
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// A worker exits with this code (`EX_CONFIG`, sysexits(3head)) if to spawn it again cannot help.
/// The server then drains and ends with [`Error::Misconfigured`]. If a new worker of a reload or of
/// an upgrade exits with it, only the reload or upgrade ends, and the old workers continue to
/// serve.
///
/// ```no_run
/// use prefork_server::{EXIT_MISCONFIGURED, Exit, Prefork, Response, handler};
///
/// fn main() -> Exit {
///     let ended = Prefork::bind("127.0.0.1:8080").serve(async |_worker| {
///         if std::env::var_os("DATABASE_URL").is_none() {
///             eprintln!("DATABASE_URL is not set");
///             std::process::exit(EXIT_MISCONFIGURED);
///         }
///         Ok(handler(async |_request| Ok(Response::new("hello".into()))))
///     });
///     ended.into()
/// }
/// ```
pub const EXIT_MISCONFIGURED: i32 = 78;

/// The exit code of a worker whose app could not be set up. The master counts it as a crash and
/// spawns another worker.
pub(crate) const EXIT_NOT_READY: i32 = 3;

/// The exit code of a worker whose app returned an error after the worker was ready.
pub(crate) const EXIT_FAILED: i32 = 1;

/// Why a server could not start or had to end.
///
/// `Display` does not include the cause, which [`source`](StdError::source) returns. `Debug` prints
/// the error and its causes on one line, because the standard library prints the `Debug` of an
/// error that `main` returns. [`Exit`](crate::Exit) gives such a program the exit code too.
///
/// ```
/// use prefork_server::{Error, Prefork};
///
/// let other = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let server = Prefork::bind(other.local_addr()?).in_process();
/// let ended = server.run(async |_worker, _incoming| Ok(()));
///
/// let error = ended.expect_err("another server listens there");
/// assert!(matches!(error, Error::Bind { .. }));
/// assert_eq!(error.exit_code(), 5);
/// assert!(format!("{error:?}").contains("Address already in use"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[non_exhaustive]
pub enum Error {
    /// A setting cannot work. Nothing was bound yet.
    Config(String),
    /// The server cannot listen on an address.
    #[non_exhaustive]
    Bind {
        /// The address.
        address: Address,
        /// The error of bind(2) or listen(2).
        source: io::Error,
    },
    /// At the first start the first worker of every slot failed before it was ready.
    #[non_exhaustive]
    NeverReady {
        /// How the last workers ended, newest last.
        failures: Vec<String>,
    },
    /// Workers crashed, or could not be started while no other one served, more often than the
    /// crash limit allows.
    #[non_exhaustive]
    CrashLimit {
        /// How many crashes there were.
        crashes: u32,
        /// The time within which they happened.
        per: Duration,
        /// How the last workers ended, newest last.
        failures: Vec<String>,
    },
    /// A worker exited with [`EXIT_MISCONFIGURED`].
    #[non_exhaustive]
    Misconfigured {
        /// How the last workers ended, newest last.
        failures: Vec<String>,
    },
    /// A hook refused to go on.
    #[non_exhaustive]
    Hook {
        /// The hook's name.
        hook: &'static str,
        /// What it returned.
        source: BoxError,
    },
    /// After an upgrade, this image cannot continue from the state that the image before it has
    /// left. Its workers finish their open work and exit.
    Upgrade(String),
    /// The app returned an error in this process (see [`Prefork::in_process`]).
    ///
    /// [`Prefork::in_process`]: crate::Prefork::in_process
    App(BoxError),
    /// A system call failed that a running server needs.
    #[non_exhaustive]
    System {
        /// The name of the call and the section of its man page.
        call: &'static str,
        /// What it returned.
        source: io::Error,
    },
}

impl Error {
    /// The code that the program should exit with: 2 for a bad setting, 3 if no worker became
    /// ready or one exited with [`EXIT_MISCONFIGURED`], 4 for the crash limit, 5 if an address
    /// cannot be bound, 1 for every other error. A program whose `main` returns an
    /// [`Exit`](crate::Exit) exits with it.
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
            source: with_limit(source.into()),
        }
    }
}

/// The error, or the limit that it is about, if that is one on descriptors or on files.
pub(crate) fn with_limit(error: io::Error) -> io::Error {
    let limit = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE) => {
            "the limit on open files is reached; raise it (ulimit -n, LimitNOFILE=)"
        }
        Some(Errno::ENFILE) => {
            "the machine's limit on open files is reached; raise it (sysctl fs.file-max)"
        }
        Some(Errno::EFBIG) => {
            "the limit on the length of files is reached; raise it (ulimit -f, LimitFSIZE=)"
        }
        _ => return error,
    };
    io::Error::new(io::ErrorKind::QuotaExceeded, limit)
}

/// What a panic says.
pub(crate) fn said_by(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(not a string)")
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(self))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(what) => f.write_str(what),
            Self::Bind { address, .. } => write!(f, "cannot listen on {address}"),
            Self::NeverReady { failures } => {
                write!(f, "no worker became ready: {}", failures.join("; "))
            }
            Self::CrashLimit {
                crashes,
                per,
                failures,
            } => {
                write!(
                    f,
                    "{crashes} crashes or failed starts within {per:?}, the last: {}",
                    failures.join("; ")
                )
            }
            Self::Misconfigured { failures } => {
                write!(
                    f,
                    "a worker exited with the code for a bad configuration: {}",
                    failures.join("; ")
                )
            }
            Self::Hook { hook, .. } => write!(f, "the hook {hook} refused"),
            Self::Upgrade(why) => write!(
                f,
                "cannot continue from the state of the image before: {why}"
            ),
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
