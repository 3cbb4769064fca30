//! What a connection costs within TLS 1.3: a handshake, one request and the end.
//!
//! In the one case no client keeps a ticket, and the server signs each handshake with its key on
//! P-256; in the other each resumes by the ticket of its connection before. A handshake of the
//! other kind counts as a failure.

use std::fs;

use crate::cost::{self, hello, plan};
use crate::load::{Handshakes, Tls};
use crate::peer::{Peer, Pem};
use crate::process::Trouble;
use crate::question::Figure;
use crate::session::Session;
use crate::support::turns::Turn;

const CASES: [(Handshakes, &str, &str); 2] = [
    (Handshakes::Full, "cpu_handshake", "full"),
    (Handshakes::Resumed, "cpu_resumption", "resumed"),
];

pub(crate) fn figures() -> Vec<Figure> {
    let title = |kind| {
        format!("CPU per connection within TLS 1.3, 64 at a time: a {kind} handshake and a request")
    };
    CASES
        .map(|(_, key, kind)| Figure::compared(key, title(kind), "us"))
        .into()
}

pub(crate) fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let identity = &session.identity;
    let dir = tempfile::tempdir()?;
    let pem = Pem {
        certificate: dir.path().join("certificate.pem"),
        key: dir.path().join("key.pem"),
    };
    fs::write(&pem.certificate, &identity.certificate)?;
    fs::write(&pem.key, &identity.key)?;
    let server = session.start_private(peer, &pem)?;
    let mut turn = Turn::default();
    for (handshakes, key, _) in CASES {
        let tls = Tls::trusting(identity.certificate(), handshakes);
        let plan = plan(&server, hello().closing()).within(tls);
        cost::of_load(&server, plan, session.scale.turn, (key, &mut turn))?;
    }
    Ok(turn)
}
