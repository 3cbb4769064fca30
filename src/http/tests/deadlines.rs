//! Timeouts: clients that are too slow, and clients that are not.

use super::*;
use crate::stats::Count;

const TIMED_OUT: &str =
    "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

#[test]
fn a_head_that_is_not_complete_in_time_gets_408() {
    run_each_kind(async || {
        let host = Host::start(options().header_timeout(SHORT), hello).await;
        let mut client = host.connect().await;
        client.send("GET / HTTP/1.1\r\nho").await;
        client.expect(TIMED_OUT).await;
        client.expect_end().await;
        assert_eq!(host.server.count(Count::HeaderTimeouts), 1);
        drop(client);
        host.emptied().await;
    });
}

#[test]
fn the_408_to_an_incomplete_head_has_a_date() {
    run_each_kind(async || {
        let host = Host::start(Http::new().header_timeout(SHORT), hello).await;
        let mut client = host.connect().await;
        client.send("GET / HTTP/1.1\r\nho").await;
        let response = client.rest().await;
        let (head, date) = response.split_once("date: ").expect("a date");
        assert_eq!(format!("{head}\r\n"), TIMED_OUT);
        let date = date.strip_suffix("\r\n\r\n").expect("it is last");
        httpdate::parse_http_date(date).expect("a date");
    });
}

#[test]
fn the_header_timeout_of_the_second_head_begins_with_its_first_byte() {
    run_each_kind(async || {
        let host = Host::start(options().header_timeout(SHORT), hello).await;
        let mut client = host.connect().await;
        let mut idle = host.connect().await;
        for client in [&mut client, &mut idle] {
            client.hello().await;
        }
        client.send("G").await;
        client.expect(TIMED_OUT).await;
        client.expect_end().await;
        idle.hello().await;
    });
}

#[test]
fn bytes_now_and_then_do_not_extend_the_header_timeout() {
    run_each_kind(async || {
        let host = Host::start(options().header_timeout(SHORT), hello).await;
        let mut client = host.connect().await;
        let mut ticks = tokio::time::interval(SHORT / 10);
        client.send("GET / HTTP/1.1\r\n").await;
        while host.server.count(Count::HeaderTimeouts) == 0 {
            ticks.tick().await;
            // The write fails once the server has closed.
            let _ = client.stream.write_all(b"a: b\r\n").await;
        }
    });
}

#[test]
fn a_connection_on_which_nothing_comes_is_closed_without_a_response() {
    run_each_kind(async || {
        let host = Host::start(options().header_timeout(SHORT), hello).await;
        let mut client = host.connect().await;
        client.expect_end().await;
        assert_eq!(host.server.count(Count::HeaderTimeouts), 1);
        host.emptied().await;
    });
}

#[test]
fn an_idle_connection_is_closed_without_a_response() {
    run_each_kind(async || {
        let host = Host::start(options().idle_timeout(SHORT), hello).await;
        let mut client = host.connect().await;
        client.hello().await;
        client.expect_end().await;
        assert_eq!(host.server.count(Count::IdleTimeouts), 1);
        host.emptied().await;
    });
}

#[test]
fn half_a_head_that_was_read_with_the_request_before_it_has_the_header_timeout() {
    run_each_kind(async || {
        let host = Host::start(options().header_timeout(SHORT), hello).await;
        let mut client = host.connect().await;
        client.send([HELLO, b"GET / HT"].concat()).await;
        client.expect(HELLO_RESPONSE).await;
        client.expect(TIMED_OUT).await;
        client.expect_end().await;
        assert_eq!(host.server.count(Count::HeaderTimeouts), 1);
    });
}

#[test]
fn a_body_that_stops_coming_gets_408() {
    run_each_kind(async || {
        let host = Host::start(options().body_timeout(SHORT), echo).await;
        let mut client = host.connect().await;
        client
            .send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\nabc")
            .await;
        client.expect(TIMED_OUT).await;
        client.expect_end().await;
        assert_eq!(host.server.count(Count::BodyTimeouts), 1);
        drop(client);
        host.emptied().await;
    });
}

#[test]
fn a_handler_may_respond_after_its_body_timed_out() {
    run_each_kind(async || {
        let app = async |request: Request| {
            let error = request
                .into_body()
                .collect()
                .await
                .expect_err("the body stops");
            Ok(text(error.to_string()))
        };
        let host = Host::start(options().body_timeout(SHORT), app).await;
        let mut client = host.connect().await;
        client
            .send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\nabc")
            .await;
        let response = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 33\r\n\r\n\
                      the request's body stopped coming";
        client.expect(response).await;
        client.expect_end().await;
    });
}

#[test]
fn a_body_that_keeps_coming_may_take_longer_than_its_timeout() {
    run_each_kind(async || {
        let host = Host::start(options().body_timeout(SHORT * 2), echo).await;
        let mut client = host.connect().await;
        client
            .send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 20\r\n\r\n")
            .await;
        let mut ticks = tokio::time::interval(SHORT / 3);
        for _ in 0..20 {
            ticks.tick().await;
            client.send("x").await;
        }
        client
            .expect("HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n")
            .await;
        client.expect(&"x".repeat(20)).await;
    });
}

#[test]
fn a_connection_whose_client_does_not_read_is_closed() {
    run_each_kind(async || {
        let app = async |_| Ok(text(vec![b'x'; 32 * 1024 * 1024]));
        let host = Host::start(options().write_timeout(SHORT), app).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.expect("HTTP/1.1 200 OK\r\n").await;
        host.emptied().await;
        assert_eq!(host.server.count(Count::WriteTimeouts), 1);
        assert!(client.rest().await.len() < 32 * 1024 * 1024);
    });
}

/// The end is that of a layer such as TLS.
#[test]
fn a_connection_whose_client_does_not_take_its_end_is_closed() {
    run(async {
        let host = Host::start(options().header_timeout(SHORT), hello).await;
        let not_bare = std::net::TcpStream::connect(host.address);
        host.sockets.last_moment().extend(not_bare);
        host.sockets.room.limit(HELLO_LAST_RESPONSE.len());
        let mut client = host.connect().await;
        client
            .send("GET /hello HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
            .await;
        client.expect(HELLO_LAST_RESPONSE).await;
        host.emptied().await;
    });
}

#[test]
fn a_client_that_reads_slowly_gets_the_whole_response() {
    run_each_kind(async || {
        const SIZE: usize = 24 * 1024 * 1024;
        let app = async |_| Ok(text(vec![b'x'; SIZE]));
        // Both timeouts are far shorter than the whole response takes.
        let http = options().write_timeout(SHORT * 2).idle_timeout(SHORT * 2);
        let host = Host::start(http, app).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n");
        client.expect(&head).await;
        let mut ticks = tokio::time::interval(SHORT / 4);
        let mut piece = vec![0; 2 * 1024 * 1024];
        for _ in 0..SIZE / piece.len() {
            ticks.tick().await;
            client
                .stream
                .read_exact(&mut piece)
                .await
                .expect("the response continues");
        }
        client.expect_end().await;
        assert_eq!(host.server.count(Count::WriteTimeouts), 0);
    });
}

#[test]
fn a_handler_may_take_any_time() {
    run_each_kind(async || {
        let app = async |_| {
            // Far longer than any timeout.
            let _ = timeout(SHORT * 4, std::future::pending::<()>()).await;
            Ok(text("hello"))
        };
        let http = options()
            .header_timeout(SHORT)
            .body_timeout(SHORT)
            .write_timeout(SHORT)
            .idle_timeout(SHORT);
        let host = Host::start(http, app).await;
        let mut client = host.connect().await;
        client.hello().await;
    });
}

#[test]
fn time_in_which_a_handler_blocks_the_worker_does_not_count_against_clients() {
    run_each_kind(async || {
        let app = async |request: Request| {
            let block = Duration::from_secs(u64::from(request.uri().path() == "/block"));
            let begun = std::time::Instant::now();
            while begun.elapsed() < block.min(SHORT * 3) {
                std::hint::spin_loop();
            }
            Ok(text("hello"))
        };
        let host = Host::start(options().header_timeout(SHORT), app).await;
        let (mut blocking, mut client) = (host.connect().await, host.connect().await);
        client.hello().await;
        client.send(&HELLO[..10]).await;
        blocking
            .send("GET /block HTTP/1.1\r\nhost: test\r\n\r\n")
            .await;
        blocking.expect(HELLO_RESPONSE).await;
        client.send(&HELLO[10..]).await;
        client.expect(HELLO_RESPONSE).await;
    });
}
