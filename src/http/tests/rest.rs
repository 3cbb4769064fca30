//! Connections at rest: they give up all but their socket, and nobody can tell.

use tokio::task::yield_now;

use super::*;

/// Ends when so few connections are served, the others being at rest.
async fn served(host: &Host, count: usize) {
    while host.server.served() != count {
        yield_now().await;
    }
}

async fn ask(client: &mut Client) {
    client.send(HELLO).await;
    client.expect(HELLO_ANSWER).await;
}

#[test]
fn a_connection_that_has_never_said_a_word_goes_to_rest_too() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        while host.server.connections() == 0 {
            yield_now().await;
        }
        served(&host, 0).await;
        ask(&mut client).await;
        assert_eq!(host.server.served(), 1);
    });
}

#[test]
fn a_connection_that_is_idle_for_a_while_goes_to_rest_and_comes_back() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        for _ in 0..2 {
            ask(&mut client).await;
            assert_eq!(host.server.served(), 1);
            served(&host, 0).await;
            assert_eq!(host.server.connections(), 1);
        }
        drop(client);
        host.emptied().await;
    });
}

#[test]
fn there_are_not_more_served_than_may_be() {
    run(async {
        let host = Host::start(options().max_warm(3), hello).await;
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(host.connect().await);
        }
        for round in 0..3 {
            for client in &mut clients {
                ask(client).await;
                assert!(host.server.served() <= 3, "round {round}");
            }
        }
        assert_eq!(host.server.counts().requests, 60);
    });
}

#[test]
fn more_are_served_while_all_of_them_work() {
    run(async {
        let gate = Rc::new(tokio::sync::Semaphore::new(0));
        let opened = Rc::clone(&gate);
        let app = move |_| {
            let gate = Rc::clone(&opened);
            async move {
                let _pass = gate.acquire().await.expect("open");
                Ok(text("hello"))
            }
        };
        let host = Host::start(options().max_warm(2), app).await;
        let mut clients = Vec::new();
        for _ in 0..6 {
            let mut client = host.connect().await;
            client.send(HELLO).await;
            clients.push(client);
        }
        served(&host, 6).await;
        gate.add_permits(6);
        for client in &mut clients {
            client.expect(HELLO_ANSWER).await;
        }
        ask(&mut clients[0]).await;
        served(&host, 0).await;
        assert_eq!(host.server.connections(), 6);
    });
}

/// With room for none every request finds its connection at rest, but for those that begin before
/// the one before is answered.
#[test]
fn no_byte_is_lost_however_requests_are_cut() {
    run(async {
        let host = Host::start(options().max_warm(0), echo).await;
        let request = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\nabc\r\n";
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        let [mut one, mut other] = [host.connect().await, host.connect().await];
        for cut in 1..2 * request.len() {
            let twice = [&request[..], &request[..]].concat();
            one.send(&twice[..cut]).await;
            other.send(&request).await;
            other.expect(answer).await;
            one.send(&twice[cut..]).await;
            one.expect(answer).await;
            one.expect(answer).await;
        }
        drop((one, other));
        host.emptied().await;
    });
}

#[test]
fn a_connection_at_rest_has_its_deadline() {
    run(async {
        let host = Host::start(options().max_warm(0).idle_timeout(SHORT), hello).await;
        let mut client = host.connect().await;
        ask(&mut client).await;
        let mut other = host.connect().await;
        ask(&mut other).await;
        client.expect_end().await;
        other.expect_end().await;
        host.emptied().await;
        assert_eq!(host.server.counts().idle_timeouts, 2);
    });
}

#[test]
fn a_drain_closes_a_connection_at_rest_and_answers_what_was_on_its_way() {
    run(async {
        let host = Host::start(options(), hello).await;
        let [mut silent, mut late] = [host.connect().await, host.connect().await];
        ask(&mut silent).await;
        ask(&mut late).await;
        served(&host, 0).await;
        host.server.drain();
        late.send(HELLO).await;
        late.expect(HELLO_LAST_ANSWER).await;
        late.expect_end().await;
        silent.expect_end().await;
        host.emptied().await;
    });
}

#[test]
fn a_cut_ends_a_connection_at_rest() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        ask(&mut client).await;
        served(&host, 0).await;
        assert_eq!(host.server.cut(), 1);
        client.expect_end().await;
        host.emptied().await;
    });
}

/// Both connections wake at once. The first that does is served, so that the other is to rest in
/// the moment in which it has answered.
#[test]
fn what_nobody_read_of_a_body_is_no_request_after_a_rest() {
    run(async {
        let app = async |request: Request| {
            Ok(text(match request.uri().path() {
                "/hello" => "hello".to_owned(),
                _ => "x".repeat(LONG),
            }))
        };
        let host = Host::start(options().max_warm(1), app).await;
        let [mut resting, mut active] = [host.connect().await, host.connect().await];
        ask(&mut resting).await;
        ask(&mut active).await;
        served(&host, 1).await;
        resting.send(HELLO).await;
        active.send(request_within_a_body()).await;
        active.expect(&long_answer()).await;
        resting.expect(HELLO_ANSWER).await;
        active.expect_end().await;
        assert_eq!(host.server.counts().requests, 4);
    });
}
