//! What went wrong, for the error that the server ends with and for notices.

use std::collections::VecDeque;

use crate::error::Error;
use crate::id::Generation;

/// How many failures an error names.
const RECENT_MAX: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Failures {
    /// How the latest workers that failed ended, oldest first.
    pub(super) recent: VecDeque<String>,
    /// How the latest worker ended, and its generation.
    pub(super) last: Option<(Generation, String)>,
    /// Why the files of TLS could not be used for a reload.
    pub(super) check: Option<String>,
    /// The first error that a hook returned.
    pub(super) hook: Option<Error>,
    /// How often poll(2) has failed.
    pub(super) polls: u64,
}

impl Failures {
    pub(super) fn of(recent: VecDeque<String>) -> Self {
        Self {
            recent,
            ..Self::default()
        }
    }

    pub(super) fn keep(&mut self, failure: String) {
        self.recent.push_back(failure);
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
    }

    /// How the latest worker ended, if it was of this generation.
    pub(super) fn last_of(&self, generation: Generation) -> Option<&str> {
        let last = self.last.as_ref().filter(|(of, _)| *of == generation);
        last.map(|(_, report)| report.as_str())
    }
}
