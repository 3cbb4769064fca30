//! Admin processes, as the master sees them: the addresses that they serve, and what they are told.
//! The [`AdminKeeper`](crate::supervisor::AdminKeeper) of an address decides when its processes
//! start and end.
//!
//! The master tells facts in order. It never waits for an admin process: facts wait in a queue
//! while the channel is full. If the queue is full too, the master forgets it, and tells everything
//! from the beginning when the process reads again.

mod address;
mod listener;
mod process;
mod tell;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use serde_json::Value;

use crate::address::Address;
use crate::codec::record;
use crate::error::{Error, chain};
use crate::handle::Command;
use crate::hooks::{WorkerExit, WorkerInfo};
use crate::master::Master;
use crate::master::admin::address::{AdminAddress, DetachedAddress};
use crate::master::admin::process::{AdminProcess, Stage};
use crate::protocol::admin::{Fact, NOTICES_MAX, NumberedNotice};
use crate::protocol::channel::Received;
use crate::protocol::scoreboard::Page;
use crate::supervisor::{AdminEvent, AdminKeeper, Time};
use crate::sys::clock;
use crate::sys::discard::{discard, until_discarded};

/// How often a process is asked if it responds. A process that hangs is replaced after this time,
/// or twice this time.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The shortest time between two views: in a reload of many slots the state changes often.
const VIEW_INTERVAL: Duration = Duration::from_millis(20);

/// How long the master waits for the last requests to an admin process when the server has ended.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// The admin processes of this server.
#[derive(Debug)]
pub(in crate::master) struct Admin {
    /// One or more.
    addresses: Vec<AdminAddress>,
    /// The latest notices, the oldest first.
    notices: VecDeque<NumberedNotice>,
    /// When to tell the view next, on the monotonic clock; `None` if it has not changed.
    view_due: Option<Duration>,
    view_told: Duration,
    /// How often in a row the processes could not be told what has changed.
    failures: u64,
    /// When the processes are pinged next, on the monotonic clock.
    ping_due: Duration,
}

/// What crosses into the next image. That image tells each process everything again.
#[derive(Debug)]
pub(in crate::master) struct DetachedAdmin {
    addresses: Vec<DetachedAddress>,
    notices: VecDeque<NumberedNotice>,
}

record!(DetachedAdmin { addresses, notices });

impl Admin {
    /// `None` if there is no address.
    pub(in crate::master) fn open(asked: &[Address], now: Time) -> Result<Option<Self>, Error> {
        let addresses = asked.iter().map(|asked| AdminAddress::open(asked, now));
        let addresses: Vec<_> = addresses.collect::<Result<_, _>>()?;
        Ok((!addresses.is_empty()).then(|| Self::with(addresses)))
    }

    fn with(addresses: Vec<AdminAddress>) -> Self {
        Self {
            addresses,
            notices: VecDeque::new(),
            view_due: None,
            view_told: Duration::ZERO,
            failures: 0,
            ping_due: clock::monotonic().saturating_add(PING_INTERVAL),
        }
    }

    /// Where the kernel listens, with the ports that it has chosen.
    fn listening(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter().map(AdminAddress::listening)
    }

    pub(in crate::master) fn detach(self) -> DetachedAdmin {
        let addresses = self.addresses.into_iter();
        DetachedAdmin {
            addresses: addresses.map(AdminAddress::detach).collect(),
            notices: self.notices,
        }
    }

    /// In the next image: goes on with the addresses that the settings still name, ends the others
    /// and opens new ones.
    pub(in crate::master) fn resume(
        left: Option<DetachedAdmin>,
        asked: &[Address],
        now: Time,
    ) -> Option<Self> {
        let mut admin = left.map_or_else(|| Self::with(Vec::new()), Self::restore);
        let mut left = std::mem::take(&mut admin.addresses);
        let kept = asked.iter().map(|asked| {
            let at = left.iter().position(|address| address.is(asked))?;
            let mut address = left.swap_remove(at);
            address.renew_listener();
            Some(address)
        });
        let kept: Vec<_> = kept.collect();
        // Before others are opened: a new address may have the port of one of these.
        end(left, now);
        let addresses = kept.into_iter().zip(asked).filter_map(|(kept, asked)| {
            kept.or_else(|| {
                AdminAddress::open(asked, now)
                    .inspect_err(|error| tracing::error!(error = chain(error), "no admin process"))
                    .ok()
            })
        });
        admin.addresses = addresses.collect();
        (!admin.addresses.is_empty()).then_some(admin)
    }

    /// In this image, because it goes on.
    pub(in crate::master) fn restore(left: DetachedAdmin) -> Self {
        let addresses = left.addresses.into_iter();
        let mut admin = Self::with(addresses.map(AdminAddress::restore).collect());
        admin.notices = left.notices;
        admin
    }

    fn processes(&self) -> impl Iterator<Item = &AdminProcess> {
        let addresses = self.addresses.iter();
        addresses.flat_map(|address| address.processes.values())
    }

    fn processes_mut(&mut self) -> impl Iterator<Item = &mut AdminProcess> {
        let addresses = self.addresses.iter_mut();
        addresses.flat_map(|address| address.processes.values_mut())
    }

    fn keepers(&mut self) -> impl Iterator<Item = &mut AdminKeeper> {
        self.addresses.iter_mut().map(|address| &mut address.keeper)
    }

    pub(in crate::master) fn next_deadline(&self) -> Option<Time> {
        let addresses = self.addresses.iter();
        let deadlines = addresses.filter_map(|address| address.keeper.next_deadline());
        deadlines.min()
    }

    pub(in crate::master) fn next_ping(&self) -> Duration {
        self.ping_due
    }

    pub(in crate::master) fn ping(&mut self, now: Duration) {
        self.ping_due = now.saturating_add(PING_INTERVAL);
        self.processes_mut().for_each(AdminProcess::ping);
    }

    /// When the view is due, on the monotonic clock; `None` if it has not changed.
    pub(in crate::master) fn next_view(&self) -> Option<Duration> {
        self.view_due
    }

    /// The state of the server has changed.
    pub(in crate::master) fn view_changed(&mut self) {
        let earliest = self.view_told.saturating_add(VIEW_INTERVAL);
        self.view_due.get_or_insert(earliest);
    }

    pub(in crate::master) fn on_notice(&mut self, notice: &Value, millis: u64) {
        let last = self.notices.back().map(|notice| notice.number);
        let notice = NumberedNotice::after(last, millis, notice.to_string());
        if self.notices.len() == NOTICES_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back(notice.clone());
        self.tell(&Fact::Notice(notice), None);
        self.view_changed();
    }

    pub(in crate::master) fn on_spawned(&mut self, worker: WorkerInfo, page: &Page) {
        match page.read_only() {
            Ok(page) => self.tell(&Fact::Worker(worker), Some(Arc::new(page))),
            Err(error) => {
                tracing::warn!(%error, "the admin process does not see a worker's counts")
            }
        }
    }

    /// Call it when the counts of the worker are among those of the workers that have ended.
    pub(in crate::master) fn on_reaped(&mut self, worker: WorkerInfo) {
        self.tell(&Fact::Gone(worker.pid), None);
    }

    /// The admin process with this pid has ended. Returns the commands that it sent before, and
    /// that were not received.
    pub(in crate::master) fn on_ended(
        &mut self,
        pid: Pid,
        status: WorkerExit,
        now: Time,
    ) -> Option<Vec<(u64, Command)>> {
        let mut addresses = self.addresses.iter_mut();
        addresses.find_map(|address| address.on_ended(pid, status, now))
    }

    /// The channels, for poll(2).
    pub(in crate::master) fn channels(&self) -> impl Iterator<Item = PollFd<'_>> {
        channels(self.processes())
    }

    /// Receives what the processes have sent, and sends what waits for them.
    /// Returns the commands of operators, at most one of each process.
    pub(in crate::master) fn exchange(&mut self, now: Time) -> Vec<(u64, Command)> {
        let addresses = self.addresses.iter_mut();
        let heard: Vec<_> = addresses.map(|address| address.exchange(now)).collect();
        if heard.iter().any(|heard| heard.look) {
            self.view_changed();
        }
        heard.into_iter().flat_map(|heard| heard.commands).collect()
    }

    /// Tells a fact to all processes that know what was before it.
    fn tell(&mut self, fact: &Fact, with: Option<Arc<OwnedFd>>) {
        for process in self.processes_mut() {
            if process.stage == Stage::Informed {
                process.tell(fact.clone(), with.clone());
            }
        }
    }

    /// Frees the ports. The clients of a socket stay connected.
    fn end_ports(&mut self, now: Time) {
        let addresses = std::mem::take(&mut self.addresses).into_iter();
        let (sockets, ports) = addresses.partition(AdminAddress::is_socket);
        self.addresses = sockets;
        end(ports, now);
    }
}

fn channels<'a>(
    processes: impl Iterator<Item = &'a AdminProcess>,
) -> impl Iterator<Item = PollFd<'a>> {
    let speaking = processes.filter(|process| process.stage != Stage::Silent);
    speaking.map(|process| {
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, !process.waiting.is_empty());
        PollFd::new(process.channel.as_fd(), flags)
    })
}

/// Ends all processes of these addresses, and waits for them for a moment.
fn end(mut addresses: Vec<AdminAddress>, now: Time) {
    if addresses.is_empty() {
        return;
    }
    let mut processes = Vec::new();
    for address in &mut addresses {
        address.keeper.handle(AdminEvent::End, now);
        processes.extend(std::mem::take(&mut address.processes).into_values());
    }
    for process in &mut processes {
        process.tell(Fact::Leave, None);
    }
    let end = clock::monotonic().saturating_add(END_PATIENCE);
    let mut ended = Vec::new();
    loop {
        ended.extend(processes.extract_if(.., |process| {
            process.send_waiting();
            !matches!(
                process.channel.recv(),
                Ok(Received::Nothing | Received::Message(_))
            )
        }));
        let left = end.saturating_sub(clock::monotonic());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut channels: Vec<_> = channels(processes.iter()).collect();
        if channels.is_empty() || left.is_zero() || poll(&mut channels, timeout).is_err() {
            break;
        }
    }
    ended.append(&mut processes);
    for process in &ended {
        process.kill();
        process.reap();
    }
    // They may have run as another user, who may have left a descriptor whose close(2) blocks.
    discard((addresses, ended));
    until_discarded(END_PATIENCE);
}

impl Master {
    pub(super) fn exchange_with_admin(&mut self) {
        let now = self.clock.now();
        if let Some(admin) = &mut self.observers.admin {
            let commands = admin.exchange(now);
            self.apply_commands_of_operators(commands);
        }
    }

    fn apply_commands_of_operators(&mut self, commands: Vec<(u64, Command)>) {
        for (number, command) in commands {
            tracing::info!(%command, "an operator gave a command");
            let (status, _) = self.status();
            let is_wanted = self.observers.operations.begin(number, command, &status);
            self.publish_status();
            if is_wanted {
                self.apply_command(command);
            }
        }
    }

    pub(super) fn ping_admin(&mut self, now: Duration) {
        if let Some(admin) = &mut self.observers.admin {
            admin.ping(now);
        }
    }

    pub(super) fn on_admin_deadline(&mut self) {
        let now = self.clock.now();
        let admin = self.observers.admin.iter_mut();
        let keepers = admin.flat_map(Admin::keepers);
        keepers.for_each(|keeper| keeper.handle_timeout(now));
    }

    /// Whether a process that has ended was an admin process. The master acts on what it sent.
    pub(super) fn on_admin_ended(&mut self, pid: Pid, status: WorkerExit) -> bool {
        let now = self.clock.now();
        let admin = self.observers.admin.as_mut();
        let commands = admin.and_then(|admin| admin.on_ended(pid, status, now));
        let is_admin = commands.is_some();
        self.apply_commands_of_operators(commands.unwrap_or_default());
        is_admin
    }

    /// Makes the listeners as they were: a socket file may be removed.
    pub(super) fn renew_admin_listeners(&mut self) {
        let admin = self.observers.admin.iter_mut();
        let addresses = admin.flat_map(|admin| &mut admin.addresses);
        addresses.for_each(AdminAddress::renew_listener);
    }

    /// A reload has ended, so the admin processes are replaced too.
    pub(super) fn renew_admin(&mut self) {
        let now = self.clock.now();
        let admin = self.observers.admin.iter_mut();
        let keepers = admin.flat_map(Admin::keepers);
        keepers.for_each(|keeper| keeper.handle(AdminEvent::Renew, now));
    }

    /// The server has ended. An operator who waits for the end is told when another server can have
    /// its addresses and the pid file.
    pub(super) fn end_admin(&mut self) {
        let now = self.clock.now();
        if let Some(admin) = &mut self.observers.admin {
            admin.end_ports(now);
        }
        until_discarded(END_PATIENCE);
        self.pid_file = None;
        // Last: if the name of a socket is gone, clients take it for the end of the server.
        let admin = self.observers.admin.iter_mut();
        let addresses = admin.flat_map(|admin| &mut admin.addresses);
        addresses.for_each(AdminAddress::free_name);
        self.tell_view(clock::monotonic());
        if let Some(admin) = self.observers.admin.take() {
            end(admin.addresses, now);
        }
    }

    /// Carries out what the keepers decide.
    pub(super) fn carry_out_admin(&mut self) {
        let now = self.clock.now();
        let admin = self.observers.admin.iter_mut();
        for address in admin.flat_map(|admin| &mut admin.addresses) {
            address.carry_out(&self.spawner, now);
        }
        self.inform_new_ones();
    }
}

/// Milliseconds after 1970.
pub(in crate::master) fn millis() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
