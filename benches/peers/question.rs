//! What is measured, and in which tables its figures are.

use clap::ValueEnum;

use crate::options::Scale;
use crate::peer::Peer;
use crate::process::Trouble;
use crate::report::written;
use crate::session::Session;
use crate::support::turns::Turn;
use crate::{files, idle_protocols, in_memory, turns};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Question {
    /// CPU per request: keep-alive, pipelined, a connection each.
    Cost,
    /// CPU per connection within TLS: full handshakes and resumed ones.
    Handshakes,
    /// CPU per request of files.
    Files,
    /// Memory of idle connections.
    Idle,
    /// Memory of idle connections within TLS and of HTTP/2.
    IdleProtocols,
    /// Latency at constant rates.
    Latency,
    /// Latency beside a crowd of slow clients.
    SlowClients,
    /// Time per request without a kernel.
    InMemory,
}

/// How a question is put.
pub(crate) struct Asked {
    pub(crate) about: String,
    pub(crate) rounds: usize,
    pub(crate) tables: Vec<Shown>,
    pub(crate) turn: fn(&Session, Peer) -> Result<Turn, Trouble>,
    /// Whether it is put to a server.
    is_for: fn(Peer) -> bool,
}

impl Asked {
    pub(crate) fn peers(&self, all: &[Peer]) -> Vec<Peer> {
        let all = all.iter().copied();
        all.filter(|peer| (self.is_for)(*peer)).collect()
    }
}

/// A table of the page, with a row for each server.
pub(crate) struct Shown {
    pub(crate) title: String,
    /// The heads of columns, and the figures in them.
    pub(crate) columns: Vec<(String, String)>,
    /// Which of the columns the rows are ordered by.
    pub(crate) main: usize,
    /// Whether less is better there, and by how much is worth telling. Others explain these.
    pub(crate) is_compared: bool,
}

impl Shown {
    /// Of one figure, with its range and ratios, and with a picture.
    pub(crate) fn compared(figure: &str, title: impl Into<String>, unit: &str) -> Self {
        Self {
            title: title.into(),
            columns: vec![(unit.to_owned(), figure.to_owned())],
            main: 0,
            is_compared: true,
        }
    }

    /// Of one figure, with its range.
    pub(crate) fn told(figure: &str, title: &str, unit: &str) -> Self {
        Self {
            is_compared: false,
            ..Self::compared(figure, title, unit)
        }
    }
}

impl Question {
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("none is skipped");
        value.get_name().to_owned()
    }

    pub(crate) fn asked(self, scale: &Scale) -> Asked {
        // What takes long and varies little has a third of the rounds.
        let fewer = scale.rounds.div_ceil(3);
        match self {
            Self::Cost => Asked {
                about: format!("{:?} a turn", scale.turn),
                rounds: scale.rounds,
                tables: turns::cost_tables(),
                turn: turns::cost,
                is_for: Peer::says_hello,
            },
            Self::Handshakes => Asked {
                about: format!("{:?} a turn", scale.turn),
                rounds: scale.rounds,
                tables: turns::handshake_tables(),
                turn: turns::handshakes,
                is_for: Peer::knows_tls,
            },
            Self::Files => Asked {
                about: format!("{:?} a turn", scale.turn),
                rounds: scale.rounds,
                tables: files::tables(scale),
                turn: files::turn,
                is_for: Peer::serves_files,
            },
            Self::Idle => Asked {
                about: format!("{} idle connections", scale.idle),
                rounds: fewer,
                tables: turns::idle_tables(scale),
                turn: turns::idle,
                is_for: Peer::says_hello,
            },
            Self::IdleProtocols => Asked {
                about: format!("{} idle connections", scale.idle),
                rounds: fewer,
                tables: idle_protocols::tables(scale),
                turn: idle_protocols::turn,
                is_for: |peer| matches!(peer, Peer::Prefork | Peer::Nginx),
            },
            Self::Latency => Asked {
                about: format!("{:?} at each rate", scale.at_a_rate),
                rounds: fewer,
                tables: turns::latency_tables(scale),
                turn: turns::latency,
                is_for: Peer::says_hello,
            },
            Self::SlowClients => Asked {
                about: format!("{} slow clients", written(scale.crowd as f64)),
                rounds: fewer,
                tables: turns::slow_client_tables(scale),
                turn: turns::slow_clients,
                // The floor responds to whatever comes.
                is_for: |peer| peer.says_hello() && peer != Peer::Floor,
            },
            Self::InMemory => Asked {
                about: format!("{} requests a turn", scale.requests),
                rounds: scale.rounds,
                tables: in_memory::tables(),
                turn: in_memory::turn,
                is_for: |peer| in_memory::PEERS.contains(&peer),
            },
        }
    }
}
