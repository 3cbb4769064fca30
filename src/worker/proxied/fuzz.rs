//! Fuzz test: any bytes at the beginning of a connection, in pieces.

use std::future::poll_fn;
use std::io::Write;
use std::net::Shutdown;
use std::task::Waker;

use tokio::runtime::Builder;

use super::tests::{pair, rest};
use super::*;
use crate::fuzz;

/// A socket's buffer takes this many bytes.
const LEN_MAX: usize = 16 << 10;

#[test]
fn streams() {
    let runtime = Builder::new_current_thread().enable_io().build();
    let runtime = runtime.expect("a runtime");
    fuzz::check("worker-proxied-streams", |bytes| {
        if bytes.len() > LEN_MAX {
            return;
        }
        let sizes = [LEN_MAX, 1 + bytes.len() / 3, 1 + bytes.len() / 17];
        for size in sizes {
            runtime.block_on(check(bytes, size));
        }
    });
}

async fn check(bytes: &[u8], size: usize) {
    let (mut balancer, mut stream) = pair();
    let mut proxied = Proxied::default();
    let mut outcome = Poll::Pending;
    let mut sent = 0;
    for piece in bytes.chunks(size) {
        balancer.write_all(piece).expect("room");
        sent += piece.len();
        // Until the piece is read, or the header is complete.
        while outcome.is_pending() && proxied.read.len() < sent {
            let mut cx = Context::from_waker(Waker::noop());
            outcome = proxied.poll_header(&mut stream, &mut cx);
            tokio::task::yield_now().await;
        }
    }
    balancer.shutdown(Shutdown::Write).expect("a socket");
    let outcome = match outcome {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => poll_fn(|cx| proxied.poll_header(&mut stream, cx)).await,
    };
    let Header::Whole { len, forwarded } = parse(bytes) else {
        assert!(outcome.is_err());
        return;
    };
    outcome.expect("there is a header");
    assert_eq!(proxied.forwarded(), forwarded);
    assert_eq!(rest(stream), &bytes[len..], "in pieces of {size}");
}
