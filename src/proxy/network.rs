//! Whose word is taken for who the client is.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::address::Peer;

/// Where balancers connect from: `10.0.0.0/8`, `2001:db8::/32`, a single address, or `unix` for
/// unix listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Prefix { address: IpAddr, bits: u8 },
    Unix,
}

/// Why a text names no network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkError {
    text: String,
    why: &'static str,
}

/// The bits of an IPv6 address that say that it stands for an IPv4 address (RFC 4291 2.5.5.2).
const MAPPED: u8 = 96;

impl Network {
    /// Of IPv4-mapped addresses it is a network of IPv4, as its peers are taken for such too.
    fn new(address: IpAddr, bits: u8) -> Self {
        let canonical = address.to_canonical();
        let (address, bits) = match bits.checked_sub(MAPPED) {
            Some(bits) if canonical != address => (canonical, bits),
            _ => (address, bits),
        };
        Self(Kind::Prefix { address, bits })
    }

    /// Whether a peer is in it.
    pub(crate) fn contains(self, peer: Peer) -> bool {
        match (self.0, peer) {
            (Kind::Unix, Peer::Unix) => true,
            (Kind::Prefix { address, bits }, Peer::Tcp(peer)) => {
                let peer = peer.ip().to_canonical();
                match (address, peer) {
                    (IpAddr::V4(one), IpAddr::V4(other)) => {
                        is_alike(one.to_bits().into(), other.to_bits().into(), 32 - bits)
                    }
                    (IpAddr::V6(one), IpAddr::V6(other)) => {
                        is_alike(one.to_bits(), other.to_bits(), 128 - bits)
                    }
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

/// Whether two addresses agree but for their last bits.
fn is_alike(one: u128, other: u128, last: u8) -> bool {
    (one ^ other).checked_shr(last.into()).unwrap_or(0) == 0
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |why| NetworkError {
            text: text.to_owned(),
            why,
        };
        if text == "unix" {
            return Ok(Self(Kind::Unix));
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| wrong("an address such as 10.0.0.0 or 2001:db8:: is expected"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= most)
                .ok_or_else(|| wrong("the prefix is longer than the address, or no number"))?,
        };
        Ok(Self::new(address, bits))
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        Self::new(address, bits)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Prefix { address, bits } => write!(f, "{address}/{bits}"),
            Kind::Unix => f.write_str("unix"),
        }
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no network: {}", self.text, self.why)
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
        network.contains(Peer::Tcp(SocketAddr::new(peer, 1)))
    }

    #[test]
    fn a_network_is_its_first_bits() {
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
    fn unix_is_unix() {
        let unix: Network = "unix".parse().expect("a network");
        assert!(unix.contains(Peer::Unix));
        let all: Network = "0.0.0.0/0".parse().expect("a network");
        assert!(!all.contains(Peer::Unix));
    }

    #[test]
    fn what_is_none_is_named() {
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/-1",
            "10.0.0/8",
            "here",
            "::/",
        ] {
            let error = text.parse::<Network>().expect_err("no network");
            assert!(error.to_string().contains(text));
        }
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in ["10.0.0.0/8", "::1/128", "unix"] {
            assert_eq!(text.parse::<Network>().expect(text).to_string(), text);
        }
    }
}
