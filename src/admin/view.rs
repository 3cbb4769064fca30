//! What the admin process knows of the server: what the master has told, and the pages in which
//! workers count.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use nix::unistd::Pid;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::address::Address;
use crate::admin::events::{self, Listeners, event};
use crate::admin::live::Live;
use crate::handle::{Command, Handle};
use crate::hooks::WorkerInfo;
use crate::policy::{ServerState, Stop, WorkerState};
use crate::protocol::admin::{
    AcceptQueue, AdminChannel, Fact, FromAdmin, NOTICES_MAX, NumberedNotice, ServerView,
};
use crate::protocol::channel::Received;
use crate::protocol::own_metrics;
use crate::protocol::scoreboard::PageView;
use crate::stats::Sum;
use crate::status::{History, Operation, Status, serving};

pub(super) struct View {
    pub(super) master: Pid,
    /// `None` until the master has told it.
    server: Option<ServerView>,
    /// How many views there were.
    pub(super) views: u64,
    counts: Counts,
    /// A master that begins anew tells all counts again. They replace the others when they are
    /// complete, so that no total falls in between.
    next: Option<Counts>,
    /// The latest notices as events, by their numbers.
    notices: VecDeque<(u64, Bytes)>,
    pub(super) listeners: Listeners,
    pub(super) live: Live,
    /// The number of the last command that this process has given.
    last: u64,
    /// The commands that this process has given and the master has not begun, by their numbers.
    given: BTreeMap<u64, Operation>,
    /// Wakes those who wait for an operation.
    changed: Arc<Notify>,
    channel: AdminChannel,
    /// What this process serves.
    address: Address,
    /// Ends this process.
    handle: Handle,
    pub(super) cpu_seconds: Highest,
    pub(super) own_refused: Highest,
}

/// A figure that may be measured too low, and must not fall.
#[derive(Default)]
pub(super) struct Highest(Cell<f64>);

impl Highest {
    /// What was measured now, or the largest figure before.
    pub(super) fn or(&self, now: f64) -> f64 {
        self.0.set(self.0.get().max(now));
        self.0.get()
    }
}

/// The page of a worker whose process runs.
pub(super) struct Page {
    pub(super) worker: WorkerInfo,
    /// Grows from one worker to the next. The master tells of them in the order of their starts.
    pub(super) number: usize,
    pub(super) counts: PageView,
}

/// What all workers count.
struct Counts {
    /// By the pid of the worker.
    pages: BTreeMap<u32, Page>,
    /// How many workers the master has told of.
    workers: usize,
    ended: Sum,
    /// The metrics of the app, of the workers that have ended.
    own_of_ended: own_metrics::Sum,
}

impl Counts {
    fn new() -> Self {
        Self {
            pages: BTreeMap::new(),
            workers: 0,
            ended: Sum::new(),
            own_of_ended: own_metrics::Sum::default(),
        }
    }

    fn add_worker(&mut self, worker: WorkerInfo, counts: PageView) {
        self.workers += 1;
        let number = self.workers;
        let page = Page {
            worker,
            number,
            counts,
        };
        self.pages.insert(worker.pid, page);
    }

    fn add_ended(&mut self, page: &PageView) {
        page.add_to(&mut self.ended);
        self.own_of_ended.add_ended(page.own());
    }
}

/// Why the server should get no requests, or that it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    Starting,
    NoWorker,
    Stopping,
    Draining,
}

impl View {
    pub(super) fn new(
        master: Pid,
        channel: AdminChannel,
        address: Address,
        handle: Handle,
    ) -> Self {
        Self {
            master,
            channel,
            address,
            handle,
            server: None,
            views: 0,
            counts: Counts::new(),
            next: None,
            notices: VecDeque::new(),
            listeners: Listeners::default(),
            live: Live::default(),
            // No other admin process of this server has these numbers.
            last: u64::from(std::process::id()) << 20,
            given: BTreeMap::new(),
            changed: Arc::default(),
            cpu_seconds: Highest::default(),
            own_refused: Highest::default(),
        }
    }

    /// Whether only the user of the master and root can connect.
    pub(super) fn takes_commands(&self) -> bool {
        matches!(self.address, Address::Unix(_))
    }

    /// Whether only clients of this machine can connect, by TCP.
    pub(super) fn is_loopback(&self) -> bool {
        matches!(&self.address, Address::Tcp(address) if address.ip().to_canonical().is_loopback())
    }

    /// Whether the master has told what the process has to know before it responds.
    pub(super) fn is_complete(&self) -> bool {
        self.server.is_some()
    }

    /// Hears all that the master has told. Ends the process if the master has ended, or is not
    /// understood.
    pub(super) fn hear(&mut self) {
        if let Err(error) = self.try_hear() {
            let address = &self.address;
            tracing::error!(%address, %error, "the admin process does not understand the master");
            std::process::exit(1);
        }
    }

    fn try_hear(&mut self) -> io::Result<()> {
        loop {
            match self.channel.hear()? {
                Received::Message((Fact::Leave, _)) => self.handle.stop(Stop::Drain)?,
                Received::Message((Fact::Ping, _)) => self.channel.send(FromAdmin::Alive)?,
                Received::Message((fact, fd)) => self.apply(fact, fd)?,
                Received::Nothing => return Ok(()),
                // The master has ended.
                Received::End => std::process::exit(0),
            }
        }
    }

    pub(super) fn apply(&mut self, fact: Fact, fd: Option<OwnedFd>) -> io::Result<()> {
        let fd = || fd.ok_or(io::Error::from(io::ErrorKind::InvalidData));
        match fact {
            // The master begins anew.
            Fact::Ended => {
                let ended = PageView::open(&fd()?)?;
                self.next.insert(Counts::new()).add_ended(&ended);
            }
            Fact::Worker(worker) => {
                // A hostile worker can spoil its page, and no other.
                match PageView::open(&fd()?) {
                    Ok(counts) => self.newest().add_worker(worker, counts),
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        let WorkerInfo { slot, pid, .. } = worker;
                        tracing::warn!(%slot, pid, %error, "a worker's counts are not shown");
                    }
                    Err(error) => return Err(error),
                }
            }
            Fact::Gone(pid) => {
                let newest = self.newest();
                if let Some(page) = newest.pages.remove(&pid) {
                    newest.add_ended(&page.counts);
                }
            }
            Fact::View => {
                let server = ServerView::from_memory(fd()?)?;
                self.views += 1;
                let mut given = self.given.keys().rev();
                if let Some(begun) = given.find(|&&number| server.operations.get(number).is_some())
                {
                    // The master begins them in their order.
                    self.given = self.given.split_off(&(begun + 1));
                }
                self.server = Some(server);
                if let Some(next) = self.next.take() {
                    self.counts = next;
                }
            }
            Fact::Notice(notice) => self.on_notice(&notice),
            Fact::Leave | Fact::Ping => {}
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Those that what the master tells now belongs to.
    fn newest(&mut self) -> &mut Counts {
        self.next.as_mut().unwrap_or(&mut self.counts)
    }

    fn on_notice(&mut self, notice: &NumberedNotice) {
        let number = notice.number;
        // The master may have begun anew.
        if self.notices.back().is_some_and(|(last, _)| *last >= number) {
            return;
        }
        let event = event(number, notice.millis, &notice.line);
        self.listeners.tell(&event);
        self.live.tell(&event);
        if self.notices.len() == NOTICES_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back((number, event));
    }

    /// The events after the one with this number. `None` if too many clients listen.
    pub(super) fn listen(&mut self, after: u64) -> Option<events::Page> {
        let later = self.notices_after(after);
        self.listeners.join(later.into_iter())
    }

    /// The notices after the one with this number, as events.
    pub(super) fn notices_after(&self, after: u64) -> Vec<Bytes> {
        let later = self.notices.iter().filter(|(number, _)| *number > after);
        later.map(|(_, event)| event.clone()).collect()
    }

    /// What a command has to do with the one that runs.
    pub(super) fn note_on(&self, command: Command) -> Option<&'static str> {
        let state = self.server.as_ref()?.status.state;
        match (command, state) {
            (Command::Reload, ServerState::Reloading) => {
                Some("a reload runs: it begins again, and both are done together")
            }
            (Command::Reload, ServerState::Upgrading) => {
                Some("an upgrade runs: the reload follows it")
            }
            (Command::Upgrade | Command::TryUpgrade, ServerState::Upgrading) => {
                Some("an upgrade runs: it is the same one")
            }
            (Command::Upgrade | Command::TryUpgrade, ServerState::Reloading) => {
                Some("a reload runs: the upgrade follows it")
            }
            (Command::Stop(Stop::Drain), ServerState::Draining) => {
                Some("the server drains already; `--now` ends it at once")
            }
            _ => None,
        }
    }

    /// Gives a command to the master. Returns the number of the operation, or why there is none.
    pub(super) fn give(&mut self, command: Command) -> Result<u64, String> {
        let Some(ServerView { status, .. }) = &self.server else {
            return Err(Readiness::Starting.why().to_owned());
        };
        let is_stop = matches!(command, Command::Stop(_));
        if status.state == ServerState::Draining && !is_stop {
            return Err("the server drains".to_owned());
        }
        if let Command::Recycle(slot) = command {
            serving(status, slot)?;
        }
        self.last += 1;
        let number = self.last;
        let asked = FromAdmin::Asked { number, command };
        self.channel
            .send(asked)
            .map_err(|error| format!("the master does not read: {error}"))?;
        self.given.insert(number, Operation::given(number, command));
        Ok(number)
    }

    /// Asks the master for a view of this moment. Returns the number of the view before.
    pub(super) fn look(&self) -> io::Result<u64> {
        self.channel.send(FromAdmin::Look)?;
        Ok(self.views)
    }

    pub(super) fn queues(&self) -> &[AcceptQueue] {
        self.server.as_ref().map_or(&[], |server| &server.queues)
    }

    /// The first name of each certificate, and the second after 1970 at which it ends.
    pub(super) fn certificates(&self) -> &[(String, u64)] {
        self.server
            .as_ref()
            .map_or(&[], |server| &server.certificates)
    }

    /// What has become of a command; `None` if the master has not begun to carry it out.
    pub(super) fn operation(&self, number: u64) -> Option<&Operation> {
        self.server.as_ref()?.operations.get(number)
    }

    /// A command of this process that the master has not begun to carry out.
    pub(super) fn given(&self, number: u64) -> Option<&Operation> {
        self.given.get(&number)
    }

    /// Resolves at the next fact of the master.
    pub(super) fn changed(&self) -> OwnedNotified {
        Arc::clone(&self.changed).notified_owned()
    }

    /// The counts of all workers so far.
    pub(super) fn sum(&self) -> Sum {
        let mut sum = self.counts.ended.clone();
        for page in self.counts.pages.values() {
            page.counts.add_to(&mut sum);
        }
        sum
    }

    /// The metrics of the app, of the workers that have ended.
    pub(super) fn own_of_ended(&self) -> &own_metrics::Sum {
        &self.counts.own_of_ended
    }

    /// The state of the server, with the counts of this moment.
    pub(super) fn status(&self) -> Option<Status> {
        let mut status = self.server.as_ref()?.status.clone();
        for worker in status.slots.iter_mut().flat_map(|slot| &mut slot.workers) {
            if let Some(page) = self.counts.pages.get(&worker.worker.pid) {
                worker.connections = page.counts.connections();
                worker.requests = page.counts.requests();
            }
        }
        status.totals = self.sum().totals();
        Some(status)
    }

    /// The admin addresses of the server.
    pub(super) fn admin(&self) -> Option<&[Address]> {
        self.server.as_ref().map(|server| &server.admin[..])
    }

    pub(super) fn history(&self) -> Option<&History> {
        self.server.as_ref().map(|server| &server.history)
    }

    pub(super) fn pages(&self) -> impl Iterator<Item = &Page> + Clone {
        self.counts.pages.values()
    }

    /// The page of the worker with this pid.
    pub(super) fn page(&self, pid: u32) -> Option<&Page> {
        self.counts.pages.get(&pid)
    }

    pub(super) fn readiness(&self) -> Readiness {
        let Some(ServerView { status, .. }) = &self.server else {
            return Readiness::Starting;
        };
        let mut workers = status.slots.iter().flat_map(|slot| &slot.workers);
        match status.state {
            ServerState::Starting => Readiness::Starting,
            ServerState::Stopping => Readiness::Stopping,
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
            Self::Stopping => "not ready: the server will drain",
            Self::Draining => "not ready: the server drains",
        }
    }
}
