//! The choice of the protocol within TLS, by ALPN (RFC 7301).

use crate::http::conn::socket::Version;
use crate::http::options::Http;

/// The protocols within TLS, best first. A client that offers only other protocols is refused. A
/// client without ALPN uses HTTP/1.
const PROTOCOLS: &[(&[u8], Version)] = &[
    (b"h2", Version::Http2),
    (b"http/1.1", Version::Http1),
    (b"http/1.0", Version::Http1),
];

/// The names that the server offers.
pub(crate) fn offered(http: &Http) -> Vec<Vec<u8>> {
    PROTOCOLS
        .iter()
        .filter(|(_, version)| *version != Version::Http2 || http.speaks_http2())
        .map(|(name, _)| name.to_vec())
        .collect()
}

/// What to serve after client and server have agreed on this name.
pub(crate) fn version(agreed: Option<&[u8]>) -> Version {
    let agreed = agreed.unwrap_or_default();
    let protocol = PROTOCOLS.iter().find(|(name, _)| *name == agreed);
    protocol.map_or(Version::Http1, |(_, version)| *version)
}
