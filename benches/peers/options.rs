//! What to run.

use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::peer::Peer;
use crate::question::Question;
use crate::support::options::{Common, Extent};
use crate::support::tree::allowed;

/// Our server beside other people's, with the same responses and the same load.
#[derive(Debug, Parser)]
#[command(name = "peers")]
pub(crate) struct Options {
    /// Only these servers; ours and the floor are always among them
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Peer>,

    /// Only these questions
    #[arg(long, value_enum, value_delimiter = ',')]
    cases: Vec<Question>,

    /// How many rounds; the slower questions take a third
    #[arg(long, default_value_t = 9)]
    rounds: usize,

    /// Put the tables and pictures beside this bench, where they are read
    #[arg(long)]
    pub(crate) write: bool,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// How long everything takes, and how much of it there is.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) rounds: usize,
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
    /// Different files.
    pub(crate) files: usize,
}

impl Options {
    pub(crate) fn peers(&self) -> Vec<Peer> {
        let always = |peer| matches!(peer, Peer::Prefork | Peer::Floor);
        self.common.servers(&self.only, always)
    }

    pub(crate) fn questions(&self) -> Vec<Question> {
        let all = Question::value_variants().iter().copied();
        all.filter(|question| self.cases.is_empty() || self.cases.contains(question))
            .collect()
    }

    pub(crate) fn scale(&self) -> Scale {
        let millis = Duration::from_millis;
        let (rounds, rates): (_, &'static [u32]) = match self.common.extent() {
            Extent::Smoke => (1, &[2_000]),
            Extent::Quick => (1, &[5_000, 20_000]),
            Extent::Full => (self.rounds, &[5_000, 20_000, 40_000, 60_000, 80_000]),
        };
        let (turn, at_a_rate, idle, crowd, requests, files) = match self.common.extent() {
            Extent::Smoke => (millis(20), millis(100), 100, 20, 1_000, 50),
            Extent::Quick => (millis(100), millis(300), 1_000, 200, 20_000, 1_000),
            Extent::Full => (millis(500), millis(2_000), 8_000, 1_000, 200_000, 10_000),
        };
        Scale {
            rounds,
            turn,
            idle: allowed(idle),
            crowd: allowed(crowd),
            rates,
            at_a_rate,
            requests,
            files,
        }
    }
}
