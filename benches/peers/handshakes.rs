//! What a connection costs within TLS 1.3: a handshake, one request and the end.
//!
//! In the one case no client keeps a ticket, and the server signs each handshake with its key on
//! P-256; in the other each resumes by the ticket of its connection before. A handshake of the
//! other kind counts as a failure.

use std::fs;
use std::time::Duration;

use crate::cost::{self, CONNECTIONS, hello};
use crate::identity::Identity;
use crate::load::{Handshakes, Plan, Tls};
use crate::peer::{Peer, Pem};
use crate::process::Trouble;
use crate::series::{Series, Unit};
use crate::session::{Session, Turn, series};

const CASES: [(Handshakes, &str, &str); 2] = [
    (
        Handshakes::Full,
        "cpu_handshake",
        "CPU per connection within TLS 1.3, 64 at a time: a full handshake and a request",
    ),
    (
        Handshakes::Resumed,
        "cpu_resumption",
        "CPU per connection within TLS 1.3, 64 at a time: a resumed handshake and a request",
    ),
];

pub(crate) fn measure(session: &mut Session) -> Vec<Series> {
    let identity = Identity::new();
    let peers: Vec<_> = private(&session.peers).collect();
    let (rounds, time) = (session.scale.rounds, expected(session.scale.turn));
    let taken = session.in_turn_of(&peers, "TLS", rounds, time, |session, peer| {
        turn(session, peer, &identity)
    });
    let figures = CASES.map(|(_, key, title)| (key.into(), title.into(), Unit::Micros));
    series(&taken, figures)
}

/// Those that are asked.
pub(crate) fn private(peers: &[Peer]) -> impl Iterator<Item = Peer> {
    peers.iter().copied().filter(|peer| peer.knows_tls())
}

/// How long a turn should take.
pub(crate) fn expected(turn: Duration) -> Duration {
    cost::expected_of(turn, CASES.len())
}

fn turn(session: &Session, peer: Peer, identity: &Identity) -> Result<Turn, Trouble> {
    let dir = tempfile::tempdir()?;
    let pem = Pem {
        certificate: dir.path().join("certificate.pem"),
        key: dir.path().join("key.pem"),
    };
    fs::write(&pem.certificate, &identity.certificate)?;
    fs::write(&pem.key, &identity.key)?;
    let server = session.start_private(peer, &pem)?;
    let mut turn = Turn {
        figures: Vec::new(),
        failures: 0,
    };
    for (handshakes, ..) in CASES {
        let plan = Plan::new(server.address, CONNECTIONS, hello().closing());
        let tls = Tls::trusting(identity.certificate(), handshakes);
        let cost = cost::of_load(&server, plan.within(tls), session.scale.turn)?;
        turn.figures.push(cost.micros);
        turn.failures += cost.failures;
    }
    Ok(turn)
}
