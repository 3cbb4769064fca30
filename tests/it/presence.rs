//! Clients that close the connection while no data of their response is ready.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
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
            let words = Words(Some(Bytes::from_static(b"hello")));
            Ok::<_, Infallible>(http::Response::new(words))
        }))
    })
}

struct Words(Option<Bytes>);

impl Body for Words {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(word) => Poll::Ready(Some(Ok(Frame::data(word)))),
            None => Poll::Pending,
        }
    }
}

fn a_silent_response_is_dropped_when_its_client_leaves() {
    const CLIENTS: usize = 20;
    let mut server = Server::start_app("silent");
    let worker = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let before = descriptors(worker);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        client.ask("/");
        client.response_without_body();
        assert_eq!(client.take(10), b"5\r\nhello\r\n");
    }
    assert_eq!(descriptors(worker), before + CLIENTS);
    drop(clients);
    until(|| descriptors(worker) == before);
}
