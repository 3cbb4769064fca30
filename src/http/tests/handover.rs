//! Connections that leave for another server, as their clients see it.

use std::cell::Cell;
use std::future::pending;

use tokio::sync::Notify;
use tokio::task::yield_now;

use super::protocol::{UPGRADE, UPGRADED, upgrade_to_echo};
use super::*;
use crate::http::conn::handover::HandoverFuture;
use crate::http::registry::mode::HANDOVERS_MAX;

/// Another server, which takes over, and notes what was read ahead.
struct Successor {
    server: Server,
    front: Endpoint<Counted>,
    read_ahead: RefCell<Vec<Bytes>>,
    mood: Cell<Mood>,
    /// How many connections it was asked to take.
    asked: Cell<usize>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Takes,
    /// Neither takes nor gives back.
    Waits,
    Refuses,
}

impl Successor {
    fn new(mood: Mood) -> Rc<Self> {
        let server = Server::new(options(), crate::stats::WorkerStats::own());
        spawn_local(server.clock());
        let front = server.endpoint(service_fn(hello));
        Rc::new(Self {
            server,
            front,
            read_ahead: RefCell::default(),
            mood: Cell::new(mood),
            asked: Cell::new(0),
            changed: Notify::new(),
        })
    }

    fn change(&self, mood: Mood) {
        self.mood.set(mood);
        self.changed.notify_waiters();
    }

    /// How many connections it has.
    fn count(&self) -> usize {
        self.server.connections()
    }
}

impl HandoverTarget<Counted> for Successor {
    fn hand_over(self: Rc<Self>, mut io: Counted, read_ahead: Bytes) -> HandoverFuture<Counted> {
        self.asked.set(self.asked.get() + 1);
        Box::pin(async move {
            while self.mood.get() == Mood::Waits {
                self.changed.notified().await;
            }
            if self.mood.get() == Mood::Refuses {
                return Err(io);
            }
            self.read_ahead.borrow_mut().push(read_ahead);
            io.past = Past::Elsewhere;
            spawn_local(self.front.serve(io));
            Ok(())
        })
    }
}

async fn start(successor: &Rc<Successor>) -> Host {
    Host::start_with_heir(options().linger(SHORT), successor, service_fn(hello)).await
}

async fn ask(client: &mut Client) {
    client.send(HELLO).await;
    client.expect(HELLO_ANSWER).await;
}

/// The host has as many connections as there were made.
async fn accepted(host: &Host, count: usize) {
    while host.server.connections() < count {
        yield_now().await;
    }
}

#[test]
fn idle_connections_go_at_once_and_those_that_come_later_too() {
    run(async {
        let successor = Successor::new(Mood::Takes);
        let host = start(&successor).await;
        let mut clients = [host.connect().await, host.connect().await];
        ask(&mut clients[0]).await;
        accepted(&host, 2).await;
        host.server.hand_over();
        host.emptied().await;
        assert_eq!(successor.count(), 2);
        let late = host.connect().await;
        let [first, silent] = clients;
        for mut client in [first, silent, late] {
            ask(&mut client).await;
        }
        host.emptied().await;
        assert_eq!(successor.server.counts().requests, 3);
        assert!(successor.read_ahead.borrow().iter().all(Bytes::is_empty));
    });
}

#[test]
fn connections_at_rest_go_as_well() {
    run(async {
        let successor = Successor::new(Mood::Takes);
        let host = start(&successor).await;
        let mut client = host.connect().await;
        ask(&mut client).await;
        while host.server.served() > 0 {
            yield_now().await;
        }
        host.server.hand_over();
        host.emptied().await;
        ask(&mut client).await;
        assert_eq!(successor.server.counts().requests, 1);
    });
}

/// Of one that has been sent the last response nothing is left to hand over.
#[test]
fn a_client_that_does_not_close_delays_the_worker_by_a_second_at_most() {
    run(async {
        for leave in [Server::hand_over, Server::drain] {
            let successor = Successor::new(Mood::Takes);
            let http = options()
                .header_timeout(Duration::from_secs(3600))
                .max_body_size(1);
            let host = Host::start_with_heir(http, &successor, service_fn(hello)).await;
            let mut client = host.connect().await;
            client
                .send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n")
                .await;
            let answer = "HTTP/1.1 413 Payload Too Large\r\nconnection: close\r\n\
                          content-length: 0\r\n\r\n";
            client.expect(answer).await;
            client.expect_end().await;
            leave(&host.server);
            host.emptied().await;
        }
    });
}

#[test]
fn so_many_are_shared_and_no_more() {
    run(async {
        let successor = Successor::new(Mood::Takes);
        let host = start(&successor).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut client = host.connect().await;
            ask(&mut client).await;
            clients.push(client);
        }
        host.server.share(2);
        assert_eq!(
            successor.count(),
            0,
            "who asks for nothing is nobody's burden"
        );
        for _ in 0..2 {
            for client in &mut clients {
                ask(client).await;
            }
        }
        assert_eq!(successor.count(), 2);
        assert_eq!(host.server.connections(), 2);
        let requests = host.server.counts().requests + successor.server.counts().requests;
        assert_eq!(requests, 12);
    });
}

#[test]
fn what_nobody_takes_when_it_is_shared_stays_and_may_leave_later() {
    run(async {
        let successor = Successor::new(Mood::Refuses);
        let host = start(&successor).await;
        let mut client = host.connect().await;
        host.server.share(1);
        ask(&mut client).await;
        ask(&mut client).await;
        assert_eq!(successor.asked.get(), 1, "once");
        assert_eq!(host.server.counts().requests, 2);
        successor.change(Mood::Takes);
        host.server.hand_over();
        host.emptied().await;
        ask(&mut client).await;
        assert_eq!(successor.server.counts().requests, 1);
    });
}

#[test]
fn a_busy_connection_is_answered_and_goes_open() {
    run(async {
        let successor = Successor::new(Mood::Takes);
        let [begun, go] = [Rc::new(Notify::new()), Rc::new(Notify::new())];
        let (begin, gate) = (Rc::clone(&begun), Rc::clone(&go));
        let app = move |_| {
            let (begin, gate) = (Rc::clone(&begin), Rc::clone(&gate));
            async move {
                begin.notify_one();
                gate.notified().await;
                Ok::<_, BoxError>(text("hello"))
            }
        };
        let http = options().linger(Duration::ZERO);
        let host = Host::start_with_heir(http, &successor, service_fn(app)).await;
        let mut client = host.connect().await;
        client.send(HELLO.repeat(2)).await;
        begun.notified().await;
        host.server.hand_over();
        yield_now().await;
        assert_eq!((host.server.connections(), successor.count()), (1, 0));
        // The second one has been read with the first, so it is begun too.
        for _ in 0..2 {
            go.notify_one();
            client.expect(HELLO_ANSWER).await;
        }
        host.emptied().await;
        ask(&mut client).await;
        assert_eq!(successor.server.counts().requests, 1);
    });
}

#[test]
fn a_half_read_head_is_answered_first() {
    run(async {
        let successor = Successor::new(Mood::Takes);
        let host = start(&successor).await;
        let mut slow = host.connect().await;
        ask(&mut slow).await;
        let mut idle = host.connect().await;
        idle.send(HELLO).await;
        slow.send(&HELLO[..10]).await;
        idle.expect(HELLO_ANSWER).await;
        host.server.hand_over();
        while successor.count() == 0 {
            yield_now().await;
        }
        assert_eq!(host.server.connections(), 1, "the idle one is gone");
        slow.send(&HELLO[10..]).await;
        slow.expect(HELLO_ANSWER).await;
        host.emptied().await;
        assert_eq!(host.server.counts().requests, 3);
        ask(&mut slow).await;
    });
}

#[test]
fn what_was_read_with_an_earlier_request_goes_along() {
    run(async {
        let successor = Successor::new(Mood::Takes);
        let host = start(&successor).await;
        let mut client = host.connect().await;
        client.send([HELLO, &HELLO[..10]].concat()).await;
        client.expect(HELLO_ANSWER).await;
        host.server.hand_over();
        host.emptied().await;
        assert_eq!(*successor.read_ahead.borrow(), [&HELLO[..10]]);
    });
}

/// It is not the next request, whoever has the connection.
#[test]
fn what_nobody_read_of_a_body_does_not_go_along() {
    run(async {
        let successor = Successor::new(Mood::Takes);
        let [begun, go] = [Rc::new(Notify::new()), Rc::new(Notify::new())];
        let (begin, gate) = (Rc::clone(&begun), Rc::clone(&go));
        let app = move |request: Request| {
            let (begin, gate) = (Rc::clone(&begin), Rc::clone(&gate));
            async move {
                begin.notify_one();
                gate.notified().await;
                drop(request);
                Ok::<_, BoxError>(text("x".repeat(LONG)))
            }
        };
        let host = Host::start_with_heir(options(), &successor, service_fn(app)).await;
        let mut client = host.connect().await;
        client.send(request_within_a_body()).await;
        begun.notified().await;
        host.server.hand_over();
        go.notify_one();
        client.expect(&long_answer()).await;
        client.expect_end().await;
        drop(client);
        host.emptied().await;
        assert_eq!(successor.asked.get(), 0);
    });
}

#[cfg(feature = "http2")]
#[test]
fn a_client_that_has_not_spoken_yet_may_still_speak_http2() {
    run(async {
        for mood in [Mood::Takes, Mood::Refuses] {
            let successor = Successor::new(mood);
            let host = Host::start_with_heir(options(), &successor, service_fn(hello)).await;
            let client = host.connect().await;
            accepted(&host, 1).await;
            host.server.hand_over();
            while successor.asked.get() == 0 {
                yield_now().await;
            }
            let (requests, connection) = h2::client::handshake(client.stream).await.expect("sent");
            let connection = spawn_local(connection);
            let mut requests = requests.ready().await.expect("it lives");
            let request = http::Request::get("http://test/")
                .body(())
                .expect("a request");
            let (answer, _) = requests.send_request(request, true).expect("it lives");
            assert_eq!(answer.await.expect("an answer").status(), 200, "{mood:?}");
            drop(requests);
            connection.abort();
        }
    });
}

#[test]
fn what_an_heir_gives_back_lingers_and_answers_one_more() {
    run(async {
        let successor = Successor::new(Mood::Refuses);
        let host = start(&successor).await;
        let mut quiet = host.connect().await;
        let mut busy = host.connect().await;
        ask(&mut quiet).await;
        ask(&mut busy).await;
        host.server.hand_over();
        busy.send(HELLO).await;
        busy.expect(HELLO_LAST_ANSWER).await;
        busy.expect_end().await;
        quiet.expect_end().await;
        host.emptied().await;
    });
}

#[test]
fn what_comes_while_an_heir_makes_up_its_mind_waits() {
    run(async {
        let successor = Successor::new(Mood::Waits);
        let host = start(&successor).await;
        let mut clients = [host.connect().await, host.connect().await];
        for client in &mut clients {
            ask(client).await;
        }
        let other = Host::start(options().linger(SHORT), hello).await;
        let mut lingering = other.connect().await;
        ask(&mut lingering).await;
        host.server.hand_over();
        other.server.drain();
        let [taken, given_back] = &mut clients;
        taken.send(HELLO).await;
        // Idle connections linger no longer than that.
        lingering.expect_end().await;
        assert_eq!(host.server.connections(), 2);
        assert_eq!(host.server.counts().requests, 2);
        // The server's end takes the heir away.
        host.server.drain();
        successor.change(Mood::Refuses);
        taken.expect(HELLO_LAST_ANSWER).await;
        taken.expect_end().await;
        given_back.expect_end().await;
        host.emptied().await;
    });
}

/// More than are on their way at a time.
#[test]
fn whoever_is_not_called_yet_is_served() {
    run(async {
        let successor = Successor::new(Mood::Waits);
        let host = start(&successor).await;
        let mut clients = Vec::new();
        for _ in 0..200 {
            let mut client = host.connect().await;
            ask(&mut client).await;
            clients.push(client);
        }
        host.server.hand_over();
        while successor.asked.get() < HANDOVERS_MAX {
            yield_now().await;
        }
        for client in &mut clients {
            client.send(HELLO).await;
        }
        let answered = 200 + 200 - HANDOVERS_MAX as u64;
        while host.server.counts().requests < answered {
            yield_now().await;
        }
        successor.change(Mood::Takes);
        host.emptied().await;
        for client in &mut clients {
            client.expect(HELLO_ANSWER).await;
        }
        assert_eq!(host.server.counts().requests, answered);
        assert_eq!(successor.server.counts().requests, HANDOVERS_MAX as u64);
        assert_eq!((successor.asked.get(), successor.count()), (200, 200));
    });
}

#[test]
fn what_is_on_its_way_too_long_is_cut() {
    run(async {
        let successor = Successor::new(Mood::Waits);
        let host = start(&successor).await;
        let mut client = host.connect().await;
        ask(&mut client).await;
        host.server.hand_over();
        yield_now().await;
        assert_eq!(host.server.cut(), 1);
        host.emptied().await;
        client.expect_end().await;
        successor.change(Mood::Takes);
        assert_eq!(successor.count(), 0);
    });
}

#[test]
fn an_upgraded_connection_stays() {
    run(async {
        let successor = Successor::new(Mood::Takes);
        let http = options().linger(Duration::ZERO);
        let host = Host::start_with_heir(http, &successor, service_fn(upgrade_to_echo)).await;
        let mut client = host.connect().await;
        client.send(UPGRADE).await;
        client.expect(UPGRADED).await;
        let idle = host.connect().await;
        accepted(&host, 2).await;
        host.server.hand_over();
        while successor.count() == 0 {
            yield_now().await;
        }
        client.send("still there?").await;
        client.expect("still there?").await;
        drop((client, idle));
        host.emptied().await;
    });
}

#[test]
fn without_an_heir_it_is_a_drain() {
    run(async {
        let go = Rc::new(Notify::new());
        let gate = Rc::clone(&go);
        let app = move |request: Request| {
            let gate = Rc::clone(&gate);
            async move {
                match request.uri().path() {
                    "/hello" => gate.notified().await,
                    _ => pending().await,
                }
                Ok(text("hello"))
            }
        };
        let host = Host::start(options().linger(SHORT), app).await;
        let mut idle = host.connect().await;
        let mut busy = host.connect().await;
        busy.send(HELLO).await;
        accepted(&host, 2).await;
        host.server.hand_over();
        idle.expect_end().await;
        go.notify_one();
        busy.expect(HELLO_LAST_ANSWER).await;
        busy.expect_end().await;
        host.emptied().await;
    });
}
