//! What to run.

use clap::{Parser, ValueEnum};

use crate::contender::{Event, Name};
use crate::support::options::{Common, Extent};

/// What clients lose while a server reloads, loses workers, is upgraded and resized.
#[derive(Debug, Parser)]
#[command(name = "lifecycle")]
pub(crate) struct Options {
    /// Only these servers
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Name>,

    /// Only these events
    #[arg(long, value_enum, value_delimiter = ',')]
    events: Vec<Event>,

    /// Where chance begins
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl Options {
    /// How often an event happens.
    pub(crate) fn count(&self, event: Event) -> usize {
        let full = match event {
            Event::Reload | Event::Kill => 50,
            Event::Upgrade => 20,
            Event::Resize => 40,
        };
        match self.common.extent() {
            Extent::Smoke => 2,
            Extent::Quick => full / 10,
            Extent::Full => full,
        }
    }

    /// How often what is done without load is done, and how many connections must be adopted.
    pub(crate) fn quiet(&self) -> (usize, u32) {
        match self.common.extent() {
            Extent::Smoke => (1, 50),
            Extent::Quick => (2, 100),
            Extent::Full => (20, 400),
        }
    }

    pub(crate) fn servers(&self) -> Vec<Name> {
        // Ours too only if no others are named.
        let ours =
            |name: Name| name.is_ours() && (self.only.is_empty() || self.only.contains(&name));
        self.common.servers(&self.only, ours)
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        let all = Event::value_variants().iter();
        let wanted = |event: &&Event| self.events.is_empty() || self.events.contains(event);
        all.filter(wanted).copied().collect()
    }
}
