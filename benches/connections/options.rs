//! What to run.

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::contender::{Name, Speaks};
use crate::support::options::{Common, Extent};
use crate::support::pem::Pem;

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

    /// What they speak
    #[arg(long, value_enum, default_value = "http1")]
    pub(crate) protocol: Protocol,

    #[command(flatten)]
    common: Common,
}

/// What connections speak.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
pub(crate) enum Protocol {
    Http1,
    /// HTTP/1 within TLS.
    Tls,
    Http2,
    /// HTTP/2 within TLS.
    Http2Tls,
}

impl Protocol {
    pub(crate) fn is_within_tls(self) -> bool {
        matches!(self, Self::Tls | Self::Http2Tls)
    }

    pub(crate) fn speaks(self, pem: &Pem) -> Speaks<'_> {
        match self {
            Self::Http1 => Speaks::Http1,
            Self::Http2 => Speaks::Http2,
            Self::Tls | Self::Http2Tls => Speaks::Tls(pem),
        }
    }

    /// What both ends of a connection take, the kernel's part included, and some more.
    pub(crate) fn bytes_each(self) -> u64 {
        match self {
            Self::Http1 => 10_000,
            // The clients forget nothing at rest.
            _ => 60_000,
        }
    }
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
