//! Counts the open connections of each client address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;

use crate::address::Peer;
use crate::proxy::Network;

/// The prefix length that counts as one IPv6 client: a provider gives each customer at least a
/// network of this size (RFC 6177).
const IPV6_BITS: u32 = 64;

/// The number of open connections of each client, and the limit for each.
#[derive(Debug)]
pub(crate) struct Clients {
    max: NonZeroUsize,
    /// Load balancers, each of which connects for many clients.
    balancers: Vec<Network>,
    open: HashMap<IpAddr, usize>,
}

impl Clients {
    pub(crate) fn new(max: NonZeroUsize, balancers: &[Network]) -> Self {
        Self {
            max,
            balancers: balancers.to_vec(),
            open: HashMap::new(),
        }
    }

    /// Whether the client is at its limit.
    pub(super) fn is_full(&self, peer: Peer) -> bool {
        let client = self.client(peer);
        let open = client.and_then(|client| self.open.get(&client));
        open.is_some_and(|&open| open >= self.max.get())
    }

    /// Whether the peer's connections are counted.
    pub(super) fn are_limited(&self, peer: Peer) -> bool {
        self.client(peer).is_some()
    }

    pub(super) fn begin(&mut self, peer: Peer) {
        if let Some(client) = self.client(peer) {
            *self.open.entry(client).or_default() += 1;
        }
    }

    pub(super) fn end(&mut self, peer: Peer) {
        let Some(client) = self.client(peer) else {
            return;
        };
        if let Entry::Occupied(mut open) = self.open.entry(client) {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
    }

    /// The client that a peer counts as; `None` if the peer is not limited.
    fn client(&self, peer: Peer) -> Option<IpAddr> {
        let Peer::Tcp(address) = peer else {
            return None;
        };
        if self.balancers.iter().any(|network| network.contains(peer)) {
            return None;
        }
        Some(match address.ip() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> IPV6_BITS << IPV6_BITS;
                Ipv6Addr::from_bits(network).into()
            }
            address => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::tcp(address.parse().expect("an address and a port"))
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_the_network_of_an_ipv6_address() {
        let balancers = ["10.0.0.0/8".parse().expect("a network")];
        let mut clients = Clients::new(NonZeroUsize::MIN, &balancers);
        for first in ["192.0.2.1:1", "[2001:db8::1]:1", "10.0.0.1:1"] {
            clients.begin(peer(first));
        }
        clients.begin(Peer::Unix);
        for (other, is_full) in [
            ("192.0.2.1:2", true),
            ("[::ffff:192.0.2.1]:2", true),
            ("192.0.2.2:1", false),
            ("[2001:db8::ffff:2]:1", true),
            ("[2001:db8:0:1::1]:1", false),
            ("10.0.0.1:1", false),
        ] {
            assert_eq!(clients.is_full(peer(other)), is_full, "{other}");
        }
        assert!(!clients.is_full(Peer::Unix));
        clients.end(peer("192.0.2.1:1"));
        assert!(!clients.is_full(peer("192.0.2.1:2")));
        clients.end(peer("[2001:db8::9]:1"));
        assert!(clients.open.is_empty());
    }
}
