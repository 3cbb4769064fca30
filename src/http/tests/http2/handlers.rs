//! Handlers and tunnels: how long they live, and who polls them.

use std::future::pending;

use super::*;
use crate::stats::Gauge;

/// Notes its end.
struct Working(Rc<RefCell<u32>>);

impl Drop for Working {
    fn drop(&mut self) {
        *self.0.borrow_mut() += 1;
    }
}

/// A host whose handlers never answer, and how many of them have begun and ended.
async fn endless() -> (Host, Rc<RefCell<u32>>, Rc<RefCell<u32>>) {
    let (begun, ended) = (Rc::<RefCell<u32>>::default(), Rc::<RefCell<u32>>::default());
    let (begins, ends) = (Rc::clone(&begun), Rc::clone(&ended));
    let app = move |_request: Request| {
        *begins.borrow_mut() += 1;
        let working = Working(Rc::clone(&ends));
        async move {
            let _working = working;
            pending().await
        }
    };
    (Host::start(options(), app).await, begun, ended)
}

async fn reaches(count: &RefCell<u32>, wanted: u32) {
    while *count.borrow() < wanted {
        tokio::task::yield_now().await;
    }
}

#[test]
fn no_handler_outlives_its_connection() {
    run(async {
        let (host, begun, ended) = endless().await;
        let mut client = Http2Client::connect(&host).await;
        let _answers = [client.ask("/").await, client.ask("/").await];
        reaches(&begun, 2).await;
        assert_eq!(host.server.cut(), 1);
        host.emptied().await;
        assert_eq!(*ended.borrow(), 2, "cut");

        let (host, begun, ended) = endless().await;
        let mut client = Http2Client::connect(&host).await;
        let answer = client.ask("/").await;
        reaches(&begun, 1).await;
        client.connection.abort();
        host.emptied().await;
        assert_eq!(*ended.borrow(), 1, "left by its client");
        drop(answer);
    });
}

#[test]
fn a_tunnel_is_a_stream_that_ends_with_its_connection() {
    run(async {
        let ended = Rc::<RefCell<u32>>::default();
        let ends = Rc::clone(&ended);
        let app = move |request: Request| {
            let working = Working(Rc::clone(&ends));
            async move {
                spawn_local(async move {
                    let _working = working;
                    let tunnel = hyper::upgrade::on(request).await.expect("a tunnel");
                    let mut tunnel = Tunnel(tunnel);
                    let mut word = [0; 4];
                    while tunnel.read(&mut word).await.is_ok() {
                        tunnel.write(&word).await;
                    }
                });
                Ok(text(""))
            }
        };
        let http = options().idle_timeout(SHORT);
        let host = Host::start(http, app).await;
        let mut client = Http2Client::connect(&host).await;
        let request = http::Request::connect("test:1")
            .body(())
            .expect("a request");
        let (answer, mut to) = client.requests.send_request(request, false).expect("sent");
        let mut from = answer.await.expect("an answer").into_body();
        // Another's deadline passes meanwhile: a tunnel is not idle.
        let mut other = Http2Client::connect(&host).await;
        assert_eq!(whole(other.ask("/").await).await.expect("an answer").0, 200);
        other.connection.await.expect("no panic").expect("told");
        to.send_data("ping".into(), false).expect("open");
        assert_eq!(from.data().await.expect("a word").expect("whole"), "ping");
        host.server.drain();
        assert_eq!(host.server.connections(), 1);
        host.server.cut();
        host.emptied().await;
        reaches(&ended, 2).await;
    });
}

/// The server's end, by whole words.
struct Tunnel(hyper::upgrade::Upgraded);

impl Tunnel {
    async fn read(&mut self, word: &mut [u8; 4]) -> std::io::Result<()> {
        let mut buf = hyper::rt::ReadBuf::new(word);
        let read = |cx: &mut Context<'_>| {
            hyper::rt::Read::poll_read(Pin::new(&mut self.0), cx, buf.unfilled())
        };
        std::future::poll_fn(read).await?;
        match buf.filled().len() {
            4 => Ok(()),
            _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }

    async fn write(&mut self, word: &[u8; 4]) {
        let write =
            |cx: &mut Context<'_>| hyper::rt::Write::poll_write(Pin::new(&mut self.0), cx, word);
        let written = std::future::poll_fn(write).await;
        assert_eq!(written.expect("the client is there"), 4);
    }
}

#[test]
fn a_reset_ends_its_handler_alone() {
    run(async {
        let (host, begun, ended) = endless().await;
        let mut client = Http2Client::connect(&host).await;
        let first = client.ask("/").await;
        let _second = client.ask("/").await;
        reaches(&begun, 2).await;
        drop(first);
        reaches(&ended, 1).await;
        assert_eq!(*ended.borrow(), 1);
        let stats = host.server.registry.counters.stats();
        assert_eq!(stats.gauge(Gauge::Requests), 1);
    });
}

/// A body that says one word and then no more, and notes its end.
struct Silent {
    word: Option<Bytes>,
    ended: Arc<AtomicUsize>,
}

impl http_body::Body for Silent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        match self.word.take() {
            Some(word) => Poll::Ready(Some(Ok(http_body::Frame::data(word)))),
            None => Poll::Pending,
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_silent_answer_ends_with_its_stream_or_its_connection() {
    run(async {
        let ended = Arc::<AtomicUsize>::default();
        let ends = Arc::clone(&ended);
        let app = move |_request: Request| {
            let body = Silent {
                word: Some("one".into()),
                ended: Arc::clone(&ends),
            };
            async { Ok(Response::new(body.boxed_unsync())) }
        };
        let host = Host::start(options(), app).await;
        let mut client = Http2Client::connect(&host).await;
        let mut answers = Vec::new();
        for _ in 0..3 {
            let mut answer = client.ask("/").await.await.expect("a head").into_body();
            assert_eq!(answer.data().await.expect("a word").expect("whole"), "one");
            answers.push(answer);
        }
        answers.pop();
        while ended.load(Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(ended.load(Relaxed), 1, "reset");
        client.connection.abort();
        host.emptied().await;
        assert_eq!(ended.load(Relaxed), 3, "left by its client");
    });
}

#[test]
fn a_handler_that_wakes_itself_leaves_others_their_turn() {
    run(async {
        let app = async |request: Request| {
            if request.uri().path() == "/busy" {
                std::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    Poll::<()>::Pending
                })
                .await;
            }
            hello(request).await
        };
        let host = Host::start(options(), app).await;
        let mut client = Http2Client::connect(&host).await;
        let _busy = client.ask("/busy").await;
        client.hello().await;
        let mut other = host.connect().await;
        other.send(HELLO).await;
        other.expect(HELLO_ANSWER).await;
        client.hello().await;
    });
}
