//! The user's options for TLS.

use std::path::PathBuf;
use std::time::Duration;

use crate::codec;
use crate::http::tls::pem::{Kind, Source};
use crate::named::named;

/// The shortest and the longest lifetime of tickets. A client's clock may have no more than a
/// resolution of one second. RFC 8446 4.6.1 allows at most one week.
const TICKET_LIFETIMES: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_hours(7 * 24));

/// HTTPS: the certificate, its key, and the CAs of client certificates.
///
/// TLS 1.2 and 1.3, by rustls. A certificate and its key are required, each from a file or from
/// memory, as PEM. All other options have a default. With TLS all addresses of the server use TLS,
/// also Unix sockets.
///
/// The master reads the files at the start and for each reload (`HUP`): to renew a certificate,
/// replace its file, then reload. If a file is invalid, the server does not start, or the reload is
/// abandoned and all workers stay. The error names the file. A worker gets the contents that the
/// master has read last, also if it replaces a crashed worker. So the
/// [user](crate::Prefork::user) that workers run as need not be able to read the key, and a file
/// that is being replaced does no harm.
///
/// A client can resume its session on any worker, before and after a reload or an upgrade. The
/// master makes the keys of session tickets, and replaces them from time to time.
///
/// ```no_run
/// use prefork_server::{Exit, Prefork, Response, Tls, handler};
///
/// fn main() -> Exit {
///     let tls = Tls::new()
///         .certificate_file("/etc/ssl/example.org.pem")
///         .key_file("/etc/ssl/private/example.org.key");
///     Prefork::bind("0.0.0.0:443")
///         .tls(tls)
///         .serve(async |_worker| Ok(handler(async |_request| Ok(Response::new("Hello!".into())))))
///         .into()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Tls {
    pub(crate) certificate: Option<Source>,
    pub(crate) key: Option<Source>,
    pub(crate) client_ca: Option<Source>,
    pub(crate) client_auth: Option<ClientAuth>,
    pub(crate) ticket_lifetime: Duration,
}

/// Whether a client must have a certificate. In both cases a certificate that a client sends must
/// be signed by one of the client CAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientAuth {
    /// The server requests a certificate, and also serves a client without one. Handlers find the
    /// certificate in [`TlsInfo`](crate::TlsInfo).
    Optional,
    /// The handshake fails if the client has no certificate.
    Required,
}

named!(ClientAuth { "optional" = Optional, "required" = Required });

impl Tls {
    /// All options have their defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            certificate: None,
            key: None,
            client_ca: None,
            client_auth: None,
            ticket_lifetime: Duration::from_hours(12),
        }
    }

    /// The certificate: a PEM file with the server's own certificate first, then those of the chain
    /// to a CA that clients trust, as CAs deliver it (`fullchain.pem`).
    ///
    /// Default: none.
    #[must_use]
    pub fn certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.certificate = Some(Source::File(path.into()));
        self
    }

    /// The certificate from memory, as [`certificate_file`](Self::certificate_file).
    ///
    /// Default: none.
    #[must_use]
    pub fn certificate_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.certificate = Some(Source::memory(pem.as_ref()));
        self
    }

    /// The certificate's private key: a PEM file with an RSA, ECDSA (P-256, P-384) or Ed25519 key,
    /// not encrypted. The log has a warning if every user can read or write the file.
    ///
    /// Default: none.
    #[must_use]
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.key = Some(Source::File(path.into()));
        self
    }

    /// The private key from memory, as [`key_file`](Self::key_file).
    ///
    /// Default: none.
    #[must_use]
    pub fn key_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.key = Some(Source::memory(pem.as_ref()));
        self
    }

    /// Requests a client certificate that is signed by one of the CAs in this PEM file. See
    /// [`client_auth`](Self::client_auth).
    ///
    /// Default: none, and the server requests no certificate.
    #[must_use]
    pub fn client_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(Source::File(path.into()));
        self
    }

    /// The client CAs from memory, as [`client_ca_file`](Self::client_ca_file).
    ///
    /// Default: none, and the server requests no certificate.
    #[must_use]
    pub fn client_ca_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.client_ca = Some(Source::memory(pem.as_ref()));
        self
    }

    /// Whether clients must have a certificate. An error without a client CA. Default:
    /// [`ClientAuth::Required`].
    #[must_use]
    pub fn client_auth(mut self, client_auth: ClientAuth) -> Self {
        self.client_auth = Some(client_auth);
        self
    }

    /// How long a client may resume its session by a ticket (RFC 5077, RFC 8446 2.2). The master
    /// replaces the key of tickets at this interval, and accepts tickets of the previous key for as
    /// long again. From 1 s to 7 days, which is the most that TLS 1.3 allows. A value outside is
    /// set to the nearest limit.
    ///
    /// Default: 12 h.
    #[must_use]
    pub fn ticket_lifetime(mut self, lifetime: Duration) -> Self {
        let (shortest, longest) = TICKET_LIFETIMES;
        self.ticket_lifetime = lifetime.clamp(shortest, longest);
        self
    }

    /// How long a key of tickets encrypts new tickets.
    pub(crate) fn key_lifetime(&self) -> Duration {
        self.ticket_lifetime
    }

    /// Uses these contents, from [`read_files`](Self::read_files) in the master, instead of the
    /// files. The master may read files that a worker may not, and a file may have changed since.
    pub(crate) fn use_files(&mut self, files: &[u8]) {
        let Ok(files) = codec::from_bytes::<Files>(files) else {
            // A master of another version has another encoding. Then this process reads the files.
            return;
        };
        let sources = [&mut self.certificate, &mut self.key, &mut self.client_ca];
        for source in sources.into_iter().flatten() {
            if let Source::File(path) = source
                && let Some((_, bytes)) = files.iter().find(|(read, _)| read == path)
            {
                *source = Source::Read(path.clone(), bytes[..].into());
            }
        }
    }

    /// The same options, with the current contents of the files.
    pub(crate) fn read(&self) -> Result<Self, String> {
        let read = |source: &Option<Source>, kind| {
            let source = source.as_ref().map(|source| source.read(kind));
            source.transpose()
        };
        Ok(Self {
            certificate: read(&self.certificate, Kind::Certificate)?,
            key: read(&self.key, Kind::Key)?,
            client_ca: read(&self.client_ca, Kind::ClientCa)?,
            ..self.clone()
        })
    }

    pub(crate) fn files(&self) -> Files {
        [&self.certificate, &self.key, &self.client_ca]
            .into_iter()
            .filter_map(|source| match source {
                Some(Source::Read(path, bytes)) => Some((path.clone(), bytes.to_vec())),
                _ => None,
            })
            .collect()
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self::new()
    }
}

/// The paths and contents of files that were read.
type Files = Vec<(PathBuf, Vec<u8>)>;
