//! The runner of all comparisons: in each round every server has its turn, so that the figures that
//! are compared are near in time.

use super::load::Failures;
use super::process::Trouble;
use super::report::{Round, Row};

/// A server that gets stuck has a second chance, not nine: each costs its ceiling.
const STUCK_MAX: usize = 2;

/// The figures of one turn of one server, and the requests that failed meanwhile.
#[derive(Default)]
pub(crate) struct Turn {
    pub(crate) round: Round,
    pub(crate) failures: Failures,
}

impl Turn {
    pub(crate) fn set(&mut self, figure: impl Into<String>, value: f64) {
        self.round.insert(figure.into(), value);
    }
}

/// A row for each server (its name, and what its turns need), in the same order.
pub(crate) fn in_turn<S>(
    servers: &mut [(&str, S)],
    rounds: usize,
    mut turn: impl FnMut(&str, &mut S) -> Result<Turn, Trouble>,
) -> Vec<Row> {
    let mut rows: Vec<_> = servers.iter().map(|(name, _)| Row::of(name)).collect();
    let mut stuck = vec![0; rows.len()];
    for _ in 0..rounds {
        for (at, row) in rows.iter_mut().enumerate() {
            let (name, server) = &mut servers[at];
            if stuck[at] >= STUCK_MAX {
                row.rounds.push(Round::new());
                continue;
            }
            match turn(name, server) {
                Ok(turn) => {
                    row.count(&turn.failures);
                    row.rounds.push(turn.round);
                }
                Err(trouble) => {
                    stuck[at] += match trouble {
                        Trouble::NotSupported(_) => STUCK_MAX,
                        Trouble::Stuck(_) => 1,
                    };
                    eprintln!("  {name}: {trouble}");
                    row.trouble = Some(trouble.to_string());
                    row.rounds.push(Round::new());
                }
            }
        }
    }
    rows
}

/// That every server got through every round, and no request failed.
pub(crate) fn check(question: &str, rows: &[Row]) -> Result<(), String> {
    for row in rows {
        if row.rounds.iter().any(Round::is_empty) || row.failed() > 0 {
            return Err(format!(
                "{question}: {}: failed: {}",
                row.server,
                row.failures()
            ));
        }
    }
    Ok(())
}
