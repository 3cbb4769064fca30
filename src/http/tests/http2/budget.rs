//! Limits for the bytes of responses that a worker buffers for HTTP/2 clients.

use super::*;
use crate::http::tests::slow_readers::{CHUNK, chunks};
use crate::stats::WorkerStats;

impl Client {
    /// Waits until the server has read all that was sent, and has processed it.
    async fn settled(&mut self) {
        for _ in 0..2 {
            self.send(frame(PING, 0, 0, b"settled?")).await;
            loop {
                let frame = self.frame().await.expect("the connection is open");
                if frame.kind == PING {
                    break;
                }
            }
        }
    }
}

fn streams() -> impl Iterator<Item = u32> {
    (0..128).map(|number| 2 * number + 1)
}

#[test]
fn few_bytes_are_buffered_for_a_client_without_a_window() {
    run(async {
        let (host, asked) = chunks(options(), 1000).await;
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, 0)).await;
        client
            .send(streams().map(get).collect::<Vec<_>>().concat())
            .await;
        for _ in streams() {
            client.next(HEADERS).await;
        }
        client.settled().await;
        let buffered = || host.server.registry.buffered();
        assert!(buffered() < 256 * 1024, "{} bytes", buffered());
        assert!(asked.load(Relaxed) <= 3, "{asked:?}");
        for _ in 0..10 {
            // One byte of each response is no progress.
            let byte = streams().map(|stream| more(stream, 1));
            client.send(byte.collect::<Vec<_>>().concat()).await;
            client.settled().await;
            assert!(buffered() < 256 * 1024, "{} bytes", buffered());
        }
        assert!(asked.load(Relaxed) <= 3, "{asked:?}");
        Http2Client::connect(&host).await.hello().await;
        drop(client);
        host.emptied().await;
        assert_eq!(buffered(), 0);
    });
}

/// The head and three full frames, the fourth, and the end.
#[test]
fn the_frames_of_a_response_are_sent_together() {
    run(async {
        let (host, _) = chunks(options(), 1).await;
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, 1 << 20)).await;
        client.send(more(0, 1 << 20)).await;
        client.settled().await;
        let sends = host.sockets.sends.load(Relaxed);
        client.send(get(1)).await;
        let mut body = 0;
        while body < CHUNK {
            body += client.next(DATA).await.payload.len();
        }
        assert_eq!(client.next(DATA).await.flags, END_STREAM);
        assert_eq!(host.sockets.sends.load(Relaxed) - sends, 3);
    });
}

/// The first response of a connection, and short ones that h2 writes at once. Another task would
/// keep them waiting.
#[test]
fn the_frames_of_responses_do_not_wait_for_other_tasks() {
    run(async {
        for (streams, body) in [(1, 60_000), (20, 200)] {
            let stats = Rc::<RefCell<Option<WorkerStats>>>::default();
            let (seen, shared) = (Rc::<Cell<u64>>::default(), Rc::clone(&stats));
            let noted = Rc::clone(&seen);
            let app = move |_request: Request| {
                let (stats, noted) = (shared.borrow().clone(), Rc::clone(&noted));
                // Another task, which runs as soon as this one yields.
                spawn_local(async move {
                    noted.set(stats.expect("it was set").count(Count::BytesOut));
                });
                async move { Ok(text(vec![b'x'; body])) }
            };
            let host = Host::start(options(), app).await;
            *stats.borrow_mut() = Some(host.server.registry.counters.stats());
            let mut client = host.connect().await;
            let requests = (0..streams).map(|number| get(2 * number + 1));
            let requests = requests.collect::<Vec<_>>().concat();
            let settings = frame(SETTINGS, 0, 0, b"");
            client.send([PREFACE, &settings, &requests].concat()).await;
            for _ in 0..streams {
                let mut left = body;
                while left > 0 {
                    left -= client.next(DATA).await.payload.len();
                }
            }
            assert_eq!(seen.get(), host.server.count(Count::BytesOut), "{streams}");
        }
    });
}

#[test]
fn frames_that_wait_for_the_client_are_buffered_bytes() {
    run(async {
        let (host, asked) = chunks(options(), 1000).await;
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, 1 << 30)).await;
        let window = more(0, 1 << 30);
        client.send([window, get(1), get(3)].concat()).await;
        // The client reads nothing, so the kernel takes a part of that.
        for _ in 0..2000 {
            let sent = host.server.count(Count::BytesOut) as usize;
            let buffered = host.server.registry.buffered();
            assert!(sent + buffered >= asked.load(Relaxed) * CHUNK);
            yield_now().await;
        }
        assert!(asked.load(Relaxed) > 0);
        drop(client);
        host.emptied().await;
        assert_eq!(host.server.registry.buffered(), 0);
    });
}

#[test]
fn above_the_workers_limit_each_connection_buffers_one_piece() {
    run(async {
        let (host, asked) = chunks(options(), 1000).await;
        let much = 64 * 1024 * 1024;
        host.server.registry.add_buffered(much);
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, 0)).await;
        client.send([1, 3, 5].map(get).concat()).await;
        client.settled().await;
        assert_eq!(asked.load(Relaxed), 1);
        // One piece at a time is enough to send a response.
        let mut client = Http2Client::connect(&host).await;
        client.hello().await;
        host.server.registry.remove_buffered(much);
    });
}

#[test]
fn responses_that_wait_for_each_other_are_all_sent() {
    run(async {
        const COUNT: usize = 20;
        let (host, _) = chunks(options(), COUNT).await;
        let mut builder = client::Builder::new();
        builder
            .initial_window_size(3 << 16)
            .initial_connection_window_size(1 << 20);
        let mut client = Http2Client::connect_as(&host, &builder).await;
        let mut responses = Vec::new();
        for _ in 0..16 {
            responses.push(spawn_local(whole(client.ask("/").await)));
        }
        for response in responses {
            let (_, body) = response.await.expect("no panic").expect("a response");
            assert_eq!(body.len(), COUNT * CHUNK);
        }
        assert_eq!(host.server.registry.buffered(), 0);
    });
}

#[test]
fn a_response_for_which_others_wait_is_reset() {
    run(async {
        // The timeout is longer than a test may take. A response that others wait for has a sixth
        // of it.
        let (host, _) = chunks(options().write_timeout(Duration::from_secs(12)), 1).await;
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, 0)).await;
        client.send([1, 3, 5, 7].map(get).concat()).await;
        let window = u32::try_from(CHUNK).expect("a window");
        client.send(more(7, window)).await;
        client.send(more(0, window)).await;
        let mut resets = 0;
        let mut ticks = tokio::time::interval(SHORT);
        loop {
            ticks.tick().await;
            client.send(frame(PING, 0, 0, b"reading.")).await;
            let frame = client.frame().await.expect("the connection is open");
            match frame.kind {
                RST_STREAM => resets += 1,
                DATA if frame.stream == 7 => break,
                _ => {}
            }
        }
        assert!(resets > 0, "streams that others wait for");
        assert!(host.server.count(Count::WriteTimeouts) > 0);
    });
}

#[test]
fn a_stream_that_takes_single_bytes_is_reset() {
    run(async {
        let (host, _) = chunks(options().write_timeout(SHORT), 1000).await;
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, 0)).await;
        client.send(get(1)).await;
        client.next(HEADERS).await;
        let mut ticks = tokio::time::interval(SHORT / 6);
        loop {
            ticks.tick().await;
            client.send(more(1, 1)).await;
            if client.frame().await.expect("a frame").kind == RST_STREAM {
                break;
            }
        }
        assert_eq!(host.server.count(Count::WriteTimeouts), 1);
        client.send(get(3)).await;
        client.next(HEADERS).await;
    });
}
