//! Facts about a TLS connection.

use rustls::{CommonState, HandshakeKind, ProtocolVersion};

use crate::codec::record;
use crate::named::named;

/// Facts about a TLS connection, for handlers.
///
/// ```
/// use prefork_server::{BoxError, Request, Response};
///
/// async fn respond(request: Request) -> Result<Response, BoxError> {
///     let tls = request.body().connection().tls().ok_or("no TLS")?;
///     // The client's own certificate is the first.
///     let Some(certificate) = tls.client_certificates.first() else {
///         return Ok(Response::builder().status(403).body("send a certificate\n".into())?);
///     };
///     let text = format!("TLS {}, a certificate of {} bytes\n", tls.version, certificate.len());
///     Ok(Response::new(text.into()))
/// }
/// ```
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
///
/// ```
/// use prefork_server::{Tls, TlsVersion};
///
/// let tls = Tls::new()
///     .certificate_file("/etc/ssl/example.org.pem")
///     .key_file("/etc/ssl/private/example.org.key")
///     .min_version("1.3".parse()?);
/// assert!(TlsVersion::Tls13 > TlsVersion::Tls12);
/// # Ok::<(), prefork_server::NameError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

named!(TlsVersion { "1.2" = Tls12, "1.3" = Tls13 });
record!(enum TlsVersion { 0 = Tls12, 1 = Tls13 });
record!(enum TlsHandshake { 0 = Full, 1 = Resumed });
record!(TlsInfo {
    version,
    alpn,
    server_name,
    client_certificates,
    handshake,
});

/// How a TLS connection began.
///
/// ```
/// use prefork_server::{ConnectionInfo, TlsHandshake};
///
/// /// A label for a count.
/// fn handshake(connection: &ConnectionInfo) -> &'static str {
///     match connection.tls().map(|tls| tls.handshake) {
///         Some(TlsHandshake::Resumed) => "resumed",
///         Some(_) => "full",
///         None => "no TLS",
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsHandshake {
    /// With a full handshake.
    Full,
    /// With a session ticket of an earlier connection, which may have been to another worker.
    Resumed,
}

impl TlsInfo {
    /// From a connection whose handshake is complete, and the host name that the client asked for.
    pub(crate) fn of(session: &CommonState, server_name: Option<&str>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let certificates = session.peer_certificates().unwrap_or_default();
        Self {
            version: match session.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => TlsVersion::Tls12,
                _ => TlsVersion::Tls13,
            },
            alpn: session.alpn_protocol().map(text),
            server_name: server_name.map(str::to_owned),
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
