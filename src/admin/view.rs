//! What the admin process knows of the server: what the master has told, and the pages in which
//! workers count.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;

use nix::unistd::Pid;

use crate::hooks::WorkerInfo;
use crate::policy::{ServerState, WorkerState};
use crate::protocol::admin::{Fact, ServerView};
use crate::protocol::scoreboard::PageView;
use crate::stats::Sum;
use crate::status::{History, Status};

/// How many notices are kept.
const NOTICES_MAX: usize = 200;

pub(super) struct View {
    pub(super) master: Pid,
    /// `None` until the master has told it.
    server: Option<ServerView>,
    /// By the pid of the worker.
    pages: BTreeMap<u32, Page>,
    ended: Sum,
    notices: VecDeque<(u64, String)>,
    cpu_seconds: Cell<f64>,
}

/// The page of a worker whose process runs.
pub(super) struct Page {
    pub(super) worker: WorkerInfo,
    pub(super) counts: PageView,
}

/// Why the server should get no requests, or that it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    Starting,
    NoWorker,
    Draining,
}

impl View {
    pub(super) fn new(master: Pid) -> Self {
        Self {
            master,
            server: None,
            pages: BTreeMap::new(),
            ended: Sum::new(),
            notices: VecDeque::new(),
            cpu_seconds: Cell::new(0.0),
        }
    }

    pub(super) fn apply(&mut self, fact: Fact, fd: Option<OwnedFd>) -> io::Result<()> {
        let fd = || fd.ok_or(io::Error::from(io::ErrorKind::InvalidData));
        match fact {
            // The master begins anew.
            Fact::Ended => {
                self.pages.clear();
                self.ended = Sum::new();
                PageView::open(&fd()?)?.add_to(&mut self.ended);
            }
            Fact::Worker(worker) => {
                let counts = PageView::open(&fd()?)?;
                self.pages.insert(worker.pid, Page { worker, counts });
            }
            Fact::Gone(pid) => {
                if let Some(page) = self.pages.remove(&pid) {
                    page.counts.add_to(&mut self.ended);
                }
            }
            Fact::View => self.server = Some(ServerView::from_memory(fd()?)?),
            Fact::Notice { millis, line } => {
                if self.notices.len() == NOTICES_MAX {
                    self.notices.pop_front();
                }
                self.notices.push_back((millis, line));
            }
            Fact::Leave => {}
        }
        Ok(())
    }

    /// The counts of all workers so far.
    pub(super) fn sum(&self) -> Sum {
        let mut sum = self.ended.clone();
        for page in self.pages.values() {
            page.counts.add_to(&mut sum);
        }
        sum
    }

    /// The state of the server, with the counts of this moment.
    pub(super) fn status(&self) -> Option<Status> {
        let mut status = self.server.as_ref()?.status.clone();
        for worker in status.slots.iter_mut().flat_map(|slot| &mut slot.workers) {
            if let Some(page) = self.pages.get(&worker.worker.pid) {
                worker.connections = page.counts.connections();
                worker.requests = page.counts.requests();
            }
        }
        status.totals = self.sum().totals();
        Some(status)
    }

    pub(super) fn history(&self) -> Option<&History> {
        self.server.as_ref().map(|server| &server.history)
    }

    pub(super) fn pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.values()
    }

    /// The CPU time of the server: what was measured now, or the largest figure before.
    pub(super) fn cpu_seconds(&self, measure: impl FnOnce() -> f64) -> f64 {
        self.cpu_seconds.set(self.cpu_seconds.get().max(measure()));
        self.cpu_seconds.get()
    }

    pub(super) fn readiness(&self) -> Readiness {
        let Some(ServerView { status, .. }) = &self.server else {
            return Readiness::Starting;
        };
        let mut workers = status.slots.iter().flat_map(|slot| &slot.workers);
        match status.state {
            ServerState::Starting => Readiness::Starting,
            ServerState::Draining => Readiness::Draining,
            ServerState::Serving | ServerState::Reloading | ServerState::Upgrading => {
                match workers.any(|worker| worker.state == WorkerState::Serving) {
                    true => Readiness::Ready,
                    false => Readiness::NoWorker,
                }
            }
        }
    }
}

impl Readiness {
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Starting => "not ready: not every slot has had a ready worker",
            Self::NoWorker => "not ready: no worker serves",
            Self::Draining => "not ready: the server drains",
        }
    }
}
