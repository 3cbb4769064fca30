//! Bodies that the app still has when the next request of their connection has begun.

use std::future::poll_fn;
use std::sync::atomic::AtomicBool;
use std::task::{Wake, Waker};

use super::*;
use crate::http::registry::state::ConnState;
use crate::http::{Body, BodyError};
use crate::stats::WorkerStats;

/// The bodies that a handler keeps.
type Kept = Rc<RefCell<Vec<Body>>>;

/// A host whose handler keeps the body of each POST, and a client.
async fn keeping(http: Http) -> (Host, Client, Kept) {
    let kept = Kept::default();
    let bodies = Rc::clone(&kept);
    let app = move |request: Request| {
        if request.method() == http::Method::POST {
            bodies.borrow_mut().push(request.into_body());
        }
        async { Ok(text("hello")) }
    };
    let host = Host::start(http, app).await;
    let client = host.connect().await;
    (host, client, kept)
}

/// The client has sent the first request as a whole and the head of a second one, whose body is as
/// long as [`HELLO`]. It has both responses.
async fn two_kept(http: Http) -> (Host, Client, [Body; 2]) {
    let (host, mut client, kept) = keeping(http).await;
    for (length, body) in [(1, "x"), (HELLO.len(), "")] {
        let head = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n");
        client.send(head).await;
        // The body comes after the response, so that nobody has read it then.
        client.expect(HELLO_RESPONSE).await;
        client.send(body).await;
    }
    let two = kept.take().try_into().expect("two requests");
    (host, client, two)
}

/// Reads a body to its end, or drops it.
async fn end(body: Body, is_read: bool) {
    match is_read {
        true => assert_eq!(body.collect().await.expect("a body").to_bytes(), "x"),
        false => drop(body),
    }
}

/// The second body looks like a request.
#[test]
fn the_end_of_an_earlier_body_is_not_the_end_of_the_next_one() {
    run(async {
        for is_read in [true, false] {
            let (host, mut client, [first, second]) = two_kept(options().max_warm(0)).await;
            end(first, is_read).await;
            // Another connection makes this one rest, if it is idle.
            host.connect().await.hello().await;
            yield_now().await;
            client.send(HELLO).await;
            let second = second.collect().await.expect("a body");
            assert_eq!(second.to_bytes(), HELLO);
            client.hello().await;
        }
    });
}

#[test]
fn the_end_of_an_earlier_body_does_not_stop_the_timeout_of_the_next_one() {
    run(async {
        for is_read in [true, false] {
            let (_host, _client, [first, second]) = two_kept(options().body_timeout(SHORT)).await;
            let second = spawn_local(second.collect());
            yield_now().await;
            end(first, is_read).await;
            assert!(matches!(second.await, Ok(Err(BodyError::TimedOut))));
        }
    });
}

/// Notes what the state says of a request's body when the connection's task is woken.
struct Woken {
    state: Arc<ConnState>,
    is_left: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.is_left.fetch_or(self.state.is_body_unread(), Relaxed);
    }
}

/// If the connection's thread saw first that the body is left, it could let the connection rest or
/// go before hyper has discarded the body.
#[test]
fn hyper_knows_that_a_body_was_dropped_before_the_state_says_so() {
    run(async {
        let kept = Rc::<RefCell<Option<Body>>>::default();
        let body = Rc::clone(&kept);
        let app = move |request: Request| {
            body.replace(Some(request.into_body()));
            std::future::pending::<HandlerResult>()
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("a port"));
        let (client, accepted) = tokio::join!(client, listener.accept());
        let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhe";
        let mut client = client.expect("it listens");
        client.write_all(head.as_bytes()).await.expect("it is open");
        let server = Server::new(options(), WorkerStats::own());
        let mut serving = Box::pin(server.endpoint(service_fn(app)).serve(Counted {
            stream: accepted.expect("a client").0,
            version: Version::Http1,
            past: None,
            sockets: Arc::default(),
        }));
        let state = Arc::clone(&server.registry.members.borrow().entries[0].state);
        let woken = Arc::new(Woken {
            state: Arc::clone(&state),
            is_left: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&woken));
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            let polled = serving.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            match kept.borrow().is_some() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        drop(kept.take());
        assert!(state.is_body_unread());
        assert!(!woken.is_left.load(Relaxed));
    });
}

#[test]
fn a_response_does_not_wait_until_the_body_of_its_request_is_read() {
    run(async {
        let (_host, mut client, _kept) = keeping(options()).await;
        let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\n";
        client.send([head, "he"].concat()).await;
        client.expect(HELLO_RESPONSE).await;
    });
}
