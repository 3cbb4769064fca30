//! Which process model accepts, answers and closes connections with the least CPU time?
//!
//! 64 clients connect, send one request with `Connection: close`, read to the end and connect
//! again. The three servers are those of `http_keepalive`.
//!
//! Not measured: the latency of connecting, a listener's queue that overflows, TLS handshakes, a
//! network. The server closes first, so the ports in TIME_WAIT are its own and the clients never
//! run out of theirs. Opening a connection costs the one driving thread about as much as accepting
//! it costs a server: look at the driver's column before reading anything into the wall clock.

mod support;

fn main() {
    support::compare(
        "http_churn",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
}
