//! What is measured, and what its figures are called.

use clap::ValueEnum;

use crate::options::Scale;
use crate::peer::Peer;
use crate::process::Trouble;
use crate::report::written;
use crate::session::Session;
use crate::support::turns::Turn;
use crate::{in_memory, turns};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Question {
    /// CPU per request: keep-alive, pipelined, a connection each.
    Cost,
    /// CPU per connection within TLS: full handshakes and resumed ones.
    Handshakes,
    /// Memory of idle connections, and what they cost the others.
    Idle,
    /// Latency at constant rates.
    Latency,
    /// Latency beside a crowd of slow clients.
    SlowClients,
    /// Time per request without a kernel.
    InMemory,
}

/// A figure of a turn.
pub(crate) struct Figure {
    /// Unique, and the same from run to run.
    pub(crate) key: String,
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    /// Whether less is better, and by how much is worth telling. Others explain these.
    pub(crate) is_compared: bool,
}

impl Figure {
    pub(crate) fn compared(
        key: impl Into<String>,
        title: impl Into<String>,
        unit: &'static str,
    ) -> Self {
        Self {
            key: key.into(),
            title: title.into(),
            unit,
            is_compared: true,
        }
    }

    pub(crate) fn told(
        key: impl Into<String>,
        title: impl Into<String>,
        unit: &'static str,
    ) -> Self {
        Self {
            is_compared: false,
            ..Self::compared(key, title, unit)
        }
    }
}

impl Question {
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("none is skipped");
        value.get_name().to_owned()
    }

    /// The servers that are asked.
    pub(crate) fn peers(self, all: &[Peer]) -> Vec<Peer> {
        let asked = |peer: &&Peer| match self {
            Self::Cost | Self::Idle | Self::Latency => true,
            Self::Handshakes => peer.knows_tls(),
            // The floor answers whatever comes.
            Self::SlowClients => **peer != Peer::Floor,
            Self::InMemory => in_memory::PEERS.contains(peer),
        };
        all.iter().filter(asked).copied().collect()
    }

    /// What takes long and varies little has a third of the rounds, an odd number too.
    pub(crate) fn rounds(self, scale: &Scale) -> usize {
        match self {
            Self::Cost | Self::Handshakes | Self::InMemory => scale.rounds,
            Self::Idle | Self::Latency | Self::SlowClients => (scale.rounds / 3) | 1,
        }
    }

    pub(crate) fn about(self, scale: &Scale) -> String {
        match self {
            Self::Cost | Self::Handshakes => format!("{:?} a turn", scale.turn),
            Self::Idle => format!("{} idle connections", scale.idle),
            Self::Latency => format!("{:?} at each rate", scale.at_a_rate),
            Self::SlowClients => format!(
                "p95 latency at {} requests per second in us, alone and beside {} slow clients",
                written(scale.rates[0].into()),
                written(scale.crowd as f64),
            ),
            Self::InMemory => format!("{} requests a turn", scale.requests),
        }
    }

    pub(crate) fn figures(self, scale: &Scale) -> Vec<Figure> {
        match self {
            Self::Cost => turns::cost_figures(),
            Self::Handshakes => turns::handshake_figures(),
            Self::Idle => turns::idle_figures(scale),
            Self::Latency => turns::latency_figures(scale),
            Self::SlowClients => turns::slow_client_figures(),
            Self::InMemory => in_memory::figures(),
        }
    }

    pub(crate) fn turn(self, session: &Session, peer: Peer) -> Result<Turn, Trouble> {
        match self {
            Self::Cost => turns::cost(session, peer),
            Self::Handshakes => turns::handshakes(session, peer),
            Self::Idle => turns::idle(session, peer),
            Self::Latency => turns::latency(session, peer),
            Self::SlowClients => turns::slow_clients(session, peer),
            Self::InMemory => in_memory::turn(session, peer),
        }
    }
}
