//! Parses the header of the PROXY protocol (HAProxy's `proxy-protocol.txt`, versions 1 and 2), with
//! which a load balancer names the client before the first bytes of the client.

#[cfg(test)]
mod fuzz;
mod network;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str;

pub use self::network::{Network, NetworkError};

/// The first bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The first bytes of version 1.
const WORD: &[u8; 6] = b"PROXY ";

/// The longest line of version 1, with its end of line.
const LINE_MAX: usize = 107;

/// The fixed part of version 2: signature, command, family, length.
const HEAD: usize = 16;

/// The longest header of version 2 that is accepted. Addresses have at most 36 bytes; the rest is
/// what a balancer adds about TLS and itself.
const HEADER_MAX: usize = 4096;

/// The two ends of a connection, as the balancer that forwards it saw them.
///
/// ```
/// use prefork_server::{Address, ConnectionInfo, Peer};
///
/// /// Whether the client has connected to the load balancer's port for HTTPS.
/// fn is_https(connection: &ConnectionInfo) -> bool {
///     connection.forwarded().is_some_and(|forwarded| forwarded.local.port() == 443)
/// }
///
/// let address: Address = "unix:/run/app.sock".parse()?;
/// assert!(!is_https(&ConnectionInfo::new(Peer::Unix, address)));
/// # Ok::<(), prefork_server::AddressError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forwarded {
    /// The client.
    pub peer: SocketAddr,
    /// The address that the client connected to.
    pub local: SocketAddr,
}

/// The first bytes of a connection, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// They are the beginning of a header, and the rest is missing.
    Unfinished,
    /// The first `len` bytes are the header.
    Whole {
        len: usize,
        /// `None` if the balancer itself is the client (a health check), or does not know the
        /// client.
        forwarded: Option<Forwarded>,
    },
    /// They are not a header; the reason.
    Malformed(&'static str),
}

/// Parses the header at the beginning of `bytes`.
pub(crate) fn parse(bytes: &[u8]) -> Header {
    if is_beginning(bytes, SIGNATURE) {
        return parse_binary(bytes);
    }
    if is_beginning(bytes, WORD) {
        return parse_line(bytes);
    }
    Header::Malformed("it begins with neither version's first bytes")
}

/// Whether one is the beginning of the other.
fn is_beginning(bytes: &[u8], expected: &[u8]) -> bool {
    bytes.iter().zip(expected).all(|(one, other)| one == other)
}

fn parse_line(bytes: &[u8]) -> Header {
    let window = &bytes[..bytes.len().min(LINE_MAX)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return match bytes.len() < LINE_MAX {
            true => Header::Unfinished,
            false => Header::Malformed("its line does not end"),
        };
    };
    let len = end + 2;
    let words = str::from_utf8(&bytes[WORD.len()..end]).unwrap_or_default();
    let mut words = words.split(' ');
    let forwarded = match words.next() {
        // The specification says to ignore the rest of the line.
        Some("UNKNOWN") => None,
        Some("TCP4") => match line_ends::<Ipv4Addr>(words) {
            Some(ends) => Some(ends),
            None => return Header::Malformed("its IPv4 addresses or ports are malformed"),
        },
        Some("TCP6") => match line_ends::<Ipv6Addr>(words) {
            Some(ends) => Some(ends),
            None => return Header::Malformed("its IPv6 addresses or ports are malformed"),
        },
        _ => return Header::Malformed("its protocol is none of TCP4, TCP6 and UNKNOWN"),
    };
    Header::Whole { len, forwarded }
}

/// Parses two addresses and two ports, and nothing after them.
fn line_ends<'a, A>(mut words: impl Iterator<Item = &'a str>) -> Option<Forwarded>
where
    A: str::FromStr + Into<IpAddr>,
{
    let mut address = || words.next()?.parse::<A>().ok().map(Into::<IpAddr>::into);
    let (peer, local) = (address()?.to_canonical(), address()?.to_canonical());
    let mut port = || {
        let word = words.next()?;
        let plain = word.bytes().all(|byte| byte.is_ascii_digit());
        let padded = word.len() > 1 && word.starts_with('0');
        (plain && !padded).then(|| word.parse::<u16>().ok())?
    };
    let (peer_port, local_port) = (port()?, port()?);
    words.next().is_none().then(|| Forwarded {
        peer: (peer, peer_port).into(),
        local: (local, local_port).into(),
    })
}

fn parse_binary(bytes: &[u8]) -> Header {
    let Some((head, rest)) = bytes.split_at_checked(HEAD) else {
        return Header::Unfinished;
    };
    let len = HEAD + usize::from(u16::from_be_bytes([head[14], head[15]]));
    if head[12] >> 4 != 2 {
        return Header::Malformed("its version is not 2");
    }
    if len > HEADER_MAX {
        return Header::Malformed("it is longer than 4 KiB");
    }
    if bytes.len() < len {
        return Header::Unfinished;
    }
    let addresses = &rest[..len - HEAD];
    let forwarded = match (head[12] & 0x0f, head[13]) {
        // The balancer itself is the client. The specification says to ignore the addresses.
        (0, _) => None,
        (1, 0x11) => match ends::<4>(addresses, |octets| Ipv4Addr::from(octets).into()) {
            Some(ends) => Some(ends),
            None => return Header::Malformed("it has no room for its IPv4 addresses"),
        },
        (1, 0x21) => match ends::<16>(addresses, |octets| Ipv6Addr::from(octets).to_canonical()) {
            Some(ends) => Some(ends),
            None => return Header::Malformed("it has no room for its IPv6 addresses"),
        },
        // Unix sockets, datagrams and unknown families are served without an address.
        (1, _) => None,
        _ => return Header::Malformed("its command is neither LOCAL nor PROXY"),
    };
    Header::Whole { len, forwarded }
}

/// Parses two addresses of `N` octets and two ports. More bytes may follow.
fn ends<const N: usize>(bytes: &[u8], address: fn([u8; N]) -> IpAddr) -> Option<Forwarded> {
    let (peer, rest) = bytes.split_first_chunk::<N>()?;
    let (local, rest) = rest.split_first_chunk::<N>()?;
    let (peer_port, rest) = rest.split_first_chunk::<2>()?;
    let (local_port, _) = rest.split_first_chunk::<2>()?;
    Some(Forwarded {
        peer: (address(*peer), u16::from_be_bytes(*peer_port)).into(),
        local: (address(*local), u16::from_be_bytes(*local_port)).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(header: &[u8], peer: &str, local: &str) {
        let forwarded = Some(Forwarded {
            peer: peer.parse().expect("an address"),
            local: local.parse().expect("an address"),
        });
        known(header, forwarded);
    }

    fn known(header: &[u8], forwarded: Option<Forwarded>) {
        let len = header.len();
        let mut bytes = header.to_vec();
        bytes.extend(b"GET / HTTP/1.1\r\n");
        assert_eq!(parse(&bytes), Header::Whole { len, forwarded });
        for cut in 0..len {
            assert_eq!(parse(&bytes[..cut]), Header::Unfinished, "cut at {cut}");
        }
    }

    fn malformed(header: &[u8]) {
        let told = parse(header);
        assert!(
            matches!(told, Header::Malformed(_)),
            "{}: {told:?}",
            header.escape_ascii()
        );
    }

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = u16::try_from(rest.len()).expect("short").to_be_bytes();
        [&SIGNATURE[..], &[command, family], &len, rest].concat()
    }

    #[test]
    fn lines_of_version_1_are_parsed() {
        whole(
            b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n",
            "192.0.2.7:56324",
            "198.51.100.1:443",
        );
        whole(
            b"PROXY TCP6 2001:db8::7 ::1 65535 0\r\n",
            "[2001:db8::7]:65535",
            "[::1]:0",
        );
        whole(
            b"PROXY TCP6 ::ffff:192.0.2.7 ::ffff:198.51.100.1 56324 443\r\n",
            "192.0.2.7:56324",
            "198.51.100.1:443",
        );
        known(b"PROXY UNKNOWN\r\n", None);
        known(b"PROXY UNKNOWN ffff::1 and whatever\r\n", None);
    }

    #[test]
    fn malformed_lines_are_refused() {
        for line in [
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 1\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324 65536\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 +5 443\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 05 443\r\n",
            "PROXY TCP4 192.0.2.7  198.51.100.1 5 443\r\n",
            "PROXY TCP4 ::1 ::1 5 443\r\n",
            "PROXY TCP6 192.0.2.7 198.51.100.1 5 443\r\n",
            "PROXY TCP5 192.0.2.7 198.51.100.1 5 443\r\n",
            "PROXY \r\n",
            "GET / HTTP/1.1\r\n",
            "proxy TCP4 192.0.2.7 198.51.100.1 5 443\r\n",
        ] {
            malformed(line.as_bytes());
        }
        malformed(b"PROXY TCP4 \xff\xfe 198.51.100.1 5 443\r\n");
        malformed(&[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 93]].concat());
        known(
            &[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 91], b"\r\n"].concat(),
            None,
        );
    }

    #[test]
    fn headers_of_version_2_are_parsed() {
        let four = [192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 0x04, 0x01, 0xbb];
        whole(
            &binary(0x21, 0x11, &four),
            "192.0.2.7:56324",
            "198.51.100.1:443",
        );
        let more = [&four[..], b"\x04\x00\x02ab"].concat();
        whole(
            &binary(0x21, 0x11, &more),
            "192.0.2.7:56324",
            "198.51.100.1:443",
        );
        let mut six = [0; 36];
        (six[15], six[31], six[33], six[35]) = (1, 2, 5, 6);
        whole(&binary(0x21, 0x21, &six), "[::1]:5", "[::2]:6");
        six[10..16].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 7]);
        whole(&binary(0x21, 0x21, &six), "192.0.2.7:5", "[::2]:6");
        known(&binary(0x20, 0x00, b""), None);
        known(&binary(0x20, 0x11, &four), None);
        known(&binary(0x21, 0x00, b""), None);
        known(&binary(0x21, 0x31, &[0; 216]), None);
        known(&binary(0x21, 0x12, &four), None);
    }

    #[test]
    fn malformed_headers_of_version_2_are_refused() {
        malformed(&binary(0x21, 0x11, &[0; 11]));
        malformed(&binary(0x21, 0x21, &[0; 35]));
        malformed(&binary(0x11, 0x11, &[0; 12]));
        malformed(&binary(0x22, 0x11, &[0; 12]));
        malformed(&binary(0x21, 0x11, &[0; HEADER_MAX - HEAD + 1]));
        malformed(b"\r\n\r\n\0\r\nQUIT\r");
        known(&binary(0x21, 0x00, &[0; HEADER_MAX - HEAD]), None);
    }
}
