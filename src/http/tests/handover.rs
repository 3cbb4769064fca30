//! Connections that are handed over, as their clients see it.

use std::time::Duration;

use std::cell::Cell;

use super::protocol::{UPGRADE, UPGRADED, upgrade_to_echo};
use super::*;
use crate::http::conn::handover::HandoverFuture;
use crate::http::registry::mode::HANDOVERS_MAX;
use crate::stats::Count;

/// Another server, which takes connections over and records the bytes that were read ahead.
pub(super) struct Successor {
    pub(super) server: Server,
    endpoint: Endpoint<Counted>,
    read_ahead: RefCell<Vec<Bytes>>,
    reply: Cell<Reply>,
    /// How many times it was asked to take a connection.
    pub(super) asked: Cell<usize>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Takes,
    /// Neither takes a connection nor gives it back.
    Waits,
    Refuses,
}

impl Successor {
    pub(super) fn new(reply: Reply) -> Rc<Self> {
        Self::with(options(), reply)
    }

    pub(super) fn with(http: Http, reply: Reply) -> Rc<Self> {
        let server = Server::new(http, crate::stats::WorkerStats::own());
        spawn_local(server.clock());
        let endpoint = server.endpoint(service_fn(hello_or_echo));
        Rc::new(Self {
            server,
            endpoint,
            read_ahead: RefCell::default(),
            reply: Cell::new(reply),
            asked: Cell::new(0),
            changed: Notify::new(),
        })
    }

    pub(super) fn change(&self, reply: Reply) {
        self.reply.set(reply);
        self.changed.notify_waiters();
    }

    /// How many connections it has.
    pub(super) fn count(&self) -> usize {
        self.server.connections()
    }
}

impl HandoverTarget<Counted> for Successor {
    fn hand_over(self: Rc<Self>, mut io: Counted, moved: Moved) -> HandoverFuture<Counted> {
        self.asked.set(self.asked.get() + 1);
        Box::pin(async move {
            while self.reply.get() == Reply::Waits {
                self.changed.notified().await;
            }
            let read_ahead = moved.read_ahead.clone();
            io.past = Some(moved);
            if self.reply.get() == Reply::Refuses {
                return Err(io);
            }
            self.read_ahead.borrow_mut().push(read_ahead);
            spawn_local(self.endpoint.serve(io));
            Ok(())
        })
    }
}

async fn start(successor: &Rc<Successor>) -> Host {
    Host::start_with_target(options().linger(SHORT), successor, hello).await
}

/// Waits until the host has accepted this many connections.
async fn accepted(host: &Host, count: usize) {
    until(|| host.server.connections() >= count).await;
}

#[test]
fn idle_connections_and_new_ones_are_handed_over_at_once() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let host = start(&successor).await;
        let mut clients = [host.connect().await, host.connect().await];
        clients[0].hello().await;
        accepted(&host, 2).await;
        host.server.hand_over();
        host.emptied().await;
        assert_eq!(successor.count(), 2);
        let late = host.connect().await;
        let [first, silent] = clients;
        for mut client in [first, silent, late] {
            client.hello().await;
        }
        host.emptied().await;
        assert_eq!(successor.server.count(Count::Requests), 3);
        assert!(successor.read_ahead.borrow().iter().all(Bytes::is_empty));
    });
}

#[test]
fn connections_at_rest_are_handed_over() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let host = start(&successor).await;
        let mut client = host.connect().await;
        client.hello().await;
        until(|| host.server.served() == 0).await;
        host.server.hand_over();
        host.emptied().await;
        client.hello().await;
        assert_eq!(successor.server.count(Count::Requests), 1);
    });
}

/// A connection that was sent its last response is not handed over.
#[test]
fn a_client_that_does_not_close_delays_the_drain_by_a_second_at_most() {
    run(async {
        for begin in [Server::hand_over, Server::drain] {
            let successor = Successor::new(Reply::Takes);
            let http = options()
                .header_timeout(Duration::from_secs(3600))
                .max_body_size(1);
            let host = Host::start_with_target(http, &successor, hello).await;
            let mut client = host.connect().await;
            client
                .send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n")
                .await;
            let response = "HTTP/1.1 413 Payload Too Large\r\nconnection: close\r\n\
                          content-length: 0\r\n\r\n";
            client.expect(response).await;
            client.expect_end().await;
            begin(&host.server);
            host.emptied().await;
        }
    });
}

#[test]
fn as_many_busy_connections_are_shared_as_asked_for() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let host = start(&successor).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut client = host.connect().await;
            client.hello().await;
            clients.push(client);
        }
        host.server.share(2, || Duration::ZERO);
        assert_eq!(
            successor.count(),
            0,
            "connections without requests are not shared"
        );
        for _ in 0..2 {
            for client in &mut clients {
                client.hello().await;
            }
        }
        assert_eq!(successor.count(), 2);
        assert_eq!(host.server.connections(), 2);
        let requests = host.server.count(Count::Requests) + successor.server.count(Count::Requests);
        assert_eq!(requests, 12);
    });
}

#[test]
fn a_shared_connection_that_is_given_back_is_served_and_may_be_handed_over_later() {
    run(async {
        let successor = Successor::new(Reply::Refuses);
        let host = start(&successor).await;
        let mut client = host.connect().await;
        host.server.share(9, || Duration::ZERO);
        client.hello().await;
        client.hello().await;
        assert_eq!(successor.asked.get(), 1, "once");
        host.server.share(9, || Duration::ZERO);
        client.hello().await;
        client.hello().await;
        assert_eq!(successor.asked.get(), 2, "once more");
        assert_eq!(host.server.count(Count::Requests), 4);
        successor.change(Reply::Takes);
        host.server.hand_over();
        host.emptied().await;
        client.hello().await;
        assert_eq!(successor.server.count(Count::Requests), 1);
    });
}

#[test]
fn a_busy_connection_is_handed_over_after_its_response() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let (gate, app) = gated(gated_hello);
        let http = options().linger(Duration::ZERO);
        let host = Host::start_with_target(http, &successor, app).await;
        let mut client = host.connect().await;
        client.send(HELLO.repeat(2)).await;
        gate.begun.notified().await;
        host.server.hand_over();
        yield_now().await;
        assert_eq!((host.server.connections(), successor.count()), (1, 0));
        // The second request was read together with the first, so it is served here too.
        for _ in 0..2 {
            gate.go.notify_one();
            client.expect(HELLO_RESPONSE).await;
        }
        host.emptied().await;
        client.hello().await;
        assert_eq!(successor.server.count(Count::Requests), 1);
    });
}

#[test]
fn a_connection_with_an_incomplete_head_is_handed_over_after_its_response() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let host = start(&successor).await;
        let mut slow = host.connect().await;
        slow.hello().await;
        let mut idle = host.connect().await;
        idle.send(HELLO).await;
        slow.send(&HELLO[..10]).await;
        idle.expect(HELLO_RESPONSE).await;
        host.server.hand_over();
        until(|| successor.count() > 0).await;
        assert_eq!(host.server.connections(), 1, "the idle one was handed over");
        slow.send(&HELLO[10..]).await;
        slow.expect(HELLO_RESPONSE).await;
        host.emptied().await;
        assert_eq!(host.server.count(Count::Requests), 3);
        slow.hello().await;
    });
}

#[test]
fn bytes_that_were_read_with_an_earlier_request_are_handed_over() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let host = start(&successor).await;
        let mut client = host.connect().await;
        client.send([HELLO, &HELLO[..10]].concat()).await;
        client.expect(HELLO_RESPONSE).await;
        host.server.hand_over();
        host.emptied().await;
        assert_eq!(*successor.read_ahead.borrow(), [&HELLO[..10]]);
    });
}

/// The rest of a body is not the next request, for either server.
#[test]
fn a_connection_with_an_unread_rest_of_a_body_is_not_handed_over() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let (gate, app) = gated(async |gate, request| {
            gate.pass().await;
            drop(request);
            Ok(text("x".repeat(LONG)))
        });
        let host = Host::start_with_target(options(), &successor, app).await;
        let mut client = host.connect().await;
        client.send(request_within_a_body()).await;
        gate.begun.notified().await;
        host.server.hand_over();
        gate.go.notify_one();
        client.expect(&long_last_response()).await;
        client.expect_end().await;
        drop(client);
        host.emptied().await;
        assert_eq!(successor.asked.get(), 0);
    });
}

#[cfg(feature = "http2")]
#[test]
fn a_client_that_has_sent_nothing_may_use_http2_after_a_hand_over() {
    run(async {
        for reply in [Reply::Takes, Reply::Refuses] {
            let successor = Successor::new(reply);
            let host = Host::start_with_target(options(), &successor, hello).await;
            let client = host.connect().await;
            accepted(&host, 1).await;
            host.server.hand_over();
            until(|| successor.asked.get() > 0).await;
            let (requests, connection) = h2::client::handshake(client.stream).await.expect("sent");
            let connection = spawn_local(connection);
            let mut requests = requests.ready().await.expect("it lives");
            let request = http::Request::get("http://test/")
                .body(())
                .expect("a request");
            let (response, _) = requests.send_request(request, true).expect("it lives");
            assert_eq!(
                response.await.expect("a response").status(),
                200,
                "{reply:?}"
            );
            drop(requests);
            connection.abort();
        }
    });
}

#[test]
fn a_connection_that_is_given_back_serves_one_more_request_in_its_linger_time() {
    run(async {
        let successor = Successor::new(Reply::Refuses);
        let host = start(&successor).await;
        let mut idle = host.connect().await;
        let mut busy = host.connect().await;
        idle.hello().await;
        busy.hello().await;
        host.server.hand_over();
        busy.last_hello().await;
        idle.expect_end().await;
        host.emptied().await;
    });
}

#[test]
fn a_request_that_comes_during_a_hand_over_waits() {
    run(async {
        let successor = Successor::new(Reply::Waits);
        let host = start(&successor).await;
        let mut clients = [host.connect().await, host.connect().await];
        for client in &mut clients {
            client.hello().await;
        }
        let other = Host::start(options().linger(SHORT), hello).await;
        let mut lingering = other.connect().await;
        lingering.hello().await;
        host.server.hand_over();
        other.server.drain();
        let [sender, silent] = &mut clients;
        sender.send(HELLO).await;
        // Idle connections are closed by now, after their linger time.
        lingering.expect_end().await;
        assert_eq!(host.server.connections(), 2);
        assert_eq!(host.server.count(Count::Requests), 2);
        // With a drain there is no other server to go to.
        host.server.drain();
        successor.change(Reply::Refuses);
        sender.expect_last_hello().await;
        silent.expect_end().await;
        host.emptied().await;
    });
}

/// There are more connections than hand-overs at a time.
#[test]
fn connections_that_wait_for_their_hand_over_are_served() {
    run(async {
        let successor = Successor::new(Reply::Waits);
        let host = start(&successor).await;
        let mut clients = Vec::new();
        for _ in 0..200 {
            let mut client = host.connect().await;
            client.hello().await;
            clients.push(client);
        }
        host.server.hand_over();
        until(|| successor.asked.get() >= HANDOVERS_MAX).await;
        for client in &mut clients {
            client.send(HELLO).await;
        }
        let answered = 200 + 200 - HANDOVERS_MAX as u64;
        until(|| host.server.count(Count::Requests) >= answered).await;
        successor.change(Reply::Takes);
        host.emptied().await;
        for client in &mut clients {
            client.expect(HELLO_RESPONSE).await;
        }
        assert_eq!(host.server.count(Count::Requests), answered);
        assert_eq!(
            successor.server.count(Count::Requests),
            HANDOVERS_MAX as u64
        );
        assert_eq!((successor.asked.get(), successor.count()), (200, 200));
    });
}

#[test]
fn a_cut_ends_a_connection_that_is_being_handed_over() {
    run(async {
        let successor = Successor::new(Reply::Waits);
        let host = start(&successor).await;
        let mut client = host.connect().await;
        client.hello().await;
        host.server.hand_over();
        yield_now().await;
        assert_eq!(host.server.cut(), 1);
        host.emptied().await;
        client.expect_end().await;
        successor.change(Reply::Takes);
        assert_eq!(successor.count(), 0);
    });
}

#[test]
fn an_upgraded_connection_is_not_handed_over() {
    run(async {
        let successor = Successor::new(Reply::Takes);
        let http = options().linger(Duration::ZERO);
        let host = Host::start_with_target(http, &successor, upgrade_to_echo).await;
        let mut client = host.connect().await;
        client.send(UPGRADE).await;
        client.expect(UPGRADED).await;
        let idle = host.connect().await;
        accepted(&host, 2).await;
        host.server.hand_over();
        until(|| successor.count() > 0).await;
        client.send("still there?").await;
        client.expect("still there?").await;
        drop((client, idle));
        host.emptied().await;
    });
}

#[test]
fn without_a_target_a_hand_over_is_a_drain() {
    run(async {
        let (gate, app) = gated(gated_hello);
        // A client that is silent for so long loses its connection. Far less than the default.
        let http = options().idle_timeout(Duration::from_secs(1));
        let host = Host::start(http, app).await;
        let mut idle = host.connect().await;
        let mut busy = host.connect().await;
        busy.send(HELLO).await;
        gate.begun.notified().await;
        accepted(&host, 2).await;
        host.server.hand_over();
        idle.expect_end().await;
        gate.go.notify_one();
        busy.expect_last_hello().await;
        host.emptied().await;
    });
}
