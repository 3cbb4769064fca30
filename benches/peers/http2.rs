//! Requests over HTTP/2, in the open and within TLS, by the crate h2.
//!
//! It allocates, so only the servers' CPU time and memory mean anything.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{Request, StatusCode};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{self, LocalOptions, LocalRuntime};
use tokio::task::{JoinSet, spawn_blocking, spawn_local};
use tokio_rustls::TlsConnector;

use crate::load::Tls;
use crate::process::Trouble;

/// Requests at once on each connection.
const STREAMS: usize = 4;

/// The windows of a browser: a server seldom waits for them.
const STREAM_WINDOW: u32 = 6 << 20;
const CONNECTION_WINDOW: u32 = 15 << 20;

pub(crate) struct Clients {
    runtime: LocalRuntime,
    senders: Vec<SendRequest<Bytes>>,
    expected: Arc<[u8]>,
}

impl Clients {
    /// Begins on these connections. Each response must have these bytes.
    pub(crate) fn new(
        connections: impl IntoIterator<Item = io::Result<TcpStream>>,
        tls: Option<&Tls>,
        expected: &[u8],
    ) -> Result<Self, Trouble> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())?;
        let connector = tls.map(|tls| {
            let mut config = tls.config();
            config.alpn_protocols = vec![b"h2".into()];
            TlsConnector::from(Arc::new(config))
        });
        let senders = runtime.block_on(async {
            let mut senders = Vec::new();
            for stream in connections {
                senders.push(connect(connector.as_ref(), stream?).await?);
            }
            Ok::<_, io::Error>(senders)
        })?;
        Ok(Self {
            runtime,
            senders,
            expected: expected.into(),
        })
    }

    /// Asks once on each connection, one after the other.
    pub(crate) fn ask_each(&self, path: &str) -> Result<(), Trouble> {
        let uri = format!("https://localhost{path}");
        self.runtime.block_on(async {
            for sender in &self.senders {
                fetch(sender, &uri, &self.expected).await?;
            }
            Ok(())
        })
    }

    /// Asks once more on each connection.
    #[allow(dead_code, reason = "the bench `connections` uses it")]
    pub(crate) fn ask_again(&self, path: &str, mut note: impl FnMut(io::Result<()>)) {
        let uri = format!("https://localhost{path}");
        self.runtime.block_on(async {
            for sender in &self.senders {
                note(fetch(sender, &uri, &self.expected).await);
            }
        });
    }

    /// Waits in another thread, while the connections go on.
    #[allow(dead_code, reason = "the bench `connections` uses it")]
    pub(crate) fn meanwhile<T: Send + 'static>(
        &self,
        wait: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let waited = self.runtime.block_on(async { spawn_blocking(wait).await });
        waited.expect("it does not panic")
    }

    /// Asks for the path for so long. How many responses there were; any failure ends it.
    pub(crate) fn ask(&self, path: &str, time: Duration) -> Result<u64, Trouble> {
        let until = Instant::now() + time;
        let uri = format!("https://localhost{path}");
        self.runtime.block_on(async {
            let mut asking = JoinSet::new();
            for sender in self.senders.iter().flat_map(|it| [it; STREAMS]) {
                let (sender, uri) = (sender.clone(), uri.clone());
                let expected = Arc::clone(&self.expected);
                asking.spawn_local(async move {
                    let mut count = 0;
                    while Instant::now() < until {
                        fetch(&sender, &uri, &expected).await?;
                        count += 1;
                    }
                    Ok::<u64, io::Error>(count)
                });
            }
            let mut all = 0;
            while let Some(count) = asking.join_next().await {
                all += count.map_err(io::Error::other)??;
            }
            Ok(all)
        })
    }
}

async fn connect(tls: Option<&TlsConnector>, stream: TcpStream) -> io::Result<SendRequest<Bytes>> {
    stream.set_nonblocking(true)?;
    let stream = tokio::net::TcpStream::from_std(stream)?;
    let name = ServerName::try_from("localhost").expect("a name");
    match tls {
        Some(tls) => begin(tls.connect(name, stream).await?).await,
        None => begin(stream).await,
    }
}

async fn begin(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
) -> io::Result<SendRequest<Bytes>> {
    let mut builder = Builder::new();
    builder.initial_window_size(STREAM_WINDOW);
    builder.initial_connection_window_size(CONNECTION_WINDOW);
    let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
    // A request learns how it ended.
    spawn_local(async move { drop(connection.await) });
    sender.ready().await.map_err(io::Error::other)
}

async fn fetch(sender: &SendRequest<Bytes>, uri: &str, expected: &[u8]) -> io::Result<()> {
    let mut sender = sender.clone().ready().await.map_err(io::Error::other)?;
    let request = Request::get(uri).body(()).expect("a request");
    let (response, _) = sender
        .send_request(request, true)
        .map_err(io::Error::other)?;
    let (head, mut body) = response.await.map_err(io::Error::other)?.into_parts();
    if head.status != StatusCode::OK {
        return Err(io::Error::other(format!("status {}", head.status)));
    }
    let mut left = expected;
    while let Some(data) = body.data().await {
        let data = data.map_err(io::Error::other)?;
        left = left
            .strip_prefix(&data[..])
            .ok_or_else(|| io::Error::other("another body"))?;
        body.flow_control()
            .release_capacity(data.len())
            .map_err(io::Error::other)?;
    }
    match left {
        [] => Ok(()),
        _ => Err(io::Error::other("a short body")),
    }
}

/// Whether the server has closed the connection without an error, and has not processed the
/// request.
#[allow(dead_code, reason = "the bench `connections` uses it")]
pub(crate) fn is_goaway(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    error.is_some_and(|error: &h2::Error| {
        error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR)
    })
}
