//! The end of a worker, as its clients see it.

use tokio::sync::Notify;

use super::*;

/// A handler that answers when it is told to, and says that it has begun.
async fn held() -> (Host, Rc<Notify>, Rc<Notify>) {
    let (begun, go) = (Rc::new(Notify::new()), Rc::new(Notify::new()));
    let (begins, goes) = (Rc::clone(&begun), Rc::clone(&go));
    let app = move |request: Request| {
        let (begins, goes) = (Rc::clone(&begins), Rc::clone(&goes));
        async move {
            begins.notify_one();
            goes.notified().await;
            hello(request).await
        }
    };
    (Host::start(options(), app).await, begun, go)
}

#[test]
fn an_idle_connection_is_told_at_once() {
    run(async {
        let forever = Duration::from_secs(3600);
        let host = Host::start(options().linger(forever), hello).await;
        let mut client = Http2Client::connect(&host).await;
        client.hello().await;
        host.server.drain();
        client.connection.await.expect("no panic").expect("told");
        host.emptied().await;
        assert_eq!(host.server.counts().idle_timeouts, 0);
    });
}

/// Go's client fails the first request of a connection that was closed before it.
#[test]
fn a_new_connection_is_told_when_it_has_asked() {
    run(async {
        for leave in [Server::drain, Server::hand_over] {
            let host = Host::start(options(), hello).await;
            let mut client = raw(&host, b"").await;
            client.next(SETTINGS).await;
            leave(&host.server);
            for stream in [1, 3] {
                client.send(frame(PING, 0, 0, &[7; 8])).await;
                loop {
                    let frame = client.frame().await.expect("the connection lives");
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
fn a_new_connection_that_asks_for_nothing_is_told_later() {
    run(async {
        let http = options().header_timeout(Duration::from_millis(300));
        let host = Host::start(http, hello).await;
        let mut client = raw(&host, b"").await;
        client.next(SETTINGS).await;
        host.server.drain();
        assert_eq!(client.goaway().await, 0);
        drop(client);
        host.emptied().await;
        assert_eq!(host.server.counts().idle_timeouts, 0);
    });
}

#[test]
fn what_is_open_is_finished_and_nothing_is_begun_after_it() {
    run(async {
        let (host, begun, go) = held().await;
        let mut client = raw(&host, b"").await;
        client.send(get(1)).await;
        begun.notified().await;
        host.server.drain();
        let goaway = client.next(GOAWAY).await;
        assert_eq!(number(&goaway.payload[..4]), u32::MAX >> 1, "the first");
        // On its way when the client heard.
        client.send(get(3)).await;
        begun.notified().await;
        let ping = client.next(PING).await;
        client.send(frame(PING, ACK, 0, &ping.payload)).await;
        let goaway = client.next(GOAWAY).await;
        assert_eq!(number(&goaway.payload[..4]), 3, "the last");
        go.notify_waiters();
        for _ in 0..2 {
            assert_eq!(client.next(DATA).await.payload, b"hello");
        }
        while client.frame().await.is_some() {}
        drop(client);
        host.emptied().await;
        assert_eq!(host.server.counts().requests, 2);
    });
}

#[test]
fn what_begins_in_a_drain_is_served_and_told() {
    run(async {
        let host = Host::start(options(), hello).await;
        host.server.drain();
        let mut client = raw(&host, b"").await;
        client.send(get(1)).await;
        assert_eq!(client.goaway().await, 0);
        assert_eq!(client.next(DATA).await.payload, b"hello");
    });
}

/// A shutdown is where TLS tells the end from a cut (`close_notify`).
#[test]
fn who_does_not_acknowledge_is_left_with_a_last_word() {
    run(async {
        let host = Host::start(options().header_timeout(SHORT), hello).await;
        let mut client = raw(&host, b"").await;
        client.send(get(1)).await;
        client.next(DATA).await;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let witness = std::net::TcpStream::connect(address).expect("it listens");
        host.last_moment.lock().expect("one thread").push(witness);
        host.server.drain();
        host.emptied().await;
        assert!(host.last_moment.lock().expect("one thread").is_empty());
    });
}

#[test]
fn a_client_that_does_not_acknowledge_begins_nothing_more() {
    run(async {
        let go = Rc::new(Notify::new());
        let held = Rc::clone(&go);
        let app = move |request: Request| {
            let held = Rc::clone(&held);
            async move {
                if request.uri().path() == "/held" {
                    held.notified().await;
                }
                hello(request).await
            }
        };
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
            let answer = loop {
                let frame = client.frame().await.expect("one stream is open");
                if matches!(frame.kind, DATA | RST_STREAM) {
                    break frame;
                }
            };
            if answer.kind == RST_STREAM {
                assert_eq!(number(&answer.payload), REFUSED_STREAM);
                break;
            }
        }
        // What was begun is finished, and then the connection ends.
        go.notify_one();
        client.next(DATA).await;
        while client.stream.write_all(&ask()).await.is_ok() && client.frame().await.is_some() {}
        drop(client);
        host.emptied().await;
    });
}

/// Another is to have its place.
#[test]
fn an_idle_connection_is_told_before_it_makes_room() {
    run(async {
        let host = Host::start(options().linger(SHORT).write_timeout(SHORT), hello).await;
        let mut client = raw(&host, b"").await;
        client.send(get(1)).await;
        client.next(DATA).await;
        while host.server.connections() > 0 {
            host.server.evict_idle();
            tokio::task::yield_now().await;
        }
        let goaway = client.next(GOAWAY).await.payload;
        assert_eq!((number(&goaway[..4]), number(&goaway[4..8])), (1, 0));
        client.expect_end().await;
    });
}

#[test]
fn the_drains_deadline_cuts() {
    run(async {
        let (host, begun, _go) = held().await;
        let mut client = Http2Client::connect(&host).await;
        let answer = client.ask("/").await;
        begun.notified().await;
        host.server.drain();
        assert_eq!(host.server.cut(), 1);
        whole(answer).await.expect_err("no answer");
        host.emptied().await;
        assert_eq!(host.server.counts().cut, 1);
        assert!(client.end().await.is_err());
    });
}
