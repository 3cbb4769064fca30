//! One load on every model.

use std::net::SocketAddr;
use std::sync::Arc;

use tempfile::TempDir;

use crate::load::{Ask, Pipeline, Plan, Share, Tls};
use crate::server::{App, Model, Neighbour, Workers};

pub(crate) struct Question {
    pub(crate) name: String,
    pub(crate) app: App,
    /// That of the app, which is removed with the last question about it.
    pub(crate) _directory: Option<Arc<TempDir>>,
    pub(crate) connections: usize,
    /// Connections beside those, which have had one response and rest.
    pub(crate) idle: usize,
    pub(crate) place: Place,
    pub(crate) usual: Ask,
    pub(crate) seldom: Option<(Share, Ask)>,
    pub(crate) pipeline: Pipeline,
    pub(crate) tls: Option<Tls>,
}

/// Where a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The kernel chooses: one worker for each CPU.
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
                let workers = Workers::OneOn(neighbour.cpu);
                (Some(neighbour), workers)
            }
        }
    }
}

impl Question {
    /// To the handlers, on connections that are kept if `usual` keeps them.
    pub(crate) fn new(name: impl Into<String>, connections: usize, usual: Ask) -> Self {
        Self {
            name: name.into(),
            app: App::Handlers,
            _directory: None,
            connections,
            idle: 0,
            place: Place::Anywhere,
            usual,
            seldom: None,
            pipeline: Pipeline(1),
            tls: None,
        }
    }

    /// Whether the server can be asked which worker has each connection.
    pub(crate) fn tells_workers(&self, model: Model) -> bool {
        let handlers = matches!(self.app, App::Handlers);
        handlers && self.usual.keeps() && model.keeps_connections_apart()
    }

    pub(crate) fn plan(&self, address: SocketAddr) -> Plan {
        let plan = Plan::new(address, self.connections, self.usual.clone());
        let plan = plan.pipelined(self.pipeline).within(self.tls.clone());
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
