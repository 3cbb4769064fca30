//! Which protocol is spoken within TLS (RFC 7301).

use rustls::ServerConnection;

use crate::http::conn::socket::Version;
use crate::http::options::Http;

/// What is spoken inside, best first (RFC 7301). A client that offers none of it is refused; one
/// that offers nothing speaks HTTP/1.
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

/// What was agreed on.
pub(crate) fn version(session: &ServerConnection) -> Version {
    let agreed = session.alpn_protocol().unwrap_or_default();
    let known = PROTOCOLS.iter().find(|(name, _)| *name == agreed);
    known.map_or(Version::Http1, |(_, version)| *version)
}
