//! Bodies that the app still has when the next request of their connection has begun.

use super::*;
use crate::http::{Body, BodyError};

/// A host whose handler keeps each body, and a client that has sent the first request as a whole
/// and the head of a second one, whose body is as long as [`HELLO`]. It has both responses.
async fn two_kept(http: Http) -> (Host, Client, [Body; 2]) {
    let kept = Rc::<RefCell<Vec<Body>>>::default();
    let bodies = Rc::clone(&kept);
    let app = move |request: Request| {
        if request.method() == http::Method::POST {
            bodies.borrow_mut().push(request.into_body());
        }
        async { Ok(text("hello")) }
    };
    let host = Host::start(http, app).await;
    let mut client = host.connect().await;
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

/// The second body looks like a request.
#[test]
fn the_end_of_an_earlier_body_is_not_the_end_of_the_next_one() {
    run(async {
        for is_read in [true, false] {
            let (host, mut client, [first, second]) = two_kept(options().max_warm(0)).await;
            match is_read {
                true => assert_eq!(first.collect().await.expect("a body").to_bytes(), "x"),
                false => drop(first),
            }
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
            match is_read {
                true => assert_eq!(first.collect().await.expect("a body").to_bytes(), "x"),
                false => drop(first),
            }
            assert!(matches!(second.await, Ok(Err(BodyError::TimedOut))));
        }
    });
}
