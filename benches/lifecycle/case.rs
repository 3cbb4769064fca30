//! One kind of event happening to one server, under load.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::contender::{Contender, Event, Name};
use crate::load::Load;
use crate::process::Trouble;
use crate::tally::Tally;

/// What a case is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) count: usize,
    pub(crate) pace: Pace,
    pub(crate) seed: u64,
}

/// When the next event comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// When the clients have had answers since the last.
    Answers,
    /// As soon as the last is over.
    None,
}

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
    pub(crate) fn run(name: Name, event: Event, plan: Plan) -> Self {
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
                let end = case.under_load(&mut *server, plan, &mut Chance::new(plan.seed));
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
        plan: Plan,
        chance: &mut Chance,
    ) -> Result<(), Trouble> {
        let load = Load::start(server.address())?;
        let end = (1..=plan.count).try_for_each(|number| {
            progress(self.name, self.event, number, plan.count);
            self.happens(server, &load, chance)?;
            match plan.pace {
                Pace::Answers => {
                    server.settle(number)?;
                    load.settle()
                }
                Pace::None => Ok(()),
            }
        });
        // What was counted is told, whatever went wrong.
        self.tally = load.finish()?;
        end
    }

    fn happens(
        &mut self,
        server: &mut dyn Contender,
        load: &Load,
        chance: &mut Chance,
    ) -> Result<(), Trouble> {
        load.next_event();
        let start = Instant::now();
        match self.event {
            Event::Reload => server.reload(),
            Event::Kill => server.kill(load, chance),
            Event::Upgrade => server.upgrade(),
            Event::Resize => server.resize(chance),
        }?;
        self.took.push(start.elapsed());
        Ok(())
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
