//! Whether the client is still there: nobody works for long for one that has left, and one that
//! has only stopped sending gets its answer.

use std::future::pending;

use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::{mpsc, oneshot};

use super::*;

/// Tells when it is dropped.
struct Guard(Option<oneshot::Sender<()>>);

impl Drop for Guard {
    fn drop(&mut self) {
        let told = self.0.take().expect("dropped once").send(());
        told.expect("the test waits");
    }
}

/// A server whose handler never answers; what tells that one has begun, and that it has ended.
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
fn a_client_that_leaves_cancels_its_handler() {
    run(async {
        let (host, has_begun, has_ended) = endless().await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        has_begun.await.expect("the handler begins");
        drop(client);
        has_ended.await.expect("the handler is dropped");
        host.emptied().await;
    });
}

#[test]
fn a_client_that_resets_cancels_its_handler() {
    run(async {
        let (host, has_begun, has_ended) = endless().await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        has_begun.await.expect("the handler begins");
        SockRef::from(&client.stream)
            .set_linger(Some(Duration::ZERO))
            .expect("a TCP socket");
        drop(client);
        has_ended.await.expect("the handler is dropped");
        host.emptied().await;
    });
}

#[test]
fn a_client_that_pipelines_and_leaves_cancels_its_handler() {
    run(async {
        let (host, has_begun, has_ended) = endless().await;
        let mut client = host.connect().await;
        client.send([HELLO, HELLO].concat()).await;
        has_begun.await.expect("the handler begins");
        drop(client);
        has_ended.await.expect("the handler is dropped");
        host.emptied().await;
    });
}

#[test]
fn a_client_that_has_said_all_it_will_say_is_answered() {
    run(async {
        let host = Host::start(options(), hello).await;
        for requests in 1..4 {
            let mut client = host.connect().await;
            client.send(HELLO.repeat(requests)).await;
            client.stream.shutdown().await.expect("it is connected");
            client.expect(&HELLO_ANSWER.repeat(requests)).await;
            client.expect_end().await;
        }
        host.emptied().await;
    });
}

#[test]
fn it_is_answered_too_if_its_handler_waits_a_moment() {
    run(async {
        let (go, gone) = mpsc::unbounded_channel::<()>();
        let gone = Rc::new(tokio::sync::Mutex::new(gone));
        let app = move |_| {
            let gone = Rc::clone(&gone);
            async move {
                gone.lock().await.recv().await;
                Ok(text("hello"))
            }
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.stream.shutdown().await.expect("it is connected");
        while host.server.counts().requests == 0 {
            tokio::task::yield_now().await;
        }
        go.send(()).expect("the handler waits");
        client.expect(HELLO_ANSWER).await;
        client.expect_end().await;
    });
}

/// A server whose answer says one word and then no more; what tells that its body was dropped.
async fn silent() -> (Host, oneshot::Receiver<()>) {
    let (ended, has_ended) = oneshot::channel();
    let once = Rc::new(RefCell::new(Some(Guard(Some(ended)))));
    let app = move |_| {
        let guard = once.take().expect("one request");
        let mut word = Some(Bytes::from_static(b"one"));
        let pieces = std::future::poll_fn(move |_| {
            let _ = &guard;
            word.take()
                .map_or(Poll::Pending, |word| Poll::Ready(Some(word)))
        });
        async { Ok(stream(pieces)) }
    };
    (Host::start(options(), app).await, has_ended)
}

const FIRST: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";

#[test]
fn a_client_that_leaves_ends_a_silent_answer() {
    run(async {
        for requests in 1..3 {
            let (host, has_ended) = silent().await;
            let mut client = host.connect().await;
            client.send(HELLO.repeat(requests)).await;
            client.expect(FIRST).await;
            drop(client);
            has_ended.await.expect("the body is dropped");
            host.emptied().await;
        }
    });
}

#[test]
fn a_client_that_resets_ends_a_silent_answer() {
    run(async {
        let (host, has_ended) = silent().await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.expect(FIRST).await;
        SockRef::from(&client.stream)
            .set_linger(Some(Duration::ZERO))
            .expect("a TCP socket");
        drop(client);
        has_ended.await.expect("the body is dropped");
        host.emptied().await;
    });
}

/// Whether it still reads cannot be told until something is written.
#[test]
fn a_client_that_only_stops_sending_ends_a_silent_answer_too() {
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

/// A server whose answer's pieces the test gives.
async fn dictated() -> (Host, mpsc::UnboundedSender<Bytes>) {
    let (more, pieces) = mpsc::unbounded_channel::<Bytes>();
    let pieces = Rc::new(RefCell::new(Some(pieces)));
    let app = move |_| {
        let mut pieces = pieces.take().expect("one request");
        let pieces = std::future::poll_fn(move |cx| pieces.poll_recv(cx));
        async { Ok(stream(pieces)) }
    };
    (Host::start(options(), app).await, more)
}

/// An event stream may pause for longer than a client is waited for.
#[test]
fn an_answer_may_be_silent_for_a_client_that_is_there() {
    run(async {
        let (host, more) = dictated().await;
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

/// However long the whole takes.
#[test]
fn an_answer_that_keeps_coming_goes_on_for_one_that_still_reads() {
    run(async {
        let (host, more) = dictated().await;
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

/// An answer that its client has yet to take is not silent.
#[test]
fn an_answer_on_its_way_goes_on_for_one_that_still_reads() {
    run(async {
        const PIECE: usize = 1 << 20;
        const PIECES: usize = 32;
        let (host, more) = dictated().await;
        for _ in 0..PIECES {
            more.send(vec![b'x'; PIECE].into()).expect("room");
        }
        drop(more);
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.stream.shutdown().await.expect("it is connected");
        // For as long as another answer is silent before its client is looked for.
        let (other, _more) = dictated().await;
        let mut looker = other.connect().await;
        looker.send(HELLO).await;
        other.looked().await;
        other.looked().await;
        let answer = client.rest().await;
        let count = answer.bytes().filter(|&byte| byte == b'x').count();
        assert_eq!(count, PIECE * PIECES);
        assert!(answer.ends_with("\r\n0\r\n\r\n"));
        host.emptied().await;
    });
}

fn stream<F>(pieces: F) -> Response<UnsyncBoxBody<Bytes, BoxError>>
where
    F: Future<Output = Option<Bytes>> + Unpin + Send + 'static,
{
    Response::new(StreamBody::new(Pieces(pieces)).boxed_unsync())
}

/// A stream of what a future gives, again and again.
struct Pieces<F>(F);

impl<F: Future<Output = Option<Bytes>> + Unpin> futures_core::Stream for Pieces<F> {
    type Item = Result<Frame<Bytes>, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
