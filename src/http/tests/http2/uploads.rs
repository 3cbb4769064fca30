//! Uploads on HTTP/2 connections that are to be handed over.

use super::super::handover::{Reply, Successor};
use super::moving::busy;
use super::*;
use crate::http::http2::waiting::WORKER_MAX;

/// The window of a stream, by default.
const WINDOW: u32 = 256 * 1024;

/// A host that is to hand over a connection of this client, on which an upload is open. Its handler
/// waits at the gate.
async fn waiting_upload() -> (Rc<Successor>, Host, Client, Gate) {
    let successor = Successor::new(Reply::Takes);
    let (host, client, gate) = busy(&successor, 0).await;
    host.server.hand_over();
    (successor, host, client, gate)
}

/// A request with a body of this length, in frames of 16,000 bytes at most.
fn upload(stream: u32, length: usize) -> Vec<u8> {
    let body = vec![0; length];
    let data = body.chunks(16_000).map(|it| frame(DATA, 0, stream, it));
    let head = frame(HEADERS, END_HEADERS, stream, GET);
    let end = frame(DATA, END_STREAM, stream, b"");
    [head, data.collect::<Vec<_>>().concat(), end].concat()
}

/// A request for `/echo` with a part of its body.
fn begun_upload(stream: u32) -> Vec<u8> {
    let block = [&GET[..2], b"\x04\x05/echo", &GET[3..]].concat();
    let head = frame(HEADERS, END_HEADERS, stream, &block);
    [head, frame(DATA, 0, stream, b"begun ")].concat()
}

impl Client {
    /// The next settings after those of h2.
    async fn expect_initial_window(&mut self, window: u32) {
        let settings = self.next(SETTINGS).await;
        assert_eq!(settings.payload, setting(INITIAL_WINDOW_SIZE, window));
    }

    /// The initial window becomes 0, and the open upload keeps its own.
    async fn expect_to_keep_bodies(&mut self) {
        self.expect_initial_window(0).await;
        self.expect_window(1).await;
    }

    /// The next window of a stream, which must come before any GOAWAY.
    async fn expect_window(&mut self, stream: u32) {
        loop {
            let frame = self.one_of(&[WINDOW_UPDATE, GOAWAY, RST_STREAM]).await;
            assert_eq!(frame.kind, WINDOW_UPDATE);
            if frame.stream != 0 {
                let more = number(&frame.payload);
                assert_eq!((frame.stream, more), (stream, WINDOW));
                return;
            }
        }
    }
}

/// The rest of an upload would come after it.
#[test]
fn a_connection_stays_if_more_waits_than_can_move() {
    run(async {
        let (successor, host, mut client, gate) = waiting_upload().await;
        let begun = host.server.registry.now();
        for stream in [3, 5, 7, 9] {
            client.send(upload(stream, 250_000)).await;
        }
        let long = [b"\x40\x01x\x7f\xa1\x4d".as_slice(), &[b'l'; 10_016], GET].concat();
        for stream in (11..81).step_by(2) {
            let flags = END_STREAM | END_HEADERS;
            client.send(frame(HEADERS, flags, stream, &long)).await;
        }
        client.next(DATA).await;
        let waited = host.server.registry.now().0 - begun.0;
        assert!(waited < 3, "{waited} ticks");
        let ping = client.next(PING).await.payload;
        client.send(frame(DATA, END_STREAM, 1, b"body")).await;
        gate.go.notify_one();
        assert_eq!(client.next(DATA).await.payload, b"body");
        client.send(frame(PING, ACK, 0, &ping)).await;
        while client.frame().await.is_some() {}
        assert_eq!(successor.asked.get(), 0);
    });
}

#[test]
fn uploads_that_have_come_move_with_the_connection() {
    run(async {
        let (successor, host, mut client, gate) = waiting_upload().await;
        let uploads = [(3, 100_000), (5, 64_000), (7, 80_000)];
        for (stream, length) in uploads {
            client.send(upload(stream, length)).await;
        }
        client.send(frame(DATA, END_STREAM, 1, b"body")).await;
        gate.go.notify_one();
        assert_eq!(client.expect_response(1).await, b"body");
        let mut left = uploads.map(|(stream, _)| stream).to_vec();
        while !left.is_empty() {
            let frame = client.frame().await.expect("the connection is open");
            assert!(!matches!(frame.kind, GOAWAY | RST_STREAM), "{frame:?}");
            let ends = frame.flags & END_STREAM != 0 && frame.kind == DATA;
            left.retain(|stream| !ends || *stream != frame.stream);
        }
        host.emptied().await;
        assert_eq!(host.server.count(Count::Requests), 1);
        assert_eq!(successor.server.count(Count::Requests), 3);
    });
}

/// The part of an upload that has come waits, and the client is to keep the rest.
#[test]
fn bodies_of_new_streams_stay_with_the_client_until_the_move() {
    run(async {
        let (successor, host, mut client, gate) = waiting_upload().await;
        client.send(begun_upload(3)).await;
        client.expect_to_keep_bodies().await;
        client.send(frame(SETTINGS, ACK, 0, b"")).await;
        gate.go.notify_one();
        client.send(frame(DATA, END_STREAM, 1, b"body")).await;
        assert_eq!(client.expect_response(1).await, b"body");
        client.expect_initial_window(WINDOW).await;
        host.emptied().await;
        let acknowledged = frame(SETTINGS, ACK, 0, b"");
        let rest = [3, 5].map(|stream| frame(DATA, END_STREAM, stream, b"and ended"));
        client.send(&acknowledged[..4]).await;
        client.send([&acknowledged[4..], &rest[0]].concat()).await;
        assert_eq!(client.expect_response(3).await, b"begun and ended");
        client.send(begun_upload(5)).await;
        client.send(&rest[1]).await;
        assert_eq!(client.expect_response(5).await, b"begun and ended");
        assert_eq!(successor.server.count(Count::Requests), 2);
    });
}

/// A stream that waited, and one that begins later.
#[test]
fn new_streams_get_their_windows_if_the_connection_stays() {
    run(async {
        let (successor, host, mut client, gate) = waiting_upload().await;
        client.send(begun_upload(3)).await;
        client.expect_to_keep_bodies().await;
        // No request is over in time.
        let ping = client.next(PING).await.payload;
        client.expect_window(3).await;
        client.send(frame(SETTINGS, ACK, 0, b"")).await;
        client.send(begun_upload(5)).await;
        client.expect_window(5).await;
        let ends = [1, 3, 5].map(|stream| frame(DATA, END_STREAM, stream, b""));
        client.send(ends.concat()).await;
        gate.go.notify_one();
        client.send(frame(PING, ACK, 0, &ping)).await;
        while client.frame().await.is_some() {}
        drop(client);
        host.emptied().await;
        assert_eq!(host.server.count(Count::Requests), 3);
        assert_eq!(successor.asked.get(), 0);
    });
}

/// Nothing passes the client's settings. A part of its acknowledgement comes with them, and a part
/// of a body that looks like one comes in a read of its own.
#[test]
fn a_body_that_waits_is_not_taken_for_an_acknowledgement() {
    run(async {
        let (_successor, host, mut client, gate) = waiting_upload().await;
        client.expect_to_keep_bodies().await;
        let end = frame(DATA, END_STREAM, 1, b"body");
        let acknowledged = frame(SETTINGS, ACK, 0, b"");
        let (begin, rest) = acknowledged.split_at(4);
        let settings = frame(SETTINGS, 0, 0, b"");
        let first = [&end[..], &begun_upload(3), &settings, begin].concat();
        send_and_wait(&mut client, &host, &first).await;
        let data = frame(DATA, END_STREAM, 3, &acknowledged);
        let (head, body) = data.split_at(data.len() - acknowledged.len());
        let second = [rest, head].concat();
        send_and_wait(&mut client, &host, &second).await;
        send_and_wait(&mut client, &host, body).await;
        gate.go.notify_one();
        assert_eq!(client.expect_response(1).await, b"body");
        let expected = [b"begun ", &acknowledged[..]].concat();
        assert_eq!(client.expect_response(3).await, expected);
        host.emptied().await;
    });
}

/// The connection stays. The first stream comes a round trip after GOAWAY, the second one after the
/// last GOAWAY.
#[test]
fn streams_that_are_refused_get_no_windows() {
    run(async {
        let (_successor, host, mut client, gate) = waiting_upload().await;
        client.expect_to_keep_bodies().await;
        let ping = client.next(PING).await.payload;
        pass_time(&host).await;
        client.send(begun_upload(3)).await;
        let mut is_last = false;
        while !is_last {
            let read = client
                .one_of(&[RST_STREAM, WINDOW_UPDATE, PING, GOAWAY])
                .await;
            match (read.kind, read.stream) {
                (RST_STREAM, 3) => client.send(frame(PING, 0, 0, &[3; 8])).await,
                (PING, _) if read.payload == [3; 8] => {
                    client.send(frame(PING, ACK, 0, &ping)).await;
                }
                (GOAWAY, _) => {
                    client.send(begun_upload(5)).await;
                    send_and_wait(&mut client, &host, &frame(PING, 0, 0, &[5; 8])).await;
                    client.send(frame(PING, 0, 0, &[6; 8])).await;
                }
                (PING, _) => is_last = read.payload == [6; 8],
                _ => assert_eq!(read.stream, 0, "{read:?}"),
            }
        }
        gate.go.notify_one();
        client.send(frame(DATA, END_STREAM, 1, b"")).await;
        while client.frame().await.is_some() {}
    });
}

/// It serves the requests that have waited, with the windows that their client knows.
#[test]
fn uploads_are_whole_if_the_next_server_has_other_windows() {
    run(async {
        for window in [64 * 1024, 1024 * 1024] {
            let successor = Successor::with(options().upload_window(window), Reply::Takes);
            let (host, mut client, gate) = busy(&successor, END_STREAM).await;
            host.server.hand_over();
            let [begin, data] = [begun_upload(3), upload(3, WINDOW as usize - 6)];
            let body = &data[frame(HEADERS, 0, 3, GET).len()..];
            let room = more(3, 1 << 20);
            let whole = [&begin[..], &room, &body[..body.len() - 9]].concat();
            send_and_wait(&mut client, &host, &whole).await;
            gate.go.notify_one();
            assert_eq!(client.next(HEADERS).await.stream, 1);
            let mut has_window = false;
            while !has_window {
                let frame = client.frame().await.expect("the connection is open");
                assert!(!matches!(frame.kind, RST_STREAM | GOAWAY), "{frame:?}");
                let larger = setting(INITIAL_WINDOW_SIZE, 1 << 20);
                has_window = match frame.kind {
                    WINDOW_UPDATE => frame.stream == 3,
                    SETTINGS => frame.payload.starts_with(&larger),
                    _ => false,
                };
            }
            host.emptied().await;
        }
    });
}

/// A worker keeps the bytes of so many clients only.
#[test]
fn a_connection_stays_if_too_much_waits_on_others() {
    run(async {
        for others in [0, WORKER_MAX] {
            let successor = Successor::new(Reply::Takes);
            let (host, mut client, gate) = busy(&successor, 0).await;
            let registry = &host.server.registry;
            registry.change_waiting(0, others);
            let begun = registry.now();
            host.server.hand_over();
            client.send(begun_upload(3)).await;
            until(|| others > 0 || registry.waiting() > 0).await;
            // A request that need not wait.
            until(|| others == 0 || host.server.count(Count::Requests) >= 2).await;
            let waited = registry.now().0 - begun.0;
            assert!(waited < 3, "{waited} ticks");
            let ends = [1, 3].map(|stream| frame(DATA, END_STREAM, stream, b""));
            client.send(ends.concat()).await;
            gate.go.notify_one();
            client.next(HEADERS).await;
            client.next(HEADERS).await;
            assert_eq!(registry.waiting(), others);
            assert_eq!(successor.asked.get(), usize::from(others == 0));
        }
    });
}
