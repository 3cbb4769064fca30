//! The addresses of listeners and of clients.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The longest path that `sun_path` of unix(7) holds, without the NUL at its end.
const UNIX_PATH_MAX: usize = 107;

/// The variable by which a master gives its workers the addresses of host names: the process that
/// has looked them up, then each name, `=` and its address. So a worker that starts needs no
/// resolver.
pub(crate) const HOSTS: &str = "PREFORK_SERVER_HOSTS";

/// The addresses of the host names, with their ports, that this process or its master has looked
/// up.
static LOOKED_UP: LazyLock<Mutex<BTreeMap<String, SocketAddr>>> = LazyLock::new(|| {
    let told = std::env::var(HOSTS).unwrap_or_default();
    Mutex::new(told_by(parent_id(), &told).unwrap_or_default())
});

/// Where a server listens: a TCP address or the path of a Unix socket.
///
/// It is parsed from `127.0.0.1:8080`, `[::]:80`, `[fe80::1%eth0]:80`, `localhost:8080` or
/// `unix:/run/app.sock`. A host name stands for its first IPv4 address, or for its first address if
/// it has no IPv4 address. A process looks up each name once, and a worker has the addresses of its
/// master. `8080`, `:8080` and `*:8080` are `0.0.0.0:8080`: all IPv4 addresses of
/// the machine. With port 0 the kernel chooses a port, which the notice
/// [`Serving`](crate::Notice::Serving) names. An IPv6 listener accepts IPv6 only (`IPV6_V6ONLY`,
/// ipv6(7)): bind `0.0.0.0` too for both. An IPv4 address within IPv6,
/// `[::ffff:127.0.0.1]:8080`, is that IPv4 address.
///
/// ```
/// use prefork_server::Address;
///
/// let address: Address = ":8080".parse()?;
/// assert_eq!(address.to_string(), "0.0.0.0:8080");
/// assert_eq!(address.url().as_deref(), Some("http://0.0.0.0:8080/"));
///
/// let socket: Address = "unix:/run/app.sock".parse()?;
/// assert_eq!(socket.url(), None);
/// # Ok::<(), prefork_server::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An IPv4 or IPv6 address and port.
    Tcp(SocketAddr),
    /// The path of a Unix stream socket (unix(7)).
    Unix(PathBuf),
}

/// The other end of a connection.
///
/// ```
/// use prefork_server::Peer;
///
/// /// What a rate limit counts by. All clients on Unix sockets have one count.
/// fn key(client: Peer) -> String {
///     match client {
///         Peer::Tcp(address) => address.ip().to_string(),
///         other => other.to_string(),
///     }
/// }
///
/// assert_eq!(key(Peer::Tcp("192.0.2.7:40312".parse()?)), "192.0.2.7");
/// assert_eq!(key(Peer::Unix), "unix");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Peer {
    /// The address and port of a TCP client.
    Tcp(SocketAddr),
    /// A process on this machine, on a Unix socket. It has no address.
    Unix,
}

/// An error: a text is not an [`Address`].
///
/// ```
/// use prefork_server::Address;
///
/// let error = "localhost".parse::<Address>().expect_err("it has no port");
/// assert_eq!(error.reason(), "a port from 0 to 65535 must follow the host: localhost:8080");
/// assert!(error.to_string().starts_with("`localhost` is not an address: "));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    text: String,
    why: String,
}

impl Address {
    /// The address as a URL, `http://127.0.0.1:8080/`; `None` for a Unix socket.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        match self {
            Self::Tcp(address) => Some(format!("http://{address}/")),
            Self::Unix(_) => None,
        }
    }

    /// Whether a listener of the service manager on `bound` is what a user means by this address.
    /// 80 is `0.0.0.0:80`, and systemd binds `[::]:80` for `ListenStream=80`, which accepts IPv4
    /// too. So of two addresses that stand for all of a machine only the ports count.
    pub(crate) fn is_met_by(&self, bound: &Self) -> bool {
        match (self, bound) {
            (Self::Tcp(asked), Self::Tcp(bound))
                if asked.ip().is_unspecified() && bound.ip().is_unspecified() =>
            {
                asked.port() == bound.port()
            }
            _ => self == bound,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse(text).map_err(|why| AddressError {
            text: text.to_owned(),
            why,
        })
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

/// As text.
#[cfg(feature = "serde")]
impl serde::Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Peer {
    /// An IPv4 address within IPv6 (RFC 4291 2.5.5.2) becomes the IPv4 address: a listener of both
    /// families has such clients.
    pub(crate) fn tcp(address: SocketAddr) -> Self {
        Self::Tcp(canonical(address))
    }
}

fn canonical(mut address: SocketAddr) -> SocketAddr {
    address.set_ip(address.ip().to_canonical());
    address
}

/// The addresses on one line.
pub(crate) fn list(addresses: &[Address]) -> String {
    let addresses: Vec<_> = addresses.iter().map(Address::to_string).collect();
    addresses.join(", ")
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

/// An IPv4 address within IPv6, as `[::ffff:127.0.0.1]:80`, becomes the IPv4 address: an IPv6
/// listener accepts IPv6 only.
impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(canonical(address))
    }
}

/// An IP address and a port, as [`SocketAddr`] takes them. Not generic: `&str` below is no IP
/// address, and the compiler cannot know that it will never be one.
macro_rules! from_ip_and_port {
    ($($ip:ty),*) => {
        $(impl From<($ip, u16)> for Address {
            fn from(address: ($ip, u16)) -> Self {
                SocketAddr::from(address).into()
            }
        })*
    };
}

from_ip_and_port!([u8; 4], IpAddr, Ipv4Addr, Ipv6Addr);

impl TryFrom<&str> for Address {
    type Error = AddressError;

    fn try_from(text: &str) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl TryFrom<&String> for Address {
    type Error = AddressError;

    fn try_from(text: &String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

/// A host name or an address without brackets, and a port.
impl TryFrom<(&str, u16)> for Address {
    type Error = AddressError;

    fn try_from((host, port): (&str, u16)) -> Result<Self, AddressError> {
        look_up(host, port).map_err(|why| AddressError {
            text: format!("{host}:{port}"),
            why,
        })
    }
}

impl AddressError {
    /// What is wrong and how to write it, without the text.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.why
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

/// Prefers IPv4: which address of `localhost` comes first depends on the machine.
fn parse(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return unix(path);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address.into());
    }
    let port = text.strip_prefix('*').unwrap_or(text).strip_prefix(':');
    if let Ok(port) = port.unwrap_or(text).parse::<u16>() {
        return Ok(Address::Tcp((Ipv4Addr::UNSPECIFIED, port).into()));
    }
    let (host, port) = match text.ends_with(']') {
        true => (text, ""),
        false => text.rsplit_once(':').unwrap_or((text, "")),
    };
    let is_number = host.bytes().all(|byte| byte.is_ascii_digit());
    if is_number || host == "*" {
        let written = "a port from 0 to 65535 is needed: 8080, or 127.0.0.1:8080 for this machine \
                       only";
        return Err(written.into());
    }
    if text.contains("//") {
        return Err("an address is not a URL: write it as 127.0.0.1:8080".into());
    }
    if text.starts_with('/') {
        return Err(format!("a path needs its prefix: unix:{text}"));
    }
    let in_brackets = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let in_brackets = in_brackets.filter(|address| address.contains(':'));
    if host.contains(':') && in_brackets.is_none() {
        return Err("put an IPv6 address in brackets: [::1]:8080".into());
    }
    let Ok(port) = port.parse() else {
        return Err(format!(
            "a port from 0 to 65535 must follow the host: {host}:8080"
        ));
    };
    // The zone of an address may be the name of an interface, which the library looks up.
    look_up(in_brackets.unwrap_or(host), port)
}

fn unix(path: &str) -> Result<Address, String> {
    if path.is_empty() {
        return Err("a path must follow: unix:/run/app.sock".into());
    }
    // The notation of an abstract address, as in ss(8) and systemd.
    if path.starts_with('@') {
        return Err(format!(
            "abstract sockets are not supported: use a path, unix:/run/app.sock, or unix:./{path} \
             for a file of this name"
        ));
    }
    if path.len() > UNIX_PATH_MAX {
        return Err(format!(
            "the path may have {UNIX_PATH_MAX} bytes: unix:/run/app.sock"
        ));
    }
    Ok(Address::Unix(path.into()))
}

fn look_up(host: &str, port: u16) -> Result<Address, String> {
    let name = format!("{host}:{port}");
    if let Some(&address) = looked_up().get(&name) {
        return Ok(address.into());
    }
    let found: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("cannot look up the host: {error}"))?
        .collect();
    let address = found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first())
        .copied()
        .ok_or("the host has no address")?;
    looked_up().insert(name, address);
    Ok(address.into())
}

fn looked_up() -> MutexGuard<'static, BTreeMap<String, SocketAddr>> {
    LOOKED_UP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The content of [`HOSTS`] for the children of this process.
pub(crate) fn hosts() -> String {
    let mut text = std::process::id().to_string();
    for (name, address) in looked_up().iter() {
        text.push_str(&format!(" {name}={address}"));
    }
    text
}

/// What the content of [`HOSTS`] says, if this process has written it. A program that a worker
/// starts inherits the variable too, and looks up its names itself.
fn told_by(master: u32, text: &str) -> Option<BTreeMap<String, SocketAddr>> {
    let mut words = text.split(' ');
    let writer: u32 = words.next()?.parse().ok()?;
    let hosts = words.filter_map(|word| {
        let (name, address) = word.rsplit_once('=')?;
        Some((name.to_owned(), address.parse().ok()?))
    });
    (writer == master).then(|| hosts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_displayed_as_it_is_written() {
        for text in [
            "127.0.0.1:8080",
            "0.0.0.0:0",
            "[::]:80",
            "[::1]:65535",
            "unix:/run/app.sock",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_ipv4_address_within_ipv6_is_the_ipv4_address() {
        for text in ["[::ffff:127.0.0.1]:8080", "[::ffff:7f00:1]:8080"] {
            assert_eq!(parse(text).unwrap().to_string(), "127.0.0.1:8080");
            let address = text.parse::<SocketAddr>().unwrap();
            assert_eq!(Address::from(address).to_string(), "127.0.0.1:8080");
        }
    }

    #[test]
    fn a_string_may_be_borrowed() {
        let text = "127.0.0.1:8080".to_owned();
        let borrowed = Address::try_from(&text);
        assert_eq!(borrowed, Address::try_from(text));
    }

    #[test]
    fn a_host_and_a_port_make_an_address() {
        for (pair, address) in [
            (("127.0.0.1", 8080), "127.0.0.1:8080"),
            (("::1", 80), "[::1]:80"),
            (("localhost", 80), "127.0.0.1:80"),
        ] {
            assert_eq!(Address::try_from(pair).unwrap().to_string(), address);
        }
        let error = Address::try_from(("no such host", 80)).unwrap_err();
        assert_eq!(error.text, "no such host:80");
        for (address, text) in [
            (([127, 0, 0, 1], 80).into(), "127.0.0.1:80"),
            ((Ipv4Addr::UNSPECIFIED, 80).into(), "0.0.0.0:80"),
            ((Ipv6Addr::UNSPECIFIED, 80).into(), "[::]:80"),
            ((IpAddr::from([127, 0, 0, 1]), 80).into(), "127.0.0.1:80"),
        ] {
            assert_eq!(Address::to_string(&address), text);
        }
    }

    #[test]
    fn an_ipv4_client_has_an_ipv4_address() {
        for (address, peer) in [
            ("[::ffff:192.0.2.7]:80", "192.0.2.7:80"),
            ("192.0.2.7:80", "192.0.2.7:80"),
            ("[fe80::1%3]:80", "[fe80::1%3]:80"),
        ] {
            let address = address.parse().expect("an address and a port");
            assert_eq!(Peer::tcp(address).to_string(), peer);
        }
    }

    #[test]
    fn a_port_alone_means_all_ipv4_addresses() {
        for text in ["8080", ":8080", "*:8080"] {
            assert_eq!(parse(text).unwrap().to_string(), "0.0.0.0:8080");
        }
    }

    #[test]
    fn a_host_name_stands_for_its_ipv4_address() {
        assert_eq!(
            parse("localhost:8080").unwrap().to_string(),
            "127.0.0.1:8080"
        );
    }

    #[test]
    fn a_child_has_the_addresses_that_its_master_has_looked_up() {
        let address = parse("localhost:81").unwrap();
        let (this, text) = (std::process::id(), hosts());
        let told = told_by(this, &text).expect("from this process");
        assert_eq!(
            told.get("localhost:81").copied().map(Address::Tcp),
            Some(address)
        );
        assert_eq!(told_by(this + 1, &text), None, "another program");
        assert_eq!(told_by(this, ""), None);
    }

    #[test]
    fn the_zone_of_an_ipv6_address_may_be_the_name_of_an_interface() {
        // The loopback interface is the first one.
        let address = parse("[fe80::1%lo]:80").unwrap();
        assert_eq!(address.to_string(), "[fe80::1%1]:80");
    }

    #[test]
    fn an_error_shows_how_to_write_it() {
        for (text, way_out) in [
            ("", "127.0.0.1:8080"),
            (":", "127.0.0.1:8080"),
            (":65536", "from 0 to 65535"),
            ("*:http", "from 0 to 65535"),
            ("65536", "from 0 to 65535"),
            ("::1:8080", "[::1]:8080"),
            ("[::1:8080", "[::1]:8080"),
            ("[::1", "[::1]:8080"),
            ("[::1]", "host: [::1]:8080"),
            ("[::1]:http", "host: [::1]:8080"),
            ("http://localhost:80", "127.0.0.1:8080"),
            ("localhost", "localhost:8080"),
            ("localhost:http", "localhost:8080"),
            ("localhost:65536", "localhost:8080"),
            ("/run/app.sock", "unix:/run/app.sock"),
            ("unix:", "unix:/run/app.sock"),
            ("unix:@app", "unix:/run/app.sock"),
            ("unix:@app", "unix:./@app"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(way_out), "{text}: {error}");
        }
        let long = format!("unix:/{}", "a".repeat(UNIX_PATH_MAX));
        assert!(parse(&long).unwrap_err().contains("107 bytes"));
        assert!(parse(&long[..long.len() - 1]).is_ok());
    }
}
