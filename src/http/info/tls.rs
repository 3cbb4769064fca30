//! Facts about a TLS connection.

use rustls::{HandshakeKind, ProtocolVersion, ServerConnection};

use crate::named::named;

/// Facts about a TLS connection, for handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsInfo {
    /// The version of TLS.
    pub version: TlsVersion,
    /// The protocol inside TLS, such as `http/1.1`, if the client asked for one (RFC 7301, ALPN).
    pub alpn: Option<String>,
    /// The host name that the client asked for (RFC 6066 3, SNI), in lower case. The server does
    /// not compare it with the `Host` of requests.
    pub server_name: Option<String>,
    /// The certificate that the client has sent and those that lead from it to the CA, as DER
    /// (X.690). Empty if the client sent none. In a resumed session, those of the first handshake.
    pub client_certificates: Vec<Vec<u8>>,
    /// How the connection began.
    pub handshake: TlsHandshake,
}

/// A version of TLS. Later versions are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

named!(TlsVersion { "1.2" = Tls12, "1.3" = Tls13 });

/// How a TLS connection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsHandshake {
    /// With a full handshake.
    Full,
    /// With a session ticket of an earlier connection, which may have been to another worker.
    Resumed,
}

impl TlsInfo {
    /// From a connection whose handshake is complete.
    pub(crate) fn of(session: &ServerConnection) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let certificates = session.peer_certificates().unwrap_or_default();
        Self {
            version: match session.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => TlsVersion::Tls12,
                _ => TlsVersion::Tls13,
            },
            alpn: session.alpn_protocol().map(text),
            server_name: session.server_name().map(str::to_owned),
            client_certificates: certificates
                .iter()
                .map(|certificate| certificate.to_vec())
                .collect(),
            handshake: match session.handshake_kind() {
                Some(HandshakeKind::Resumed) => TlsHandshake::Resumed,
                _ => TlsHandshake::Full,
            },
        }
    }
}
