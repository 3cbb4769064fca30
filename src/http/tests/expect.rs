//! `Expect: 100-continue` (RFC 9110 10.1.1): clients that wait for `100 Continue` before they send
//! the body.

use std::future::poll_fn;
use std::task::Waker;

use http_body::Body as _;

use super::*;

const HEAD: &str = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\
                    expect: 100-continue\r\n\r\n";
const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
const FOUR_BYTES: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n";

async fn send_head<F>(app: impl Fn(Request) -> F + Clone + 'static) -> Client
where
    F: Future<Output = HandlerResult> + 'static,
{
    let mut client = Host::start(options(), app).await.connect().await;
    client.send(HEAD).await;
    client
}

#[test]
fn the_client_sends_a_body_that_the_handler_reads() {
    run_each_kind(async || {
        let mut client = send_head(echo).await;
        client.expect(CONTINUE).await;
        client.send("abcd").await;
        client.expect(FOUR_BYTES).await;
        client.expect("abcd").await;
    });
}

#[test]
fn the_client_sends_a_body_that_the_response_streams() {
    run_each_kind(async || {
        let mut client = send_head(echo_as_it_comes).await;
        client.expect(CONTINUE).await;
        client.expect(FOUR_BYTES).await;
        client.send("abcd").await;
        client.expect("abcd").await;
        // The connection stays open.
        client.send(HEAD).await;
        client.expect(CONTINUE).await;
    });
}

#[test]
fn a_body_that_is_sent_without_waiting_is_streamed_whole() {
    run_each_kind(async || {
        let host = Host::start(options(), echo_as_it_comes).await;
        let mut client = host.connect().await;
        client.send([HEAD, "abcd"].concat()).await;
        client.expect(CONTINUE).await;
        client.expect(FOUR_BYTES).await;
        client.expect("abcd").await;
    });
}

#[test]
fn the_client_sends_a_body_that_a_task_reads_after_the_response() {
    run_each_kind(async || {
        let go = Rc::new(Notify::new());
        let read = Rc::new(Notify::new());
        let (app_go, app_read) = (Rc::clone(&go), Rc::clone(&read));
        let app = move |request: Request| {
            let (go, read) = (Rc::clone(&app_go), Rc::clone(&app_read));
            async move {
                spawn_local(async move {
                    go.notified().await;
                    let body = request.into_body().collect().await.expect("a body");
                    assert_eq!(body.to_bytes(), "abcd");
                    read.notify_one();
                });
                Ok(text("hello"))
            }
        };
        let mut client = send_head(app).await;
        client.expect(CONTINUE).await;
        client.expect(HELLO_RESPONSE).await;
        go.notify_one();
        client.send("abcd").await;
        read.notified().await;
    });
}

#[test]
fn a_task_that_polls_the_body_before_the_response_is_woken_by_the_body() {
    run_each_kind(async || {
        let read = Rc::new(Notify::new());
        let app_read = Rc::clone(&read);
        let app = move |request: Request| {
            let read = Rc::clone(&app_read);
            async move {
                let polled = Rc::new(Notify::new());
                let task_polled = Rc::clone(&polled);
                spawn_local(async move {
                    let mut body = request.into_body();
                    let frame = poll_fn(|cx| {
                        task_polled.notify_one();
                        Pin::new(&mut body).poll_frame(cx)
                    });
                    let frame = frame.await.expect("not the end").expect("no error");
                    assert_eq!(frame.into_data().expect("data"), "abcd");
                    read.notify_one();
                });
                polled.notified().await;
                Ok(text("hello"))
            }
        };
        let mut client = send_head(app).await;
        client.expect(CONTINUE).await;
        client.expect(HELLO_RESPONSE).await;
        client.send("abcd").await;
        read.notified().await;
    });
}

#[test]
fn the_client_sends_a_body_that_the_handler_polls_once() {
    run_each_kind(async || {
        let app = async |mut request: Request| {
            let mut now = Context::from_waker(Waker::noop());
            let polled = Pin::new(request.body_mut()).poll_frame(&mut now);
            assert!(polled.is_pending());
            echo_as_it_comes(request).await
        };
        let mut client = send_head(app).await;
        client.expect(CONTINUE).await;
        client.expect(FOUR_BYTES).await;
        client.send("abcd").await;
        client.expect("abcd").await;
    });
}

#[test]
fn no_100_continue_is_sent_if_the_handler_drops_the_body() {
    run_each_kind(async || {
        let mut client = send_head(hello).await;
        // Whether the client sends the body now, the server cannot know.
        client.expect_last_hello().await;
    });
}

/// The response's body never returns a piece.
#[test]
fn a_pending_body_does_not_delay_the_head_of_its_response() {
    run_each_kind(async || {
        let app = async |_request: Request| {
            let body = pieces::Pieces::new(None, &["", "never"]);
            Ok(Response::new(body.boxed_unsync()))
        };
        let mut client = send_head(app).await;
        client
            .expect("HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
    });
}
