//! What was agreed on with a client.

use rustls::{HandshakeKind, ProtocolVersion, ServerConnection};

/// What is known of a TLS connection, for handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsInfo {
    /// The protocol's version.
    pub version: TlsVersion,
    /// What is spoken inside, if the client asked for something (RFC 7301): `http/1.1`.
    pub alpn: Option<String>,
    /// The host that the client wants to talk to (RFC 6066 3), in lower case. Nothing checks that
    /// a request's `Host` says the same.
    pub server_name: Option<String>,
    /// The certificate that the client has shown and those that lead from it to the CA, as DER
    /// (X.690). Empty if it has shown none. In a resumed session, those of the first handshake.
    pub client_certificates: Vec<Vec<u8>>,
    /// How it began.
    pub handshake: TlsHandshake,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// How a TLS connection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsHandshake {
    /// With a handshake of its own.
    Full,
    /// By a ticket of an earlier connection, perhaps to another worker.
    Resumed,
}

impl TlsInfo {
    /// Of a connection whose handshake is done.
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
            client_certificates: certificates.iter().map(|one| one.to_vec()).collect(),
            handshake: match session.handshake_kind() {
                Some(HandshakeKind::Resumed) => TlsHandshake::Resumed,
                _ => TlsHandshake::Full,
            },
        }
    }
}
