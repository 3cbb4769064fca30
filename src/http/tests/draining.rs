//! The end of a worker, as its clients see it.

use std::future::pending;
use std::io::Read;
use std::time::Instant;

use tokio::sync::Notify;

use super::protocol::{UPGRADE, UPGRADED, switching, upgrade_to_echo};
use super::*;

#[test]
fn an_idle_connection_lingers_and_answers_one_more() {
    run(async {
        let host = Host::start(options().linger(SHORT), hello).await;
        let mut quiet = host.connect().await;
        let mut busy = host.connect().await;
        for client in [&mut quiet, &mut busy] {
            client.send(HELLO).await;
            client.expect(HELLO_ANSWER).await;
        }
        host.server.drain();
        busy.send(HELLO).await;
        busy.expect(HELLO_LAST_ANSWER).await;
        busy.expect_end().await;
        quiet.expect_end().await;
        host.emptied().await;
        assert_eq!(
            host.server.counts().idle_timeouts,
            0,
            "a drain is not a timeout"
        );
    });
}

/// As over TLS: it cannot be handed over, and the client may not send a POST twice.
#[test]
fn a_client_that_another_worker_will_serve_learns_of_the_end_from_a_response() {
    run(async {
        let http = options().linger(Duration::ZERO).header_timeout(SHORT);
        let host = Host::start(http, hello).await;
        let [mut asked, mut new] = [host.connect().await, host.connect().await];
        asked.send(HELLO).await;
        asked.expect(HELLO_ANSWER).await;
        while host.server.connections() < 2 {
            tokio::task::yield_now().await;
        }
        host.server.hand_over();
        let registry = &host.server.registry;
        let later = registry.now().after(3);
        while registry.now() < later {
            tokio::task::yield_now().await;
        }
        for client in [&mut asked, &mut new] {
            client.send(HELLO).await;
            client.expect(HELLO_LAST_ANSWER).await;
            client.expect_end().await;
        }
        host.emptied().await;
    });
}

#[test]
fn a_client_that_says_nothing_does_not_delay_its_worker_for_long() {
    run(async {
        let http = options().linger(Duration::ZERO).idle_timeout(SHORT);
        let host = Host::start(http, hello).await;
        let [mut asked, mut new] = [host.connect().await, host.connect().await];
        asked.send(HELLO).await;
        asked.expect(HELLO_ANSWER).await;
        host.server.hand_over();
        asked.expect_end().await;
        new.expect_end().await;
        host.emptied().await;
    });
}

/// Between the order to close and its turn: the event loop does not go round in between, so the
/// runtime cannot know of the bytes.
#[test]
fn a_request_that_comes_while_others_are_closed_is_answered() {
    run(async {
        let host = Host::start(options().linger(SHORT), hello).await;
        let mut clients = [host.connect().await, host.connect().await];
        for client in &mut clients {
            client.send(HELLO).await;
            client.expect(HELLO_ANSWER).await;
        }
        let clients = clients.map(|client| client.stream.into_std().expect("a socket"));
        let asking = clients
            .each_ref()
            .map(|client| client.try_clone().expect("a descriptor"));
        host.last_moment.lock().expect("one thread").extend(asking);
        host.server.drain();
        host.emptied().await;
        let answers = clients.map(|mut client| {
            let mut answer = String::new();
            client.set_nonblocking(false).expect("a socket");
            let _ = client.read_to_string(&mut answer);
            answer
        });
        assert_eq!(answers.iter().filter(|answer| answer.is_empty()).count(), 1);
        assert!(
            answers.iter().any(|answer| answer == HELLO_LAST_ANSWER),
            "{answers:?}"
        );
    });
}

#[test]
fn what_was_accepted_last_is_served() {
    run(async {
        let host = Host::start(options().linger(SHORT), hello).await;
        host.server.drain();
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.expect(HELLO_LAST_ANSWER).await;
        client.expect_end().await;
        let mut silent = host.connect().await;
        silent.expect_end().await;
        host.emptied().await;
    });
}

/// The end of a TLS 1.2 handshake is a whole round trip before the first request.
#[test]
fn a_new_connection_may_ask_later_than_an_idle_one() {
    run(async {
        let host = Host::start(options().linger(SHORT), hello).await;
        let mut new = host.connect().await;
        let mut idle = host.connect().await;
        idle.send(HELLO).await;
        idle.expect(HELLO_ANSWER).await;
        host.server.drain();
        idle.expect_end().await;
        new.send(HELLO).await;
        new.expect(HELLO_LAST_ANSWER).await;
        new.expect_end().await;
        host.emptied().await;
    });
}

#[test]
fn pipelined_requests_that_a_drain_does_not_answer_are_not_begun() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        host.server.drain();
        client.send(HELLO.repeat(2)).await;
        client.expect(HELLO_LAST_ANSWER).await;
        client.expect_end().await;
        assert_eq!(host.server.counts().requests, 1);
    });
}

#[test]
fn a_busy_connection_finishes_and_says_close() {
    run(async {
        let begun = Rc::new(Notify::new());
        let go = Rc::new(Notify::new());
        let (begin, gate) = (Rc::clone(&begun), Rc::clone(&go));
        let app = move |_| {
            let (begin, gate) = (Rc::clone(&begin), Rc::clone(&gate));
            async move {
                begin.notify_one();
                gate.notified().await;
                Ok(text("hello"))
            }
        };
        let host = Host::start(options().linger(Duration::ZERO), app).await;
        let mut idle = host.connect().await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        begun.notified().await;
        host.server.drain();
        // The moment of grace is over once the idle one is closed; the busy one is still there.
        idle.expect_end().await;
        assert_eq!(host.server.connections(), 1);
        go.notify_one();
        client.expect(HELLO_LAST_ANSWER).await;
        client.expect_end().await;
        host.emptied().await;
    });
}

#[test]
fn an_answer_begun_before_the_drain_is_finished_and_then_the_last() {
    run(async {
        let host = Host::start(options().linger(Duration::ZERO), echo_as_it_comes).await;
        let mut idle = host.connect().await;
        let mut client = host.connect().await;
        client
            .send("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        client
            .expect("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        host.server.drain();
        // From here on it is the clock that closes what becomes idle.
        idle.expect_end().await;
        client.send("3\r\nabc\r\n0\r\n\r\n").await;
        client.expect("3\r\nabc\r\n0\r\n\r\n").await;
        client.expect_end().await;
        host.emptied().await;
    });
}

#[test]
fn a_half_read_head_keeps_its_deadline_in_a_drain() {
    run(async {
        let host = Host::start(options().linger(Duration::ZERO), hello).await;
        let mut slow = host.connect().await;
        slow.send(HELLO).await;
        slow.expect(HELLO_ANSWER).await;
        let mut idle = host.connect().await;
        idle.send(HELLO).await;
        slow.send(&HELLO[..10]).await;
        idle.expect(HELLO_ANSWER).await;
        host.server.drain();
        idle.expect_end().await;
        slow.send(&HELLO[10..]).await;
        slow.expect(HELLO_LAST_ANSWER).await;
        slow.expect_end().await;
        host.emptied().await;
    });
}

#[test]
fn what_is_left_is_cut_and_counted() {
    run(async {
        let begun = Rc::new(Notify::new());
        let begin = Rc::clone(&begun);
        let app = move |_| {
            begin.notify_one();
            pending()
        };
        let host = Host::start(options(), app).await;
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = host.connect().await;
            client.send(HELLO).await;
            begun.notified().await;
            clients.push(client);
        }
        host.server.drain();
        assert_eq!(host.server.cut(), 3);
        assert_eq!(host.server.cut(), 0, "each is cut once");
        host.emptied().await;
        assert_eq!(host.server.counts().cut, 3);
        for client in &mut clients {
            assert_eq!(client.rest().await, "");
        }
    });
}

#[test]
fn an_upgraded_connection_outlives_the_drain_and_not_the_cut() {
    run(async {
        let host = Host::start(options().linger(Duration::ZERO), upgrade_to_echo).await;
        let mut idle = host.connect().await;
        let mut client = host.connect().await;
        client.send(UPGRADE).await;
        client.expect(UPGRADED).await;
        host.server.drain();
        idle.expect_end().await;
        client.send("still there?").await;
        client.expect("still there?").await;
        assert_eq!(host.server.cut(), 1);
        host.emptied().await;
        client.expect_end().await;
    });
}

#[test]
fn an_upgraded_connection_ends_after_its_grace() {
    run(async {
        let host = Host::start(options().upgrade_grace(SHORT), upgrade_to_echo).await;
        let [mut stays, mut leaves] = [host.connect().await, host.connect().await];
        for client in [&mut stays, &mut leaves] {
            client.send(UPGRADE).await;
            client.expect(UPGRADED).await;
        }
        let begun = Instant::now();
        host.server.drain();
        drop(leaves);
        host.emptied().await;
        assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
        stays.expect_end().await;
        let counts = host.server.counts();
        assert_eq!((counts.upgrades_cut, counts.cut), (1, 0));
        assert_eq!(host.server.cut(), 0, "nobody is left");
    });
}

#[test]
fn who_does_not_let_go_of_an_upgraded_stream_keeps_nobody_waiting() {
    run(async {
        let kept = Rc::<RefCell<Option<hyper::upgrade::Upgraded>>>::default();
        let keeps = Rc::clone(&kept);
        let app = move |mut request: Request| {
            let keeps = Rc::clone(&keeps);
            let upgrade = hyper::upgrade::on(&mut request);
            spawn_local(async move {
                *keeps.borrow_mut() = Some(upgrade.await.expect("the response switches"));
            });
            async { switching() }
        };
        let host = Host::start(options().upgrade_grace(SHORT), app).await;
        let mut client = host.connect().await;
        client.send(UPGRADE).await;
        client.expect(UPGRADED).await;
        host.server.drain();
        host.emptied().await;
        assert_eq!(host.server.counts().upgrades_cut, 1);
        let mut stream = kept.take().expect("upgraded");
        let write = |cx: &mut Context<'_>| {
            hyper::rt::Write::poll_write(Pin::new(&mut stream), cx, b"too late")
        };
        let written = std::future::poll_fn(write).await;
        let error = written.expect_err("it was cut");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted);
        drop(stream);
        client.expect_end().await;
    });
}
