//! The user's options for TLS.

use std::path::PathBuf;
use std::time::Duration;

use crate::codec;
use crate::http::info::tls::TlsVersion;
use crate::http::tls::certificate::Certificate;
use crate::http::tls::pem::{Kind, Source};
use crate::named::named;

/// The shortest and the longest lifetime of tickets. A client's clock may have no more than a
/// resolution of one second. RFC 8446 4.6.1 allows at most one week.
const TICKET_LIFETIMES: (Duration, Duration) = (
    Duration::from_secs(1),
    Duration::from_secs(7 * 24 * 60 * 60),
);

/// HTTPS: the certificates, their keys, and the CAs of client certificates.
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
    /// The certificate of `certificate_file` and `key_file`, which is the default one.
    pub(crate) first: Certificate,
    pub(crate) others: Vec<Certificate>,
    pub(crate) min_version: TlsVersion,
    /// Empty: all.
    pub(crate) ciphers: Vec<String>,
    pub(crate) client_ca: Option<Source>,
    pub(crate) client_auth: Option<ClientAuth>,
    pub(crate) ticket_lifetime: Duration,
}

/// Whether a client must have a certificate. In both cases a certificate that a client sends must
/// be signed by one of the client CAs.
///
/// ```
/// use prefork_server::{ClientAuth, Tls};
///
/// let tls = Tls::new()
///     .certificate_file("/etc/ssl/example.org.pem")
///     .key_file("/etc/ssl/private/example.org.key")
///     .client_ca_file("/etc/ssl/employees.pem")
///     // Others see the public pages.
///     .client_auth(ClientAuth::Optional);
/// ```
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
            first: Certificate::default(),
            others: Vec::new(),
            min_version: TlsVersion::Tls12,
            ciphers: Vec::new(),
            client_ca: None,
            client_auth: None,
            ticket_lifetime: Duration::from_secs(12 * 60 * 60),
        }
    }

    /// The certificate: a PEM file with the server's own certificate first, then those of the chain
    /// to a CA that clients trust, as CAs deliver it (`fullchain.pem`).
    ///
    /// Default: none.
    #[must_use]
    pub fn certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.first.certificate = Some(Source::File(path.into()));
        self
    }

    /// The certificate from memory, as [`certificate_file`](Self::certificate_file).
    ///
    /// ```
    /// use prefork_server::Tls;
    ///
    /// // For a test, by the crate rcgen.
    /// let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    /// let tls = Tls::new()
    ///     .certificate_pem(signed.cert.pem())
    ///     .key_pem(signed.signing_key.serialize_pem());
    /// # Ok::<(), rcgen::Error>(())
    /// ```
    ///
    /// Default: none.
    #[must_use]
    pub fn certificate_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.first.certificate = Some(Source::memory(pem.as_ref()));
        self
    }

    /// The certificate's private key: a PEM file with an RSA, ECDSA (P-256, P-384) or Ed25519 key,
    /// not encrypted. The log has a warning if every user can read or write the file.
    ///
    /// Default: none.
    #[must_use]
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.first.key = Some(Source::File(path.into()));
        self
    }

    /// The private key from memory, as [`key_file`](Self::key_file).
    ///
    /// Default: none.
    #[must_use]
    pub fn key_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.first.key = Some(Source::memory(pem.as_ref()));
        self
    }

    /// The certificate's OCSP response, as [`Certificate::ocsp_file`].
    ///
    /// Default: none.
    #[must_use]
    pub fn ocsp_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.first = self.first.ocsp_file(path);
        self
    }

    /// Adds a certificate for other host names, or for the same ones with a key of another kind.
    /// May be called several times.
    ///
    /// A client gets a certificate that has the name it asks for (RFC 6066 3, SNI), before one with
    /// `*` in place of the name's first label; of several, the one that was added first and whose
    /// kind of key it can verify. A client that asks for no
    /// name, or for another one, gets the certificate of
    /// [`certificate_file`](Self::certificate_file).
    ///
    /// Default: none.
    #[must_use]
    pub fn certificate(mut self, certificate: Certificate) -> Self {
        self.others.push(certificate);
        self
    }

    /// The lowest version of TLS. The handshake with a client that has only lower ones fails.
    ///
    /// Default: [`TlsVersion::Tls12`].
    #[must_use]
    pub fn min_version(mut self, version: TlsVersion) -> Self {
        self.min_version = version;
        self
    }

    /// Only these cipher suites, by their names in the registry of IANA, such as
    /// `TLS13_AES_128_GCM_SHA256` or `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`. The client's order
    /// decides between them. The server does not start if it does not have one of them; the error
    /// names those that it has.
    ///
    /// Default: all that rustls has, each of which is safe.
    #[must_use]
    pub fn ciphers<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.ciphers = names.into_iter().map(Into::into).collect();
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
        for (_, source) in self.sources() {
            if let Source::File(path) = source
                && let Some((_, bytes)) = files.iter().find(|(read, _)| read == path)
            {
                *source = Source::Read(path.clone(), bytes[..].into());
            }
        }
    }

    /// The same options, with the current contents of the files.
    pub(crate) fn read(&self) -> Result<Self, String> {
        let mut read = self.clone();
        for (kind, source) in read.sources() {
            *source = source.read(kind)?;
        }
        Ok(read)
    }

    /// The files that were read.
    pub(crate) fn files(&mut self) -> Files {
        let read = |source: &mut Source| match source {
            Source::Read(path, bytes) => Some((path.clone(), bytes.to_vec())),
            Source::File(_) | Source::Memory(_) => None,
        };
        self.sources()
            .filter_map(|(_, source)| read(source))
            .collect()
    }

    /// All sources that are given, with what each must contain.
    fn sources(&mut self) -> impl Iterator<Item = (Kind, &mut Source)> {
        let client_ca = self
            .client_ca
            .as_mut()
            .map(|source| (Kind::ClientCa, source));
        let certificates = std::iter::once(&mut self.first).chain(&mut self.others);
        certificates.flat_map(Certificate::sources).chain(client_ca)
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self::new()
    }
}

/// The paths and contents of files that were read.
type Files = Vec<(PathBuf, Vec<u8>)>;
