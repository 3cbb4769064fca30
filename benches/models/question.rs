//! What one file asks.

use std::net::SocketAddr;

use crate::load::{Ask, Pipeline, Plan, Share, Tls};
use crate::server::{App, Neighbour, Workers};

/// One load on every model.
pub(crate) struct Question {
    pub(crate) name: &'static str,
    pub(crate) app: App,
    pub(crate) connections: usize,
    /// Connections beside those, which have had one answer and rest.
    pub(crate) idle: usize,
    pub(crate) place: Place,
    usual: Ask,
    seldom: Option<(Share, Ask)>,
    pipeline: Pipeline,
    tls: Option<Tls>,
    /// Whether connections live long enough to be counted by worker.
    pub(crate) spread: Spread,
}

/// Whether it is told how connections are spread over workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    Asked,
    /// There is nothing to ask for it, or nobody stays long enough.
    Unknown,
}

/// Where a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Wherever the kernel puts its workers: one for each CPU.
    Anywhere,
    /// One worker, on a CPU on which another process computes.
    BesideNeighbour,
}

impl Place {
    /// The neighbour, if there is one, and the workers that a server has beside it.
    pub(crate) fn prepare(self) -> (Option<Neighbour>, Workers) {
        match self {
            Self::Anywhere => (None, Workers::PerCpu),
            Self::BesideNeighbour => {
                let neighbour = Neighbour::start();
                let workers = Workers::OneOn(neighbour.cpu());
                (Some(neighbour), workers)
            }
        }
    }
}

impl Question {
    /// Kept connections to the handlers.
    pub(crate) fn new(name: &'static str, connections: usize, usual: Ask) -> Self {
        Self {
            name,
            app: App::Handlers,
            connections,
            idle: 0,
            place: Place::Anywhere,
            usual,
            seldom: None,
            pipeline: Pipeline(1),
            tls: None,
            spread: Spread::Asked,
        }
    }

    pub(crate) fn of_app(self, app: App) -> Self {
        let spread = Spread::Unknown;
        Self {
            app,
            spread,
            ..self
        }
    }

    pub(crate) fn beside_idle(self, idle: usize) -> Self {
        Self { idle, ..self }
    }

    pub(crate) fn beside_neighbour(self) -> Self {
        let place = Place::BesideNeighbour;
        Self { place, ..self }
    }

    pub(crate) fn seldom(self, share: Share, ask: Ask) -> Self {
        let seldom = Some((share, ask));
        Self { seldom, ..self }
    }

    pub(crate) fn pipelined(self, pipeline: Pipeline) -> Self {
        Self { pipeline, ..self }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn within(self, tls: Tls) -> Self {
        let tls = Some(tls);
        Self { tls, ..self }
    }

    pub(crate) fn spread_unknown(self) -> Self {
        let spread = Spread::Unknown;
        Self { spread, ..self }
    }

    pub(crate) fn plan(&self, address: SocketAddr) -> Plan {
        let plan = Plan::new(address, self.connections, self.usual.clone());
        let plan = plan.pipelined(self.pipeline);
        let plan = plan.within(self.tls.clone());
        match &self.seldom {
            Some((share, ask)) => plan.seldom(*share, ask.clone()),
            None => plan,
        }
    }

    /// For the connections that rest.
    pub(crate) fn idle_plan(&self, address: SocketAddr) -> Plan {
        Plan::new(address, self.idle, self.usual.clone())
    }
}
