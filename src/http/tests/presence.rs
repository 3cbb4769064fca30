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

/// An event stream may pause for longer than a handler is waited for.
#[test]
fn an_answer_that_has_begun_goes_on_for_one_that_still_reads() {
    run(async {
        let (more, frames) = mpsc::unbounded_channel::<Bytes>();
        let frames = Rc::new(RefCell::new(Some(frames)));
        let app = move |_| {
            let mut frames = frames.take().expect("one request");
            let frames = std::future::poll_fn(move |cx| frames.poll_recv(cx));
            async move {
                Ok(Response::new(
                    StreamBody::new(Pieces(frames)).boxed_unsync(),
                ))
            }
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.stream.shutdown().await.expect("it is connected");
        more.send("one".into()).expect("the body is read");
        client
            .expect("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
            .await;
        host.looked().await;
        more.send("two".into()).expect("the body is read");
        client.expect("3\r\ntwo\r\n").await;
        drop(more);
        client.expect("0\r\n\r\n").await;
        client.expect_end().await;
    });
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
