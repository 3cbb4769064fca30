//! Responses of the type `text/event-stream` end at the drain.

use futures_util::stream::{self, Stream, StreamExt};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

type Events = UnboundedSender<Bytes>;

/// A host whose responses have these headers and the pieces that are sent to its channel.
pub(super) async fn host(headers: &'static [(HeaderName, &'static str)]) -> (Host, Events) {
    let (events, pieces) = unbounded_channel();
    let pieces = Rc::new(RefCell::new(Some(pieces)));
    let app = move |_: Request| {
        let mut pieces: UnboundedReceiver<_> = pieces.take().expect("one request");
        let mut response = streamed(stream::poll_fn(move |cx| pieces.poll_recv(cx)));
        for (name, value) in headers {
            response
                .headers_mut()
                .insert(name, http::HeaderValue::from_static(value));
        }
        async { Ok(response) }
    };
    (Host::start(options(), app).await, events)
}

/// A response with these pieces.
pub(super) fn streamed<S>(pieces: S) -> Response<UnsyncBoxBody<Bytes, BoxError>>
where
    S: Stream<Item = Bytes> + Send + 'static,
{
    let frames = pieces.map(|piece| Ok(Frame::data(piece)));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

pub(super) const EVENTS: &[(HeaderName, &str)] =
    &[(CONTENT_TYPE, "Text/Event-Stream; charset=utf-8")];

#[test]
fn an_event_stream_ends_when_a_hand_over_or_a_drain_begins() {
    run(async {
        for begin in [Server::drain, Server::hand_over] {
            let (host, events) = host(EVENTS).await;
            let mut client = host.connect().await;
            client.send(HELLO).await;
            client.expect("HTTP/1.1 200 OK\r\n").await;
            events.send("data: 1\n\n".into()).expect("it is polled");
            client
                .expect(
                    "content-type: Text/Event-Stream; charset=utf-8\r\n\
                     transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n",
                )
                .await;
            begin(&host.server);
            // It is ready when the body is polled next.
            events.send("data: 2\n\n".into()).expect("it is not over");
            client.expect("9\r\ndata: 2\n\n\r\n0\r\n\r\n").await;
            assert!(events.is_closed());
        }
    });
}

#[test]
fn an_event_stream_that_begins_in_a_drain_sends_what_is_ready() {
    run(async {
        let (host, events) = host(EVENTS).await;
        let mut client = host.connect().await;
        client.send("GET / HTTP/1.1\r\n").await;
        host.server.drain();
        events.send("data: 1\n\n".into()).expect("it is not over");
        client.send("host: test\r\n\r\n").await;
        let response = client.rest().await;
        assert!(
            response.ends_with("\r\n\r\n9\r\ndata: 1\n\n\r\n0\r\n\r\n"),
            "{response}"
        );
    });
}

#[test]
fn an_event_stream_that_never_pauses_ends_too() {
    run(async {
        let (host, events) = host(EVENTS).await;
        let mut client = host.connect().await;
        client.send("GET / HTTP/1.1\r\n").await;
        host.server.drain();
        for _ in 0..100 {
            events.send("data: 1\n\n".into()).expect("it is not over");
        }
        client.send("host: test\r\n\r\n").await;
        let response = client.rest().await;
        assert_eq!(response.matches("data").count(), 16, "{response}");
        assert!(response.ends_with("\r\n0\r\n\r\n"), "{response}");
    });
}

#[test]
fn other_streams_and_compressed_ones_do_not_end_at_the_drain() {
    const OTHERS: [&[(HeaderName, &str)]; 2] = [
        &[(CONTENT_TYPE, "text/plain")],
        &[
            (CONTENT_TYPE, "text/event-stream"),
            (CONTENT_ENCODING, "gzip"),
        ],
    ];
    run(async {
        for headers in OTHERS {
            let (host, events) = host(headers).await;
            let mut client = host.connect().await;
            client.send(HELLO).await;
            client.expect("HTTP/1.1 200 OK\r\n").await;
            host.server.drain();
            for _ in 0..20 {
                events.send("x".into()).expect("it is not over");
            }
            drop(events);
            let response = client.rest().await;
            assert_eq!(response.matches("1\r\nx\r\n").count(), 20, "{response}");
        }
    });
}
