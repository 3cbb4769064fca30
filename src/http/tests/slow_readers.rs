//! How much a worker buffers for clients that do not read.

use http_body::{Body, Frame as BodyFrame};

use super::*;
use crate::stats::Count;

pub(super) const CHUNK: usize = 64 * 1024;

/// A body of `left` chunks. Counts the chunks that were asked for.
struct Chunks {
    left: usize,
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
}

/// Responds with this many chunks, or to `/hello` with one word. Returns the number of chunks that
/// were made.
pub(super) async fn chunks(http: Http, count: usize) -> (Host, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&asked);
    let app = move |request: Request| {
        let asked = Arc::clone(&counted);
        async move {
            if request.uri().path() == "/hello" {
                return hello(request).await;
            }
            Ok(Response::new(Chunks { left: count, asked }.boxed_unsync()))
        }
    };
    (Host::start(http, app).await, asked)
}

#[test]
fn little_is_buffered_for_a_client_that_does_not_read() {
    run(async {
        let (host, asked) = chunks(options().write_timeout(SHORT), 1000).await;
        let mut client = host.connect().await;
        client.send(HELLO.split_at(4).0).await;
        client.send("/ HTTP/1.1\r\nhost: test\r\n\r\n").await;
        client.expect("HTTP/1.1 200 OK\r\n").await;
        host.emptied().await;
        assert_eq!(host.server.count(Count::WriteTimeouts), 1);
        let out = host.server.registry.counters.stats().count(Count::BytesOut);
        let made = asked.load(Relaxed) * CHUNK;
        let buffered = made - usize::try_from(out).expect("a small number").min(made);
        assert!(buffered < 256 * 1024, "{buffered} bytes");
    });
}
