//! What does a connection cost that lives for one request?
//!
//! 64 clients connect, send one request with `Connection: close`, read to the end and connect
//! again. The server closes first, so the ports in TIME_WAIT are its own and the clients never run
//! out of theirs. To open a connection costs the one driving thread about as much as it costs a
//! server to accept it: look at the driver's column before reading anything into the throughput.
//!
//! Not measured: a queue that overflows, and how connections are spread. TLS handshakes are in
//! `tls.rs`.

use crate::load::Ask;
use crate::question::Question;
use crate::server::BODY;

pub(crate) fn questions() -> Vec<Question> {
    let ask = Ask::get("/").expecting(BODY).closing();
    vec![Question::new("churn_64", 64, ask).spread_unknown()]
}
