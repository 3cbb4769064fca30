//! Servers in turn: in each round every server has one, so that what is compared is near in time.

use std::time::Duration;

use crate::command_line::{Rounds, Scale};
use crate::cpus::Cpus;
#[cfg(feature = "tls")]
use crate::peer::Pem;
use crate::peer::{Allocator, Peer, Running};
use crate::process::Trouble;
use crate::programs::Programs;
use crate::progress::Progress;
use crate::series::{Row, Series, Unit};

/// A server that gets stuck is given another chance, not nine: each costs its ceiling.
const STUCK_MAX: usize = 2;

/// What all cases need.
pub(crate) struct Session {
    pub(crate) programs: Programs,
    pub(crate) cpus: Cpus,
    pub(crate) peers: Vec<Peer>,
    pub(crate) scale: Scale,
    pub(crate) progress: Progress,
}

/// What came of one server's turn: as many figures as the case has series.
pub(crate) struct Turn {
    pub(crate) figures: Vec<f64>,
    pub(crate) failures: u64,
}

/// What came of all turns of one server.
pub(crate) struct Taken {
    name: &'static str,
    turns: Vec<Option<Turn>>,
    stuck: usize,
    trouble: Option<String>,
}

impl Session {
    /// Starts a server on its CPU.
    pub(crate) fn start(&self, peer: Peer, heap: Allocator) -> Result<Running, Trouble> {
        let start = || peer.start(&self.programs, heap, None);
        self.cpus.on_server(start)?
    }

    /// The same within TLS, and with mimalloc.
    #[cfg(feature = "tls")]
    pub(crate) fn start_private(&self, peer: Peer, pem: &Pem) -> Result<Running, Trouble> {
        let start = || peer.start(&self.programs, Allocator::Mimalloc, Some(pem));
        self.cpus.on_server(start)?
    }

    /// All of them: A B C ... A B C ..., `rounds` times.
    pub(crate) fn in_turn(
        &mut self,
        case: &str,
        rounds: Rounds,
        time: Duration,
        turn: impl Fn(&Self, Peer) -> Result<Turn, Trouble>,
    ) -> Vec<Taken> {
        self.in_turn_of(&self.peers.clone(), case, rounds, time, turn)
    }

    pub(crate) fn in_turn_of(
        &mut self,
        peers: &[Peer],
        case: &str,
        rounds: Rounds,
        time: Duration,
        turn: impl Fn(&Self, Peer) -> Result<Turn, Trouble>,
    ) -> Vec<Taken> {
        let mut all: Vec<_> = peers.iter().map(|peer| Taken::new(peer.text())).collect();
        for round in 1..=rounds.0 {
            for (taken, &peer) in all.iter_mut().zip(peers) {
                let name = peer.text();
                self.progress
                    .begin(format_args!("{case}, round {round}: {name}"), time);
                let result = match taken.is_out() {
                    true => None,
                    false => Some(turn(self, peer)),
                };
                taken.take(result);
            }
        }
        all
    }
}

/// What came of a question: key, title and unit of each figure of its turns, in their order.
pub(crate) fn series(
    taken: &[Taken],
    figures: impl IntoIterator<Item = (String, String, Unit)>,
) -> Vec<Series> {
    let figures = figures.into_iter().enumerate();
    let series = figures.map(|(index, (key, title, unit))| Series {
        key,
        title,
        unit,
        rows: taken.iter().map(|taken| taken.row(index)).collect(),
    });
    series.collect()
}

impl Taken {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            turns: Vec::new(),
            stuck: 0,
            trouble: None,
        }
    }

    /// Whether there is no use in trying again.
    pub(crate) fn is_out(&self) -> bool {
        self.stuck >= STUCK_MAX
    }

    pub(crate) fn take(&mut self, result: Option<Result<Turn, Trouble>>) {
        let turn = match result {
            Some(Ok(turn)) => Some(turn),
            Some(Err(trouble)) => {
                let why = match trouble {
                    Trouble::NotSupported(why) => {
                        self.stuck = STUCK_MAX;
                        format!("skipped: {why}")
                    }
                    Trouble::Stuck(why) => {
                        self.stuck += 1;
                        format!("stuck: {why}")
                    }
                };
                eprintln!("  {}: {why}", self.name);
                self.trouble = Some(why);
                None
            }
            None => None,
        };
        self.turns.push(turn);
    }

    /// One figure of all turns.
    pub(crate) fn row(&self, figure: usize) -> Row {
        let turns = self.turns.iter();
        Row {
            name: self.name,
            rounds: turns
                .clone()
                .map(|turn| turn.as_ref().map(|turn| turn.figures[figure]))
                .collect(),
            failures: turns.flatten().map(|turn| turn.failures).sum(),
            trouble: self.trouble.clone(),
        }
    }
}
