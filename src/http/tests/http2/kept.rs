//! What a worker keeps for clients of HTTP/2 that do not take it.

use super::*;
use crate::http::tests::slow_readers::{CHUNK, chunks};

impl Client {
    /// The server has read all that was sent, and has done what there is to do.
    async fn settled(&mut self) {
        for _ in 0..2 {
            self.send(frame(PING, 0, 0, b"settled?")).await;
            loop {
                let frame = self.frame().await.expect("the connection lives");
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
fn a_client_that_takes_nothing_has_little_kept() {
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
        let kept = || host.server.registry.kept();
        assert!(kept() < 256 * 1024, "{} bytes", kept());
        assert!(asked.load(Relaxed) <= 3, "{asked:?}");
        for _ in 0..10 {
            // That is no progress.
            let byte = streams().map(|stream| {
                let one = 1_u32.to_be_bytes();
                frame(WINDOW_UPDATE, 0, stream, &one)
            });
            client.send(byte.collect::<Vec<_>>().concat()).await;
            client.settled().await;
            assert!(kept() < 256 * 1024, "{} bytes", kept());
        }
        assert!(asked.load(Relaxed) <= 3, "{asked:?}");
        Http2Client::connect(&host).await.hello().await;
        drop(client);
        host.emptied().await;
        assert_eq!(kept(), 0);
    });
}

#[test]
fn a_worker_that_keeps_much_keeps_one_piece_for_each_connection() {
    run(async {
        let (host, asked) = chunks(options(), 1000).await;
        let much = 64 * 1024 * 1024;
        host.server.registry.keep(much);
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, 0)).await;
        client.send([1, 3, 5].map(get).concat()).await;
        client.settled().await;
        assert_eq!(asked.load(Relaxed), 1);
        // Which is enough to get on.
        let mut client = Http2Client::connect(&host).await;
        client.hello().await;
        host.server.registry.let_go(much);
    });
}

#[test]
fn responses_that_share_the_room_are_all_sent() {
    run(async {
        const COUNT: usize = 20;
        let (host, _) = chunks(options(), COUNT).await;
        let mut builder = client::Builder::new();
        builder
            .initial_window_size(3 << 16)
            .initial_connection_window_size(1 << 20);
        let mut client = Http2Client::connect_as(&host, &builder).await;
        let mut answers = Vec::new();
        for _ in 0..16 {
            answers.push(spawn_local(whole(client.ask("/").await)));
        }
        for answer in answers {
            let (_, body) = answer.await.expect("no panic").expect("an answer");
            assert_eq!(body.len(), COUNT * CHUNK);
        }
        assert_eq!(host.server.registry.kept(), 0);
    });
}

#[test]
fn a_response_for_which_others_wait_is_reset() {
    run(async {
        // It is longer than a test may take; a sixth of it is for a response that others wait for.
        let (host, _) = chunks(options().write_timeout(Duration::from_secs(12)), 1).await;
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, 0)).await;
        client.send([1, 3, 5, 7].map(get).concat()).await;
        let window = u32::try_from(CHUNK).expect("a window").to_be_bytes();
        client.send(frame(WINDOW_UPDATE, 0, 7, &window)).await;
        client.send(frame(WINDOW_UPDATE, 0, 0, &window)).await;
        let mut resets = 0;
        let mut ticks = tokio::time::interval(SHORT);
        loop {
            ticks.tick().await;
            client.send(frame(PING, 0, 0, b"I listen")).await;
            let frame = client.frame().await.expect("the connection lives");
            match frame.kind {
                RST_STREAM => resets += 1,
                DATA if frame.stream == 7 => break,
                _ => {}
            }
        }
        assert!(resets > 0, "what was in the way");
        assert!(host.server.counts().write_timeouts > 0);
    });
}

#[test]
fn a_client_that_takes_a_byte_now_and_then_is_reset() {
    run(async {
        let (host, _) = chunks(options().write_timeout(SHORT), 1000).await;
        let mut client = raw(&host, &setting(INITIAL_WINDOW_SIZE, 0)).await;
        client.send(get(1)).await;
        client.next(HEADERS).await;
        let mut ticks = tokio::time::interval(SHORT / 6);
        loop {
            ticks.tick().await;
            let one = 1_u32.to_be_bytes();
            client.send(frame(WINDOW_UPDATE, 0, 1, &one)).await;
            if client.frame().await.expect("a word").kind == RST_STREAM {
                break;
            }
        }
        assert_eq!(host.server.counts().write_timeouts, 1);
        client.send(get(3)).await;
        client.next(HEADERS).await;
    });
}
