//! Clients that read slowly: bytes that TLS buffers for a client count as unsent.

use std::cell::Cell;

use futures_util::stream::{self, StreamExt};
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::http::{Request, Server};
use crate::stats::Count;

/// Capacity of the pipe between server and client, in bytes.
const PIPE: usize = 8 * 1024;

/// A stream that accepts as many bytes as the pipe has free.
type Narrow = Plain<DuplexStream, Closed>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    Own,
    Moved,
}

const SESSIONS: [Session; 2] = [Session::Own, Session::Moved];

impl Socket for Narrow {
    fn take_tls(&mut self) -> Option<Moved> {
        self.moved.take()
    }

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

/// Requests a response of these pieces. `take` reads the encrypted response, not in whole records.
/// Returns the number of write timeouts.
async fn serve(
    session: Session,
    http: Http,
    closed: Closed,
    pieces: UnboundedReceiver<Bytes>,
    take: impl AsyncFnOnce(&mut DuplexStream),
) -> u64 {
    let peers = Peers::new(None);
    let (client, stream) = duplex(PIPE);
    let connected = (client, peers.acceptor.accept(Narrow::new(stream, closed)));
    let (mut client, mut secure) = peers.open(connected).await;
    if session == Session::Moved {
        let target = peers.acceptor.handover_target(Rc::new(GivesBack));
        let back = target.hand_over(secure, Moved::default()).await;
        secure = back.expect_err("it comes back");
    }
    let pieces = Cell::new(Some(pieces));
    let service = hyper::service::service_fn(move |_: Request| {
        let mut pieces = pieces.take().expect("one request");
        let pieces = stream::poll_fn(move |cx| pieces.poll_recv(cx));
        let body = StreamBody::new(pieces.map(|piece| Ok::<_, io::Error>(Frame::data(piece))));
        async { Ok::<_, io::Error>(http::Response::new(body)) }
    });
    let server = Server::new(http, WorkerStats::own());
    let serving = server.endpoint(service).serve(secure);
    let take = async {
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        client.write_all(request).await.expect("it reads");
        let (mut wire, _) = client.into_inner();
        take(&mut wire).await;
        wire
    };
    let ended = async {
        tokio::select! {
            _ = async { tokio::join!(serving, take) } => {}
            () = server.clock() => unreachable!("it never ends"),
        }
    };
    timeout(CEILING, ended).await.expect("it ends");
    server.count(Count::WriteTimeouts)
}

/// A response of `size` bytes in one piece. The client reads up to `PIPE` bytes every half write
/// timeout, and stops after `most` bytes. Returns the bytes that it read, and the number of write
/// timeouts.
async fn taken_slowly(session: Session, size: usize, most: usize) -> (usize, u64) {
    const TIMEOUT: Duration = Duration::from_millis(160);
    let (more, pieces) = unbounded_channel();
    more.send(vec![b'x'; size].into())
        .expect("the receiver exists");
    drop(more);
    let mut taken = 0;
    let http = Http::new().write_timeout(TIMEOUT);
    let take = async |wire: &mut DuplexStream| {
        let mut ticks = tokio::time::interval(TIMEOUT / 2);
        while taken < most {
            ticks.tick().await;
            match wire.read(&mut [0; PIPE]).await.expect("a pipe") {
                0 => break,
                len => taken += len,
            }
        }
    };
    let dropped = serve(session, http, Closed::Nothing, pieces, take).await;
    (taken, dropped)
}

/// TLS buffers all of the first response at once, and only a part of the second.
#[tokio::test]
async fn a_client_that_reads_slowly_gets_the_whole_response() {
    for session in SESSIONS {
        for size in [60_000, 100_000] {
            let (taken, dropped) = taken_slowly(session, size, usize::MAX).await;
            assert!(taken > size, "{session:?}: {taken} of {size} bytes");
            assert_eq!(dropped, 0);
        }
    }
}

#[tokio::test]
async fn a_client_that_stops_reading_meets_the_write_timeout() {
    for session in SESSIONS {
        for size in [60_000, 100_000] {
            assert_eq!(taken_slowly(session, size, 20_000).await.1, 1);
        }
    }
}

/// If a client has closed its sending half and no byte of its response is sent for a second, the
/// server takes the client for gone. This client only reads slowly.
#[tokio::test]
async fn bytes_buffered_in_tls_show_that_a_half_closed_client_is_connected() {
    const SIZE: usize = 60_000;
    for session in SESSIONS {
        let (more, pieces) = unbounded_channel();
        more.send(vec![b'x'; SIZE].into())
            .expect("the receiver exists");
        let take = async |wire: &mut DuplexStream| {
            let pause = Duration::from_millis(1500);
            let _ = timeout(pause, std::future::pending::<()>()).await;
            wire.read_exact(&mut vec![0; SIZE]).await.expect("it comes");
            let more = more;
            more.send("more".into()).expect("the server reads the body");
            drop(more);
            wire.read_to_end(&mut Vec::new()).await.expect("a pipe");
        };
        // The shortest timeout decides how often the registry checks connections.
        let http = Http::new().body_timeout(Duration::from_millis(200));
        let dropped = serve(session, http, Closed::Sending, pieces, take).await;
        assert_eq!(dropped, 0);
    }
}
