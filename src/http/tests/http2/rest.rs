//! HTTP/2 connections at rest: they give up hyper's connection, and clients see no difference.

use super::*;

const HEADER_TABLE_SIZE: u16 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;

/// More than hyper's window for one stream.
const BODY: usize = 300_000;

/// Lets time pass until the only connection rests.
pub(super) async fn rest(host: &Host) {
    while host.server.served() > 0 {
        tick(host).await;
    }
    assert_eq!(host.server.connections(), 1);
}

/// A client of the h2 crate whose windows let its connection rest.
pub(super) async fn windowed(host: &Host) -> Http2Client {
    let mut builder = client::Builder::new();
    builder
        .initial_connection_window_size(1 << 24)
        .initial_window_size(1 << 20);
    Http2Client::connect_as(host, &builder).await
}

/// A raw client that has acknowledged the server's settings and can rest.
pub(super) async fn ready(host: &Host, settings: &[u8]) -> Client {
    let mut client = acknowledged(host, settings).await;
    client.send(more(0, 1 << 20)).await;
    client
}

async fn acknowledged(host: &Host, settings: &[u8]) -> Client {
    let mut client = raw(host, settings).await;
    client.next(SETTINGS).await;
    client.send(frame(SETTINGS, ACK, 0, b"")).await;
    client
}

/// The same, after a response on this stream, when its connection rests.
async fn at_rest(host: &Host, settings: &[u8], stream: u32) -> Client {
    let mut client = ready(host, settings).await;
    client.expect_hello(stream).await;
    rest(host).await;
    client
}

impl Client {
    async fn expect_hello(&mut self, stream: u32) {
        self.send(get(stream)).await;
        let data = self.next(DATA).await;
        assert_eq!((data.stream, &*data.payload), (stream, &b"hello"[..]));
    }
}

/// Responds with the request's fields `x-*`, in as many fields.
async fn fields(request: Request) -> HandlerResult {
    let mut response = text("fields");
    for (name, value) in request.headers() {
        if name.as_str().starts_with("x-") {
            response.headers_mut().append(name, value.clone());
        }
    }
    Ok(response)
}

#[test]
fn fields_in_both_tables_are_the_same_after_each_rest() {
    run(async {
        let host = Host::start(options(), fields).await;
        let mut client = windowed(&host).await;
        for round in 0_u32..40 {
            let mut request = http::Request::get("http://test/");
            let sent = [
                ("x-same", "always".to_owned()),
                ("x-number", round.to_string()),
                ("x-seldom", (round / 7).to_string()),
                ("x-long", format!("~{round}\\").repeat(200)),
                (["x-a", "x-b", "x-c"][round as usize % 3], "z{|}".to_owned()),
            ];
            for (name, value) in &sent {
                request = request.header(*name, value);
            }
            let (response, _) = client.send(request, true).await;
            let response = response.await.expect("a response");
            for (name, value) in &sent {
                assert_eq!(response.headers()[*name], **value, "round {round}");
            }
            drop(response);
            if round % 2 == 1 {
                rest(&host).await;
            }
        }
        client.end().await.expect("no error");
        host.emptied().await;
        assert_eq!(host.server.count(Count::Requests), 40);
    });
}

/// Windows that are not exact after a rest stall a body or end the connection.
#[test]
fn windows_are_the_same_after_many_rests() {
    run(async {
        let host = Host::start(options(), echo).await;
        let mut client = windowed(&host).await;
        let body = "b".repeat(BODY);
        for round in 0..100 {
            let (response, mut sending) = client.post("/").await;
            let bytes = Bytes::from(body[..BODY - round].to_owned());
            sending.send_data(bytes, true).expect("an open stream");
            let (status, echoed) = whole(response).await.expect("a response");
            assert_eq!((status, echoed.len()), (200, BODY - round));
            rest(&host).await;
        }
        client.end().await.expect("no error");
    });
}

#[test]
fn settings_between_rests_apply() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = at_rest(&host, &setting(HEADER_TABLE_SIZE, 100), 1).await;
        let settings = setting(INITIAL_WINDOW_SIZE, 3);
        client.send(frame(SETTINGS, 0, 0, &settings)).await;
        rest(&host).await;
        client.send(get(3)).await;
        assert_eq!(client.next(DATA).await.payload, b"hel");
        client.send(more(3, 100)).await;
        assert_eq!(client.next(DATA).await.payload, b"lo");
        rest(&host).await;
        let settings = setting(INITIAL_WINDOW_SIZE, 1000);
        client.send(frame(SETTINGS, 0, 0, &settings)).await;
        client.expect_hello(5).await;
    });
}

/// The client's decoder has entries of which the server's new encoder knows nothing.
#[test]
fn the_first_response_after_a_rest_empties_the_clients_table() {
    run(async {
        let host = Host::start(options(), hello).await;
        for (size, updates) in [
            (0, &b"\x20"[..]),
            (100, b"\x20\x3f\x45"),
            (4096, b"\x20\x3f\xe1\x1f"),
            (65536, b"\x20\x3f\xe1\x1f"),
        ] {
            // A part of the second client's window is spent at rest.
            for is_spent in [false, true] {
                let settings = setting(HEADER_TABLE_SIZE, size);
                let mut client = acknowledged(&host, &settings).await;
                if !is_spent {
                    client.send(more(0, 1 << 20)).await;
                }
                client.expect_hello(1).await;
                rest(&host).await;
                client.send(get(3)).await;
                let head = client.next(HEADERS).await.payload;
                assert!(head.starts_with(updates), "{head:x?} for {size}");
                client.send(get(5)).await;
                let head = client.next(HEADERS).await.payload;
                assert!(!head.starts_with(b"\x20"), "{head:x?} for {size}");
                drop(client);
                host.emptied().await;
            }
        }
    });
}

#[test]
fn a_ping_at_rest_is_answered_and_the_rest_goes_on() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = ready(&host, b"").await;
        client.expect_hello(1).await;
        for ping in 0..5 {
            rest(&host).await;
            client.send(frame(PING, 0, 0, &[ping; 8])).await;
            let pong = client.frame().await.expect("the connection is open");
            let is_ack = (pong.kind, pong.flags, pong.payload) == (PING, ACK, vec![ping; 8]);
            // The settings of the client were acknowledged with the first response.
            assert!(is_ack, "ping {ping}");
            assert_eq!(host.server.served(), 0, "ping {ping}");
        }
        client.expect_hello(3).await;
    });
}

#[test]
fn a_ping_at_rest_is_answered_when_the_client_takes_bytes_again() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = at_rest(&host, b"", 1).await;
        host.sockets.room.limit(0);
        send_and_wait(&mut client, &host, &frame(PING, 0, 0, &[7; 8])).await;
        let_turn().await;
        host.sockets.room.open();
        let pong = client.frame().await.expect("the connection is open");
        assert_eq!(
            (pong.kind, pong.flags, pong.payload),
            (PING, ACK, vec![7; 8])
        );
    });
}

#[test]
fn many_pings_at_rest_end_the_connection() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = at_rest(&host, b"", 1).await;
        let mut pings = 0;
        let end = loop {
            client.send(frame(PING, 0, 0, &[0; 8])).await;
            match client.one_of(&[PING, GOAWAY]).await {
                pong if pong.kind == PING => pings += 1,
                end => break end,
            }
        };
        assert_eq!(number(&end.payload[4..8]), ENHANCE_YOUR_CALM);
        assert!((1000..1100).contains(&pings), "{pings}");
    });
}

#[test]
fn a_connection_before_its_first_request_rests() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = ready(&host, b"").await;
        rest(&host).await;
        client.expect_hello(1).await;
    });
}

#[test]
fn a_drain_sends_goaway_with_the_last_stream_to_a_connection_at_rest() {
    run(async {
        // This request was on its way. A client of the h2 crate writes it after it acknowledges.
        for is_first in [true, false] {
            let host = Host::start(options(), hello).await;
            let mut client = at_rest(&host, b"", 5).await;
            host.server.drain();
            let goaway = client.next(GOAWAY).await;
            assert_eq!(number(&goaway.payload[..4]), u32::MAX >> 1, "the first");
            let ping = client.next(PING).await.payload;
            let mut sent = [get(7), frame(PING, ACK, 0, &ping)];
            if !is_first {
                sent.reverse();
            }
            client.send(sent.concat()).await;
            let (mut last, mut body) = (0, Vec::new());
            while let Some(frame) = client.frame().await {
                match frame.kind {
                    GOAWAY => last = number(&frame.payload[..4]),
                    DATA => body = frame.payload,
                    kind => assert_ne!(kind, PING, "once is enough"),
                }
            }
            assert_eq!((last, &*body), (7, &b"hello"[..]));
        }
    });
}

#[test]
fn goaway_names_the_last_stream_before_the_rest() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = at_rest(&host, b"", 5).await;
        host.server.drain();
        client.next(GOAWAY).await;
        let ping = client.next(PING).await.payload;
        for part in frame(PING, ACK, 0, &ping).chunks(12) {
            client.send(part).await;
            let_turn().await;
        }
        assert_eq!(client.next_goaway().await, (5, 0));
        client.expect_end().await;
        host.emptied().await;
    });
}

#[test]
fn a_connection_at_rest_whose_client_ignores_the_goaway_ends() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = at_rest(&host, b"", 5).await;
        host.server.drain();
        client.next(PING).await;
        while host.server.connections() > 0 {
            pass_time(&host).await;
        }
        assert_eq!(client.next_goaway().await, (5, 0));
        client.expect_end().await;
        assert_eq!(host.server.count(Count::HeaderTimeouts), 0);
    });
}

#[test]
fn a_connection_at_rest_has_the_idle_timeout() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = at_rest(&host, b"", 1).await;
        while host.server.count(Count::IdleTimeouts) == 0 {
            pass_time(&host).await;
        }
        assert_eq!(client.goaway().await, 0);
        drop(client);
        host.emptied().await;
        assert_eq!(host.server.count(Count::IdleTimeouts), 1);
    });
}

#[test]
fn an_evicted_connection_at_rest_gets_a_goaway() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = at_rest(&host, b"", 3).await;
        host.server.evict_idle();
        assert_eq!(client.next_goaway().await, (3, 0));
        client.expect_end().await;
        host.emptied().await;
        assert_eq!(host.server.count(Count::Evicted), 1);
    });
}

#[test]
fn a_cut_ends_a_connection_at_rest() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = at_rest(&host, b"", 1).await;
        assert_eq!(host.server.cut(), 1);
        assert!(client.frame().await.is_none());
        host.emptied().await;
    });
}

#[test]
fn a_client_that_leaves_ends_its_connection_at_rest() {
    run(async {
        let host = Host::start(options(), hello).await;
        let client = at_rest(&host, b"", 1).await;
        drop(client);
        host.emptied().await;
    });
}

#[test]
fn no_byte_is_lost_wherever_a_request_is_split() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = ready(&host, b"").await;
        for cut in 0..get(1).len() {
            let request = get(2 * cut as u32 + 1);
            client.send(&request[..cut]).await;
            pass_time(&host).await;
            // A part of a frame is in h2's buffer.
            assert_eq!(host.server.served() == 0, cut == 0, "cut at {cut}");
            client.send(&request[cut..]).await;
            assert_eq!(client.next(DATA).await.payload, b"hello");
        }
    });
}

#[test]
fn errors_after_a_rest_end_the_connection_as_without_it() {
    run(async {
        let host = Host::start(options(), hello).await;
        for (bytes, code) in [
            (get(4), PROTOCOL_ERROR),
            (get(3), PROTOCOL_ERROR),
            (frame(SETTINGS, ACK, 0, b""), PROTOCOL_ERROR),
            (more(0, 0), PROTOCOL_ERROR),
            (more(0, u32::MAX >> 1), FLOW_CONTROL_ERROR),
            (frame(DATA, 0, 7, b"x"), PROTOCOL_ERROR),
        ] {
            let mut client = at_rest(&host, b"", 5).await;
            client.send(&bytes).await;
            assert_eq!(client.next_goaway().await, (5, code));
            drop(client);
            host.emptied().await;
        }
    });
}

#[test]
fn a_connection_that_cannot_be_replayed_does_not_rest() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut unacknowledged = raw(&host, b"").await;
        unacknowledged.expect_hello(1).await;
        pass_time(&host).await;
        assert_eq!(host.server.served(), 1);
        unacknowledged.expect_hello(3).await;
    });
}

/// Many clients raise the window of the connection only when it is half spent.
#[test]
fn what_is_spent_of_the_clients_window_stays_spent() {
    const LEFT: usize = 3;
    const BODY: usize = 21_845 - 1;
    run(async {
        let body = async |_| Ok(text("b".repeat(BODY)));
        let host = Host::start(options(), body).await;
        for stream_window in [65_535, BODY, 0] {
            let settings = setting(INITIAL_WINDOW_SIZE, stream_window as u32);
            let mut client = raw(&host, &settings).await;
            client.next(SETTINGS).await;
            client.send(frame(SETTINGS, ACK, 0, b"")).await;
            let missing = (BODY - stream_window.min(BODY)) as u32;
            for stream in [1, 3, 5, 7] {
                client.send(get(stream)).await;
                if missing > 0 {
                    client.send(more(stream, missing)).await;
                }
                let expected = if stream < 7 { BODY } else { LEFT };
                let mut got = 0;
                while got < expected {
                    got += client.next(DATA).await.payload.len();
                }
                assert_eq!(got, expected, "{stream}");
                if stream < 7 {
                    rest(&host).await;
                }
            }
            client.send(more(0, BODY as u32)).await;
            let mut got = LEFT;
            while got < BODY {
                got += client.next(DATA).await.payload.len();
            }
            assert_eq!(got, BODY);
            drop(client);
            host.emptied().await;
        }
    });
}

#[test]
fn a_connection_with_an_open_stream_does_not_rest() {
    run(async {
        let (gate, app) = gated(gated_hello);
        let host = Host::start(options(), app).await;
        let mut client = ready(&host, b"").await;
        client.send(get(1)).await;
        pass_time(&host).await;
        assert_eq!(host.server.served(), 1);
        gate.go.notify_one();
        assert_eq!(client.next(DATA).await.payload, b"hello");
        rest(&host).await;
    });
}
