//! How much a worker buffers for clients that do not read.

use http_body::{Body, Frame as BodyFrame, SizeHint};

use super::*;
use crate::http::registry::clock::TAKEN_MIN;
use crate::stats::Count;

pub(super) const CHUNK: usize = 64 * 1024;

/// A body of `left` chunks. Counts the chunks that were asked for.
struct Chunks {
    left: usize,
    is_length_known: bool,
    asked: Arc<AtomicUsize>,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, BoxError>>> {
        let Some(left) = self.left.checked_sub(1) else {
            return Poll::Ready(None);
        };
        self.left = left;
        self.asked.fetch_add(1, Relaxed);
        Poll::Ready(Some(Ok(BodyFrame::data(vec![b'x'; CHUNK].into()))))
    }

    fn size_hint(&self) -> SizeHint {
        match self.is_length_known {
            true => SizeHint::with_exact((self.left * CHUNK) as u64),
            false => SizeHint::default(),
        }
    }
}

/// Responds with this many chunks; to `/hello` with one word. Their length is known for `/known`.
/// Returns the number of chunks that were made.
pub(super) async fn chunks(http: Http, count: usize) -> (Host, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&asked);
    let app = move |request: Request| {
        let asked = Arc::clone(&counted);
        async move {
            if request.uri().path() == "/hello" {
                return hello(request).await;
            }
            let chunks = Chunks {
                left: count,
                is_length_known: request.uri().path() == "/known",
                asked,
            };
            Ok(Response::new(chunks.boxed_unsync()))
        }
    };
    (Host::start(http, app).await, asked)
}

#[test]
fn little_is_buffered_for_a_client_that_does_not_read() {
    run(async {
        for path in ["/", "/known"] {
            let (host, asked) = chunks(options().write_timeout(SHORT), 1000).await;
            let mut client = host.connect().await;
            client.send(format!("GET {path} HTTP/1.1\r\n")).await;
            client.send("host: test\r\n\r\n").await;
            client.expect("HTTP/1.1 200 OK\r\n").await;
            host.emptied().await;
            assert_eq!(host.server.count(Count::WriteTimeouts), 1, "{path}");
            let out = host.server.registry.counters.stats().count(Count::BytesOut);
            let made = asked.load(Relaxed) * CHUNK;
            let buffered = made - usize::try_from(out).expect("a small number").min(made);
            assert!(buffered < 256 * 1024, "{path}: {buffered} bytes");
        }
    });
}

/// The connection yields while it sends: on this runtime both clients share one thread.
#[test]
fn a_long_body_and_the_request_behind_it_get_through() {
    run(async {
        let (host, _) = chunks(options(), 1000).await;
        let mut client = host.connect().await;
        client
            .send("GET /known HTTP/1.1\r\nhost: test\r\n\r\n")
            .await;
        client.send(HELLO).await;
        let length = 1000 * CHUNK;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        client.expect(&head).await;
        let mut body = vec![0; length];
        client.stream.read_exact(&mut body).await.expect("it comes");
        assert!(body.iter().all(|&byte| byte == b'x'));
        client.expect(HELLO_RESPONSE).await;
        assert_eq!(host.server.count(Count::Requests), 2);
    });
}

/// The socket is not writable before a third of its buffer is free.
#[test]
fn a_client_whose_kernel_takes_bytes_has_no_write_timeout() {
    run(async {
        let (host, _) = chunks(options().write_timeout(SHORT), 1000).await;
        let mut client = host.connect().await;
        let left = &host.sockets.unacknowledged;
        left.store(1 << 20, Relaxed);
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
        client.expect("HTTP/1.1 200 OK\r\n").await;
        let registry = &host.server.registry;
        for _ in 0..100 {
            left.fetch_sub(TAKEN_MIN, Relaxed);
            registry.tick();
            yield_now().await;
        }
        assert_eq!(host.server.count(Count::WriteTimeouts), 0);
        host.emptied().await;
        assert_eq!(host.server.count(Count::WriteTimeouts), 1);
    });
}

/// The write timeout is the only limit for that.
#[test]
fn a_drain_waits_until_a_slow_client_has_taken_the_last_response() {
    run(async {
        let (gate, app) = gated(gated_hello);
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        gate.begun.notified().await;
        host.server.drain();
        host.sockets.room.limit(10);
        gate.go.notify_one();
        // 15 s, longer than the header timeout.
        for _ in 0..60 {
            tick(&host).await;
        }
        host.sockets.room.open();
        client.expect_last_hello().await;
        drop(client);
        host.emptied().await;
    });
}
