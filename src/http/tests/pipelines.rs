//! Requests sent without waiting for answers: gathered into few sends, and never kept back.

use tokio::sync::Notify;

use super::pieces::Pieces;
use super::*;

#[test]
fn sixteen_requests_in_one_write_are_answered_in_one_send() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.send(HELLO.repeat(16)).await;
        client.expect(&HELLO_ANSWER.repeat(16)).await;
        assert_eq!(host.sends.load(Relaxed), 1);
        assert_eq!(host.server.counts().requests, 16);
    });
}

#[test]
fn more_than_is_gathered_at_once() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.send(HELLO.repeat(1000)).await;
        client.expect(&HELLO_ANSWER.repeat(1000)).await;
    });
}

#[test]
fn bodies_in_a_pipeline() {
    run(async {
        let host = Host::start(options(), echo).await;
        let mut client = host.connect().await;
        let post = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\nabc";
        client.send(post.repeat(5)).await;
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        client.expect(&answer.repeat(5)).await;
    });
}

#[test]
fn an_answer_does_not_wait_for_the_rest_of_the_next_request() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        let half = HELLO.len() / 2;
        client.send([HELLO, &HELLO[..half]].concat()).await;
        client.expect(HELLO_ANSWER).await;
        client.send(&HELLO[half..]).await;
        client.expect(HELLO_ANSWER).await;
    });
}

#[test]
fn an_answer_does_not_wait_behind_a_stray_line_break() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        for _ in 0..2 {
            client.send([HELLO, b"\r\n"].concat()).await;
            client.expect(HELLO_ANSWER).await;
        }
    });
}

#[test]
fn an_answer_does_not_wait_for_the_next_handler() {
    run(async {
        let go = Rc::new(Notify::new());
        let gate = Rc::clone(&go);
        let app = move |request: Request| {
            let gate = Rc::clone(&gate);
            async move {
                if request.uri().path() == "/wait" {
                    gate.notified().await;
                }
                Ok(text("hello"))
            }
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        let wait = b"GET /wait HTTP/1.1\r\nhost: test\r\n\r\n".as_slice();
        client.send([HELLO, wait, HELLO].concat()).await;
        client.expect(HELLO_ANSWER).await;
        go.notify_one();
        client.expect(&HELLO_ANSWER.repeat(2)).await;
    });
}

#[test]
fn half_an_answer_does_not_wait_for_the_other_half() {
    run(async {
        let gate = Arc::new(Notify::new());
        let go = Arc::clone(&gate);
        let app = move |_| {
            let body = Pieces::gated(None, &["one ", "", "half"], Arc::clone(&gate));
            async { Ok(Response::new(body.boxed_unsync())) }
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client.send([HELLO, HELLO].concat()).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none \r\n";
        client.expect(head).await;
        go.notify_one();
        client.expect("4\r\nhalf\r\n0\r\n\r\n").await;
        client.expect(head).await;
    });
}

#[test]
fn a_close_in_the_middle_loses_no_answer() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        let last = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n".as_slice();
        client.send([HELLO, last, HELLO].concat()).await;
        client.expect(HELLO_ANSWER).await;
        client.expect(HELLO_LAST_ANSWER).await;
        client.expect_end().await;
        assert_eq!(host.server.counts().requests, 2);
    });
}

#[test]
fn bytes_that_are_no_request_lose_no_answer() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.send([HELLO, b"\0\r\n\r\n"].concat()).await;
        client.expect(HELLO_ANSWER).await;
        let refusal = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        client.expect(refusal).await;
        client.expect_end().await;
    });
}

#[test]
fn http_2_is_hung_up_on_and_loses_no_answer() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client
            .send([HELLO, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"].concat())
            .await;
        client.expect(HELLO_ANSWER).await;
        client.expect_end().await;
    });
}
