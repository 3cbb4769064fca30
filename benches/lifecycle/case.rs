//! One kind of event happening to one server, under load.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::contender::{Contender, Event, Name};
use crate::load::Load;
use crate::process::Trouble;
use crate::tally::Tally;

/// What a case came to.
pub(crate) struct Case {
    pub(crate) name: Name,
    pub(crate) event: Event,
    /// How long each event took, in the order they came.
    pub(crate) took: Vec<Duration>,
    pub(crate) tally: Tally,
    /// Why there are fewer events than wanted.
    pub(crate) trouble: Option<Trouble>,
    /// The end of the server's log.
    pub(crate) log: String,
}

impl Case {
    pub(crate) fn run(name: Name, event: Event, count: usize, seed: u64) -> Self {
        let mut case = Self {
            name,
            event,
            took: Vec::new(),
            tally: Tally::default(),
            trouble: None,
            log: String::new(),
        };
        match name.start(event.workers()) {
            Ok(mut server) => {
                let end = case.under_load(&mut *server, count, &mut Chance::new(seed));
                case.trouble = end.err();
                case.log = server.log();
            }
            Err(trouble) => case.trouble = Some(trouble),
        }
        clear_progress();
        case
    }

    fn under_load(
        &mut self,
        server: &mut dyn Contender,
        count: usize,
        chance: &mut Chance,
    ) -> Result<(), Trouble> {
        let load = Load::start(server.address())?;
        let mut end = Ok(());
        for number in 1..=count {
            progress(self.name, self.event, number, count);
            load.settle()?;
            load.next_event();
            let start = Instant::now();
            end = match self.event {
                Event::Reload => server.reload(),
                Event::Kill => server.kill(&load, chance),
                Event::Upgrade => server.upgrade(),
                Event::Resize => server.resize(chance),
            };
            if end.is_err() {
                break;
            }
            self.took.push(start.elapsed());
        }
        self.tally = load.finish()?;
        end
    }

    /// Whether our own server lost what it should not, or could not do what it promises.
    pub(crate) fn is_failure(&self) -> bool {
        let stuck = matches!(self.trouble, Some(Trouble::Stuck(_)));
        self.name.is_ours() && (stuck || self.tally.avoidable() > 0)
    }
}

/// On a terminal only: a log wants no line that is written over.
fn progress(name: Name, event: Event, number: usize, count: usize) {
    let mut to = io::stderr();
    if to.is_terminal() {
        // It is there to be looked at; nothing depends on it.
        let _ = write!(
            to,
            "\r\x1b[K{}: {} {number} of {count}",
            name.text(),
            event.name()
        );
        let _ = to.flush();
    }
}

fn clear_progress() {
    let mut to = io::stderr();
    if to.is_terminal() {
        let _ = write!(to, "\r\x1b[K");
    }
}
