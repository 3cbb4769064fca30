//! Clients that close the connection while no data of their response is ready.

use std::convert::Infallible;

use futures_util::stream::{self, StreamExt};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use prefork_server::{Error, Request, service_fn};

use crate::apps;
use crate::client::Client;
use crate::support::{Server, descriptors, pid_of, until};

tests! {
    a_silent_response_is_dropped_when_its_client_leaves,
}

/// Sends one word of a body that never ends.
pub(crate) fn app() -> Result<(), Error> {
    apps::server().workers(1).serve(async |_worker| {
        Ok(service_fn(async |_request: Request| {
            let word = Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"hello")));
            let words = stream::iter([word]).chain(stream::pending());
            Ok::<_, Infallible>(http::Response::new(StreamBody::new(words)))
        }))
    })
}

fn a_silent_response_is_dropped_when_its_client_leaves() {
    const CLIENTS: usize = 20;
    let mut server = Server::start_app("silent");
    let worker = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let before = descriptors(worker);
    let mut clients = Client::connect_many(address, CLIENTS);
    for client in &mut clients {
        client.ask("/");
        client.response_without_body();
        assert_eq!(client.take(10), b"5\r\nhello\r\n");
    }
    assert_eq!(descriptors(worker), before + CLIENTS);
    drop(clients);
    until(|| descriptors(worker) == before);
}
