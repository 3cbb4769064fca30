mod handing_over;
mod opening;
mod slow;

use std::future::{poll_fn, ready};
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::once;
use http_body::Frame;
use http_body_util::StreamBody;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::*;
use crate::http::conn::handover::HandoverFuture;
use crate::http::{
    Acceptor, ClientAuth, HandoverTarget, Http, Tls, TlsHandshake, TlsInfo, TlsVersion,
};
use crate::keyring::{Key, Keyring};

/// Nothing takes this long.
const CEILING: Duration = Duration::from_secs(10);

/// A socket on this stream.
struct Plain<S, C = ()> {
    stream: S,
    /// What the client has closed, if the stream does not know it.
    closed: C,
    /// What another server knew.
    moved: Option<Moved>,
}

type Tcp = Plain<TcpStream>;

impl<S, C> Plain<S, C> {
    fn new(stream: S, closed: C) -> Self {
        Self {
            stream,
            closed,
            moved: None,
        }
    }
}

impl Socket for Tcp {
    fn take_tls(&mut self) -> Option<Moved> {
        self.moved.take()
    }

    fn info(&self) -> ConnectionInfo {
        let local = crate::address::Address::Unix("/".into());
        ConnectionInfo::new(crate::address::Peer::Unix, local)
    }

    fn has_unread(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        SockRef::from(&self.stream)
            .peek(&mut byte)
            .is_ok_and(|len| len > 0)
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_read_ready(cx).map(drop)
    }

    fn closed(&self) -> Closed {
        Closed::of(self.stream.ready(Closed::INTEREST))
    }
}

impl<S: AsyncRead + Unpin, C: Unpin> AsyncRead for Plain<S, C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin, C: Unpin> AsyncWrite for Plain<S, C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Gives each socket back, as a worker that takes over the session gets it.
struct GivesBack;

impl<S: 'static, C: 'static> HandoverTarget<Plain<S, C>> for GivesBack
where
    Plain<S, C>: Socket,
{
    fn hand_over(
        self: Rc<Self>,
        mut socket: Plain<S, C>,
        moved: Moved,
    ) -> HandoverFuture<Plain<S, C>> {
        socket.moved = Some(moved);
        Box::pin(ready(Err(socket)))
    }
}

/// A server, a client that trusts it, and a CA that has signed both.
struct Peers {
    acceptor: Acceptor,
    client: ClientConfig,
    stats: WorkerStats,
    client_certificate: CertificateDer<'static>,
}

impl Peers {
    fn new(auth: Option<ClientAuth>) -> Self {
        let ca_key = KeyPair::generate().expect("random");
        let mut ca = CertificateParams::new([]).expect("no names");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_certificate = ca.self_signed(&ca_key).expect("a key");
        let issuer = Issuer::new(ca, ca_key);
        let signed = |name: &str| {
            let key = KeyPair::generate().expect("random");
            let params = CertificateParams::new([name.to_owned()]).expect("a name");
            let certificate = params.signed_by(&key, &issuer).expect("a key");
            (certificate, key)
        };
        let (certificate, key) = signed("localhost");
        let mut tls = Tls::new()
            .certificate_pem(certificate.pem())
            .key_pem(key.serialize_pem());
        if let Some(auth) = auth {
            tls = tls.client_ca_pem(ca_certificate.pem()).client_auth(auth);
        }
        let stats = WorkerStats::own();
        let ring = Keyring::new(Key::of(1), Duration::ZERO);
        let acceptor = tls.acceptor(&Http::new(), move || Some(ring.clone()), stats.clone());
        let mut roots = RootCertStore::empty();
        roots.add(ca_certificate.der().clone()).expect("a CA");
        let (client_certificate, key) = signed("client");
        let client_certificate = client_certificate.der().clone();
        let client = ClientConfig::builder_with_provider(super::super::crypto::provider())
            .with_safe_default_protocol_versions()
            .expect("some")
            .with_root_certificates(roots);
        let mut client = match auth {
            Some(_) => client
                .with_client_auth_cert(
                    vec![client_certificate.clone()],
                    PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
                )
                .expect("they belong together"),
            None => client.with_no_client_auth(),
        };
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self {
            acceptor: acceptor.expect("the files are good"),
            client,
            stats,
            client_certificate,
        }
    }

    async fn connected(&self) -> (TcpStream, Secure<Tcp>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let client = TcpStream::connect(address).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("it has connected");
        (client, self.acceptor.accept(Tcp::new(stream, ())))
    }

    /// A connection whose socket buffers have a few kilobytes.
    async fn connected_with_small_buffers(&self) -> (TcpStream, Secure<Tcp>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let client = TcpSocket::new_v4().expect("a socket");
        client.set_recv_buffer_size(1).expect("the least");
        let client = client.connect(address).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("it has connected");
        let socket = SockRef::from(&stream);
        socket.set_send_buffer_size(1).expect("the least");
        (client, self.acceptor.accept(Tcp::new(stream, ())))
    }

    async fn opened(&self) -> (tokio_rustls::client::TlsStream<TcpStream>, Secure<Tcp>) {
        self.open(self.connected().await).await
    }

    async fn open<C, I>(
        &self,
        (tcp, mut secure): (C, Secure<I>),
    ) -> (tokio_rustls::client::TlsStream<C>, Secure<I>)
    where
        C: AsyncRead + AsyncWrite + Unpin,
        I: Socket,
    {
        let name = ServerName::try_from("localhost").expect("a name");
        let connector = TlsConnector::from(Arc::new(self.client.clone()));
        let (client, version) = tokio::join!(connector.connect(name, tcp), open(&mut secure));
        assert_eq!(version.expect("they agree"), Version::Http1);
        (client.expect("they agree"), secure)
    }

    fn counts(&self) -> [u64; 3] {
        [
            Count::TlsHandshakes,
            Count::TlsResumed,
            Count::TlsHandshakeFailures,
        ]
        .map(|count| self.stats.count(count))
    }
}

async fn open<I: Socket>(secure: &mut Secure<I>) -> io::Result<Version> {
    timeout(CEILING, poll_fn(|cx| secure.poll_open(cx)))
        .await
        .expect("it ends")
}

fn is_readable(secure: &mut Secure<Tcp>) -> bool {
    let mut now = Context::from_waker(Waker::noop());
    secure.poll_readable(&mut now).is_ready()
}

fn tls_info(secure: &Secure<Tcp>) -> Option<TlsInfo> {
    match &*secure.state {
        State::Open(_) => secure.info().tls().cloned(),
        _ => None,
    }
}

#[tokio::test]
async fn the_info_has_the_agreed_parameters_and_a_session_is_resumed() {
    let peers = Peers::new(Some(ClientAuth::Required));
    for (round, handshake) in [TlsHandshake::Full, TlsHandshake::Resumed]
        .into_iter()
        .enumerate()
    {
        let (mut client, mut secure) = peers.opened().await;
        let info = tls_info(&secure).expect("it is open");
        assert_eq!(info.handshake, handshake, "{round}");
        assert_eq!(info.version, TlsVersion::Tls13);
        assert_eq!(info.alpn.as_deref(), Some("http/1.1"));
        assert_eq!(info.server_name.as_deref(), Some("localhost"));
        let shown = peers.client_certificate.to_vec();
        assert_eq!(info.client_certificates, [shown]);
        // The client gets its ticket with the first bytes that it reads.
        secure.write_all(b"hello").await.expect("it is open");
        secure.flush().await.expect("it is open");
        let mut received = [0; 5];
        client.read_exact(&mut received).await.expect("it is open");
        assert_eq!(&received, b"hello");
    }
    assert_eq!(peers.counts(), [2, 1, 0]);
}

#[tokio::test]
async fn a_client_that_offers_only_http_1_0_is_accepted() {
    let mut peers = Peers::new(None);
    peers.client.alpn_protocols = vec![b"http/1.0".to_vec()];
    let (_client, secure) = peers.opened().await;
    let info = tls_info(&secure).expect("it is open");
    assert_eq!(info.alpn.as_deref(), Some("http/1.0"));
}

#[tokio::test]
async fn a_client_without_a_certificate_is_served_only_if_it_is_optional() {
    for (auth, served) in [(ClientAuth::Optional, true), (ClientAuth::Required, false)] {
        let mut peers = Peers::new(Some(auth));
        let none = Peers::new(None).client.client_auth_cert_resolver;
        peers.client.client_auth_cert_resolver = none;
        let (tcp, mut secure) = peers.connected().await;
        let name = ServerName::try_from("localhost").expect("a name");
        let connector = TlsConnector::from(Arc::new(peers.client.clone()));
        let connect = async {
            // In TLS 1.3 the client's handshake ends before the server has checked the certificate.
            let client = connector.connect(name, tcp).await;
            match client {
                Ok(mut client) if !served => client.read_u8().await.err(),
                client => client.err(),
            }
        };
        let (error, opened) = tokio::join!(connect, open(&mut secure));
        assert_eq!(error.is_none(), served, "{error:?}");
        assert_eq!(opened.is_ok(), served, "{auth:?}");
        assert_eq!(tls_info(&secure).is_some(), served, "{auth:?}");
        assert_eq!(peers.counts()[2], u64::from(!served));
    }
}

#[tokio::test]
async fn a_stream_with_decrypted_bytes_is_readable() {
    let peers = Peers::new(None);
    let (mut client, mut secure) = peers.opened().await;
    assert!(!is_readable(&mut secure) && !secure.has_unread());
    client.write_all(b"two").await.expect("it is open");
    let readable = timeout(CEILING, poll_fn(|cx| secure.poll_readable(cx)));
    readable.await.expect("bytes have come");
    assert!(secure.has_unread(), "to be decrypted yet");
    assert_eq!(secure.read_u8().await.expect("there are bytes"), b't');
    // Nothing is left in the socket.
    assert!(!secure_socket(&secure).has_unread());
    assert!(is_readable(&mut secure) && secure.has_unread());
    let mut rest = [0; 2];
    secure.read_exact(&mut rest).await.expect("there are bytes");
    assert_eq!(&rest, b"wo");
    assert!(!secure.has_unread());
    assert_eq!(secure.closed(), Closed::Nothing);
    client.shutdown().await.expect("it is open");
    let readable = timeout(CEILING, poll_fn(|cx| secure.poll_readable(cx)));
    readable.await.expect("the end has come");
    assert_eq!(secure.read(&mut rest).await.expect("an orderly end"), 0);
    assert_eq!(secure.closed(), Closed::Sending);
}

fn secure_socket(secure: &Secure<Tcp>) -> &Tcp {
    match &*secure.state {
        State::Open(stream) => &stream.io().io,
        _ => panic!("it is open"),
    }
}

#[tokio::test]
async fn a_client_can_distinguish_a_shutdown_from_a_drop() {
    let peers = Peers::new(None);
    let (mut client, mut secure) = peers.opened().await;
    secure.shutdown().await.expect("it is open");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.expect("an orderly end");
    let (mut client, secure) = peers.opened().await;
    drop(secure);
    let error = client.read_to_end(&mut rest).await.expect_err("a cut");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

/// A part of the record with the request has come when the server closes the idle connections.
#[tokio::test]
async fn a_request_in_a_partial_record_gets_a_response_in_a_drain() {
    const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let peers = Peers::new(None);
    let ((mut asking, one), (mut idle, other)) = (peers.opened().await, peers.opened().await);
    let service = hyper::service::service_fn(async |_: crate::http::Request| {
        let body = http_body_util::Full::new(Bytes::from("hello"));
        Ok::<_, io::Error>(http::Response::new(body))
    });
    let http = Http::new().linger(Duration::ZERO);
    let server = crate::http::Server::new(http, WorkerStats::own());
    let endpoint = server.endpoint(service);
    let serving = async { tokio::join!(endpoint.serve(one), endpoint.serve(other)) };
    let ask = async {
        for client in [&mut asking, &mut idle] {
            client.write_all(ASK).await.expect("the socket accepts it");
            let mut response = [0; 512];
            assert!(client.read(&mut response).await.expect("a response") > 0);
        }
        let (mut tcp, mut session) = asking.into_inner();
        io::Write::write_all(&mut session.writer(), ASK).expect("the socket accepts it");
        let mut record = Vec::new();
        session
            .write_tls(&mut record)
            .expect("the socket accepts it");
        let (part, rest) = record.split_at(record.len() / 2);
        tcp.write_all(part).await.expect("the socket accepts it");
        // The server reads the part that has come.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        server.drain();
        let mut end = Vec::new();
        idle.read_to_end(&mut end).await.expect("an orderly end");
        tcp.write_all(rest).await.expect("it reads");
        let mut records = Vec::new();
        tcp.read_to_end(&mut records).await.expect("an orderly end");
        let mut plain = String::new();
        session.read_tls(&mut &records[..]).expect("memory");
        session.process_new_packets().expect("records");
        let read = io::Read::read_to_string(&mut session.reader(), &mut plain);
        read.expect("an orderly end");
        plain
    };
    let both = async { tokio::join!(serving, ask).1 };
    let plain = tokio::select! {
        () = server.clock() => unreachable!("it never ends"),
        plain = timeout(CEILING, both) => plain.expect("it ends"),
    };
    assert!(plain.starts_with("HTTP/1.1 200 OK\r\n"), "{plain:?}");
    assert!(plain.contains("connection: close\r\n"), "{plain:?}");
}

/// The bytes of the first response that TLS buffers are sent before the connection ends.
#[tokio::test]
async fn a_response_before_one_that_fails_is_complete() {
    const LONG: usize = 15_000;
    let peers = Peers::new(None);
    let (mut client, secure) = peers.open(peers.connected_with_small_buffers().await).await;
    let service = hyper::service::service_fn(async |request: crate::http::Request| {
        let piece = match request.uri().path() {
            "/" => Ok(Frame::data(Bytes::from("x".repeat(LONG)))),
            _ => Err(io::Error::other("the body fails")),
        };
        Ok::<_, io::Error>(http::Response::new(StreamBody::new(once(ready(piece)))))
    });
    let server = crate::http::Server::new(Http::new(), WorkerStats::own());
    let serving = server.endpoint(service).serve(secure);
    let ask = async {
        let request = |path| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let both = request("/") + &request("/broken");
        client
            .write_all(both.as_bytes())
            .await
            .expect("the socket accepts it");
        let mut responses = Vec::new();
        // An error, because the second response is not complete.
        let _ = client.read_to_end(&mut responses).await;
        responses.iter().filter(|&&byte| byte == b'x').count()
    };
    let ((), count) = timeout(CEILING, async { tokio::join!(serving, ask) })
        .await
        .expect("it ends");
    assert_eq!(count, LONG);
}

#[tokio::test]
async fn a_client_that_sends_http_gets_an_http_response() {
    let peers = Peers::new(None);
    let (mut client, mut secure) = peers.connected().await;
    // More than the server reads at once: unread bytes would reset the connection.
    let request = format!("POST / HTTP/1.1\r\n\r\n{}", "x".repeat(100_000));
    let exchange = async {
        client
            .write_all(request.as_bytes())
            .await
            .expect("it reads");
        let mut response = String::new();
        client
            .read_to_string(&mut response)
            .await
            .expect("no reset");
        drop(client);
        response
    };
    let (response, opened) = tokio::join!(exchange, open(&mut secure));
    assert_eq!(
        opened.expect_err("no TLS").kind(),
        io::ErrorKind::InvalidData
    );
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
    assert!(
        head.ends_with(&format!("content-length: {}", body.len())),
        "{head}"
    );
    assert!(body.contains("https://"), "{body}");
    assert_eq!(peers.counts(), [0, 0, 1]);
}

#[tokio::test]
async fn invalid_bytes_count_as_a_failed_handshake_and_silence_does_not() {
    let peers = Peers::new(None);
    let (client, mut secure) = peers.connected().await;
    drop(client);
    open(&mut secure).await.expect_err("the client is gone");
    assert_eq!(peers.counts(), [0, 0, 0]);
    let (mut client, mut secure) = peers.connected().await;
    client.write_all(&[0; 64]).await.expect("it reads");
    let mut received = Vec::new();
    let receive = async {
        client.read_to_end(&mut received).await.expect("no reset");
        drop(client);
    };
    let ((), opened) = tokio::join!(receive, open(&mut secure));
    opened.expect_err("these bytes are not TLS");
    assert_eq!(received.first(), Some(&21), "an alert: {received:?}");
    assert_eq!(peers.counts(), [0, 0, 1]);
    let mut byte = [0];
    secure.read(&mut byte).await.expect_err("it is not open");
    assert_eq!(secure.closed(), Closed::Everything);
}
