//! What the user says about TLS.

use std::path::PathBuf;
use std::time::Duration;

use crate::codec;
use crate::http::tls::pem::{Kind, Source};
use crate::named::named;

/// Below a second a client's clock is too coarse; beyond a week tickets are not allowed to live
/// (RFC 8446 4.6.1).
const TICKET_LIFETIMES: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_hours(7 * 24));

/// HTTPS: the certificate, its key, and whom to believe.
///
/// TLS 1.2 and 1.3, by rustls. A certificate and its key are needed, each from a file or from
/// memory, as PEM; all else has a default. With it every address of the server speaks TLS, Unix
/// ones too.
///
/// Files are read by the master, at the start and for each reload (`HUP`): renew a certificate in
/// place, then reload. If they are bad the server does not start, or the reload is abandoned and no
/// worker is touched; the reason names the file. Workers, also those that replace a crashed one,
/// get what was read then: the [user](crate::Prefork::user) that they run as need not be able to
/// read the key, and files that are just being replaced do no harm.
///
/// A client resumes its session on any worker, before and after a reload or an upgrade: the keys
/// of session tickets are the master's, which replaces them as time goes by.
///
/// ```no_run
/// use std::convert::Infallible;
///
/// use prefork_server::{Prefork, Request, Response, Tls, service_fn};
///
/// async fn hello(_request: Request) -> Result<Response, Infallible> {
///     Ok(Response::new("Hello, World!".into()))
/// }
///
/// fn main() -> Result<(), prefork_server::Error> {
///     let tls = Tls::new()
///         .certificate_file("/etc/ssl/example.org.pem")
///         .key_file("/etc/ssl/private/example.org.key");
///     Prefork::bind("0.0.0.0:443")
///         .tls(tls)
///         .serve(async |_worker| Ok(service_fn(hello)))
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

/// Whether a client has to show a certificate. One that it shows must be signed by a CA that was
/// given, in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientAuth {
    /// It is asked for one, and served without; handlers see which by [`TlsInfo`].
    Optional,
    /// Without one the handshake fails.
    Required,
}

named!(ClientAuth { "optional" = Optional, "required" = Required });

impl Tls {
    /// With nothing but the defaults.
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

    /// The certificate: a PEM file with the server's own first, then those that lead from it to a
    /// CA that clients know, as CAs give it out (`fullchain.pem`).
    ///
    /// Default: none.
    #[must_use]
    pub fn certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.certificate = Some(Source::File(path.into()));
        self
    }

    /// As [`certificate_file`](Self::certificate_file), from memory.
    ///
    /// Default: none.
    #[must_use]
    pub fn certificate_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.certificate = Some(Source::memory(pem.as_ref()));
        self
    }

    /// The certificate's private key: a PEM file with an RSA, ECDSA (P-256, P-384) or Ed25519 key,
    /// not encrypted. Others should not be able to read it; a warning says so.
    ///
    /// Default: none.
    #[must_use]
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.key = Some(Source::File(path.into()));
        self
    }

    /// As [`key_file`](Self::key_file), from memory.
    ///
    /// Default: none.
    #[must_use]
    pub fn key_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.key = Some(Source::memory(pem.as_ref()));
        self
    }

    /// Asks clients for a certificate that is signed by one of the CAs in this PEM file; see
    /// [`client_auth`](Self::client_auth).
    ///
    /// Default: clients are not asked.
    #[must_use]
    pub fn client_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(Source::File(path.into()));
        self
    }

    /// As [`client_ca_file`](Self::client_ca_file), from memory.
    ///
    /// Default: clients are not asked.
    #[must_use]
    pub fn client_ca_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.client_ca = Some(Source::memory(pem.as_ref()));
        self
    }

    /// Whether clients must have a certificate, if they are asked for one. Without a client CA it
    /// cannot work.
    ///
    /// Default: [`ClientAuth::Required`].
    #[must_use]
    pub fn client_auth(mut self, client_auth: ClientAuth) -> Self {
        self.client_auth = Some(client_auth);
        self
    }

    /// How long a client may resume its session by a ticket (RFC 5077, RFC 8446 2.2). So often the
    /// key of tickets is replaced; what the one before has sealed is taken for as long again. From
    /// 1 s to 7 days, which is the most that TLS 1.3 allows; less or more is taken as that.
    ///
    /// Default: 12 h.
    #[must_use]
    pub fn ticket_lifetime(mut self, lifetime: Duration) -> Self {
        let (shortest, longest) = TICKET_LIFETIMES;
        self.ticket_lifetime = lifetime.clamp(shortest, longest);
        self
    }

    /// How long a key of tickets seals.
    pub(crate) fn key_lifetime(&self) -> Duration {
        self.ticket_lifetime
    }

    /// Has no file be read that is written down here. The process that has read it may read more
    /// than this one, and has read it before it was changed.
    pub(crate) fn use_files(&mut self, files: &[u8]) {
        let Ok(files) = codec::from_bytes::<Files>(files) else {
            // Of an image that writes something else down. The files are still there.
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

    /// The same, with what is in the files now.
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

/// What was in files when they were read.
type Files = Vec<(PathBuf, Vec<u8>)>;
