//! What to run.

use clap::{Parser, ValueEnum};

use crate::adoption::Connections;
use crate::case::{Pace, Plan};
use crate::contender::{Event, Name};

/// What clients lose while a server reloads, loses workers, is upgraded and resized.
#[derive(Debug, Parser)]
#[command(name = "lifecycle")]
pub(crate) struct Options {
    /// A tenth of the events, and no other servers but those named by --only
    #[arg(long)]
    quick: bool,

    /// Only these servers
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Name>,

    /// Only these events
    #[arg(long, value_enum, value_delimiter = ',')]
    events: Vec<Event>,

    /// Each event as soon as the one before is over: a storm, not a day's work
    #[arg(long)]
    storm: bool,

    /// Where chance begins
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Two of each event, this package's binary only, no figures
    #[arg(long)]
    test: bool,

    /// Given by `cargo bench`; without it (`cargo test --benches`) this is a test
    #[arg(long, hide = true)]
    bench: bool,
}

/// How many of each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Smoke,
    Quick,
    Full,
}

impl Options {
    pub(crate) fn extent(&self) -> Extent {
        match (self.test || !self.bench, self.quick) {
            (true, _) => Extent::Smoke,
            (false, true) => Extent::Quick,
            (false, false) => Extent::Full,
        }
    }

    pub(crate) fn plan(&self, event: Event) -> Plan {
        Plan {
            count: self.extent().count(event),
            pace: [Pace::Answers, Pace::None][usize::from(self.storm)],
            seed: self.seed,
        }
    }

    pub(crate) fn servers(&self) -> Vec<Name> {
        let wanted = |name: &Name| match self.extent() {
            Extent::Smoke => name.is_ours(),
            Extent::Quick => name.is_ours() || self.only.contains(name),
            Extent::Full => true,
        };
        let named = |name: &Name| self.only.is_empty() || self.only.contains(name);
        let all = Name::value_variants().iter().copied();
        all.filter(wanted).filter(named).collect()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        let all = Event::value_variants().iter();
        let wanted = |event: &&Event| self.events.is_empty() || self.events.contains(event);
        all.filter(wanted).copied().collect()
    }
}

impl Extent {
    /// How often what is done without load is done.
    pub(crate) fn rounds(self) -> usize {
        match self {
            Self::Smoke => 1,
            Self::Quick => 2,
            Self::Full => 20,
        }
    }

    /// How many connections must be adopted.
    pub(crate) fn connections(self) -> Connections {
        Connections(match self {
            Self::Smoke => 50,
            Self::Quick => 100,
            Self::Full => 400,
        })
    }

    fn count(self, event: Event) -> usize {
        let full = match event {
            Event::Reload | Event::Kill => 50,
            Event::Upgrade => 20,
            Event::Resize => 40,
        };
        match self {
            Self::Smoke => 2,
            Self::Quick => full / 10,
            Self::Full => full,
        }
    }
}
