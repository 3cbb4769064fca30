//! Drains of HTTP/2 connections.

use super::*;

/// A host whose handler waits at the gate.
async fn held() -> (Host, Gate) {
    let (gate, app) = gated(gated_hello);
    (Host::start(options(), app).await, gate)
}

/// As [`held`], in a drain that began after the first request of the client.
async fn draining() -> (Host, Client, Gate) {
    let (host, gate) = held().await;
    let mut client = raw(&host, b"").await;
    client.send(get(1)).await;
    gate.begun.notified().await;
    host.server.drain();
    (host, client, gate)
}

#[test]
fn an_idle_connection_gets_a_goaway_at_once() {
    run(async {
        let forever = Duration::from_secs(3600);
        let host = Host::start(options().linger(forever), hello).await;
        let mut client = Http2Client::connect(&host).await;
        client.hello().await;
        host.server.drain();
        client
            .connection
            .await
            .expect("no panic")
            .expect("a GOAWAY");
        host.emptied().await;
        assert_eq!(host.server.count(Count::IdleTimeouts), 0);
    });
}

/// Go's client fails the first request of a connection that was closed before it.
#[test]
fn a_new_connection_gets_a_goaway_after_its_first_request() {
    run(async {
        for begin in [Server::drain, Server::hand_over] {
            let host = Host::start(options(), hello).await;
            let mut client = raw(&host, b"").await;
            client.next(SETTINGS).await;
            begin(&host.server);
            for stream in [1, 3] {
                client.send(frame(PING, 0, 0, &[7; 8])).await;
                loop {
                    let frame = client.frame().await.expect("the connection is open");
                    match frame.kind {
                        PING if frame.flags & ACK != 0 => break,
                        kind => assert!(stream == 3 || kind != GOAWAY, "not yet"),
                    }
                }
                client.send(get(stream)).await;
                assert_eq!(client.next(DATA).await.payload, b"hello");
            }
        }
    });
}

#[test]
fn a_new_connection_without_a_request_gets_a_goaway_after_the_header_timeout() {
    run(async {
        let http = options().header_timeout(Duration::from_millis(300));
        let host = Host::start(http, hello).await;
        let mut client = raw(&host, b"").await;
        client.next(SETTINGS).await;
        host.server.drain();
        assert_eq!(client.goaway().await, 0);
        drop(client);
        host.emptied().await;
        assert_eq!(host.server.count(Count::IdleTimeouts), 0);
    });
}

/// Many clients fail requests that are open when GOAWAY comes.
#[test]
fn in_a_reload_goaway_leaves_together_with_the_last_response() {
    run(async {
        for is_open in [false, true] {
            let (host, gate) = held().await;
            let mut client = raw(&host, b"").await;
            client.send(get(1)).await;
            if !is_open {
                gate.go.notify_one();
                client.next(DATA).await;
                host.server.hand_over();
                client.send(get(3)).await;
            }
            gate.begun.notified().await;
            host.server.hand_over();
            client.send(frame(PING, 0, 0, &[7; 8])).await;
            assert_ne!(client.one_of(&[GOAWAY, PING]).await.kind, GOAWAY, "not yet");
            let sends = host.sockets.sends.load(Relaxed);
            gate.go.notify_one();
            assert_eq!(client.next(DATA).await.payload, b"hello");
            let ping = client.frame().await.expect("it is open");
            assert_eq!(ping.kind, PING);
            let ping = ping.payload;
            assert_eq!(client.frame().await.map(|frame| frame.kind), Some(GOAWAY));
            assert_eq!(host.sockets.sends.load(Relaxed), sends + 1);
            client.send(frame(PING, ACK, 0, &ping)).await;
            while client.frame().await.is_some() {}
            drop(client);
            host.emptied().await;
        }
    });
}

#[test]
fn in_a_reload_a_client_that_is_silent_gets_a_goaway() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = raw(&host, b"").await;
        client.send(get(1)).await;
        client.next(DATA).await;
        host.server.hand_over();
        let begun = host.server.registry.now();
        let reader = spawn_local(async move { client.next(GOAWAY).await });
        while !reader.is_finished() {
            tick(&host).await;
        }
        // Five seconds, in ticks of 250 ms.
        let waited = host.server.registry.now().0 - begun.0;
        assert!((20..30).contains(&waited), "{waited} ticks");
    });
}

#[test]
fn open_streams_are_finished_and_the_connection_ends() {
    run(async {
        let (host, mut client, gate) = draining().await;
        assert_eq!(client.next_goaway().await, (u32::MAX >> 1, 0), "the first");
        // A request that the client sent before it received the GOAWAY.
        client.send(get(3)).await;
        gate.begun.notified().await;
        let ping = client.next(PING).await;
        let acknowledgement = frame(PING, ACK, 0, &ping.payload);
        send_and_wait(&mut client, &host, &acknowledgement).await;
        // A busy client of Go had begun it before it read the GOAWAY.
        client.send(get(5)).await;
        gate.begun.notified().await;
        gate.go.notify_waiters();
        for _ in 0..3 {
            assert_eq!(client.next(DATA).await.payload, b"hello");
        }
        assert_eq!(client.next_goaway().await, (5, 0), "the last");
        while client.frame().await.is_some() {}
        drop(client);
        host.emptied().await;
        assert_eq!(host.server.count(Count::Requests), 3);
    });
}

/// A client that acknowledges is told when its requests come too late.
#[test]
fn a_long_stream_does_not_keep_the_next_goaway_back() {
    run(async {
        let (host, mut client, gate) = draining().await;
        let ping = client.next(PING).await.payload;
        client.send(frame(PING, ACK, 0, &ping)).await;
        let reader = spawn_local(async move { (client.next(GOAWAY).await, client) });
        while !reader.is_finished() {
            tick(&host).await;
        }
        let (goaway, mut client) = reader.await.expect("no panic");
        assert_eq!(number(&goaway.payload[..4]), 1, "the last");
        gate.go.notify_waiters();
        assert_eq!(client.next(DATA).await.payload, b"hello");
        while client.frame().await.is_some() {}
    });
}

/// A client of the h2 crate writes the requests that it has begun after its acknowledgement.
#[test]
fn a_request_that_comes_with_the_acknowledgement_is_served_wherever_a_read_ends() {
    run(async {
        let before = frame(PRIORITY, 0, 1, &[0; 5]);
        // No frame may come between the parts of a head.
        let (begin, rest) = GET.split_at(2);
        let request = [
            frame(HEADERS, END_STREAM, 3, begin),
            frame(CONTINUATION, END_HEADERS, 3, rest),
        ]
        .concat();
        // A read that ends after the acknowledgement has nothing that comes with it.
        let end = before.len() + PING_LEN;
        for cut in (0..end).chain(end + 1..end + request.len()) {
            let host = Host::start(options(), hello).await;
            let mut client = raw(&host, b"").await;
            client.send(get(1)).await;
            assert_eq!(client.next(DATA).await.payload, b"hello");
            host.server.drain();
            let ping = client.next(PING).await.payload;
            let sent = [&before[..], &frame(PING, ACK, 0, &ping), &request].concat();
            send_and_wait(&mut client, &host, &sent[..cut]).await;
            client.send(&sent[cut..]).await;
            for _ in 0..2 {
                let Frame {
                    kind,
                    stream,
                    payload,
                    ..
                } = client.one_of(&[GOAWAY, DATA]).await;
                match kind {
                    GOAWAY => assert_eq!(payload, [0, 0, 0, 3, 0, 0, 0, 0], "{cut}"),
                    _ => assert_eq!((stream, &*payload), (3, &b"hello"[..]), "{cut}"),
                }
            }
            drop(client);
            host.emptied().await;
        }
    });
}

#[test]
fn a_connection_that_begins_in_a_drain_is_served_and_gets_a_goaway() {
    run(async {
        let host = Host::start(options(), hello).await;
        host.server.drain();
        let mut client = raw(&host, b"").await;
        client.send(get(1)).await;
        assert_eq!(client.goaway().await, 0);
        assert_eq!(client.next(DATA).await.payload, b"hello");
    });
}

/// In the shutdown TLS sends its `close_notify`.
#[test]
fn the_stream_is_shut_down_if_the_client_does_not_acknowledge() {
    run(async {
        let host = Host::start(options().header_timeout(SHORT), hello).await;
        let mut client = raw(&host, b"").await;
        client.send(get(1)).await;
        client.next(DATA).await;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let witness = std::net::TcpStream::connect(address).expect("it listens");
        host.sockets.last_moment().push(witness);
        host.server.drain();
        host.emptied().await;
        assert!(host.sockets.last_moment().is_empty());
        client.next(PING).await;
        assert_eq!(
            client.next_goaway().await,
            (1, 0),
            "which requests were not served"
        );
        client.expect_end().await;
    });
}

#[test]
fn new_streams_are_refused_if_the_client_does_not_acknowledge() {
    run(async {
        let (gate, app) = gated(async |gate, request| {
            if request.uri().path() == "/held" {
                gate.pass().await;
            }
            hello(request).await
        });
        let host = Host::start(options().header_timeout(SHORT), app).await;
        let mut client = raw(&host, b"").await;
        let held = [&GET[..2], b"\x04\x05/held", &GET[3..]].concat();
        client
            .send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &held))
            .await;
        client.send(get(3)).await;
        client.next(DATA).await;
        host.server.drain();
        let mut requests = (2..).map(|number| get(2 * number + 1));
        let mut ask = || requests.next().expect("there are many");
        loop {
            client.send(ask()).await;
            let response = loop {
                let frame = client.frame().await.expect("one stream is open");
                if matches!(frame.kind, DATA | RST_STREAM) {
                    break frame;
                }
            };
            if response.kind == RST_STREAM {
                assert_eq!(number(&response.payload), REFUSED_STREAM);
                break;
            }
        }
        // The open stream is finished, and then the connection ends.
        gate.go.notify_one();
        client.next(DATA).await;
        while client.stream.write_all(&ask()).await.is_ok() && client.frame().await.is_some() {}
        drop(client);
        host.emptied().await;
    });
}

/// The worker has reached its limit of connections, and evicts an idle one.
#[test]
fn an_evicted_connection_gets_a_goaway() {
    run(async {
        let host = Host::start(options().linger(SHORT).write_timeout(SHORT), hello).await;
        let mut client = raw(&host, b"").await;
        client.send(get(1)).await;
        client.next(DATA).await;
        while host.server.connections() > 0 {
            host.server.evict_idle();
            yield_now().await;
        }
        assert_eq!(client.next_goaway().await, (1, 0));
        client.expect_end().await;
    });
}

#[test]
fn the_end_of_the_drain_timeout_cuts_open_streams() {
    run(async {
        let (host, gate) = held().await;
        let mut client = Http2Client::connect(&host).await;
        let response = client.ask("/").await;
        gate.begun.notified().await;
        host.server.drain();
        assert_eq!(host.server.cut(), 1);
        whole(response).await.expect_err("no response");
        host.emptied().await;
        assert_eq!(host.server.count(Count::Cut), 1);
        assert!(client.end().await.is_err());
    });
}

#[test]
fn an_event_stream_ends_at_the_drain() {
    run(async {
        let (host, events) = event_streams::host(event_streams::EVENTS).await;
        let mut client = raw(&host, b"").await;
        client.send(get(1)).await;
        events.send("data: 1\n\n".into()).expect("it is polled");
        assert_eq!(client.next(DATA).await.payload, b"data: 1\n\n");
        host.server.drain();
        let last = client.next(DATA).await;
        assert_eq!((&*last.payload, last.flags), (&b""[..], END_STREAM));
    });
}

/// In HTTP/2 as in HTTP/1, the write timeout is the only limit for that.
#[test]
fn a_drain_waits_until_a_slow_client_has_taken_the_last_response() {
    run(async {
        const BODY: usize = 60_000;
        let (gate, app) = gated(async |gate: Gate, _request| {
            gate.pass().await;
            Ok(text(vec![b'x'; BODY]))
        });
        let host = Host::start(options(), app).await;
        let mut client = raw(&host, b"").await;
        client.send(get(1)).await;
        gate.begun.notified().await;
        host.server.drain();
        let ping = client.next(PING).await.payload;
        send_and_wait(&mut client, &host, &frame(PING, ACK, 0, &ping)).await;
        host.sockets.room.limit(1000);
        gate.go.notify_one();
        // 15 s, longer than the header timeout.
        for _ in 0..60 {
            tick(&host).await;
        }
        host.sockets.room.open();
        let (mut body, mut last) = (0, 0);
        while let Some(frame) = client.frame().await {
            match frame.kind {
                DATA => body += frame.payload.len(),
                GOAWAY => last = number(&frame.payload[..4]),
                _ => {}
            }
        }
        assert_eq!((body, last), (BODY, 1));
        drop(client);
        host.emptied().await;
    });
}
