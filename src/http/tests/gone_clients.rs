//! Clients that close while the server works. The server cancels its work if the client has gone. A
//! client that has only closed its sending side gets its response.

use std::future::pending;

use futures_util::stream;
use tokio::sync::oneshot;

use super::event_streams::streamed;
use super::*;

/// How a client goes.
#[derive(Clone, Copy)]
enum Leave {
    Closes,
    Resets,
}

impl Client {
    fn leave(self, how: Leave) {
        if let Leave::Resets = how {
            SockRef::from(&self.stream)
                .set_linger(Some(Duration::ZERO))
                .expect("a TCP socket");
        }
    }
}

/// Sends a message when it is dropped.
struct Guard(Option<oneshot::Sender<()>>);

impl Drop for Guard {
    fn drop(&mut self) {
        let sent = self.0.take().expect("dropped once").send(());
        sent.expect("the test waits");
    }
}

/// A server whose handler never responds. The receivers report that the handler has begun, and that
/// it was dropped.
async fn endless() -> (Host, oneshot::Receiver<()>, oneshot::Receiver<()>) {
    let (begun, has_begun) = oneshot::channel();
    let (ended, has_ended) = oneshot::channel();
    let once = Rc::new(RefCell::new(Some((begun, Guard(Some(ended))))));
    let app = move |_| {
        let (begun, guard) = once.take().expect("one request");
        async move {
            begun.send(()).expect("the test waits");
            pending::<()>().await;
            drop(guard);
            Ok(text("never"))
        }
    };
    (Host::start(options(), app).await, has_begun, has_ended)
}

#[test]
fn a_client_that_closes_or_resets_cancels_its_handler() {
    run(async {
        for (requests, leave) in [(1, Leave::Closes), (1, Leave::Resets), (2, Leave::Closes)] {
            let (host, has_begun, has_ended) = endless().await;
            let mut client = host.connect().await;
            client.send(HELLO.repeat(requests)).await;
            has_begun.await.expect("the handler begins");
            client.leave(leave);
            has_ended.await.expect("the handler is dropped");
            host.emptied().await;
        }
    });
}

#[test]
fn a_client_that_has_stopped_sending_gets_its_responses() {
    run(async {
        let host = Host::start(options(), hello).await;
        for requests in 1..4 {
            let mut client = host.connect().await;
            client.send(HELLO.repeat(requests)).await;
            client.stream.shutdown().await.expect("it is connected");
            client.expect(&HELLO_RESPONSE.repeat(requests)).await;
            client.expect_end().await;
        }
        host.emptied().await;
    });
}

#[test]
fn a_client_that_has_stopped_sending_gets_its_response_from_a_handler_that_waits() {
    run(async {
        let (gate, app) = gated(gated_hello);
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.stream.shutdown().await.expect("it is connected");
        gate.begun.notified().await;
        gate.go.notify_one();
        client.expect(HELLO_RESPONSE).await;
        client.expect_end().await;
    });
}

/// A server whose response sends one word and then nothing. The receiver reports that its body was
/// dropped.
async fn silent() -> (Host, oneshot::Receiver<()>) {
    let (ended, has_ended) = oneshot::channel();
    let once = Rc::new(RefCell::new(Some(Guard(Some(ended)))));
    let app = move |_| {
        let guard = once.take().expect("one request");
        let mut word = Some(Bytes::from_static(b"one"));
        let pieces = stream::poll_fn(move |_| {
            let _ = &guard;
            word.take()
                .map_or(Poll::Pending, |word| Poll::Ready(Some(word)))
        });
        async { Ok(streamed(pieces)) }
    };
    (Host::start(options(), app).await, has_ended)
}

const FIRST: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";

#[test]
fn a_client_that_closes_or_resets_ends_a_silent_response() {
    run(async {
        for (requests, leave) in [(1, Leave::Closes), (1, Leave::Resets), (2, Leave::Closes)] {
            let (host, has_ended) = silent().await;
            let mut client = host.connect().await;
            client.send(HELLO.repeat(requests)).await;
            client.expect(FIRST).await;
            client.leave(leave);
            has_ended.await.expect("the body is dropped");
            host.emptied().await;
        }
    });
}

/// The server cannot know whether the client still reads until it writes.
#[test]
fn a_client_that_only_stops_sending_ends_a_silent_response() {
    run(async {
        let (host, has_ended) = silent().await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.stream.shutdown().await.expect("it is connected");
        client.expect(FIRST).await;
        has_ended.await.expect("the body is dropped");
        assert_eq!(client.rest().await, "", "no last chunk");
        host.emptied().await;
    });
}

/// An event stream may pause for longer than the time after which the client is checked.
#[test]
fn a_silent_response_continues_for_a_client_that_is_connected() {
    run(async {
        let (host, more) = event_streams::host(&[]).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        more.send("one".into()).expect("the body is read");
        client.expect(FIRST).await;
        host.looked().await;
        more.send("two".into()).expect("the body is read");
        client.expect("3\r\ntwo\r\n").await;
        drop(more);
        client.expect("0\r\n\r\n").await;
    });
}

/// The response may take any time in total.
#[test]
fn a_response_that_moves_continues_for_a_client_that_has_stopped_sending() {
    run(async {
        let (host, more) = event_streams::host(&[]).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.stream.shutdown().await.expect("it is connected");
        more.send("one".into()).expect("the body is read");
        client.expect(FIRST).await;
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        for _ in 0..25 {
            ticks.tick().await;
            more.send("two".into()).expect("the body is read");
            client.expect("3\r\ntwo\r\n").await;
        }
        drop(more);
        client.expect("0\r\n\r\n").await;
        client.expect_end().await;
        host.emptied().await;
    });
}

/// A response that the client has not taken yet is not silent.
#[test]
fn a_response_that_is_not_taken_yet_continues_for_a_client_that_has_stopped_sending() {
    run(async {
        const PIECE: usize = 1 << 20;
        const PIECES: usize = 32;
        let (host, more) = event_streams::host(&[]).await;
        for _ in 0..PIECES {
            more.send(vec![b'x'; PIECE].into()).expect("room");
        }
        drop(more);
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.stream.shutdown().await.expect("it is connected");
        // Wait until the client of another silent response was checked twice.
        let (other, _more) = event_streams::host(&[]).await;
        let mut other_client = other.connect().await;
        other_client.send(HELLO).await;
        other.looked().await;
        other.looked().await;
        let response = client.rest().await;
        let count = response.bytes().filter(|&byte| byte == b'x').count();
        assert_eq!(count, PIECE * PIECES);
        assert!(response.ends_with("\r\n0\r\n\r\n"));
        host.emptied().await;
    });
}
