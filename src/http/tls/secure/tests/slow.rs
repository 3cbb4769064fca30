//! Clients that read slowly: what TLS holds for them is on its way for as long as they take of it.

use std::cell::Cell;

use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::http::{Request, Server};

/// What the pipe between them takes.
const ROOM: usize = 8 * 1024;

/// A stream that takes as much as its buffer does.
struct Narrow {
    stream: DuplexStream,
    closed: Closed,
}

impl Socket for Narrow {
    fn info(&self) -> ConnectionInfo {
        let local = crate::address::Address::Unix("/".into());
        ConnectionInfo::new(crate::address::Peer::Unix, local)
    }

    fn has_unread(&self) -> bool {
        false
    }

    fn poll_readable(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn closed(&self) -> Closed {
        self.closed
    }
}

impl AsyncRead for Narrow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Narrow {
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

/// The answer's pieces, as they are given.
struct Pieces(UnboundedReceiver<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = self.0.poll_recv(cx);
        piece.map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// Asks for an answer of these pieces, and has somebody take it as it comes, in pieces that are no
/// records. How many clients were dropped for taking nothing.
async fn serve(
    http: Http,
    closed: Closed,
    pieces: UnboundedReceiver<Bytes>,
    take: impl AsyncFnOnce(&mut DuplexStream),
) -> u64 {
    let peers = Peers::new(None);
    let (client, stream) = duplex(ROOM);
    let connected = (client, peers.acceptor.accept(Narrow { stream, closed }));
    let (mut client, secure) = peers.open(connected).await;
    let pieces = Cell::new(Some(pieces));
    let service = hyper::service::service_fn(move |_: Request| {
        let pieces = pieces.take().expect("one request");
        async { Ok::<_, io::Error>(http::Response::new(Pieces(pieces))) }
    });
    let server = Server::new(http, WorkerStats::own());
    let life = server.endpoint(service).serve(secure);
    let take = async {
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        client.write_all(request).await.expect("it reads");
        let (mut wire, _) = client.into_inner();
        take(&mut wire).await;
        wire
    };
    let ended = async {
        tokio::select! {
            _ = async { tokio::join!(life, take) } => {}
            () = server.clock() => unreachable!("it goes on"),
        }
    };
    timeout(CEILING, ended).await.expect("it ends");
    server.counts().write_timeouts
}

/// An answer of so many bytes at once, of which the client takes `ROOM` at a time, just within the
/// write timeout, up to a limit. How many it took, and how many clients were dropped.
async fn taken_slowly(answer: usize, most: usize) -> (usize, u64) {
    const TIMEOUT: Duration = Duration::from_millis(160);
    let (more, pieces) = unbounded_channel();
    more.send(vec![b'x'; answer].into()).expect("room");
    drop(more);
    let mut taken = 0;
    let http = Http::new().write_timeout(TIMEOUT);
    let take = async |wire: &mut DuplexStream| {
        let mut ticks = tokio::time::interval(TIMEOUT / 2);
        while taken < most {
            ticks.tick().await;
            match wire.read(&mut [0; ROOM]).await.expect("a pipe") {
                0 => break,
                len => taken += len,
            }
        }
    };
    let dropped = serve(http, Closed::Nothing, pieces, take).await;
    (taken, dropped)
}

/// TLS has all of the first answer at once, and the second has to wait for room there.
#[tokio::test]
async fn a_slow_reader_is_served_to_the_end() {
    for answer in [60_000, 100_000] {
        let (taken, dropped) = taken_slowly(answer, usize::MAX).await;
        assert!(taken > answer, "{taken} of {answer} bytes");
        assert_eq!(dropped, 0);
    }
}

#[tokio::test]
async fn one_that_reads_no_more_is_dropped() {
    for answer in [60_000, 100_000] {
        assert_eq!(taken_slowly(answer, 20_000).await.1, 1);
    }
}

/// A client that has stopped sending is taken for one that has left if its answer is silent for a
/// second. This one only takes its time.
#[tokio::test]
async fn what_waits_within_tls_is_no_silence() {
    const ANSWER: usize = 60_000;
    let (more, pieces) = unbounded_channel();
    more.send(vec![b'x'; ANSWER].into()).expect("room");
    let take = async |wire: &mut DuplexStream| {
        let pause = Duration::from_millis(1500);
        let _ = timeout(pause, std::future::pending::<()>()).await;
        wire.read_exact(&mut vec![0; ANSWER])
            .await
            .expect("it comes");
        let more = more;
        more.send("more".into()).expect("somebody reads the body");
        drop(more);
        wire.read_to_end(&mut Vec::new()).await.expect("a pipe");
    };
    // The shortest timeout says how often connections are looked at.
    let http = Http::new().body_timeout(Duration::from_millis(200));
    let dropped = serve(http, Closed::Sending, pieces, take).await;
    assert_eq!(dropped, 0);
}
