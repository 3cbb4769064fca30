//! The memory of idle connections within TLS, and of HTTP/2.

use std::net::TcpStream;

use crate::http2;
use crate::load::{Driver, Handshakes, Plan, Tls};
use crate::options::Scale;
use crate::peer::{Allocator, BODY, Peer, Running};
use crate::process::Trouble;
use crate::question::Shown;
use crate::report::written;
use crate::session::{Session, Setup, Version};
use crate::support::turns::Turn;
use crate::turns::{full_at_rest, hello};

struct Protocol {
    figure: &'static str,
    name: &'static str,
    http: Version,
    security: Security,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Security {
    Open,
    Tls,
}

const PROTOCOLS: [Protocol; 3] = [
    Protocol {
        figure: "idle_tls_http1",
        name: "HTTP/1.1 within TLS",
        http: Version::Http1,
        security: Security::Tls,
    },
    Protocol {
        figure: "idle_http2",
        name: "HTTP/2",
        http: Version::Http2,
        security: Security::Open,
    },
    Protocol {
        figure: "idle_tls_http2",
        name: "HTTP/2 within TLS",
        http: Version::Http2,
        security: Security::Tls,
    },
];

pub(crate) fn tables(scale: &Scale) -> Vec<Shown> {
    let idle = written(scale.idle as f64);
    let title = |name| format!("memory per connection of {name}, {idle} idle ones");
    PROTOCOLS
        .map(|protocol| Shown::compared(protocol.figure, title(protocol.name), "bytes"))
        .into()
}

pub(crate) fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let mut turn = Turn::default();
    for protocol in PROTOCOLS {
        let setup = Setup {
            heap: Allocator::System,
            pem: (protocol.security == Security::Tls).then_some(&session.pem),
            http: protocol.http,
            ..Setup::default()
        };
        let server = session.start_with(peer, &setup)?;
        let memory = memory(session, &server, &protocol, &mut turn)?;
        turn.set(protocol.figure, memory);
    }
    Ok(turn)
}

/// Bytes for each connection after one request. What the first few need besides, such as tables of
/// the library for TLS, is there before.
fn memory(
    session: &Session,
    server: &Running,
    protocol: &Protocol,
    turn: &mut Turn,
) -> Result<f64, Trouble> {
    const FIRST: usize = 16;
    let idle = session.scale.idle - FIRST;
    let tls = || Tls::trusting(session.pem.trusted.clone(), Handshakes::Full);
    let tls = (protocol.security == Security::Tls).then(tls);
    let processes = server.processes.tree();
    let (empty, full) = match protocol.http {
        Version::Http1 => {
            let mut open = |count| {
                let mut plan = Plan::new(count, hello());
                plan.tls = tls.clone();
                let mut clients = Driver::new(server.address, plan);
                turn.failures.merge(&clients.warm().failures);
                clients
            };
            let _first = open(FIRST);
            let empty = processes.memory_at_rest()?;
            let _clients = open(idle);
            (empty, full_at_rest(processes, idle)?)
        }
        Version::Http2 => {
            let open = |count| {
                let body = BODY.as_bytes();
                let streams = (0..count).map(|_| TcpStream::connect(server.address));
                let clients = http2::Clients::new(streams, tls.as_ref(), body)?;
                clients.ask_each("/")?;
                Ok::<_, Trouble>(clients)
            };
            let _first = open(FIRST)?;
            let empty = processes.memory_at_rest()?;
            let _clients = open(idle)?;
            (empty, full_at_rest(processes, idle)?)
        }
    };
    Ok(full.saturating_sub(empty) as f64 / idle as f64)
}
