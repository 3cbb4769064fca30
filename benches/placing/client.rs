//! A client of each kind of connection.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::{SendRequest, handshake};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::server::Kind;
use crate::support::load::{Handshakes, Tls};

/// The length of the body of a response: the number of a worker.
const BODY: usize = 2;

#[derive(Clone)]
pub(crate) struct Client {
    kind: Kind,
    tls: TlsConnector,
}

/// A connection that is open.
pub(crate) enum Connection {
    Tls(Box<TlsStream<TcpStream>>),
    Http2(SendRequest<Bytes>),
    Run(TcpStream),
}

impl Client {
    pub(crate) fn new(kind: Kind, certificate: CertificateDer<'static>) -> Self {
        let tls = Tls::trusting(certificate, Handshakes::Full).config();
        let tls = Arc::new(tls).into();
        Self { kind, tls }
    }

    pub(crate) async fn connect(&self, address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        match self.kind {
            Kind::Run => Connection::Run(stream),
            Kind::Tls => {
                let name = ServerName::try_from("localhost").expect("a name");
                let stream = self.tls.connect(name, stream).await;
                Connection::Tls(Box::new(stream.expect("a handshake")))
            }
            Kind::Http2 => {
                let (requests, connection) = handshake(stream).await.expect("HTTP/2");
                tokio::spawn(connection);
                Connection::Http2(requests)
            }
        }
    }
}

impl Connection {
    /// Closes the connection, and waits until the server has closed it, as far as a client can see
    /// that. Otherwise the next round may find the load of this one.
    pub(crate) async fn end(self) {
        match self {
            Self::Tls(stream) => end(stream).await,
            Self::Run(stream) => end(stream).await,
            Self::Http2(_) => {}
        }
    }

    /// Sends a request, and returns the number of the worker that responds.
    pub(crate) async fn ask(&mut self) -> usize {
        match self {
            Self::Run(stream) => {
                stream.write_u8(0).await.expect("it is open");
                stream.read_u8().await.expect("a response").into()
            }
            Self::Tls(stream) => {
                let request = b"GET /who HTTP/1.1\r\nHost: localhost\r\n\r\n";
                stream.write_all(request).await.expect("it is open");
                stream.flush().await.expect("it is open");
                let mut response = Vec::new();
                while !is_whole(&response) {
                    let read = stream.read_buf(&mut response).await.expect("a response");
                    assert!(read > 0, "a whole response");
                }
                number(&response[response.len() - BODY..])
            }
            Self::Http2(requests) => {
                let request = http::Request::get("http://localhost/who").body(());
                let request = request.expect("a request");
                let (response, _) = requests.send_request(request, true).expect("it is open");
                let mut body = response.await.expect("a response").into_body();
                let bytes = body.data().await.expect("a body").expect("whole");
                number(&bytes)
            }
        }
    }
}

/// An error is the end, too.
async fn end(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    if stream.shutdown().await.is_ok() {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
}

fn is_whole(response: &[u8]) -> bool {
    let head = response.windows(4).position(|it| it == b"\r\n\r\n");
    head.is_some_and(|end| response.len() == end + 4 + BODY)
}

fn number(body: &[u8]) -> usize {
    let number = str::from_utf8(body).ok().and_then(|it| it.parse().ok());
    number.expect("our own handler sends a number")
}
