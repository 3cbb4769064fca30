//! HTTP/2 connections that are handed over, as their clients see it.

use super::super::handover::{Reply, Successor};
use super::rest::{ready, rest, windowed};
use super::*;

async fn start(successor: &Rc<Successor>) -> Host {
    Host::start_with_target(options(), successor, hello).await
}

/// A host whose handler for `/held` waits at the gate. Others respond at once.
async fn held(successor: &Rc<Successor>) -> (Host, Gate) {
    let (gate, app) = gated(async |gate, request| {
        if request.uri().path() != "/held" {
            return hello_or_echo(request).await;
        }
        gate.pass().await;
        echo(request).await
    });
    let host = Host::start_with_target(options(), successor, app).await;
    (host, gate)
}

/// A host that has responded once to this client.
async fn asked(successor: &Rc<Successor>) -> (Host, Client) {
    let host = start(successor).await;
    let mut client = ready(&host, b"").await;
    client.hello_on(1).await;
    (host, client)
}

/// A host whose handler works on a request of this client, until the gate lets it pass.
pub(super) async fn busy(successor: &Rc<Successor>, flags: u8) -> (Host, Client, Gate) {
    let (host, gate) = held(successor).await;
    let mut client = ready(&host, b"").await;
    client.send(get_held(1, flags)).await;
    gate.begun.notified().await;
    (host, client, gate)
}

/// A connection that a server has which does not speak HTTP/2.
async fn moved_to_http1() -> (Host, Client, Rc<Successor>) {
    let http = options().http2(crate::http::Http2::Disabled);
    let successor = Successor::with(http, Reply::Takes);
    let (host, client) = asked(&successor).await;
    host.server.hand_over();
    host.emptied().await;
    (host, client, successor)
}

/// A request for `/held`. Its body follows, unless `flags` has the end of the stream.
fn get_held(stream: u32, flags: u8) -> Vec<u8> {
    let block = [&GET[..2], b"\x04\x05/held", &GET[3..]].concat();
    frame(HEADERS, flags | END_HEADERS, stream, &block)
}

impl Client {
    /// The next response, which must come before any GOAWAY.
    pub(super) async fn expect_response(&mut self, stream: u32) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let frame = self.frame().await.expect("the connection is open");
            assert!(!matches!(frame.kind, GOAWAY | RST_STREAM), "{frame:?}");
            if frame.kind == DATA || frame.kind == HEADERS {
                assert_eq!(frame.stream, stream);
            }
            if frame.kind == DATA {
                body.extend(frame.payload);
            }
            if matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0 {
                return body;
            }
        }
    }

    async fn hello_on(&mut self, stream: u32) {
        self.send(get(stream)).await;
        assert_eq!(self.expect_response(stream).await, b"hello");
    }
}

#[test]
fn idle_connections_move_and_their_clients_get_no_goaway() {
    run(async {
        for rests in [false, true] {
            let successor = Successor::new(Reply::Takes);
            let (host, mut client) = asked(&successor).await;
            if rests {
                rest(&host).await;
            }
            host.server.hand_over();
            host.emptied().await;
            client.hello_on(3).await;
            client.hello_on(5).await;
            assert_eq!(successor.server.count(Count::Requests), 2);
            drop(client);
            successor.server.drained().await;
        }
    });
}

#[test]
fn a_request_on_its_way_is_served_by_the_next_server() {
    run(async {
        let successor = Successor::new(Reply::Waits);
        let (host, mut client) = asked(&successor).await;
        host.server.hand_over();
        until(|| successor.asked.get() > 0).await;
        client.send(get(3)).await;
        successor.change(Reply::Takes);
        assert_eq!(client.expect_response(3).await, b"hello");
        host.emptied().await;
        assert_eq!(successor.server.count(Count::Requests), 1);
    });
}

/// Its body comes, and new streams wait for the next server.
#[test]
fn a_busy_connection_moves_when_its_requests_are_over() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let (host, mut client, gate) = busy(&successor, 0).await;
        host.server.hand_over();
        client.send(frame(DATA, 0, 1, b"bo")).await;
        // Parts of frames, before and after the new stream.
        let end = frame(DATA, END_STREAM, 1, b"dy");
        let rest = [&end[3..], &get(3), &get(5)[..4]].concat();
        for part in [&end[..3], &rest] {
            send_and_wait(&mut client, &host, part).await;
        }
        assert_eq!(host.server.count(Count::Requests), 1);
        gate.go.notify_one();
        assert_eq!(client.expect_response(1).await, b"body");
        assert_eq!(client.expect_response(3).await, b"hello");
        client.send(&get(5)[4..]).await;
        assert_eq!(client.expect_response(5).await, b"hello");
        host.emptied().await;
        assert_eq!(host.server.count(Count::Requests), 1);
        assert_eq!(successor.server.count(Count::Requests), 2);
    });
}

/// What they need comes after a new stream, which waits.
#[test]
fn an_upload_and_a_download_end_before_the_move() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let (host, gate) = held(&successor).await;
        let mut client = ready(&host, &setting(INITIAL_WINDOW_SIZE, 3)).await;
        client.send(get_held(1, 0)).await;
        gate.begun.notified().await;
        host.server.hand_over();
        gate.go.notify_one();
        let end = frame(DATA, END_STREAM, 1, b"body");
        client.send([get(3), more(3, 1), end].concat()).await;
        assert_eq!(client.next(DATA).await.payload, b"bod");
        client.send([more(1, 100), more(3, 100)].concat()).await;
        assert_eq!(client.expect_response(1).await, b"y");
        assert_eq!(client.expect_response(3).await, b"hello");
        host.emptied().await;
        assert_eq!(successor.server.count(Count::Requests), 1);
    });
}

#[test]
fn a_connection_whose_request_takes_long_stays_and_its_client_gets_a_goaway() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        for is_long in [false, true] {
            let (host, mut client, gate) = busy(&successor, END_STREAM).await;
            let second = if is_long { 5 } else { 0 };
            for _ in 0..second {
                host.server.registry.clock.advance();
            }
            host.server.hand_over();
            let begun = host.server.registry.now();
            client.send(get(3)).await;
            // A request that waited is served here.
            until(|| host.server.count(Count::Requests) >= 2).await;
            let waited = host.server.registry.now().0 - begun.0;
            assert_eq!(waited < 3, is_long, "{waited} ticks");
            let ping = client.next(PING).await.payload;
            client.send(frame(PING, ACK, 0, &ping)).await;
            gate.go.notify_one();
            while client.frame().await.is_some() {}
            drop(client);
            host.emptied().await;
            assert_eq!(host.server.count(Count::Requests), 2, "{is_long}");
        }
        assert_eq!(successor.asked.get(), 0);
    });
}

#[test]
fn a_connection_that_is_given_back_gets_a_goaway() {
    run(async {
        let successor = Successor::new(Reply::Refuses);
        let (host, mut client) = asked(&successor).await;
        host.server.hand_over();
        until(|| successor.asked.get() > 0).await;
        client.send(get(3)).await;
        assert_eq!(client.next(DATA).await.payload, b"hello");
        let ping = client.next(PING).await.payload;
        assert_eq!(client.next_goaway().await, (u32::MAX >> 1, 0), "the first");
        client.send(frame(PING, ACK, 0, &ping)).await;
        while client.frame().await.is_some() {}
        drop(client);
        host.emptied().await;
        assert_eq!(
            (host.server.count(Count::Requests), successor.asked.get()),
            (2, 1)
        );
    });
}

/// What the client may have used already stays as it was.
#[test]
fn the_next_server_tells_its_client_what_has_changed() {
    run(async {
        let told = |window, streams| {
            [
                setting(INITIAL_WINDOW_SIZE, window),
                setting(MAX_CONCURRENT_STREAMS, streams),
                setting(MAX_HEADER_LIST_SIZE, 20_000),
            ]
        };
        let with = |streams, window| {
            let http = options().max_concurrent_streams(streams);
            http.upload_window(window)
        };
        let others = [
            (
                with(129, 1 << 20).max_header_size(20_000),
                Some(told(1 << 20, 129)),
            ),
            (
                with(7, 64 * 1024).max_header_size(20_000),
                Some(told(256 * 1024, 128)),
            ),
            (with(7, 64 * 1024), None),
        ];
        for (http, expected) in others {
            let successor = Successor::with(http, Reply::Takes);
            let (host, mut client) = asked(&successor).await;
            host.server.hand_over();
            host.emptied().await;
            client.send(get(3)).await;
            let first = client.one_of(&[SETTINGS, HEADERS, GOAWAY]).await;
            if let Some(settings) = expected {
                assert_eq!(first.payload, settings.concat());
                client.send(frame(SETTINGS, ACK, 0, b"")).await;
            } else {
                assert_eq!(first.kind, HEADERS);
            }
            assert_eq!(client.expect_response(3).await, b"hello");
            client.hello_on(5).await;
            assert_eq!(successor.server.count(Count::Requests), 2);
            drop(client);
            successor.server.drained().await;
        }
    });
}

/// The part of a frame waits, because it may be of an acknowledgement.
#[test]
fn an_evicted_client_that_has_sent_a_part_of_a_frame_gets_nothing_after_the_goaway() {
    run(async {
        let http = options().max_concurrent_streams(129);
        let successor = Successor::with(http.linger(SHORT).write_timeout(SHORT), Reply::Takes);
        let (host, mut client) = asked(&successor).await;
        host.server.hand_over();
        host.emptied().await;
        client.hello_on(3).await;
        let read = successor.server.count(Count::BytesIn) + 4;
        client.send(&get(5)[..4]).await;
        until(|| successor.server.count(Count::BytesIn) >= read).await;
        while successor.count() > 0 {
            successor.server.evict_idle();
            yield_now().await;
        }
        assert_eq!(client.next_goaway().await, (3, 0));
        client.expect_end().await;
    });
}

#[test]
fn the_next_server_sends_a_goaway_if_it_does_not_speak_http2() {
    run(async {
        let (host, mut client, successor) = moved_to_http1().await;
        client.next(GOAWAY).await;
        let ping = client.next(PING).await.payload;
        let sent = [get(3), frame(PING, ACK, 0, &ping)].concat();
        client.send(sent).await;
        assert_eq!(client.next(DATA).await.payload, b"hello");
        while client.frame().await.is_some() {}
        drop((client, host));
        successor.server.drained().await;
    });
}

#[test]
fn a_client_that_has_not_acknowledged_the_settings_stays() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let host = start(&successor).await;
        let mut client = raw(&host, b"").await;
        client.next(SETTINGS).await;
        client.hello_on(1).await;
        host.server.hand_over();
        let mut streams = (3..).step_by(2);
        let mut kind = DATA;
        // It is served until the time is over in which the acknowledgement may come.
        while kind != GOAWAY {
            host.server.registry.tick();
            client.send(get(streams.next().expect("many"))).await;
            kind = client.one_of(&[GOAWAY, DATA]).await.kind;
        }
        assert_eq!(successor.asked.get(), 0);
    });
}

/// There are more connections than hand-overs at a time.
#[test]
fn many_connections_move() {
    run(async {
        let successor = Successor::new(Reply::Waits);
        let host = start(&successor).await;
        let mut clients = Vec::new();
        for _ in 0..200 {
            let mut client = ready(&host, b"").await;
            client.hello_on(1).await;
            clients.push(client);
        }
        host.server.hand_over();
        // Those that wait for their turn are served.
        for client in &mut clients {
            client.send(get(3)).await;
        }
        until(|| host.server.count(Count::Requests) > 200).await;
        successor.change(Reply::Takes);
        for client in &mut clients {
            assert_eq!(client.expect_response(3).await, b"hello");
        }
        host.emptied().await;
        assert_eq!(successor.count(), 200);
        for client in &mut clients {
            client.hello_on(5).await;
        }
    });
}

/// A client of the h2 crate, whose connection moves after each upload.
#[test]
fn windows_and_fields_are_the_same_after_a_move() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let host = Host::start_with_target(options(), &successor, echo).await;
        let mut client = windowed(&host).await;
        let (response, mut sending) = client.post("/").await;
        let body = "b".repeat(600_000);
        sending.send_data(body.clone().into(), true).expect("open");
        drop(sending);
        assert_eq!(whole(response).await.expect("a response"), (200, body));
        host.server.hand_over();
        host.emptied().await;
        for _ in 0..20 {
            client.hello().await;
        }
        assert_eq!(successor.server.count(Count::Requests), 20);
        client.end().await.expect("no error");
    });
}

/// It was idle, and reads only when it needs the connection.
#[test]
fn a_client_that_ignores_the_goaway_of_the_next_server_is_closed() {
    run(async {
        let (_host, mut client, successor) = moved_to_http1().await;
        client.next(PING).await;
        let registry = &successor.server.registry;
        for _ in 0..10 {
            registry.tick();
            yield_now().await;
        }
        assert_eq!(client.goaway().await, 0);
        client.expect_end().await;
        drop(client);
        successor.server.registry.emptied().await;
    });
}

/// Their requests may have timed out.
#[test]
fn streams_that_waited_and_were_reset_do_not_end_the_connection() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let (host, mut client, gate) = busy(&successor, END_STREAM).await;
        host.server.hand_over();
        yield_now().await;
        let mut sent = Vec::new();
        for stream in (3..83).step_by(2) {
            sent.extend(get(stream));
            sent.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        }
        send_and_wait(&mut client, &host, &sent).await;
        gate.go.notify_one();
        assert_eq!(client.expect_response(1).await, b"");
        client.hello_on(101).await;
        assert_eq!(successor.count(), 1);
    });
}

/// The server responds before the end of a request.
#[test]
fn the_rest_of_a_request_that_was_reset_before_the_move_is_discarded() {
    run(async {
        let data = frame(DATA, 0, 1, b"more");
        let end = frame(DATA, END_STREAM, 1, b"");
        for rest in [&data, &end] {
            let successor = Successor::new(Reply::Takes);
            let host = start(&successor).await;
            let mut client = ready(&host, b"").await;
            client.send(frame(HEADERS, END_HEADERS, 1, GET)).await;
            client.next(RST_STREAM).await;
            client.hello_on(3).await;
            host.server.hand_over();
            host.emptied().await;
            client.send(rest).await;
            client.send(get(5)).await;
            let frame = client.one_of(&[GOAWAY, DATA]).await;
            assert_eq!((frame.kind, frame.stream), (DATA, 5), "{rest:?}");
        }
    });
}
