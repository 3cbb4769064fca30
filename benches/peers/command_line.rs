//! What to run.

use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::peer::Peer;

/// Our server beside other people's, with the same answers and the same load.
#[derive(Debug, Parser)]
#[command(name = "peers")]
pub(crate) struct Options {
    /// One short round of ours and the floor, of what --only and --cases name besides: shows that
    /// it works, and no figures worth keeping
    #[arg(long)]
    quick: bool,

    /// Only these servers; ours and the floor are always among them
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Peer>,

    /// Only these questions
    #[arg(long, value_enum, value_delimiter = ',')]
    cases: Vec<Question>,

    /// How many rounds, an odd number; the slower questions take a third
    #[arg(long, default_value = "9", value_parser = odd)]
    rounds: Rounds,

    /// Put the tables and pictures beside this bench, where they are read
    #[arg(long)]
    pub(crate) write: bool,

    /// Ours and the floor once, no other server, no figures
    #[arg(long)]
    test: bool,

    /// Given by `cargo bench`; without it (`cargo test --benches`) this is a test
    #[arg(long, hide = true)]
    bench: bool,
}

/// What is measured.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Test,
    Quick,
    Full,
}

/// Odd, so that a median is one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds(pub(crate) usize);

/// How long everything takes, and how much of it there is.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) rounds: Rounds,
    /// The load of one turn.
    pub(crate) turn: Duration,
    /// Connections that rest.
    pub(crate) idle: usize,
    /// Clients that are slow.
    pub(crate) crowd: usize,
    /// Requests per second.
    pub(crate) rates: &'static [u32],
    pub(crate) at_a_rate: Duration,
    /// Without a kernel.
    pub(crate) requests: u64,
}

impl Options {
    pub(crate) fn extent(&self) -> Extent {
        match (self.test || !self.bench, self.quick) {
            (true, _) => Extent::Test,
            (false, true) => Extent::Quick,
            (false, false) => Extent::Full,
        }
    }

    pub(crate) fn peers(&self) -> Vec<Peer> {
        let always = |peer| matches!(peer, Peer::Prefork | Peer::Floor);
        let all = Peer::value_variants().iter().copied();
        let wanted = |&peer: &Peer| match self.extent() {
            Extent::Test => always(peer),
            Extent::Quick => always(peer) || self.only.contains(&peer),
            Extent::Full => always(peer) || self.only.is_empty() || self.only.contains(&peer),
        };
        all.filter(wanted).collect()
    }

    pub(crate) fn asks(&self, question: Question) -> bool {
        match self.extent() {
            Extent::Test => question != Question::InMemory,
            // In memory it takes two programs to be built, which is not quick.
            Extent::Quick if self.cases.is_empty() => question != Question::InMemory,
            Extent::Quick | Extent::Full => self.cases.is_empty() || self.cases.contains(&question),
        }
    }

    pub(crate) fn scale(&self) -> Scale {
        match self.extent() {
            Extent::Test => Scale {
                rounds: Rounds(1),
                turn: Duration::from_millis(20),
                idle: 100,
                crowd: 20,
                rates: &[2_000],
                at_a_rate: Duration::from_millis(100),
                requests: 1_000,
            },
            Extent::Quick => Scale {
                rounds: Rounds(1),
                turn: Duration::from_millis(100),
                idle: 1_000,
                crowd: 200,
                rates: &[5_000, 20_000],
                at_a_rate: Duration::from_millis(300),
                requests: 20_000,
            },
            Extent::Full => Scale {
                rounds: self.rounds,
                turn: Duration::from_millis(500),
                idle: 8_000,
                crowd: 1_000,
                rates: &[5_000, 20_000, 40_000, 60_000, 80_000],
                at_a_rate: Duration::from_secs(2),
                requests: 200_000,
            },
        }
    }
}

impl Rounds {
    /// For what takes long and varies little.
    pub(crate) fn third(self) -> Self {
        Self((self.0 / 3) | 1)
    }
}

fn odd(text: &str) -> Result<Rounds, String> {
    match text.parse() {
        Ok(rounds) if rounds % 2 == 1 => Ok(Rounds(rounds)),
        Ok(_) => Err("an even number has no median".into()),
        Err(error) => Err(format!("{error}")),
    }
}
