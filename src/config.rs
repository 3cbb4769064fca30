//! What a server is told before it starts: plain values, parsed once.

use std::convert::Infallible;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The most slots a server may have. Each costs a process, a listener per address and a channel;
/// beyond this a typing error is likelier than a machine with as many CPUs.
pub const MAX_WORKERS: usize = 1024;

/// Where a server listens: a TCP address or the path of a Unix socket.
///
/// Parsed from `127.0.0.1:8080`, `[::]:80`, `localhost:8080` (the first address it resolves to) or
/// `unix:/run/app.sock`. Port 0 lets the kernel choose; the [`Serving`](crate::Notice::Serving)
/// notice tells which port it chose. IPv6 listeners take IPv6 only (`IPV6_V6ONLY`, ipv6(7)): bind
/// `0.0.0.0` as well to have both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IPv4 or IPv6 address and port.
    Tcp(SocketAddr),
    /// The path of a Unix stream socket (unix(7)).
    Unix(PathBuf),
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Peer {
    /// A TCP client's address and port.
    Tcp(SocketAddr),
    /// A process on this machine, through a Unix socket; such clients have no address.
    Unix,
}

/// Why a text is not an [`Address`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    text: String,
    why: String,
}

/// How the workers share an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listeners {
    /// One `SO_REUSEPORT` listener for each slot (socket(7)): the kernel spreads new connections,
    /// no two workers are woken for the same one. Unix sockets are always shared. The default.
    #[default]
    PerSlot,
    /// One listener that every worker accepts from.
    Shared,
}

/// How many crashes end the server: more than `max` within `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashLimit {
    /// Crashes that are still tolerated within `per`.
    pub max: u32,
    /// The sliding window.
    pub per: Duration,
}

impl Default for CrashLimit {
    /// 10 crashes in 60 seconds.
    fn default() -> Self {
        Self { max: 10, per: Duration::from_secs(60) }
    }
}

/// Everything the master and the workers need to know, HTTP apart.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) addresses: Vec<Address>,
    /// `None`: as many as this process may use CPUs.
    pub(crate) workers: Option<usize>,
    pub(crate) listeners: Listeners,
    pub(crate) backlog: u32,
    pub(crate) drain_timeout: Duration,
    pub(crate) ready_timeout: Duration,
    pub(crate) crash_limit: CrashLimit,
    /// Per worker. `None`: from `RLIMIT_NOFILE`.
    pub(crate) max_connections: Option<usize>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) announce_fd: Option<i32>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            workers: None,
            listeners: Listeners::default(),
            backlog: 4096,
            drain_timeout: Duration::from_secs(30),
            ready_timeout: Duration::from_secs(60),
            crash_limit: CrashLimit::default(),
            max_connections: None,
            pid_file: None,
            announce_fd: None,
        }
    }
}

impl Address {
    /// The address as a browser takes it, `http://127.0.0.1:8080/`; a Unix socket has none.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        match self {
            Self::Tcp(address) => Some(format!("http://{address}/")),
            Self::Unix(_) => None,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refuse = |why: &str| AddressError { text: text.to_owned(), why: why.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(refuse("the path after `unix:` is missing"));
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Tcp(address));
        }
        match text.rsplit_once(':') {
            None => return Err(refuse("it has no port; write HOST:PORT or unix:/path")),
            Some(("", _)) => {
                return Err(refuse("it has no host; write 0.0.0.0:PORT for every IPv4 address"));
            }
            Some((_, port)) if port.parse::<u16>().is_err() => {
                return Err(refuse("the port is not a number from 0 to 65535"));
            }
            Some(_) => {}
        }
        text.to_socket_addrs()
            .map_err(|error| refuse(&error.to_string()))?
            .next()
            .map(Self::Tcp)
            .ok_or_else(|| refuse("the name has no address"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl TryFrom<&str> for Address {
    type Error = AddressError;

    fn try_from(text: &str) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not an address: {}", self.text, self.why)
    }
}

impl std::error::Error for AddressError {}

impl From<Infallible> for AddressError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_as_they_are_written() {
        for text in ["127.0.0.1:8080", "[::1]:0", "unix:/run/app.sock"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn a_bad_address_says_the_way_out() {
        for (text, way_out) in [
            ("8080", "HOST:PORT"),
            (":8080", "0.0.0.0:PORT"),
            ("127.0.0.1:http", "0 to 65535"),
            ("unix:", "path"),
        ] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains(way_out) && error.contains(text), "{error}");
        }
    }
}
