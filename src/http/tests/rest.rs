//! Connections at rest: they give up all but their socket, and clients see no difference.

use super::*;
use crate::stats::Count;

/// Waits until this many connections are served, and the others rest.
async fn wait_until_served(host: &Host, count: usize) {
    until(|| host.server.served() == count).await;
}

#[test]
fn a_connection_on_which_nothing_has_come_goes_to_rest() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        until(|| host.server.connections() > 0).await;
        wait_until_served(&host, 0).await;
        client.hello().await;
        assert_eq!(host.server.served(), 1);
    });
}

#[test]
fn an_idle_connection_goes_to_rest_and_is_served_again() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        for _ in 0..2 {
            client.hello().await;
            assert_eq!(host.server.served(), 1);
            wait_until_served(&host, 0).await;
            assert_eq!(host.server.connections(), 1);
        }
        drop(client);
        host.emptied().await;
    });
}

#[test]
fn not_more_connections_are_served_than_the_limit() {
    run(async {
        let host = Host::start(options().max_warm(3), hello).await;
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(host.connect().await);
        }
        for round in 0..3 {
            for client in &mut clients {
                client.hello().await;
                assert!(host.server.served() <= 3, "round {round}");
            }
        }
        assert_eq!(host.server.count(Count::Requests), 60);
    });
}

#[test]
fn more_connections_than_the_limit_are_served_while_all_are_busy() {
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
        wait_until_served(&host, 6).await;
        gate.add_permits(6);
        for client in &mut clients {
            client.expect(HELLO_RESPONSE).await;
        }
        clients[0].hello().await;
        wait_until_served(&host, 0).await;
        assert_eq!(host.server.connections(), 6);
    });
}

/// With a limit of zero every request finds its connection at rest, except a request that begins
/// before the earlier one has its response.
#[test]
fn no_byte_is_lost_wherever_a_request_is_split() {
    run(async {
        let host = Host::start(options().max_warm(0), echo).await;
        let request = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\nabc\r\n";
        let response = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        let [mut one, mut other] = [host.connect().await, host.connect().await];
        for cut in 1..2 * request.len() {
            let twice = [&request[..], &request[..]].concat();
            one.send(&twice[..cut]).await;
            other.send(&request).await;
            other.expect(response).await;
            one.send(&twice[cut..]).await;
            one.expect(response).await;
            one.expect(response).await;
        }
        drop((one, other));
        host.emptied().await;
    });
}

#[test]
fn a_connection_at_rest_has_the_idle_timeout() {
    run(async {
        let host = Host::start(options().max_warm(0).idle_timeout(SHORT), hello).await;
        let mut client = host.connect().await;
        client.hello().await;
        let mut other = host.connect().await;
        other.hello().await;
        client.expect_end().await;
        other.expect_end().await;
        host.emptied().await;
        assert_eq!(host.server.count(Count::IdleTimeouts), 2);
    });
}

#[test]
fn a_drain_closes_connections_at_rest_and_answers_requests_on_their_way() {
    run(async {
        let host = Host::start(options(), hello).await;
        let [mut silent, mut late] = [host.connect().await, host.connect().await];
        silent.hello().await;
        late.hello().await;
        wait_until_served(&host, 0).await;
        host.server.drain();
        late.last_hello().await;
        silent.expect_end().await;
        host.emptied().await;
    });
}

#[test]
fn a_cut_ends_a_connection_at_rest() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.hello().await;
        wait_until_served(&host, 0).await;
        assert_eq!(host.server.cut(), 1);
        client.expect_end().await;
        host.emptied().await;
    });
}

/// Both connections wake at once. The first one is served, so the other one is ordered to rest at
/// the moment in which it has responded.
#[test]
fn the_unread_rest_of_a_body_is_no_request_after_a_rest() {
    run(async {
        let app = async |request: Request| {
            Ok(text(match request.uri().path() {
                "/hello" => "hello".to_owned(),
                _ => "x".repeat(LONG),
            }))
        };
        let host = Host::start(options().max_warm(1), app).await;
        let [mut resting, mut active] = [host.connect().await, host.connect().await];
        resting.hello().await;
        active.hello().await;
        wait_until_served(&host, 1).await;
        resting.send(HELLO).await;
        active.send(request_within_a_body()).await;
        active.expect(&long_last_response()).await;
        resting.expect(HELLO_RESPONSE).await;
        active.expect_end().await;
        assert_eq!(host.server.count(Count::Requests), 4);
    });
}
