//! Connections that end for their age or the number of their requests.

use std::num::NonZeroU32;

use super::*;
use crate::stats::Count;

#[test]
fn the_response_to_the_last_allowed_request_ends_the_connection() {
    run(async {
        let http = options().max_connection_requests(NonZeroU32::new(3));
        let host = Host::start(http, hello).await;
        for pipelined in [false, true] {
            let mut client = host.connect().await;
            if pipelined {
                client.send(HELLO.repeat(3)).await;
            }
            for response in [HELLO_RESPONSE, HELLO_RESPONSE, HELLO_LAST_RESPONSE] {
                if !pipelined {
                    client.send(HELLO).await;
                }
                client.expect(response).await;
            }
            client.expect_end().await;
        }
        host.emptied().await;
        assert_eq!(host.server.count(Count::Spent), 2);
    });
}

#[test]
fn an_old_connection_ends_with_its_next_response_and_not_earlier() {
    run(async {
        let http = options()
            .max_connection_age(SHORT)
            .header_timeout(SHORT * 10);
        let host = Host::start(http, hello).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.expect(HELLO_RESPONSE).await;
        while host.server.count(Count::Spent) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(host.server.connections(), 1, "an old connection stays open");
        client.send(HELLO).await;
        client.expect(HELLO_LAST_RESPONSE).await;
        client.expect_end().await;
        host.emptied().await;
        assert_eq!(host.server.count(Count::Spent), 1, "counted once");
    });
}
