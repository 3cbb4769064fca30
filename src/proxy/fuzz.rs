//! Any bytes as a header, any text as a network.

use std::net::IpAddr;

use super::*;
use crate::address::Peer;
use crate::fuzz;

#[test]
fn headers() {
    fuzz::check("proxy-headers", |bytes| {
        let Header::Whole { len, forwarded } = parse(bytes) else {
            // Nor does what is not finished become malformed by being cut.
            let cuts = 0..bytes.len();
            let unfinished = parse(bytes) == Header::Unfinished;
            assert!(!unfinished || cuts.into_iter().all(|cut| is_unfinished(&bytes[..cut])));
            return;
        };
        assert!(len <= bytes.len() && len <= HEADER_MAX);
        let whole = Header::Whole { len, forwarded };
        assert_eq!(parse(&bytes[..len]), whole, "without what follows");
        let followed = [&bytes[..len], b"\r\nPROXY \r\n\0"].concat();
        assert_eq!(parse(&followed), whole, "with something else behind it");
        for cut in 0..len {
            assert!(is_unfinished(&bytes[..cut]), "cut at {cut}");
        }
        if let Some(forwarded) = forwarded {
            assert_same_in_both_versions(forwarded);
        }
    });
}

fn is_unfinished(bytes: &[u8]) -> bool {
    parse(bytes) == Header::Unfinished
}

/// The addresses can be written in either version, and are the same when they are read again.
fn assert_same_in_both_versions(forwarded: Forwarded) {
    let Forwarded { peer, local } = forwarded;
    let (ips, ports) = ((peer.ip(), local.ip()), (peer.port(), local.port()));
    let in_ipv6 = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().into(),
        ip => ip,
    };
    let (word, family, ips) = match ips {
        (IpAddr::V4(_), IpAddr::V4(_)) => ("TCP4", 0x11, ips),
        _ => ("TCP6", 0x21, (in_ipv6(ips.0), in_ipv6(ips.1))),
    };
    let line = format!(
        "PROXY {word} {} {} {} {}\r\n",
        ips.0, ips.1, ports.0, ports.1
    );
    assert_known(line.as_bytes(), forwarded);

    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let (one, other) = (octets(ips.0), octets(ips.1));
    let ports = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    let len = u16::try_from(2 * one.len() + 4).expect("40 at the most");
    let head = [&SIGNATURE[..], &[0x21, family], &len.to_be_bytes()].concat();
    assert_known(&[head, one, other, ports].concat(), forwarded);
}

fn assert_known(header: &[u8], forwarded: Forwarded) {
    let (len, forwarded) = (header.len(), Some(forwarded));
    assert_eq!(parse(header), Header::Whole { len, forwarded });
}

#[test]
fn networks() {
    fuzz::check("proxy-networks", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(network) = text.parse::<Network>() else {
            return;
        };
        let shown = network.to_string();
        assert_eq!(shown.parse(), Ok(network), "{shown}");
        // A network contains the address that it is named by, as does that address's own network.
        let Some(Ok(address)) = text.split('/').next().map(str::parse::<IpAddr>) else {
            assert!(network.contains(Peer::Unix));
            return;
        };
        let peer = Peer::tcp((address, 1).into());
        // Mapped addresses are IPv4's, and what is wider than all of them is not.
        let is_wider = address.to_canonical() != address && shown.starts_with("::");
        assert!(network.contains(peer) || is_wider, "{network}");
        assert!(Network::from(address).contains(peer), "{address}");
        assert!(!network.contains(Peer::Unix), "{network}");
    });
}
