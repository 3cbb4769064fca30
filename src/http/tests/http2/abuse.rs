//! Clients that send too many streams, frames or fields.

use std::cell::Cell;

use futures_util::stream;
use http_body_util::StreamBody;

use super::*;
use crate::http::http2::credits::ON_CREDIT;
use crate::http::tests::last_responses::connect_small;

fn bytes_in(host: &Host) -> u64 {
    host.server.registry.counters.stats().count(Count::BytesIn)
}

#[test]
fn more_streams_than_allowed_are_refused() {
    run(async {
        let app = async |_request: Request| std::future::pending().await;
        let host = Host::start(options().max_concurrent_streams(2), app).await;
        let mut client = raw(&host, b"").await;
        let settings = client.next(SETTINGS).await.payload;
        let announced: Vec<_> = settings.chunks(6).collect();
        assert!(announced.contains(&&setting(3, 2)[..]), "{announced:?}");
        client.send([get(1), get(3), get(5)].concat()).await;
        let reset = client.next(RST_STREAM).await;
        assert_eq!((reset.stream, number(&reset.payload)), (5, REFUSED_STREAM));
        assert_eq!(host.server.count(Count::Requests), 2);
    });
}

/// CVE-2023-44487.
#[test]
fn streams_that_are_reset_at_once_end_the_connection() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = raw(&host, b"").await;
        client.next(SETTINGS).await;
        let cancel = 8_u32.to_be_bytes();
        let pairs = (0..100).flat_map(|number| {
            let stream = 2 * number + 1;
            [get(stream), frame(RST_STREAM, 0, stream, &cancel)].concat()
        });
        client.send(pairs.collect::<Vec<_>>()).await;
        assert_eq!(client.goaway().await, ENHANCE_YOUR_CALM);
        drop(client);
        host.emptied().await;
        assert_eq!(
            host.server.count(Count::Requests),
            0,
            "no stream was served"
        );
    });
}

/// CVE-2025-8671: the client makes the server reset streams that are being served.
#[test]
fn streams_that_are_reset_for_errors_end_the_connection() {
    run(async {
        let app = async |_request: Request| std::future::pending().await;
        let host = Host::start(options(), app).await;
        // A window above the maximum (RFC 9113 6.9.1), and trailers that are not the end (8.1).
        let window = |stream| more(stream, u32::MAX >> 1);
        let trailers = |stream| frame(HEADERS, END_HEADERS, stream, b"");
        for error in [&window as &dyn Fn(u32) -> Vec<u8>, &trailers] {
            let before = host.server.count(Count::Requests);
            let mut client = raw(&host, b"").await;
            client.next(SETTINGS).await;
            let mut requests: u32 = 0;
            let end = loop {
                let stream = 2 * requests + 1;
                client.send(get(stream)).await;
                requests += 1;
                // An acknowledged PING shows that the request has been read.
                client.send(frame(PING, 0, 0, &[0; 8])).await;
                let before = client.one_of(&[PING, GOAWAY]).await;
                if before.kind == GOAWAY {
                    break before;
                }
                client.send(error(stream)).await;
                let response = client.one_of(&[RST_STREAM, GOAWAY]).await;
                if response.kind == GOAWAY {
                    break response;
                }
                assert!(requests < 1024, "the connection does not end");
            };
            assert_eq!(number(&end.payload[4..8]), ENHANCE_YOUR_CALM);
            let served = host.server.count(Count::Requests) - before;
            assert_eq!(served, u64::from(requests) - 1);
            assert!((300..1024).contains(&requests), "{requests}");
        }
    });
}

/// The client of each request cannot know yet that the server has responded and reset the stream.
#[test]
fn uploads_that_are_answered_early_do_not_end_the_connection() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = raw(&host, b"").await;
        let post = [&b"\x83"[..], &GET[1..]].concat();
        let streams = |range: std::ops::Range<u32>| range.map(|number| 2 * number + 1);
        // h2 does not know most of these streams any more when their DATA comes.
        for batch in 0..20 {
            let batch = || streams(100 * batch..100 * batch + 100);
            for stream in batch() {
                client
                    .send(frame(HEADERS, END_HEADERS, stream, &post))
                    .await;
                while client.next(HEADERS).await.stream != stream {}
            }
            let data = batch().map(|stream| frame(DATA, 0, stream, &[0; 256]).repeat(2));
            client.send(data.collect::<Vec<_>>().concat()).await;
        }
        client.send(get(9999)).await;
        while client.next(DATA).await.stream != 9999 {}
    });
}

#[test]
fn responses_that_fail_do_not_end_the_connection() {
    run(async {
        let app = async |_request: Request| {
            let failure = stream::iter([Err::<_, BoxError>("no data".into())]);
            let body = StreamBody::new(failure).boxed_unsync();
            Ok(Response::new(body))
        };
        let host = Host::start(options(), app).await;
        let mut client = raw(&host, b"").await;
        for stream in (0..2 * ON_CREDIT).map(|number| 2 * number + 1) {
            client.send(get(stream)).await;
            let reset = client.one_of(&[RST_STREAM, GOAWAY]).await;
            assert_eq!((reset.kind, reset.stream), (RST_STREAM, stream));
        }
    });
}

#[test]
fn a_burst_of_short_pieces_is_read() {
    run(async {
        // The first handler reads all of them before it responds, the second responds to each.
        let app = async |request: Request| match request.method().as_str() {
            "POST" => echo(request).await,
            _ => echo_as_it_comes(request).await,
        };
        let host = Host::start(options(), app).await;
        for method in [0x83, 0x82] {
            let mut client = raw(&host, b"").await;
            let head = [&[method], &GET[1..]].concat();
            let mut upload = frame(HEADERS, END_HEADERS, 1, &head);
            upload.extend(frame(DATA, 0, 1, b"x").repeat(5000));
            upload.extend(frame(DATA, END_STREAM, 1, b"x"));
            client.send(upload).await;
            let mut received = 0;
            while received < 5001 {
                received += client.next(DATA).await.payload.len();
            }
        }
    });
}

#[test]
fn a_head_that_never_ends_ends_the_connection() {
    run(async {
        let limit = 16 * 1024;
        let host = Host::start(options().max_header_size(limit), hello).await;
        for piece in [0, 1, 16 * 1024] {
            let before = bytes_in(&host);
            let mut client = raw(&host, b"").await;
            client.next(SETTINGS).await;
            client.send(frame(HEADERS, END_STREAM, 1, GET)).await;
            // Each frame has one whole field, so that not only the size of the field list counts.
            let field = [&b"\x00\x01a\x7f\xfb\x7e"[..], &[b'v'; 16_378]].concat();
            let more = match piece {
                0 => frame(CONTINUATION, 0, 1, b""),
                // accept-encoding: gzip, deflate
                1 => frame(CONTINUATION, 0, 1, b"\x90"),
                _ => frame(CONTINUATION, 0, 1, &field),
            };
            for _ in 0..100 {
                // Fails once the server has closed the connection.
                let _ = client.stream.write_all(&more).await;
            }
            assert_eq!(client.goaway().await, ENHANCE_YOUR_CALM, "{piece}");
            let read = bytes_in(&host) - before;
            assert!(read < 256 * 1024, "{read} bytes of {piece}");
        }
        host.emptied().await;
        assert_eq!(host.server.count(Count::Requests), 0);
    });
}

#[test]
fn a_head_over_the_limit_is_431() {
    run(async {
        let called = Rc::new(Cell::new(0));
        let calls = Rc::clone(&called);
        let app = move |request| {
            calls.set(calls.get() + 1);
            hello(request)
        };
        let host = Host::start(options().max_header_size(1024), app).await;
        let mut client = Http2Client::connect(&host).await;
        client.hello().await;
        // The h2 client knows the limit and may refuse to send such a head. So this client is raw.
        let mut client = raw(&host, b"").await;
        client.next(SETTINGS).await;
        let field = [&b"\x00\x01a\x7f\xd1\x0f"[..], &[b'v'; 2000 + 128]].concat();
        let head = [GET, &field].concat();
        client
            .send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &head))
            .await;
        // `:status` as an index of the table, and 431 in the Huffman code.
        let refusal = b"\x48\x83\x69\x90\xff";
        assert_eq!(client.next(HEADERS).await.payload, refusal);
        assert_eq!(called.get(), 1);
    });
}

#[test]
fn a_head_of_more_than_a_hundred_fields_is_431() {
    run(async {
        let app = async |request: Request| Ok(text(request.headers().len().to_string()));
        let host = Host::start(options(), app).await;
        let mut client = Http2Client::connect(&host).await;
        for (name, count, expected) in [
            ("x", 100, (200, "100")),
            ("x", 101, (431, "")),
            // One value in 300 pieces.
            ("cookie", 300, (200, "1")),
        ] {
            let mut request = http::Request::get("http://test/");
            for _ in 0..count {
                request = request.header(name, "v");
            }
            let requests = client.requests.clone().ready().await;
            client.requests = requests.expect("the connection is open");
            let request = request.body(()).expect("a request");
            let sent = client.requests.send_request(request, true);
            let response = whole(sent.expect("the connection is open").0).await;
            let (status, fields) = response.expect("a response");
            assert_eq!((status, &*fields), expected, "{count} of {name}");
        }
    });
}

/// Sends this frame again and again and reads what the server sends. Returns the code of the
/// GOAWAY.
async fn flood(host: &Host, before: &[u8], flood: &[u8]) -> u32 {
    let client = raw(host, b"").await;
    let (reader, mut writer) = client.stream.into_split();
    writer.write_all(before).await.expect("the server is there");
    let many = flood.repeat(1000);
    let flood = spawn_local(async move { while writer.write_all(&many).await.is_ok() {} });
    let mut reader = tokio::io::BufReader::new(reader);
    loop {
        let mut head = [0; 9];
        reader
            .read_exact(&mut head)
            .await
            .expect("a GOAWAY before the end");
        let mut payload = vec![0; usize::from(head[2])];
        reader
            .read_exact(&mut payload)
            .await
            .expect("a whole frame");
        if head[3] == GOAWAY {
            flood.abort();
            return number(&payload[4..8]);
        }
    }
}

#[test]
fn frames_that_serve_no_request_end_the_connection() {
    run(async {
        let app = async |_request: Request| std::future::pending().await;
        let host = Host::start(options(), app).await;
        let upload = frame(HEADERS, END_HEADERS, 1, &[&b"\x83"[..], &GET[1..]].concat());
        // The server resets a second stream. h2 ignores its frames for a second.
        let trailers = frame(HEADERS, END_HEADERS, 3, b"");
        let before = [upload.clone(), get(3), trailers].concat();
        for (name, flood_of) in [
            ("PING", frame(PING, 0, 0, &[0; 8])),
            ("PING that acknowledges", frame(PING, ACK, 0, &[0; 8])),
            ("SETTINGS", frame(SETTINGS, 0, 0, b"")),
            ("PRIORITY", frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 0])),
            ("unknown", frame(0xaa, 0, 0, b"what is it")),
            ("DATA that is empty", frame(DATA, 0, 1, b"")),
            ("DATA that is padding", frame(DATA, PADDED, 1, b"\x01\x00")),
            (
                "HEADERS after a reset",
                frame(HEADERS, END_STREAM | END_HEADERS, 3, b""),
            ),
            ("empty DATA after a reset", frame(DATA, END_STREAM, 3, b"")),
            (
                "the last DATA after a reset",
                frame(DATA, END_STREAM, 3, b"x"),
            ),
        ] {
            let read = bytes_in(&host);
            let code = flood(&host, &before, &flood_of).await;
            assert_eq!(code, ENHANCE_YOUR_CALM, "{name}");
            let frames = (bytes_in(&host) - read) / flood_of.len() as u64;
            assert!(frames < 20_000, "{frames} frames of {name}");
        }
        // A window is limited (RFC 9113 6.9.1), so that fewer than 2^31 of these frames are valid.
        let window = more(0, 1);
        assert_eq!(flood(&host, &upload, &window).await, ENHANCE_YOUR_CALM);
        host.emptied().await;
    });
}

/// CVE-2019-9511. One frame opens the windows of all responses.
#[test]
fn windows_that_settings_open_byte_by_byte_end_the_connection() {
    run(async {
        let app = async |_request: Request| Ok(text("x".repeat(1000)));
        let host = Host::start(options(), app).await;
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, 0)).await;
        client.next(SETTINGS).await;
        let requests = (0..100).map(|number| get(2 * number + 1));
        client.send(requests.collect::<Vec<_>>().concat()).await;
        let mut windows = 1..=1000;
        let end = loop {
            let window = windows.next().expect("the connection ends before that");
            let wider = setting(INITIAL_WINDOW_SIZE, window);
            client.send(frame(SETTINGS, 0, 0, &wider)).await;
            // The windows of the frame before were used when this one is acknowledged.
            let last = client.one_of(&[SETTINGS, GOAWAY]).await;
            if last.kind == GOAWAY {
                break last;
            }
        };
        assert_eq!(number(&end.payload[4..8]), ENHANCE_YOUR_CALM);
    });
}

#[test]
fn a_client_with_a_usual_number_of_frames_per_request_is_served() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = raw(&host, b"").await;
        let extra = [
            frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 0]),
            more(0, 1),
            frame(PING, 0, 0, &[0; 8]),
        ];
        let streams = || (0..128).map(|number| 2 * number + 1);
        let requests = streams().map(|stream| [get(stream), extra.concat().repeat(5)].concat());
        client.send(requests.collect::<Vec<_>>().concat()).await;
        for stream in streams() {
            assert_eq!(client.next(DATA).await.stream, stream);
        }
        assert_eq!(host.server.count(Count::Requests), 128);
    });
}

#[test]
fn a_client_that_sends_requests_and_reads_no_response_is_dropped() {
    run(async {
        let app = async |_request: Request| {
            let mut response = text("");
            // The client's window limits bodies only, so the response is a long head.
            let long = http::HeaderValue::try_from("x".repeat(8192));
            response.headers_mut().insert("x", long.expect("a value"));
            Ok(response)
        };
        let host = Host::start(options().write_timeout(SHORT), app).await;
        let mut client = connect_small(&host).await;
        client
            .send([PREFACE, &frame(SETTINGS, 0, 0, b"")].concat())
            .await;
        let mut streams = (0..).map(|number| 2 * number + 1);
        while client
            .stream
            .write_all(&get(streams.next().expect("one")))
            .await
            .is_ok()
        {
            // The server's clock ticks at most once in a turn of the event loop.
            yield_now().await;
        }
        host.emptied().await;
        assert_eq!(host.server.count(Count::WriteTimeouts), 1);
    });
}

/// A client that has requested more than the server can send, and reads none of it.
async fn deaf(host: &Host) -> Client {
    let most = u32::MAX >> 1;
    let mut client = raw(host, &setting(INITIAL_WINDOW_SIZE, most)).await;
    client.next(SETTINGS).await;
    let window = more(0, most - 65_535);
    let start = [frame(SETTINGS, ACK, 0, b""), window, get(1)].concat();
    send_and_wait(&mut client, host, &start).await;
    let is_blocked = || {
        let members = host.server.registry.members.borrow();
        let mut states = members.entries.iter().map(|(_, entry)| &entry.state);
        states.any(|state| state.write_blocked_since().is_some())
    };
    until(is_blocked).await;
    client
}

/// h2 keeps each stream that it resets until it has sent RST_STREAM.
#[test]
fn resets_that_a_client_does_not_read_are_limited() {
    run(async {
        let app = async |_request: Request| Ok(text(vec![b'x'; 32 << 20]));
        let host = Host::start(options().write_timeout(SHORT), app).await;
        let malformed = |stream| {
            let fields = b"\x00\x0aconnection\x00";
            frame(HEADERS, END_STREAM | END_HEADERS, stream, fields)
        };
        // Each stream before it is closed.
        let last = get(u32::MAX >> 1);
        let on_closed = |stream| frame(DATA, 0, stream, b"x");
        for (first, each) in [
            (&[][..], &malformed as &dyn Fn(u32) -> Vec<u8>),
            (&last, &on_closed),
        ] {
            let before = bytes_in(&host);
            let mut client = deaf(&host).await;
            client.send(first).await;
            for batch in 0..100 {
                let frames = (0..1000).map(|number| each(3 + 2 * (1000 * batch + number)));
                // Fails once the server has closed the connection.
                let _ = client
                    .stream
                    .write_all(&frames.collect::<Vec<_>>().concat())
                    .await;
            }
            host.emptied().await;
            let read = bytes_in(&host) - before;
            assert!(read < 100_000, "{read} bytes");
        }
    });
}

/// Reading goes on when the client reads. Little is left to write then.
#[test]
fn a_client_may_send_much_before_it_reads() {
    run(async {
        let app = async |request: Request| match request.method().as_str() {
            "POST" => echo(request).await,
            _ => Ok(text(vec![b'x'; 32 << 20])),
        };
        let host = Host::start(options(), app).await;
        let mut client = deaf(&host).await;
        let head = [&b"\x83"[..], &GET[1..]].concat();
        let mut upload = frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes());
        upload.extend(frame(HEADERS, END_HEADERS, 3, &head));
        upload.extend(frame(DATA, 0, 3, b"x").repeat(5000));
        upload.extend(frame(DATA, END_STREAM, 3, b"x"));
        client.send(upload).await;
        let mut received = 0;
        while received < 5001 {
            let data = client.next(DATA).await;
            received += if data.stream == 3 {
                data.payload.len()
            } else {
                0
            };
        }
    });
}
