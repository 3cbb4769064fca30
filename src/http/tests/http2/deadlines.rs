//! Timeouts: clients that are too slow, and clients that are slow within the limits.

use super::*;

#[test]
fn a_body_that_stops_coming_gets_a_408_and_the_connection_stays() {
    run(async {
        let host = Host::start(options().body_timeout(SHORT), hello_or_echo).await;
        let mut client = Http2Client::connect(&host).await;
        let (first, mut first_body) = client.post("/echo").await;
        let (second, _second_body) = client.post("/echo").await;
        first_body.send_data("half".into(), false).expect("open");
        for response in [first, second] {
            assert_eq!(whole(response).await.expect("a response").0, 408);
        }
        client.hello().await;
        assert_eq!(host.server.count(Count::BodyTimeouts), 2);
    });
}

#[test]
fn a_body_that_comes_slowly_is_read_to_its_end() {
    run(async {
        let host = Host::start(options().body_timeout(SHORT), echo).await;
        let mut client = Http2Client::connect(&host).await;
        let (_slow, _slow_body) = client.post("/").await;
        let (response, mut body) = client.post("/").await;
        let mut ticks = tokio::time::interval(SHORT / 6);
        while host.server.count(Count::BodyTimeouts) == 0 {
            ticks.tick().await;
            body.send_data(".".into(), false).expect("open");
        }
        body.send_data(".".into(), true).expect("open");
        let (status, _) = whole(response).await.expect("a response");
        assert_eq!(status, 200);
        assert_eq!(host.server.count(Count::BodyTimeouts), 1);
    });
}

/// A response whose end is known only after its last piece is sent.
async fn open_ended(_request: Request) -> HandlerResult {
    let body = Full::new(Bytes::from_static(b"piece")).map_err(never);
    let body = body.with_trailers(std::future::ready(None));
    Ok(Response::new(body.boxed_unsync()))
}

#[test]
fn a_response_without_a_window_is_reset() {
    run(async {
        let app = async |request: Request| match request.uri().path() {
            "/empty" => Ok(text("")),
            _ => open_ended(request).await,
        };
        let host = Host::start(options().write_timeout(SHORT), app).await;
        let mut builder = client::Builder::new();
        builder.initial_window_size(0);
        let mut client = Http2Client::connect_as(&host, &builder).await;
        let response = client.ask("/").await.await.expect("a head");
        let mut body = response.into_body();
        let error = body.data().await.expect("an end").expect_err("a reset");
        assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
        assert_eq!(host.server.count(Count::WriteTimeouts), 1);
        let empty = whole(client.ask("/empty").await).await;
        assert_eq!(empty.expect("a response").0, 200, "the connection is open");
    });
}

#[test]
fn a_last_piece_without_a_window_ends_the_connection() {
    run(async {
        let app = async |_request: Request| Ok(text("0123456789"));
        let host = Host::start(options().write_timeout(SHORT), app).await;
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, 4)).await;
        client.send(get(1)).await;
        assert_eq!(client.next(DATA).await.payload, b"0123");
        // A PING does not open the window.
        client.send(frame(PING, 0, 0, &[0; 8])).await;
        assert_eq!(client.goaway().await, 0);
        while client.frame().await.is_some() {}
        host.emptied().await;
        assert_eq!(host.server.count(Count::WriteTimeouts), 1);
    });
}

#[test]
fn a_client_that_opens_its_window_slowly_meets_no_timeout() {
    run(async {
        let app = async |_request: Request| Ok(text(vec![b'x'; 60 * 1024]));
        let host = Host::start(options().write_timeout(SHORT), app).await;
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, 0)).await;
        client.send(get(1)).await;
        let mut ticks = tokio::time::interval(SHORT / 6);
        for _ in 0..30 {
            ticks.tick().await;
            client.send(more(1, 2048)).await;
            assert_eq!(client.next(DATA).await.payload.len(), 2048);
        }
        assert_eq!(host.server.count(Count::WriteTimeouts), 0);
    });
}

#[test]
fn a_client_that_reads_no_bytes_counts_as_one_write_timeout() {
    run(async {
        let app = async |_request: Request| Ok(text(vec![b'x'; 32 << 20]));
        let host = Host::start(options().write_timeout(SHORT), app).await;
        let most = u32::MAX >> 1;
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, most)).await;
        let window = more(0, most - 65_535);
        client.send([window, get(1), get(3)].concat()).await;
        client.next(DATA).await;
        host.emptied().await;
        assert_eq!(host.server.count(Count::WriteTimeouts), 1);
    });
}

#[test]
fn an_idle_connection_gets_a_goaway_and_is_closed() {
    run(async {
        let host = Host::start(options().idle_timeout(SHORT), hello).await;
        let mut client = Http2Client::connect(&host).await;
        client.hello().await;
        client
            .connection
            .await
            .expect("no panic")
            .expect("a GOAWAY");
        host.emptied().await;
        assert_eq!(host.server.count(Count::IdleTimeouts), 1);
    });
}

/// Each request begins and ends in one poll. The time that passes in all is longer than the idle
/// timeout of 75 s.
#[test]
fn requests_delay_the_idle_timeout() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = Http2Client::connect(&host).await;
        for _ in 0..200 {
            client.hello().await;
            host.server.registry.tick();
            host.server.registry.tick();
        }
        client.hello().await;
        assert_eq!(host.server.count(Count::IdleTimeouts), 0);
    });
}

#[test]
fn pings_do_not_delay_the_idle_timeout() {
    run(async {
        let host = Host::start(options().idle_timeout(SHORT), hello).await;
        let mut client = raw(&host, b"").await;
        let mut ticks = tokio::time::interval(SHORT / 6);
        while host.server.count(Count::IdleTimeouts) == 0 {
            ticks.tick().await;
            let _ = client.stream.write_all(&frame(PING, 0, 0, &[0; 8])).await;
        }
        assert_eq!(client.goaway().await, 0);
    });
}

#[test]
fn the_connection_of_a_client_that_ignores_the_goaway_ends() {
    run(async {
        let http = options().idle_timeout(SHORT).header_timeout(SHORT);
        let host = Host::start(http, hello).await;
        let mut client = raw(&host, b"").await;
        assert_eq!(client.goaway().await, 0);
        while client.frame().await.is_some() {}
        host.emptied().await;
        assert_eq!(host.server.count(Count::IdleTimeouts), 1);
        assert_eq!(host.server.count(Count::HeaderTimeouts), 0);
    });
}

#[test]
fn a_preface_that_does_not_end_meets_the_header_timeout() {
    run(async {
        let host = Host::start(options().header_timeout(SHORT), hello).await;
        let mut client = host.connect().await;
        client.send(&PREFACE[..20]).await;
        client.expect_end().await;
        assert_eq!(host.server.count(Count::HeaderTimeouts), 1);

        let http = options().header_timeout(SHORT);
        let host = Host::start_http2(http).await;
        let mut client = host.connect().await;
        while client.frame().await.is_some() {}
        assert_eq!(host.server.count(Count::HeaderTimeouts), 1);
        host.emptied().await;
    });
}

#[test]
fn a_slow_handler_meets_no_timeout() {
    run(async {
        let (gate, app) = gated(gated_hello);
        let http = options()
            .header_timeout(SHORT)
            .body_timeout(SHORT)
            .write_timeout(SHORT)
            .idle_timeout(SHORT);
        let host = Host::start(http, app).await;
        let mut client = Http2Client::connect(&host).await;
        let response = client.ask("/").await;
        // The timeouts of other connections pass meanwhile.
        for _ in 0..4 {
            host.connect().await.expect_end().await;
        }
        gate.go.notify_one();
        assert_eq!(whole(response).await.expect("a response").1, "hello");
    });
}
