//! The beginning of HTTP/2 connections, and their requests and responses.

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, SERVER};

use super::*;
use crate::http::Http2;
use crate::stats::{Count, Gauge};

#[test]
fn a_preface_in_any_two_pieces_begins_http2() {
    run(async {
        let host = Host::start(options(), hello).await;
        let stats = host.server.registry.counters.stats();
        for split in 1..PREFACE.len() {
            let mut client = host.connect().await;
            let before = stats.count(Count::BytesIn);
            client.send(&PREFACE[..split]).await;
            until(|| stats.count(Count::BytesIn) >= before + split as u64).await;
            client.send(&PREFACE[split..]).await;
            client.send(frame(SETTINGS, 0, 0, b"")).await;
            client.send(get(1)).await;
            let first = client.frame().await.expect("no response in HTTP/1");
            assert_eq!(first.kind, SETTINGS);
            assert_eq!(client.next(DATA).await.payload, b"hello");
        }
    });
}

#[test]
fn a_request_that_begins_like_a_preface_is_http1() {
    run(async {
        let host = Host::start(options(), hello).await;
        let stats = host.server.registry.counters.stats();
        let mut client = host.connect().await;
        client.send("PR").await;
        until(|| stats.count(Count::BytesIn) >= 2).await;
        client.send("OPFIND / HTTP/1.1\r\nhost: test\r\n\r\n").await;
        client.expect(HELLO_RESPONSE).await;
    });
}

#[test]
fn a_preface_after_a_request_or_with_http2_disabled_ends_the_connection() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.hello().await;
        client.send(PREFACE).await;
        client.expect_end().await;

        let host = Host::start(options().http2(Http2::Disabled), hello).await;
        let mut client = host.connect().await;
        client.send(PREFACE).await;
        client.expect_end().await;
    });
}

#[test]
fn with_alpn_the_server_sends_its_settings_first() {
    run(async {
        let host = Host::start_http2(options()).await;
        let mut client = host.connect().await;
        assert_eq!(client.frame().await.expect("settings").kind, SETTINGS);
        client.send(PREFACE).await;
        client.send(frame(SETTINGS, 0, 0, b"")).await;
        client.send(get(1)).await;
        assert_eq!(client.next(DATA).await.payload, b"hello");

        let mut client = host.connect().await;
        client.send(HELLO).await;
        assert_eq!(
            host.server.count(Count::Requests),
            1,
            "an HTTP/1 request is not served"
        );
        while client.frame().await.is_some() {}
    });
}

#[test]
fn a_response_has_no_connection_header() {
    run(async {
        let app = async |_request: Request| {
            let mut response = text("hello");
            let close = http::HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
            Ok(response)
        };
        let server = http::HeaderValue::from_static("prefork");
        let http = Http::new().server_header(server);
        let host = Host::start(http, app).await;
        let mut client = Http2Client::connect(&host).await;
        let response = client.ask("/").await.await.expect("a response");
        let headers = response.headers();
        assert_eq!(headers[SERVER], "prefork");
        assert_eq!(headers[CONTENT_LENGTH], "5");
        assert!(headers.contains_key(DATE));
        assert!(!headers.contains_key(CONNECTION));
    });
}

#[test]
fn a_long_body_is_received_and_sent_whole() {
    run(async {
        let host = Host::start(options(), echo_as_it_comes).await;
        let mut client = Http2Client::connect(&host).await;
        // Longer than any window.
        let sent = "0123456789abcdef".repeat(128 * 1024);
        let (response, mut body) = client.post("/").await;
        body.send_data(sent.clone().into(), true).expect("open");
        let (status, received) = whole(response).await.expect("a response");
        assert_eq!(status, 200);
        assert!(received == sent, "{} bytes", received.len());
        let stats = host.server.registry.counters.stats();
        assert_eq!(stats.gauge(Gauge::Requests), 0);
    });
}

#[test]
fn a_client_learns_how_far_it_may_send_ahead() {
    run(async {
        for (asked, stream_window, connection_window) in [
            (1, 64 << 10, 1 << 20),
            (256 << 10, 256 << 10, 1 << 20),
            (1 << 20, 1 << 20, 4 << 20),
            (u32::MAX, (1 << 29) - 1, (1 << 31) - 4),
        ] {
            let host = Host::start(options().upload_window(asked), hello).await;
            let mut client = raw(&host, b"").await;
            let settings = client.next(SETTINGS).await.payload;
            let expected = setting(INITIAL_WINDOW_SIZE, stream_window);
            assert!(settings.chunks(6).any(|it| it == expected), "{settings:?}");
            let more = number(&client.next(WINDOW_UPDATE).await.payload);
            assert_eq!(more + 65_535, connection_window, "{asked}");
        }
    });
}

#[test]
fn a_slow_request_does_not_delay_others_and_all_are_counted() {
    run(async {
        let (gate, app) = gated(async |gate, request| {
            match request.uri().path() {
                "/held" => gate.pass().await,
                "/fail" => return Err("on request".into()),
                _ => {}
            }
            hello(request).await
        });
        let host = Host::start(options(), app).await;
        let stats = host.server.registry.counters.stats();
        let mut client = Http2Client::connect(&host).await;
        let held = client.ask("/held").await;
        client.hello().await;
        let failed = whole(client.ask("/fail").await).await.expect("a response");
        assert_eq!(failed.0, 500);
        assert_eq!(stats.gauge(Gauge::Requests), 1);
        gate.go.notify_one();
        assert_eq!(whole(held).await.expect("a response").1, "hello");
        assert_eq!(stats.gauge(Gauge::Requests), 0);
        assert_eq!(stats.totals().responses, [0, 2, 0, 0, 1]);
        assert_eq!(host.server.connections(), 1);
    });
}

#[test]
fn a_panic_affects_only_its_request() {
    run(async {
        let app = async |request: Request| {
            assert_ne!(request.uri().path(), "/panic");
            hello(request).await
        };
        let host = Host::start(options(), app).await;
        let mut client = Http2Client::connect(&host).await;
        let (failed, _body) = client.post("/panic").await;
        assert_eq!(whole(failed).await.expect("a response").0, 500);
        client.hello().await;
        assert_eq!(host.server.count(Count::Panics), 1);
    });
}

#[test]
fn a_body_over_the_limit_gets_a_413_and_the_connection_stays() {
    run(async {
        let host = Host::start(options().max_body_size(10), echo).await;
        let mut client = Http2Client::connect(&host).await;
        let announced = http::Request::post("http://test/").header(CONTENT_LENGTH, 11);
        let (refused, _body) = client.send(announced, false).await;
        assert_eq!(whole(refused).await.expect("a response").0, 413);
        let (refused, mut body) = client.post("/").await;
        body.send_data("more than ten".into(), false).expect("open");
        assert_eq!(whole(refused).await.expect("a response").0, 413);
        let (echoed, mut body) = client.post("/").await;
        body.send_data("just ten..".into(), true).expect("open");
        assert_eq!(whole(echoed).await.expect("a response").1, "just ten..");
    });
}

#[test]
fn host_and_authority_must_agree() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = Http2Client::connect(&host).await;
        for (named, status) in [("test", 200), ("TEST", 200), ("other", 400)] {
            let request = http::Request::get("http://test/").header("host", named);
            let sent = client.send(request, true).await;
            assert_eq!(
                whole(sent.0).await.expect("a response").0,
                status,
                "{named}"
            );
        }
    });
}

#[test]
fn an_http2_connection_does_not_rest() {
    run(async {
        let host = Host::start(options().max_warm(1), hello).await;
        let mut client = Http2Client::connect(&host).await;
        client.hello().await;
        let mut other = host.connect().await;
        other.hello().await;
        assert_eq!(host.server.served(), 2);
        client.hello().await;
    });
}

/// A head of these pseudo-header fields and `Host`. Empty ones are left out.
fn head(method: &str, scheme: &str, authority: &str, path: &str, host: &str) -> Vec<u8> {
    let names: [(&[u8], &str); 5] = [
        (b"\x02", method),
        (b"\x06", scheme),
        (b"\x01", authority),
        (b"\x04", path),
        (b"\x0f\x17", host),
    ];
    let mut bytes = Vec::new();
    for (name, value) in names.into_iter().filter(|(_, value)| !value.is_empty()) {
        bytes.extend(name);
        bytes.push(u8::try_from(value.len()).expect("short"));
        bytes.extend(value.as_bytes());
    }
    bytes
}

/// The rules are those of HTTP/1.
#[test]
fn an_invalid_request_is_refused() {
    run(async {
        let host = Host::start(options(), hello).await;
        for (method, scheme, authority, path, named, status) in [
            ("GET", "http", "test", "/", "", 200),
            ("GET", "https", "[::1]:80", "/a?b", "", 200),
            ("GET", "http", "", "/", "test:80", 200),
            ("OPTIONS", "http", "test", "*", "", 200),
            ("OPTIONS", "http", "test", "/", "", 200),
            ("GET", "http", "test", "*", "", 400),
            ("GET", "http", "", "*", "test", 400),
            ("GET", "http", "test", "path", "", 400),
            ("GET", "http", "", "path", "test", 400),
            ("GET", "ftp", "test", "/", "", 400),
            ("GET", "http", "user:word@test", "/", "", 400),
            ("GET", "http", "test:port", "/", "", 400),
            ("GET", "http", "", "/", "a b", 400),
            ("GET", "http", "", "/", "test/path", 400),
            ("CONNECT", "", "test:80", "", "", 200),
            ("CONNECT", "", "test", "", "", 400),
        ] {
            let mut client = raw(&host, b"").await;
            let block = head(method, scheme, authority, path, named);
            client
                .send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &block))
                .await;
            let received = loop {
                let frame = client.frame().await.expect("the connection is open");
                match (frame.kind, frame.payload.first()) {
                    // `:status`, from the static table.
                    (HEADERS, Some(0x88)) => break 200,
                    (HEADERS, Some(0x8c)) | (RST_STREAM, _) => break 400,
                    _ => {}
                }
            };
            let request = format!("{method} {scheme} {authority} {path} {named}");
            assert_eq!(received, status, "{request}");
        }
    });
}

/// hyper ends the connection without a word to the client.
#[test]
fn a_connect_with_a_body_ends_the_connection_with_a_goaway() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = raw(&host, b"").await;
        // And `content-length: 1`, as a literal field (RFC 7541 6.2.2).
        let block = [
            &head("CONNECT", "", "test:80", "", "")[..],
            b"\x0f\x0d\x011",
        ]
        .concat();
        client.send(frame(HEADERS, END_HEADERS, 1, &block)).await;
        assert_eq!(client.goaway().await, PROTOCOL_ERROR);
        client.expect_end().await;
        drop(client);
        host.emptied().await;
        assert_eq!(host.server.count(Count::Requests), 0);
    });
}

#[test]
fn a_target_over_the_limit_is_414() {
    run(async {
        let host = Host::start(options().max_target_size(10), hello).await;
        let mut client = Http2Client::connect(&host).await;
        // The size includes the scheme and the host.
        let long = client.ask("/").await;
        assert_eq!(whole(long).await.expect("a response").0, 414);
    });
}

/// hyper has no way to send an informational response. The body is read when it comes.
#[test]
fn a_client_that_expects_100_continue_gets_none_and_is_served() {
    run(async {
        let host = Host::start(options(), echo).await;
        let mut client = raw(&host, b"").await;
        // POST http://t/, and a literal field (RFC 7541 6.2.2).
        let head = b"\x83\x86\x84\x41\x01t\x00\x06expect\x0c100-continue";
        client.send(frame(HEADERS, END_HEADERS, 1, head)).await;
        client.send(frame(PING, 0, 0, &[0; 8])).await;
        while let Some(frame) = client.frame().await
            && frame.kind != PING
        {
            assert_ne!(frame.kind, HEADERS);
        }
        client.send(frame(DATA, END_STREAM, 1, b"abcd")).await;
        assert_eq!(client.next(DATA).await.payload, b"abcd");
    });
}

#[test]
fn a_response_that_streams_a_body_over_the_limit_is_reset() {
    run(async {
        let host = Host::start(options().max_body_size(4), echo_as_it_comes).await;
        let mut client = Http2Client::connect(&host).await;
        let (response, mut body) = client.post("/").await;
        body.send_data("abc".into(), false).expect("it is open");
        let mut echoed = response.await.expect("a head").into_body();
        let first = echoed.data().await.expect("a piece").expect("no error");
        assert_eq!(first, "abc");
        body.send_data("de".into(), true).expect("it is open");
        let end = echoed.data().await.expect("no end");
        assert!(end.expect_err("a reset").is_reset());
        // Other streams stay open.
        let (response, mut body) = client.post("/").await;
        body.send_data("abc".into(), true).expect("it is open");
        let (status, text) = whole(response).await.expect("a response");
        assert_eq!((status, &*text), (200, "abc"));
    });
}

/// An unknown expectation is refused as in HTTP/1 (RFC 9110 10.1.1), and so is a value that begins
/// or ends with white space (RFC 9113 8.2.1).
#[test]
fn invalid_fields_are_refused() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = raw(&host, b"").await;
        let name_and_value = [
            (&b"x"[..], &b" a"[..], 400),
            (b"x", b"a\t", 400),
            (b"x", b" ", 400),
            (b"x", b"a b", 200),
            (b"x", b"", 200),
            (b"expect", b"banana", 417),
            (b"expect", b"100-Continue", 200),
        ];
        for (at, (name, value, status)) in (0_u32..).zip(name_and_value) {
            // A literal field (RFC 7541 6.2.2).
            let len = |text: &[u8]| u8::try_from(text.len()).expect("short");
            let field = [&[0, len(name)], name, &[len(value)], value].concat();
            let head = [GET, &field].concat();
            let flags = END_STREAM | END_HEADERS;
            client.send(frame(HEADERS, flags, 2 * at + 1, &head)).await;
            let response = client.next(HEADERS).await.payload;
            // An indexed field (RFC 7541 6.1), or a literal one whose name is indexed.
            let expected: &[u8] = match status {
                200 => b"\x88",
                400 => b"\x8c",
                _ => b"\x48\x83\x68\x2e\xff",
            };
            let name = String::from_utf8_lossy(name);
            assert!(
                response.starts_with(expected),
                "{name}: {value:?}: {response:x?}"
            );
        }
    });
}
