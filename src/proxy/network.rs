//! The networks of load balancers whose PROXY header is believed.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::address::Peer;

/// A network that load balancers connect from: `10.0.0.0/8`, `2001:db8::/32`, a single address, or
/// `unix` for the clients of Unix listeners.
///
/// ```
/// use prefork_server::{Network, NetworkError, Prefork};
///
/// let balancers = "10.0.0.0/8, 2001:db8::7";
/// let balancers: Result<Vec<Network>, NetworkError> =
///     balancers.split(", ").map(str::parse).collect();
/// let server = Prefork::bind("0.0.0.0:8080").proxy_protocol(balancers?);
/// # Ok::<(), NetworkError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ip(IpNet),
    Unix,
}

/// An error: a text is not a [`Network`].
///
/// ```
/// use prefork_server::Network;
///
/// let error = "10.0.0.0/33".parse::<Network>().expect_err("IPv4 has 32 bits");
/// assert!(error.to_string().starts_with("`10.0.0.0/33` is not a network: write it as "));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkError {
    text: String,
}

/// The length of the prefix of IPv4-mapped IPv6 addresses (RFC 4291 2.5.5.2).
const MAPPED: u8 = 96;

impl Network {
    /// A network of IPv4-mapped addresses is the network of these IPv4 addresses, since the address
    /// of a peer is converted in the same way.
    fn new(network: IpNet) -> Self {
        let address = network.addr().to_canonical();
        let bits = network.prefix_len().checked_sub(MAPPED);
        let mapped = bits.filter(|_| address != network.addr());
        let mapped = mapped.and_then(|bits| IpNet::new(address, bits).ok());
        Self(Kind::Ip(mapped.unwrap_or(network)))
    }

    /// Whether the address of a peer belongs to the network.
    pub(crate) fn contains(self, peer: Peer) -> bool {
        match (self.0, peer) {
            (Kind::Unix, Peer::Unix) => true,
            (Kind::Ip(network), Peer::Tcp(peer)) => network.contains(&peer.ip()),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| NetworkError {
            text: text.to_owned(),
        })
    }
}

/// The standard library reads the address, since the parser of ipnet accepts `010.0.0.0/8`.
fn parse(text: &str) -> Option<Network> {
    if text == "unix" {
        return Some(Network(Kind::Unix));
    }
    let Some((address, bits)) = text.split_once('/') else {
        return text.parse().map(IpAddr::into).ok();
    };
    let network = IpNet::new(address.parse().ok()?, bits.parse().ok()?).ok()?;
    Some(Network::new(network))
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self::new(address.into())
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Ip(network) => network.fmt(f),
            Kind::Unix => f.write_str("unix"),
        }
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a network: write it as 10.0.0.0/8, 2001:db8::/32, an address or unix",
            self.text
        )
    }
}

impl Error for NetworkError {}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn is_in(network: &str, peer: &str) -> bool {
        let network: Network = network.parse().expect("a network");
        let peer: IpAddr = peer.parse().expect("an address");
        network.contains(Peer::tcp(SocketAddr::new(peer, 1)))
    }

    #[test]
    fn a_network_contains_the_addresses_with_its_first_bits() {
        assert!(is_in("10.0.0.0/8", "10.255.1.2"));
        assert!(!is_in("10.0.0.0/8", "11.0.0.0"));
        assert!(is_in("192.0.2.7", "192.0.2.7"));
        assert!(!is_in("192.0.2.7", "192.0.2.6"));
        assert!(is_in("192.0.2.7/31", "192.0.2.6"));
        assert!(is_in("0.0.0.0/0", "203.0.113.5"));
        assert!(!is_in("0.0.0.0/0", "::1"));
        assert!(is_in("::/0", "2001:db8::1"));
        assert!(is_in("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!is_in("2001:db8::/32", "2001:db9::1"));
        assert!(is_in("127.0.0.1", "::ffff:127.0.0.1"));
        assert!(is_in("::ffff:127.0.0.0/104", "127.255.0.1"));
        assert!(is_in("::ffff:127.0.0.1", "::ffff:127.0.0.1"));
        assert!(!is_in("::ffff:127.0.0.0/104", "128.0.0.1"));
    }

    #[test]
    fn only_unix_contains_unix_peers() {
        let unix: Network = "unix".parse().expect("a network");
        assert!(unix.contains(Peer::Unix));
        let all: Network = "0.0.0.0/0".parse().expect("a network");
        assert!(!all.contains(Peer::Unix));
    }

    #[test]
    fn an_error_names_the_text() {
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/-1",
            "10.0.0/8",
            "here",
            "::/",
            "010.0.0.0/8",
        ] {
            let error = text.parse::<Network>().expect_err("no network");
            assert!(error.to_string().contains(text));
        }
    }

    #[test]
    fn a_network_is_displayed_as_it_is_written() {
        for text in ["10.0.0.0/8", "::1/128", "unix"] {
            assert_eq!(text.parse::<Network>().expect(text).to_string(), text);
        }
    }
}
