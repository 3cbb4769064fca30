//! A drain, as clients see it.

use std::io::Read;
use std::time::Instant;

use hyper_util::rt::TokioIo;

use super::protocol::{UPGRADE, UPGRADED, switching, upgrade_to_echo};
use super::*;
use crate::stats::Count;

#[test]
fn an_idle_connection_serves_one_more_request_in_its_linger_time() {
    run_each_kind(async || {
        let host = Host::start(options().linger(SHORT), hello).await;
        let mut idle = host.connect().await;
        let mut busy = host.connect().await;
        for client in [&mut idle, &mut busy] {
            client.hello().await;
        }
        host.server.drain();
        busy.last_hello().await;
        idle.expect_end().await;
        host.emptied().await;
        assert_eq!(
            host.server.count(Count::IdleTimeouts),
            0,
            "a drain is not a timeout"
        );
    });
}

/// The connection cannot be handed over, as with TLS, and the client may not send a POST twice.
#[test]
fn before_a_next_worker_a_connection_without_target_ends_with_its_next_response() {
    run_each_kind(async || {
        let http = options().linger(Duration::ZERO).header_timeout(SHORT);
        let host = Host::start(http, hello).await;
        let [mut served, mut new] = [host.connect().await, host.connect().await];
        served.hello().await;
        until(|| host.server.connections() >= 2).await;
        host.server.hand_over();
        let registry = &host.server.registry;
        let later = registry.now().after(3);
        until(|| registry.now() >= later).await;
        for client in [&mut served, &mut new] {
            client.last_hello().await;
        }
        host.emptied().await;
    });
}

#[test]
fn before_a_next_worker_a_silent_connection_is_closed() {
    run_each_kind(async || {
        let http = options().linger(Duration::ZERO).idle_timeout(SHORT);
        let host = Host::start(http, hello).await;
        let [mut served, mut new] = [host.connect().await, host.connect().await];
        served.hello().await;
        host.server.hand_over();
        served.expect_end().await;
        new.expect_end().await;
        host.emptied().await;
    });
}

/// The request comes after the order to close and before the task carries it out. The event loop
/// does not turn in between, so the runtime does not know of the bytes.
#[test]
fn a_request_that_comes_while_other_connections_are_closed_is_answered() {
    run_each_kind(async || {
        let host = Host::start(options().linger(SHORT), hello).await;
        let mut clients = [host.connect().await, host.connect().await];
        for client in &mut clients {
            client.hello().await;
        }
        let clients = clients.map(|client| client.stream.into_std().expect("a socket"));
        let sending = clients
            .each_ref()
            .map(|client| client.try_clone().expect("a descriptor"));
        host.sockets.last_moment().extend(sending);
        host.server.drain();
        host.emptied().await;
        let responses = clients.map(|mut client| {
            let mut response = String::new();
            client.set_nonblocking(false).expect("a socket");
            let _ = client.read_to_string(&mut response);
            response
        });
        assert_eq!(
            responses
                .iter()
                .filter(|response| response.is_empty())
                .count(),
            1
        );
        assert!(
            responses
                .iter()
                .any(|response| response == HELLO_LAST_RESPONSE),
            "{responses:?}"
        );
    });
}

#[test]
fn a_connection_that_was_accepted_after_the_drain_began_is_served() {
    run_each_kind(async || {
        let host = Host::start(options().linger(SHORT), hello).await;
        host.server.drain();
        let mut client = host.connect().await;
        client.last_hello().await;
        let mut silent = host.connect().await;
        silent.expect_end().await;
        host.emptied().await;
    });
}

/// A TLS 1.2 handshake ends a whole round trip before the first request.
#[test]
fn a_new_connection_lingers_longer_than_an_idle_one() {
    run_each_kind(async || {
        let host = Host::start(options().linger(SHORT), hello).await;
        let mut new = host.connect().await;
        let mut idle = host.connect().await;
        idle.hello().await;
        host.server.drain();
        idle.expect_end().await;
        new.last_hello().await;
        host.emptied().await;
    });
}

#[test]
fn pipelined_requests_after_the_last_response_are_not_begun() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        host.server.drain();
        client.send(HELLO.repeat(2)).await;
        client.expect_last_hello().await;
        assert_eq!(host.server.count(Count::Requests), 1);
    });
}

#[test]
fn a_busy_connection_ends_with_connection_close() {
    run_each_kind(async || {
        let (gate, app) = gated(gated_hello);
        let host = Host::start(options().linger(Duration::ZERO), app).await;
        let mut idle = host.connect().await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        gate.begun.notified().await;
        host.server.drain();
        // The linger time is over once the idle connection is closed. The busy one is still open.
        idle.expect_end().await;
        assert_eq!(host.server.connections(), 1);
        gate.go.notify_one();
        client.expect_last_hello().await;
        host.emptied().await;
    });
}

#[test]
fn a_response_that_began_before_the_drain_is_finished_and_is_the_last_one() {
    run_each_kind(async || {
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
        // From here on the clock closes connections that become idle.
        idle.expect_end().await;
        client.send("3\r\nabc\r\n0\r\n\r\n").await;
        client.expect("3\r\nabc\r\n0\r\n\r\n").await;
        client.expect_end().await;
        host.emptied().await;
    });
}

#[test]
fn an_incomplete_head_keeps_its_deadline_in_a_drain() {
    run_each_kind(async || {
        let host = Host::start(options().linger(Duration::ZERO), hello).await;
        let mut slow = host.connect().await;
        slow.hello().await;
        let mut idle = host.connect().await;
        idle.send(HELLO).await;
        slow.send(&HELLO[..10]).await;
        idle.expect(HELLO_RESPONSE).await;
        host.server.drain();
        idle.expect_end().await;
        slow.send(&HELLO[10..]).await;
        slow.expect_last_hello().await;
        host.emptied().await;
    });
}

#[test]
fn a_cut_ends_and_counts_each_connection_once() {
    run_each_kind(async || {
        let (gate, app) = gated(gated_hello);
        let host = Host::start(options(), app).await;
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = host.connect().await;
            client.send(HELLO).await;
            gate.begun.notified().await;
            clients.push(client);
        }
        host.server.drain();
        assert_eq!(host.server.cut(), 3);
        assert_eq!(host.server.cut(), 0, "each is cut once");
        host.emptied().await;
        assert_eq!(host.server.count(Count::Cut), 3);
        for client in &mut clients {
            assert_eq!(client.rest().await, "");
        }
    });
}

#[test]
fn a_drain_does_not_end_an_upgraded_connection_and_a_cut_does() {
    run_each_kind(async || {
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
    run_each_kind(async || {
        let host = Host::start(options().upgrade_grace(SHORT), upgrade_to_echo).await;
        let [mut open, mut closed] = [host.connect().await, host.connect().await];
        for client in [&mut open, &mut closed] {
            client.send(UPGRADE).await;
            client.expect(UPGRADED).await;
        }
        let begun = Instant::now();
        host.server.drain();
        drop(closed);
        host.emptied().await;
        assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
        open.expect_end().await;
        assert_eq!(host.server.count(Count::UpgradesCut), 1);
        assert_eq!(host.server.count(Count::Cut), 0);
        assert_eq!(host.server.cut(), 0, "no connection is left");
    });
}

#[test]
fn a_task_that_keeps_its_upgraded_stream_does_not_delay_the_drain() {
    run_each_kind(async || {
        let stored = Rc::<RefCell<Option<hyper::upgrade::Upgraded>>>::default();
        let sink = Rc::clone(&stored);
        let app = move |mut request: Request| {
            let sink = Rc::clone(&sink);
            let upgrade = hyper::upgrade::on(&mut request);
            spawn_local(async move {
                *sink.borrow_mut() = Some(upgrade.await.expect("the response switches"));
            });
            async { switching() }
        };
        let host = Host::start(options().upgrade_grace(SHORT), app).await;
        let mut client = host.connect().await;
        client.send(UPGRADE).await;
        client.expect(UPGRADED).await;
        host.server.drain();
        host.emptied().await;
        assert_eq!(host.server.count(Count::UpgradesCut), 1);
        let mut stream = TokioIo::new(stored.take().expect("upgraded"));
        let written = stream.write(b"too late").await;
        let error = written.expect_err("it was cut");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted);
        drop(stream);
        client.expect_end().await;
    });
}
