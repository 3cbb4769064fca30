//! What to run.

use clap::Parser;

use crate::contender::Name;
use crate::support::options::{Common, Extent};

/// Connections at rest, and what a reload does to them.
#[derive(Debug, Parser)]
#[command(name = "connections")]
pub(crate) struct Options {
    /// How many connections; by default 200,000, and 20,000 with --quick
    #[arg(long)]
    connections: Option<usize>,

    /// Only these servers
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Name>,

    #[command(flatten)]
    common: Common,
}

impl Options {
    pub(crate) fn connections(&self) -> usize {
        self.connections.unwrap_or(match self.extent() {
            Extent::Smoke | Extent::Quick => 20_000,
            Extent::Full => 200_000,
        })
    }

    pub(crate) fn servers(&self) -> Vec<Name> {
        let is_chosen = |name| self.only.is_empty() || self.only.contains(&name);
        let ours = |name| name == Name::Prefork && is_chosen(name);
        let mut servers = self.common.servers(&self.only, ours);
        // One of each kind, but for those that are asked for.
        servers.retain(|name| match name {
            Name::Prefork | Name::Nginx | Name::Fasthttp => true,
            _ => self.only.contains(name),
        });
        servers
    }

    pub(crate) fn extent(&self) -> Extent {
        self.common.extent()
    }
}
