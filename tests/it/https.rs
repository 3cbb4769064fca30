//! Support for tests of HTTPS: certificates that are made for each test, and clients that report
//! the handshake and the response.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore,
    StreamOwned, SupportedProtocolVersion,
};
use tempfile::TempDir;

use crate::client::{Client, Response, parse_response};
use crate::support::CEILING;

#[cfg(feature = "aws-lc-rs")]
use rustls::crypto::aws_lc_rs::default_provider;
#[cfg(not(feature = "aws-lc-rs"))]
use rustls::crypto::ring::default_provider;

/// A stream within TLS, and a client on it.
pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;
pub(crate) type Private = Client<Stream>;

/// A CA, and the files of a server that it has signed.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    dir: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("random");
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate for self-signed if its issuer has the same name.
        params.distinguished_name.push(DnType::CommonName, "a CA");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).expect("a key");
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("ca.pem"), certificate.pem()).expect("writable");
        let authority = Self {
            issuer: Issuer::new(params, key),
            certificate: certificate.der().clone(),
            dir,
        };
        authority.issue("localhost", "cert.pem", "key.pem");
        authority
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A certificate for this name, and its key, in these files.
    pub(crate) fn issue(&self, name: &str, certificate: &str, key: &str) {
        let pair = KeyPair::generate().expect("random");
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.use_authority_key_identifier_extension = true;
        let signed = params.signed_by(&pair, &self.issuer).expect("a key");
        fs::write(self.path(certificate), signed.pem()).expect("writable");
        fs::write(self.path(key), pair.serialize_pem()).expect("writable");
    }

    /// The binary's flags for the server's files.
    pub(crate) fn flags(&self) -> [String; 4] {
        let text = |name: &str| self.path(name).display().to_string();
        let (certificate, key) = (text("cert.pem"), text("key.pem"));
        ["--tls-cert".into(), certificate, "--tls-key".into(), key]
    }

    /// A client that accepts the certificates that this CA has signed.
    pub(crate) fn client(&self, version: &'static SupportedProtocolVersion) -> Browser {
        self.browser(version, None)
    }

    /// The same client with a certificate of its own, which `signer` has signed.
    pub(crate) fn client_signed_by(
        &self,
        version: &'static SupportedProtocolVersion,
        signer: &Self,
    ) -> Browser {
        let key = KeyPair::generate().expect("random");
        let params = CertificateParams::new(["client".to_owned()]).expect("a name");
        let signed = params.signed_by(&key, &signer.issuer).expect("a key");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        self.browser(version, Some((signed.der().clone(), key)))
    }

    fn browser(
        &self,
        version: &'static SupportedProtocolVersion,
        own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    ) -> Browser {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a CA");
        let config = ClientConfig::builder_with_provider(default_provider().into())
            .with_protocol_versions(&[version])
            .expect("it is known")
            .with_root_certificates(roots);
        let mut config = match own {
            Some((certificate, key)) => config
                .with_client_auth_cert(vec![certificate], key)
                .expect("they belong together"),
            None => config.with_no_client_auth(),
        };
        let wallet = Arc::new(Wallet::default());
        let store: Arc<dyn ClientSessionStore> = wallet.clone();
        config.resumption = rustls::client::Resumption::store(store);
        Browser {
            config: Arc::new(config),
            wallet,
        }
    }
}

/// A client that keeps tickets.
pub(crate) struct Browser {
    config: Arc<ClientConfig>,
    wallet: Arc<Wallet>,
}

/// The handshake and the response of one connection.
pub(crate) struct Visit {
    pub(crate) handshake: HandshakeKind,
    /// `None` if the session is resumed without a key exchange.
    pub(crate) group: Option<NamedGroup>,
    pub(crate) suite: CipherSuite,
    pub(crate) response: Response,
    /// All bytes that the server has sent, as they were on the wire.
    pub(crate) wire: Vec<u8>,
}

impl Browser {
    /// Collects this number of tickets of TLS 1.3, which are used once, or one of TLS 1.2, and
    /// keeps no more after that. All come from full handshakes: no ticket is used meanwhile.
    pub(crate) fn gather(&self, address: SocketAddr, tickets: usize) {
        self.wallet.set(Mode::Takes);
        while self.wallet.len() < tickets {
            assert!(!self.visit(address).is_resumed());
        }
        self.wallet.set(Mode::Gives);
    }

    /// The same client, in HTTP/2.
    pub(crate) fn http2(&self) -> ClientConfig {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h2".into()];
        config
    }

    /// A connection after its handshake.
    pub(crate) fn connect(&self, address: SocketAddr) -> Stream {
        let mut stream = TcpStream::connect_timeout(&address, CEILING).expect("it listens");
        stream.set_read_timeout(Some(CEILING)).expect("a timeout");
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(Arc::clone(&self.config), name);
        let mut session = session.expect("the settings are good");
        session.complete_io(&mut stream).expect("a handshake");
        StreamOwned::new(session, stream)
    }

    /// A client on a connection that it keeps.
    pub(crate) fn client(&self, address: SocketAddr) -> Private {
        Client::of(self.connect(address))
    }

    pub(crate) fn visit(&self, address: SocketAddr) -> Visit {
        self.try_visit(address).expect("it is served")
    }

    pub(crate) fn try_visit(&self, address: SocketAddr) -> io::Result<Visit> {
        self.try_visit_host(address, "localhost")
    }

    /// One request on a connection of its own, to the host of this name.
    pub(crate) fn try_visit_host(&self, address: SocketAddr, name: &str) -> io::Result<Visit> {
        let stream = TcpStream::connect_timeout(&address, CEILING)?;
        stream.set_read_timeout(Some(CEILING))?;
        let mut wire = Recorded {
            stream,
            bytes: Vec::new(),
        };
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let session = ClientConnection::new(Arc::clone(&self.config), name);
        let mut session = session.expect("the settings are good");
        let mut private = rustls::Stream::new(&mut session, &mut wire);
        private.write_all(b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")?;
        let mut response = Vec::new();
        private.read_to_end(&mut response)?;
        let group = session.negotiated_key_exchange_group();
        Ok(Visit {
            group: group.map(|group| group.name()),
            suite: session
                .negotiated_cipher_suite()
                .expect("it is done")
                .suite(),
            handshake: session.handshake_kind().expect("it is done"),
            response: parse_response(&mut response).expect("a whole response"),
            wire: wire.bytes,
        })
    }
}

impl Visit {
    pub(crate) fn is_resumed(&self) -> bool {
        self.handshake == HandshakeKind::Resumed
    }

    /// The name of the key that sealed the ticket of a full handshake in TLS 1.2, which goes over
    /// the wire in the open: record 22, message 4 (RFC 5077 3.3).
    pub(crate) fn key_name(&self) -> [u8; 16] {
        let mut records = &self.wire[..];
        while let [kind, _, _, high, low, rest @ ..] = records {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let (body, next) = rest.split_at(length);
            // Type, length (3), lifetime (4), length of the ticket (2), ticket.
            if let (22, [4, ..]) = (kind, body) {
                return body[10..26].try_into().expect("16 bytes");
            }
            records = next;
        }
        panic!("no ticket on the wire");
    }
}

/// Tickets.
#[derive(Debug, Default)]
struct Wallet {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    mode: Mode,
    /// A ticket of TLS 1.2 may be used several times.
    tls12: Option<Tls12ClientSessionValue>,
    tls13: VecDeque<Tls13ClientSessionValue>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// As a client usually does.
    #[default]
    Both,
    /// No ticket is used.
    Takes,
    /// No ticket is added.
    Gives,
}

impl Wallet {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no panic")
    }

    fn set(&self, mode: Mode) {
        self.held().mode = mode;
    }

    /// A ticket that may be used several times counts as any number.
    fn len(&self) -> usize {
        let held = self.held();
        match held.tls12 {
            Some(_) => usize::MAX,
            None => held.tls13.len(),
        }
    }
}

impl ClientSessionStore for Wallet {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        let mut held = self.held();
        if held.mode != Mode::Gives {
            held.tls12 = Some(session);
        }
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let held = self.held();
        held.tls12.clone().filter(|_| held.mode != Mode::Takes)
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.held().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut held = self.held();
        if held.mode != Mode::Gives {
            held.tls13.push_back(ticket);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut held = self.held();
        match held.mode {
            Mode::Takes => None,
            Mode::Both | Mode::Gives => held.tls13.pop_front(),
        }
    }
}

/// A stream that keeps the bytes that were read.
struct Recorded {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Read for Recorded {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(bytes)?;
        self.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
