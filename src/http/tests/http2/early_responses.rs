//! Responses that are complete before the request's body has come as a whole.

use std::future::pending;

use super::*;

/// POST http://t/ without its body.
fn post(stream: u32) -> Vec<u8> {
    let head = [&b"\x83"[..], &GET[1..]].concat();
    frame(HEADERS, END_HEADERS, stream, &head)
}

impl Client {
    async fn next_of(&mut self, kind: u8, stream: u32) -> Frame {
        loop {
            let frame = self.next(kind).await;
            if frame.stream == stream {
                return frame;
            }
        }
    }
}

/// curl 7.88 does not show the response if the reset comes with it.
#[test]
fn a_client_can_send_the_rest_after_its_response() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = raw(&host, b"").await;
        client.send(post(1)).await;
        client.next_of(DATA, 1).await;
        client.send(frame(DATA, 0, 1, &[0; 1000])).await;
        client.send(get(3)).await;
        let next = client.one_of(&[RST_STREAM, DATA]).await;
        assert_eq!((next.kind, next.stream), (DATA, 3), "half of it");
        client.send(frame(DATA, END_STREAM, 1, &[0; 1000])).await;
        client.send(get(5)).await;
        let next = client.one_of(&[RST_STREAM, DATA]).await;
        assert_eq!((next.kind, next.stream), (DATA, 5), "all of it");
    });
}

#[test]
fn a_stream_is_reset_a_second_after_its_response() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = raw(&host, b"").await;
        client.send(post(1)).await;
        client.next_of(DATA, 1).await;
        pass_time(&host).await;
        let reset = client.next(RST_STREAM).await;
        assert_eq!((reset.stream, number(&reset.payload)), (1, 0));
    });
}

#[test]
fn no_more_than_eight_streams_wait_for_the_rest() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = raw(&host, b"").await;
        for stream in (1..=15).step_by(2) {
            client.send(post(stream)).await;
            let next = client.one_of(&[RST_STREAM, DATA]).await;
            assert_eq!((next.kind, next.stream), (DATA, stream));
        }
        client.send(post(17)).await;
        assert_eq!(client.next(RST_STREAM).await.stream, 1);
    });
}

/// Other uploads of the connection need the window.
#[test]
fn a_body_that_nothing_reads_uses_up_no_window() {
    run(async {
        let app = async |request: Request| match request.method().as_str() {
            "POST" => {
                drop(request);
                pending().await
            }
            _ => hello(request).await,
        };
        let host = Host::start(options(), app).await;
        let mut client = raw(&host, b"").await;
        // The window of the connection is 1 MiB, one of a stream is 256 KiB.
        client.next_of(WINDOW_UPDATE, 0).await;
        for stream in [1, 3, 5, 7] {
            client.send(post(stream)).await;
            client
                .send(frame(DATA, 0, stream, &[0; 16 * 1024]).repeat(16))
                .await;
        }
        client.next_of(WINDOW_UPDATE, 0).await;
    });
}
