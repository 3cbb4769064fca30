//! Handlers and tunnels: when they end, and when they are polled.

use std::future::pending;

use hyper_util::rt::TokioIo;

use super::*;
use crate::http::tests::lengths;
use crate::stats::{Count, Gauge};

/// Counts its drop.
struct CountDrop(Rc<RefCell<u32>>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        *self.0.borrow_mut() += 1;
    }
}

/// A host whose handlers never respond, and the numbers of handlers that have begun and ended.
async fn endless() -> (Host, Rc<RefCell<u32>>, Rc<RefCell<u32>>) {
    let (begun, ended) = (Rc::<RefCell<u32>>::default(), Rc::<RefCell<u32>>::default());
    let (app_begun, app_ended) = (Rc::clone(&begun), Rc::clone(&ended));
    let app = move |_request: Request| {
        *app_begun.borrow_mut() += 1;
        let count_drop = CountDrop(Rc::clone(&app_ended));
        async move {
            let _working = count_drop;
            pending().await
        }
    };
    (Host::start(options(), app).await, begun, ended)
}

async fn reaches(count: &RefCell<u32>, wanted: u32) {
    until(|| *count.borrow() >= wanted).await;
}

#[test]
fn no_handler_outlives_its_connection() {
    run(async {
        let (host, begun, ended) = endless().await;
        let mut client = Http2Client::connect(&host).await;
        let _responses = [client.ask("/").await, client.ask("/").await];
        reaches(&begun, 2).await;
        assert_eq!(host.server.cut(), 1);
        host.emptied().await;
        assert_eq!(*ended.borrow(), 2, "cut");

        let (host, begun, ended) = endless().await;
        let mut client = Http2Client::connect(&host).await;
        let response = client.ask("/").await;
        reaches(&begun, 1).await;
        client.connection.abort();
        host.emptied().await;
        assert_eq!(*ended.borrow(), 1, "the client has closed the connection");
        drop(response);
    });
}

/// Opens a tunnel: both ends of it that the client has.
async fn tunnel(client: &mut Http2Client) -> (h2::SendStream<Bytes>, h2::RecvStream) {
    let connect = http::Request::connect("test:1");
    let (response, to) = client.send(connect, false).await;
    (to, response.await.expect("a response").into_body())
}

#[test]
fn a_tunnel_ends_with_its_connection_and_is_not_idle() {
    run(async {
        let ended = Rc::<RefCell<u32>>::default();
        let app_ended = Rc::clone(&ended);
        let app = move |request: Request| {
            let count_drop = CountDrop(Rc::clone(&app_ended));
            async move {
                spawn_local(async move {
                    let _working = count_drop;
                    let tunnel = hyper::upgrade::on(request).await.expect("a tunnel");
                    let mut tunnel = TokioIo::new(tunnel);
                    let mut bytes = [0; 4];
                    while tunnel.read_exact(&mut bytes).await.is_ok() {
                        tunnel.write_all(&bytes).await.expect("the client is there");
                    }
                });
                Ok(text(""))
            }
        };
        let http = options().idle_timeout(SHORT);
        let host = Host::start(http, app).await;
        let mut client = Http2Client::connect(&host).await;
        let (mut to, mut from) = tunnel(&mut client).await;
        // The idle timeout of another connection passes meanwhile: a tunnel is not idle.
        let mut other = Http2Client::connect(&host).await;
        assert_eq!(
            whole(other.ask("/").await).await.expect("a response").0,
            200
        );
        other.connection.await.expect("no panic").expect("a GOAWAY");
        to.send_data("ping".into(), false).expect("open");
        assert_eq!(from.data().await.expect("a piece").expect("whole"), "ping");
        host.server.drain();
        assert_eq!(host.server.connections(), 1);
        host.server.cut();
        host.emptied().await;
        reaches(&ended, 2).await;
    });
}

/// A host whose handlers end their half of a tunnel, and read on until they have read four bytes
/// twice. And the number of times that they have. Only the handler still has the stream then.
async fn half_closing(http: Http) -> (Host, Rc<RefCell<u32>>) {
    let heard = Rc::<RefCell<u32>>::default();
    let app_heard = Rc::clone(&heard);
    let app = move |request: Request| {
        let heard = Rc::clone(&app_heard);
        async move {
            spawn_local(async move {
                let tunnel = hyper::upgrade::on(request).await.expect("a tunnel");
                let mut tunnel = TokioIo::new(tunnel);
                tunnel.shutdown().await.expect("it is open");
                while *heard.borrow() < 2 {
                    let read = tunnel.read_exact(&mut [0; 4]).await;
                    read.expect("it is half open");
                    *heard.borrow_mut() += 1;
                }
            });
            Ok(text(""))
        }
    };
    (Host::start(http, app).await, heard)
}

/// A tunnel whose half the server has ended: the client's end.
async fn half_closed(client: &mut Http2Client) -> h2::SendStream<Bytes> {
    let (to, mut from) = tunnel(client).await;
    while let Some(piece) = from.data().await {
        assert!(piece.expect("the server has ended its half").is_empty());
    }
    to
}

#[test]
fn a_tunnel_that_is_half_closed_stays_while_the_client_is_silent() {
    run(async {
        let (host, heard) = half_closing(options()).await;
        let mut builder = h2::client::Builder::new();
        builder.initial_connection_window_size(1 << 24);
        let mut client = Http2Client::connect_as(&host, &builder).await;
        let mut to = half_closed(&mut client).await;
        pass_time(&host).await;
        to.send_data("ping".into(), false).expect("open");
        reaches(&heard, 1).await;
    });
}

#[test]
fn a_tunnel_that_is_half_closed_is_not_idle_and_ends_with_its_handler() {
    run(async {
        let http = options().idle_timeout(SHORT).header_timeout(SHORT);
        let (host, heard) = half_closing(http).await;
        let mut client = Http2Client::connect(&host).await;
        let mut to = half_closed(&mut client).await;
        for count in 1..=2 {
            // More than both timeouts. The connection of a client that ignores GOAWAY would end.
            pass_time(&host).await;
            to.send_data("ping".into(), false).expect("open");
            reaches(&heard, count).await;
        }
        // The client has not ended its half, but nothing reads it any more.
        let end = client.connection.await.expect("no panic");
        end.expect("a GOAWAY of a connection that is idle");
        host.emptied().await;
    });
}

#[test]
fn a_reset_ends_only_the_handler_of_its_stream() {
    run(async {
        let (host, begun, ended) = endless().await;
        let mut client = Http2Client::connect(&host).await;
        let first = client.ask("/").await;
        let _second = client.ask("/").await;
        reaches(&begun, 2).await;
        drop(first);
        reaches(&ended, 1).await;
        assert_eq!(*ended.borrow(), 1);
        let stats = host.server.registry.counters.stats();
        assert_eq!(stats.gauge(Gauge::Requests), 1);
    });
}

/// A body with one piece and no end. It counts its drop.
struct Silent {
    piece: Option<Bytes>,
    ended: Arc<AtomicUsize>,
}

impl http_body::Body for Silent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        match self.piece.take() {
            Some(piece) => Poll::Ready(Some(Ok(http_body::Frame::data(piece)))),
            None => Poll::Pending,
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_pending_body_is_dropped_with_its_stream_or_its_connection() {
    run(async {
        let ended = Arc::<AtomicUsize>::default();
        let app_ended = Arc::clone(&ended);
        let app = move |_request: Request| {
            let body = Silent {
                piece: Some("one".into()),
                ended: Arc::clone(&app_ended),
            };
            async { Ok(Response::new(body.boxed_unsync())) }
        };
        let host = Host::start(options(), app).await;
        let mut client = Http2Client::connect(&host).await;
        let mut responses = Vec::new();
        for _ in 0..3 {
            let mut response = client.ask("/").await.await.expect("a head").into_body();
            assert_eq!(
                response.data().await.expect("a piece").expect("whole"),
                "one"
            );
            responses.push(response);
        }
        responses.pop();
        until(|| ended.load(Relaxed) > 0).await;
        assert_eq!(ended.load(Relaxed), 1, "reset");
        client.connection.abort();
        host.emptied().await;
        assert_eq!(
            ended.load(Relaxed),
            3,
            "the client has closed the connection"
        );
    });
}

#[test]
fn a_handler_that_wakes_itself_does_not_block_other_connections() {
    run(async {
        let app = async |request: Request| {
            if request.uri().path() == "/busy" {
                std::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    Poll::<()>::Pending
                })
                .await;
            }
            hello(request).await
        };
        let host = Host::start(options(), app).await;
        let mut client = Http2Client::connect(&host).await;
        let _busy = client.ask("/busy").await;
        client.hello().await;
        let mut other = host.connect().await;
        other.hello().await;
        client.hello().await;
    });
}

#[test]
fn a_stream_whose_content_length_is_wrong_ends_alone() {
    run(async {
        let host = Host::start(options(), lengths::app).await;
        let mut client = Http2Client::connect(&host).await;
        for path in ["/whole/4", "/whole/6", "/empty/20", "/pieces/x"] {
            let response = whole(client.ask(path).await).await.expect("a response");
            assert_eq!(response, (500, String::new()), "{path}");
        }
        for path in ["/pieces/4", "/pieces/20", "/lies"] {
            let broken = whole(client.ask(path).await)
                .await
                .expect_err("it breaks off");
            assert_eq!(broken.reason(), Some(h2::Reason::INTERNAL_ERROR), "{path}");
        }
        assert_eq!(host.server.count(Count::BrokenResponses), 3);
        let right = whole(client.ask("/pieces/5").await).await;
        assert_eq!(right.expect("a response"), (200, "hello".into()));
    });
}

/// hyper would send them, and clients reset the stream.
#[test]
fn bodies_that_http_does_not_allow_are_not_sent() {
    run(async {
        let host = Host::start(options(), lengths::app).await;
        let mut client = Http2Client::connect(&host).await;
        for (method, path, length) in [
            ("HEAD", "/whole", Some("5")),
            ("HEAD", "/whole/20", Some("20")),
            ("HEAD", "/pieces", None),
            ("HEAD", "/pieces/20", Some("20")),
            ("GET", "/unchanged/20", Some("20")),
            ("GET", "/nothing/5", None),
        ] {
            let request = http::Request::builder().method(method);
            let request = request.uri(format!("http://test{path}"));
            let (response, _) = client.send(request, true).await;
            let response = response.await.expect("a response");
            let said = response.headers().get("content-length");
            assert_eq!(said.map(|it| it.to_str().expect("text")), length, "{path}");
            assert!(response.body().is_end_stream(), "{method} {path}");
        }
        assert_eq!(host.server.count(Count::BrokenResponses), 0);
    });
}
