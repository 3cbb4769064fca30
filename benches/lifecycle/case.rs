//! One kind of event happening to one server, under load.

use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::contender::{Contender, Event, Name};
use crate::load::{Load, usual};
use crate::options::Options;
use crate::process::{Trouble, freeze};
use crate::support::progress::Progress;
use crate::tally::{Loss, Tally};

/// How many losses of our own are told in full.
const LOSSES_TOLD: usize = 12;

/// To how many workers a server is resized.
const WORKERS_MAX: usize = 6;

/// What a case came to.
pub(crate) struct Case {
    name: Name,
    event: Event,
    /// How long each event took, in the order they came.
    took: Vec<Duration>,
    tally: Tally,
    /// Why there are fewer events than wanted.
    trouble: Option<Trouble>,
    /// The end of the server's log.
    log: String,
}

impl Case {
    pub(crate) fn run(
        name: Name,
        event: Event,
        options: &Options,
        progress: &mut Progress,
    ) -> Self {
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
                let end = case.under_load(&mut *server, options, progress);
                case.trouble = end.err();
                case.log = server.log();
            }
            Err(trouble) => case.trouble = Some(trouble),
        }
        case
    }

    fn under_load(
        &mut self,
        server: &mut dyn Contender,
        options: &Options,
        progress: &mut Progress,
    ) -> Result<(), Trouble> {
        let mut chance = Rng::with_seed(options.seed);
        let mut size = self.event.workers();
        let load = Load::start(server.address(), usual())?;
        let end = (1..=options.count(self.event)).try_for_each(|number| {
            progress.step(self.event.name(), self.name.name());
            load.next_event();
            let start = Instant::now();
            match self.event {
                Event::Reload => server.reload(),
                Event::Kill => {
                    let workers = server.workers()?;
                    let victim = workers[chance.usize(..workers.len())];
                    freeze(victim)?;
                    load.excuse(victim)?;
                    server.kill(victim)?;
                    server.replaced(victim)
                }
                Event::Upgrade => server.upgrade(),
                Event::Resize => {
                    let grows = size == 1 || size < WORKERS_MAX && chance.bool();
                    size = if grows { size + 1 } else { size - 1 };
                    server.resize(grows)
                }
            }?;
            self.took.push(start.elapsed());
            server.settle(number)?;
            load.settle()
        });
        // What was counted is told, also if something went wrong.
        self.tally = load.finish()?;
        end
    }

    /// The head of the table of cases.
    pub(crate) fn head() -> Vec<&'static str> {
        let losses = Loss::ALL.iter().map(|loss| loss.name());
        ["server", "events", "answered"]
            .into_iter()
            .chain(losses)
            .chain(["per 1,000", "median ms"])
            .collect()
    }

    /// The server's name, and the other cells of its row.
    pub(crate) fn row(&self) -> (&'static str, Result<Vec<String>, &Trouble>) {
        let events = self.took.len();
        let cells = match &self.trouble {
            Some(trouble) if events == 0 => Err(trouble),
            _ => {
                let mut cells = vec![events.to_string(), self.tally.answered.to_string()];
                cells.extend(
                    Loss::ALL
                        .iter()
                        .map(|loss| self.tally.count(*loss).to_string()),
                );
                let per_thousand = self.tally.avoidable() as f64 * 1000.0 / events as f64;
                cells.push(format!("{per_thousand:.1}"));
                cells.push(format!("{:.0}", median(&self.took).as_secs_f64() * 1e3));
                Ok(cells)
            }
        };
        (self.name.name(), cells)
    }

    /// Whether our own server lost what it should not, or could not do what it promises.
    pub(crate) fn is_failure(&self) -> bool {
        let stuck = matches!(self.trouble, Some(Trouble::Stuck(_)));
        self.name.is_ours() && (stuck || self.tally.avoidable() > 0)
    }

    /// What helps to find the cause.
    pub(crate) fn print_losses(&self) {
        println!("{} of {}:", self.event.name(), self.name.name());
        if let Some(trouble) = &self.trouble {
            println!("  {trouble}");
        }
        println!("{}", self.log);
        let lost = self
            .tally
            .lost
            .iter()
            .filter(|lost| lost.loss != Loss::Held);
        for lost in lost.take(LOSSES_TOLD) {
            println!("  {lost}");
        }
    }
}

pub(crate) fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
