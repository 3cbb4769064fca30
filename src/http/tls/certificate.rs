//! One certificate of the server: where it, its key and its OCSP response come from.

use std::path::PathBuf;

use crate::http::tls::pem::{Kind, Source};

/// A certificate with its private key, and an OCSP response if there is one. For
/// [`Tls::certificate`](crate::Tls::certificate).
///
/// ```
/// use prefork_server::{Certificate, Tls};
///
/// let tls = Tls::new()
///     .certificate_file("/etc/ssl/example.org.pem")
///     .key_file("/etc/ssl/private/example.org.key")
///     .certificate(
///         Certificate::files("/etc/ssl/example.net.pem", "/etc/ssl/private/example.net.key")
///             .ocsp_file("/etc/ssl/example.net.ocsp"),
///     );
/// ```
#[derive(Clone, Debug, Default)]
pub struct Certificate {
    pub(crate) certificate: Option<Source>,
    pub(crate) key: Option<Source>,
    pub(crate) ocsp: Option<Source>,
}

impl Certificate {
    /// The certificate and its key in two PEM files, as for
    /// [`Tls::certificate_file`](crate::Tls::certificate_file) and
    /// [`Tls::key_file`](crate::Tls::key_file).
    #[must_use]
    pub fn files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: Some(Source::File(certificate.into())),
            key: Some(Source::File(key.into())),
            ocsp: None,
        }
    }

    /// The certificate and its key from memory, as PEM.
    #[must_use]
    pub fn pem(certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        Self {
            certificate: Some(Source::memory(certificate.as_ref())),
            key: Some(Source::memory(key.as_ref())),
            ocsp: None,
        }
    }

    /// The certificate's OCSP response, a DER file (RFC 6960). Clients that ask for it get it in
    /// the handshake (RFC 6066 8). The server does not fetch it and does not check its signature.
    ///
    /// Default: none.
    #[must_use]
    pub fn ocsp_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ocsp = Some(Source::File(path.into()));
        self
    }

    /// The sources that are files, with what each must contain.
    pub(crate) fn sources(&mut self) -> impl Iterator<Item = (Kind, &mut Source)> {
        let Self {
            certificate,
            key,
            ocsp,
        } = self;
        let all = [
            (Kind::Certificate, certificate),
            (Kind::Key, key),
            (Kind::Ocsp, ocsp),
        ];
        all.into_iter()
            .filter_map(|(kind, source)| Some((kind, source.as_mut()?)))
    }
}
