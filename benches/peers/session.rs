//! What all turns need.

use std::cell::OnceCell;
use std::net::TcpStream;
use std::path::Path;

use crate::files::Files;
use crate::options::Scale;
use crate::peer::{Allocator, Peer, Running, responds};
use crate::process::{Processes, Trouble, free_address, until};
use crate::programs::Programs;
use crate::support::cpus;
use crate::support::pem::Pem;

/// The CPUs of the servers and of the load: different ones if there are two.
pub(crate) struct Cpus {
    pub(crate) server: usize,
    pub(crate) load: usize,
}

impl Cpus {
    pub(crate) fn usable() -> Self {
        let all = cpus::usable();
        let server = all[0];
        let load = all.get(1).copied().unwrap_or(server);
        Self { server, load }
    }
}

/// What a server is started with. By default: mimalloc, the usual body, no TLS.
pub(crate) struct Setup<'a> {
    pub(crate) heap: Allocator,
    /// The directory that it serves.
    pub(crate) files: Option<&'a Path>,
    pub(crate) pem: Option<&'a Pem>,
    pub(crate) http: Version,
}

/// Which version of HTTP a server is asked by. Within TLS each one knows both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    /// In the open, by prior knowledge.
    Http2,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            heap: Allocator::Mimalloc,
            files: None,
            pem: None,
            http: Version::Http1,
        }
    }
}

pub(crate) struct Session {
    pub(crate) programs: Programs,
    pub(crate) cpus: Cpus,
    pub(crate) scale: Scale,
    pub(crate) pem: Pem,
    pub(crate) files: OnceCell<Files>,
}

impl Session {
    /// Starts a server on its CPU.
    pub(crate) fn start(&self, peer: Peer, heap: Allocator) -> Result<Running, Trouble> {
        let setup = Setup {
            heap,
            ..Setup::default()
        };
        self.start_with(peer, &setup)
    }

    /// The same within TLS, and with mimalloc.
    pub(crate) fn start_private(&self, peer: Peer) -> Result<Running, Trouble> {
        let setup = Setup {
            pem: Some(&self.pem),
            ..Setup::default()
        };
        self.start_with(peer, &setup)
    }

    pub(crate) fn start_with(&self, peer: Peer, setup: &Setup) -> Result<Running, Trouble> {
        let (address, dir) = (free_address()?, tempfile::tempdir()?);
        let command = peer.command(&self.programs, setup, address, dir.path())?;
        let start = || Processes::start(dir, &command);
        let (processes, _) = cpus::on(&[self.cpus.server], start)?;
        let is_there = || match (setup.pem, setup.files, setup.http) {
            (None, None, Version::Http1) => responds(address).is_ok(),
            // Whether it responds is for the load to find.
            _ => TcpStream::connect(address).is_ok(),
        };
        until("it responds", is_there).map_err(|trouble| {
            // The caller does not get the server, and so cannot ask it for its log.
            Trouble::Stuck(format!("{trouble}\n{}", processes.log()))
        })?;
        Ok(Running { processes, address })
    }
}
