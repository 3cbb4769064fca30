//! Which process model answers requests on kept-alive connections with the least CPU time?
//!
//! 64 connections stay open; each sends its next request when the answer to its last is there.
//! `prefork` is the binary of this package, `multi_thread` is tokio's multi-threaded runtime behind
//! one listener, `current_threads` is one single-threaded runtime per thread, each with a listener
//! of its own.
//!
//! Not measured: latency (a closed loop slows down together with the server), pipelining, more
//! connections than fit the cache, handlers that compute or wait, TLS, a network. `prefork` brings
//! its own tuning of hyper and the other two run plain hyper, so a difference is not the process
//! model's alone.

mod support;

fn main() {
    support::compare(
        "http_keepalive",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
}
