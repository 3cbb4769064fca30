//! What to run.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::balancer::Kind;
use crate::events::Event;
use crate::support::options::{Common, Extent};
use crate::support::report::directory;

/// What clients of a fleet lose when its instances are replaced, and when one fails.
#[derive(Debug, Parser)]
#[command(name = "fleet")]
pub(crate) struct Options {
    /// These balancers; by default HAProxy with HTTP/1 and with h2c
    #[arg(long, value_enum, value_delimiter = ',')]
    balancer: Vec<Kind>,

    /// These events; by default restart and upgrade
    #[arg(long, value_enum, value_delimiter = ',')]
    events: Vec<Event>,

    /// How many instances
    #[arg(long, default_value_t = 3)]
    pub(crate) instances: usize,

    /// Requests per second
    #[arg(long, default_value_t = 400)]
    rate: u32,

    /// End pods without `preStop`, to see what it is for
    #[arg(long)]
    pub(crate) no_pre_stop: bool,

    /// Write the picture to this file; by default into `bench-results` of the target directory
    #[arg(long)]
    picture: Option<PathBuf>,

    #[command(flatten)]
    common: Common,
}

impl Options {
    /// The balancers, each with what happens behind it.
    pub(crate) fn runs(&self) -> Vec<(Kind, Vec<Event>)> {
        let balancers = match (&self.balancer[..], self.extent()) {
            ([], Extent::Smoke) => Kind::value_variants(),
            ([], _) => &[Kind::Haproxy, Kind::HaproxyH2c],
            (chosen, _) => chosen,
        };
        let events = match (&self.events[..], self.extent()) {
            ([], Extent::Smoke) => Event::value_variants(),
            ([], _) => &[Event::Restart, Event::Upgrade],
            (chosen, _) => chosen,
        };
        let is_of = |kind: Kind, event: Event| (kind == Kind::Service) == (event == Event::Pods);
        let mut balancers = balancers.to_vec();
        if events.contains(&Event::Pods) && !balancers.contains(&Kind::Service) {
            balancers.push(Kind::Service);
        }
        // As tests, faults and all else happen at the same time, to fleets of their own: faults
        // behind one balancer only.
        let first = balancers[0];
        let halves: &[fn(Event, bool) -> bool] = match self.extent() {
            Extent::Smoke => &[
                |event, _| !event.is_fault(),
                |event, is_first| event.is_fault() && is_first,
            ],
            _ => &[|_, _| true],
        };
        let runs = balancers.into_iter().flat_map(|kind| {
            halves.iter().map(move |is_in| {
                let events = events.iter().copied();
                let events =
                    events.filter(|&event| is_of(kind, event) && is_in(event, kind == first));
                (kind, events.collect())
            })
        });
        runs.filter(|(_, events): &(_, Vec<_>)| !events.is_empty())
            .collect()
    }

    /// How often an event happens to the fleet, or to an instance.
    pub(crate) fn count(&self, event: Event) -> usize {
        let full = match event {
            Event::Restart => 10,
            Event::Upgrade => 5,
            Event::Scale | Event::Pods => 3,
            Event::Kill | Event::Hang | Event::Partition => 1,
        };
        match self.extent() {
            Extent::Smoke | Extent::Quick => 1,
            Extent::Full => full,
        }
    }

    /// The instances that one round of rolling work reaches.
    pub(crate) fn victims(&self) -> usize {
        match self.extent() {
            Extent::Smoke => 1,
            _ => self.instances,
        }
    }

    pub(crate) fn rate(&self) -> u32 {
        match self.extent() {
            Extent::Smoke => self.rate.min(50),
            _ => self.rate,
        }
    }

    /// Longer than HAProxy with our file needs to notice: two checks, 500 ms and 250 ms apart.
    pub(crate) fn pre_stop(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// The load without events, before and after those of a kind.
    pub(crate) fn pause(&self) -> Duration {
        match self.extent() {
            Extent::Smoke => Duration::from_millis(200),
            _ => Duration::from_secs(1),
        }
    }

    /// How long an instance hangs or is alone. Longer than the balancers' timeout for a response,
    /// so that the requests which wait for it meet it.
    pub(crate) fn fault(&self) -> Duration {
        match self.extent() {
            Extent::Smoke => Duration::from_millis(500),
            _ => Duration::from_secs(13),
        }
    }

    /// How long Kubernetes takes to send a pod nothing new, and how long its `preStop` waits.
    pub(crate) fn endpoint_delay(&self) -> Duration {
        match self.extent() {
            Extent::Smoke => Duration::from_millis(500),
            _ => Duration::from_secs(2),
        }
    }

    pub(crate) fn pre_stop_of_pods(&self) -> Duration {
        match (self.no_pre_stop, self.extent()) {
            (true, _) => Duration::ZERO,
            (false, Extent::Smoke) => Duration::from_secs(1),
            (false, _) => Duration::from_secs(5),
        }
    }

    pub(crate) fn picture(&self) -> PathBuf {
        let default = || directory().join("fleet.svg");
        self.picture.clone().unwrap_or_else(default)
    }

    pub(crate) fn extent(&self) -> Extent {
        self.common.extent()
    }
}
