//! Connections that have lived long enough, by their age or their requests.

use std::num::NonZeroU32;

use super::*;

#[test]
fn the_last_request_that_a_connection_may_carry_ends_it() {
    run(async {
        let http = options().max_connection_requests(NonZeroU32::new(3));
        let host = Host::start(http, hello).await;
        for pipelined in [false, true] {
            let mut client = host.connect().await;
            if pipelined {
                client.send(HELLO.repeat(3)).await;
            }
            for answer in [HELLO_ANSWER, HELLO_ANSWER, HELLO_LAST_ANSWER] {
                if !pipelined {
                    client.send(HELLO).await;
                }
                client.expect(answer).await;
            }
            client.expect_end().await;
        }
        host.emptied().await;
        assert_eq!(host.server.counts().spent, 2);
    });
}

#[test]
fn an_old_connection_ends_with_its_next_answer_and_not_before() {
    run(async {
        let http = options()
            .max_connection_age(SHORT)
            .header_timeout(SHORT * 10);
        let host = Host::start(http, hello).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.expect(HELLO_ANSWER).await;
        while host.server.counts().spent == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(host.server.connections(), 1, "nobody is cut off");
        client.send(HELLO).await;
        client.expect(HELLO_LAST_ANSWER).await;
        client.expect_end().await;
        host.emptied().await;
        assert_eq!(host.server.counts().spent, 1, "counted once");
    });
}
