//! A TLS stream and a client of rustls, with a transport between them that the test controls: no
//! socket, no runtime. The test polls the stream itself, so that it sees at once if the stream
//! waits for an event that never comes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rcgen::generate_simple_self_signed;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::server::NoServerSessionStorage;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::tls::crypto::provider;
use crate::http::tls::identity::ClientPolicy;
use crate::http::tls::learned::SecretsLog;
use crate::http::tls::stream::{Terms, TlsStream};
use crate::http::tls::tickets::Tickets;
use crate::keyring::{Key, Keyring};

/// All limits of the transport that are not set.
pub(super) const ALL: usize = usize::MAX;

/// What is between client and server.
pub(super) struct Net {
    /// On the way to the server.
    pub(super) up: VecDeque<u8>,
    /// On the way to the client.
    pub(super) down: VecDeque<u8>,
    /// So many bytes can be read at once.
    pub(super) read_max: usize,
    /// So many bytes can be written at once.
    pub(super) write_max: usize,
    /// So many bytes may be on the way to the client.
    pub(super) space: usize,
    /// Whether the client has closed its sending half, or the server its own.
    pub(super) up_is_closed: bool,
    pub(super) down_is_closed: bool,
    /// The last task that waits for space on the way to the client.
    pub(super) writer: Option<Waker>,
}

/// The server's end.
pub(super) struct Wire(pub(super) Rc<RefCell<Net>>);

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let net = &mut *self.0.borrow_mut();
        let count = buf.remaining().min(net.read_max).min(net.up.len());
        if count == 0 && !net.up_is_closed {
            return Poll::Pending;
        }
        let bytes: Vec<u8> = net.up.drain(..count).collect();
        buf.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let net = &mut *self.0.borrow_mut();
        let space = net.space.saturating_sub(net.down.len());
        let count = bytes.len().min(net.write_max).min(space);
        if count == 0 {
            net.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        net.down.extend(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().down_is_closed = true;
        Poll::Ready(Ok(()))
    }
}

/// A server's configuration with a certificate of its own, and that of clients who trust it.
static CONFIGS: LazyLock<(ServerConfig, ClientConfig)> = LazyLock::new(|| {
    let made = generate_simple_self_signed(["localhost".to_owned()]).expect("random bytes");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let certificate = made.cert.der().clone();
    let server = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("they belong together");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Each session is a new one.
    client.resumption = Resumption::disabled();
    (server, client)
});

/// The server's configuration, with this version only.
pub(super) fn server_config(version: &'static SupportedProtocolVersion) -> ServerConfig {
    server_config_with(version, provider())
}

/// That with one cipher suite: each version has three for the kind of key of the certificate.
pub(super) fn server_config_of_suite(
    version: &'static SupportedProtocolVersion,
    at: usize,
) -> ServerConfig {
    let mut provider = CryptoProvider::clone(&provider());
    let suites = &mut provider.cipher_suites;
    suites.retain(|suite| suite.version() == version);
    suites.swap(0, at % 3);
    suites.truncate(1);
    server_config_with(version, Arc::new(provider))
}

fn server_config_with(
    version: &'static SupportedProtocolVersion,
    provider: Arc<CryptoProvider>,
) -> ServerConfig {
    let server = &CONFIGS.0;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("the provider has it")
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(&server.cert_resolver));
    let ring = Keyring::new(Key::of(1), Duration::ZERO);
    let keys = move || Some(ring.clone());
    let tickets = Tickets::new(keys, Duration::from_secs(60), ClientPolicy::default());
    config.ticketer = Arc::new(tickets);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.enable_secret_extraction = true;
    config.key_log = Arc::new(SecretsLog);
    config
}

pub(super) fn client_config() -> ClientConfig {
    CONFIGS.1.clone()
}

/// The stream, and its client.
pub(super) struct Pair {
    pub(super) server: TlsStream<Wire>,
    config: Arc<ServerConfig>,
    pub(super) client: ClientConnection,
    pub(super) net: Rc<RefCell<Net>>,
    /// What the client has received.
    pub(super) received: Vec<u8>,
}

impl Pair {
    /// The handshake has not begun.
    pub(super) fn new(server: ServerConfig, client: ClientConfig) -> Self {
        let net = Net {
            up: VecDeque::new(),
            down: VecDeque::new(),
            read_max: ALL,
            write_max: ALL,
            space: ALL,
            up_is_closed: false,
            down_is_closed: false,
            writer: None,
        };
        let net = Rc::new(RefCell::new(net));
        let wire = Wire(Rc::clone(&net));
        let config = Arc::new(server);
        let name = ServerName::try_from("localhost").expect("a name");
        let client = ClientConnection::new(Arc::new(client), name);
        let mut client = client.expect("a configuration");
        client.set_buffer_limit(None);
        Self {
            server: TlsStream::new(wire, Arc::clone(&config)).expect("a configuration"),
            config,
            client,
            net,
            received: Vec::new(),
        }
    }

    /// The handshake is done.
    pub(super) fn opened(version: &'static SupportedProtocolVersion) -> Self {
        let mut pair = Self::new(server_config(version), client_config());
        pair.open();
        pair
    }

    pub(super) fn open(&mut self) {
        loop {
            self.send();
            let opened = self.handshake();
            self.take(ALL).expect("the server is right");
            if let Poll::Ready(opened) = opened {
                return opened.expect("the client is right");
            }
        }
    }

    /// What the servers agree on.
    pub(super) fn terms(&self) -> Terms {
        Terms {
            suites: self.config.crypto_provider().cipher_suites.clone(),
            policy: ClientPolicy::default(),
        }
    }

    /// Another server goes on with the session, if it can move. Returns whether it can.
    pub(super) fn move_session(&mut self) -> bool {
        if !self.server.can_move() {
            return false;
        }
        let wire = Wire(Rc::clone(&self.net));
        let another = TlsStream::new(wire, Arc::clone(&self.config)).expect("a configuration");
        let terms = self.terms();
        let detached = mem::replace(&mut self.server, another).detach(&terms);
        let attached = TlsStream::attach(detached.expect("it can move"), &terms);
        self.server = attached.expect("it is valid");
        true
    }

    pub(super) fn handshake(&mut self) -> Poll<io::Result<()>> {
        now(|cx| self.server.poll_handshake(cx))
    }

    /// All that the client has to send is on its way.
    pub(super) fn send(&mut self) {
        let mut net = self.net.borrow_mut();
        while self.client.wants_write() {
            self.client.write_tls(&mut net.up).expect("memory");
        }
    }

    /// The client will send these bytes, in one record if they fit. Fails if the client has failed.
    pub(super) fn queue(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.client.writer().write_all(bytes)
    }

    pub(super) fn send_plain(&mut self, bytes: &[u8]) {
        self.queue(bytes).expect("it has not failed");
        self.send();
    }

    /// The client takes so many encrypted bytes.
    pub(super) fn take(&mut self, most: usize) -> Result<(), rustls::Error> {
        let mut net = self.net.borrow_mut();
        let most = most.min(net.down.len());
        let mut taken = net.down.drain(..most).collect::<VecDeque<u8>>();
        drop(net);
        while !taken.is_empty() {
            // Fails if the client has failed before.
            let read = self.client.read_tls(&mut taken);
            read.map_err(|error| rustls::Error::General(error.to_string()))?;
            let done = self.client.process_new_packets();
            // Without `close_notify` there is an error at the end.
            let _ = self.client.reader().read_to_end(&mut self.received);
            done?;
        }
        Ok(())
    }

    /// The server reads, with a buffer of this size.
    pub(super) fn read(&mut self, size: usize) -> Poll<io::Result<Vec<u8>>> {
        let mut bytes = vec![0; size];
        let mut buf = ReadBuf::new(&mut bytes);
        let read = now(|cx| Pin::new(&mut self.server).poll_read(cx, &mut buf));
        let count = buf.filled().len();
        bytes.truncate(count);
        read.map_ok(|()| bytes)
    }

    /// The server reads until no more bytes come.
    pub(super) fn read_all(&mut self, size: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while let Poll::Ready(read) = self.read(size) {
            let read = read.expect("the client is right");
            if read.is_empty() {
                break;
            }
            all.extend(read);
        }
        all
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        now(|cx| Pin::new(&mut self.server).poll_write(cx, bytes))
    }

    pub(super) fn flush(&mut self) -> Poll<io::Result<()>> {
        now(|cx| Pin::new(&mut self.server).poll_flush(cx))
    }

    pub(super) fn shutdown(&mut self) -> Poll<io::Result<()>> {
        now(|cx| Pin::new(&mut self.server).poll_shutdown(cx))
    }
}

/// Polls once. What is pending goes on when it is polled again.
fn now<T>(poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll(&mut Context::from_waker(Waker::noop()))
}
