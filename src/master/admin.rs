//! The admin process, as the master sees it: its listener, its processes and what they are told.
//! [`AdminKeeper`] decides when one starts and ends.
//!
//! The master tells facts in order. It never waits for an admin process: facts wait in a queue
//! while the channel is full. If the queue is full too, the master forgets it, and tells everything
//! from the beginning when the process reads again.

mod listener;
mod process;
mod tell;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use serde_json::Value;

use crate::address::Address;
use crate::codec::record;
use crate::error::{Error, chain};
use crate::handle::Command;
use crate::hooks::WorkerInfo;
use crate::master::Master;
use crate::master::admin::listener::AdminListener;
use crate::master::admin::process::{AdminProcess, Ping, Stage};
use crate::master::listeners::bind_error;
use crate::master::workers::spawn::{RUNNING_IMAGE, arguments, command, set_environment};
use crate::protocol::admin::{
    AdminChannel, AdminMarker, Fact, FromAdmin, NOTICES_MAX, NumberedNotice,
};
use crate::protocol::channel::Received;
use crate::protocol::inheritance::MARKER;
use crate::protocol::scoreboard::Page;
use crate::supervisor::{AdminAction, AdminEvent, AdminId, AdminKeeper, Time};
use crate::sys::clock;
use crate::sys::discard::discard;
use crate::sys::listener::unix::UnixFile;
use crate::sys::spawn::{Inherit, spawn};

/// How often a process is asked if it responds. A process that hangs is replaced after this time,
/// or twice this time.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The shortest time between two views: in a reload of many slots the state changes often.
const VIEW_INTERVAL: Duration = Duration::from_millis(20);

/// How long the master waits for the last requests to an admin process when the server has ended.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// The admin process of this server, and those that leave.
#[derive(Debug)]
pub(in crate::master) struct Admin {
    keeper: AdminKeeper,
    listener: AdminListener,
    processes: BTreeMap<AdminId, AdminProcess>,
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
    keeper: AdminKeeper,
    listener: AdminListener,
    processes: Vec<(AdminId, (Pid, AdminChannel))>,
    notices: VecDeque<NumberedNotice>,
}

record!(DetachedAdmin {
    keeper,
    listener,
    processes,
    notices
});

impl Admin {
    pub(in crate::master) fn open(address: &Address, now: Time) -> Result<Self, Error> {
        let listener =
            AdminListener::open(address).map_err(|source| bind_error(address, source))?;
        tracing::info!(address = %listener.address, "admin address");
        Ok(Self::with(AdminKeeper::new(now), listener))
    }

    fn with(keeper: AdminKeeper, listener: AdminListener) -> Self {
        Self {
            keeper,
            listener,
            processes: BTreeMap::new(),
            notices: VecDeque::new(),
            view_due: None,
            view_told: Duration::ZERO,
            failures: 0,
            ping_due: clock::monotonic().saturating_add(PING_INTERVAL),
        }
    }

    pub(in crate::master) fn detach(self) -> DetachedAdmin {
        let processes = self.processes.into_iter();
        DetachedAdmin {
            keeper: self.keeper,
            listener: self.listener,
            processes: processes
                .map(|(id, process)| (id, (process.pid, process.channel)))
                .collect(),
            notices: self.notices,
        }
    }

    /// In the next image: goes on, unless the settings name another address or none.
    pub(in crate::master) fn resume(
        left: Option<DetachedAdmin>,
        asked: Option<&Address>,
        now: Time,
    ) -> Option<Self> {
        match (left.map(Self::restore), asked) {
            (Some(left), Some(asked)) if left.listener.asked == *asked => Some(left),
            (left, asked) => {
                if let Some(left) = left {
                    left.end(now);
                }
                Self::open(asked?, now)
                    .inspect_err(|error| {
                        tracing::error!(error = chain(error), "there is no admin process")
                    })
                    .ok()
            }
        }
    }

    /// In this image, because it goes on.
    pub(in crate::master) fn restore(left: DetachedAdmin) -> Self {
        let mut admin = Self::with(left.keeper, left.listener);
        admin.notices = left.notices;
        let processes = left.processes.into_iter();
        admin.processes = processes
            .map(|(id, (pid, channel))| (id, AdminProcess::new(pid, channel)))
            .collect();
        admin
    }

    pub(in crate::master) fn next_deadline(&self) -> Option<Time> {
        self.keeper.next_deadline()
    }

    pub(in crate::master) fn next_ping(&self) -> Duration {
        self.ping_due
    }

    pub(in crate::master) fn ping(&mut self, now: Duration) {
        self.ping_due = now.saturating_add(PING_INTERVAL);
        self.processes.values_mut().for_each(AdminProcess::ping);
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
        now: Time,
    ) -> Option<Vec<(u64, Command)>> {
        let mut processes = self.processes.iter();
        let (&id, _) = processes.find(|(_, process)| process.pid == pid)?;
        let process = self.processes.remove(&id)?;
        let commands = process.final_commands();
        // It may run as another user, who may have sent a descriptor whose close(2) blocks.
        discard(process.channel);
        self.keeper.handle(AdminEvent::Gone(id), now);
        Some(commands)
    }

    /// The channels, for poll(2).
    pub(in crate::master) fn channels(&self) -> impl Iterator<Item = PollFd<'_>> {
        let speaks = |process: &&AdminProcess| process.stage != Stage::Silent;
        self.processes.values().filter(speaks).map(|process| {
            let mut flags = PollFlags::POLLIN;
            flags.set(PollFlags::POLLOUT, !process.waiting.is_empty());
            PollFd::new(process.channel.as_fd(), flags)
        })
    }

    /// Receives what the processes have sent, and sends what waits for them.
    /// Returns the commands of operators, at most one of each process.
    pub(in crate::master) fn exchange(&mut self, now: Time) -> Vec<(u64, Command)> {
        let (mut commands, mut looked) = (Vec::new(), false);
        let processes = self.processes.iter_mut();
        for (&id, process) in processes.filter(|(_, process)| process.stage != Stage::Silent) {
            process.send_waiting();
            match process.channel.recv() {
                Ok(Received::Message(FromAdmin::Ready)) => {
                    self.keeper.handle(AdminEvent::Ready(id), now);
                }
                Ok(Received::Message(FromAdmin::Alive)) => process.ping = Ping::Closed,
                Ok(Received::Message(FromAdmin::Look)) => looked = true,
                Ok(Received::Message(FromAdmin::Asked { number, command })) => {
                    commands.push((number, command));
                }
                Ok(Received::Nothing) => {}
                // It ends soon and is reaped.
                Ok(Received::End) => process.stage = Stage::Silent,
                Err(error) => {
                    tracing::error!(%error, "the admin process broke the protocol and is killed");
                    process.stage = Stage::Silent;
                    process.kill();
                }
            }
        }
        if looked {
            self.view_changed();
        }
        commands
    }

    /// Tells a fact to all processes that know what was before it.
    fn tell(&mut self, fact: &Fact, with: Option<Arc<OwnedFd>>) {
        for process in self.processes.values_mut() {
            if process.stage == Stage::Informed {
                process.tell(fact.clone(), with.clone());
            }
        }
    }

    /// Ends all processes, and waits for them for a moment.
    pub(in crate::master) fn end(mut self, now: Time) {
        self.keeper.handle(AdminEvent::End, now);
        for process in self.processes.values_mut() {
            process.tell(Fact::Leave, None);
        }
        let end = clock::monotonic().saturating_add(END_PATIENCE);
        loop {
            self.processes.retain(|_, process| {
                process.send_waiting();
                let stays = matches!(
                    process.channel.recv(),
                    Ok(Received::Nothing | Received::Message(_))
                );
                if !stays {
                    process.kill();
                    process.reap();
                }
                stays
            });
            let left = end.saturating_sub(clock::monotonic());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut channels: Vec<_> = self.channels().collect();
            if channels.is_empty() || left.is_zero() || poll(&mut channels, timeout).is_err() {
                break;
            }
        }
        for process in self.processes.values() {
            process.kill();
            process.reap();
        }
    }
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
        let admin = self.observers.admin.as_ref();
        if !admin.is_some_and(|admin| admin.listener.takes_commands()) {
            return;
        }
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
        if let Some(admin) = &mut self.observers.admin {
            admin.keeper.handle_timeout(now);
        }
    }

    /// Whether a process that has ended was an admin process. The master acts on what it sent.
    pub(super) fn on_admin_ended(&mut self, pid: Pid) -> bool {
        let now = self.clock.now();
        let admin = self.observers.admin.as_mut();
        let commands = admin.and_then(|admin| admin.on_ended(pid, now));
        let is_admin = commands.is_some();
        self.apply_commands_of_operators(commands.unwrap_or_default());
        is_admin
    }

    /// Makes the socket file again if it was removed. The process that follows the reload gets the
    /// new listener.
    pub(super) fn renew_admin_listener(&mut self) {
        if let Some(Admin { listener, .. }) = &mut self.observers.admin
            && listener.file.as_ref().is_some_and(UnixFile::is_gone)
        {
            match AdminListener::open(&listener.asked) {
                Ok(new) => *listener = new,
                Err(error) => tracing::error!(%error, "the admin address has lost its file"),
            }
        }
    }

    /// A reload has ended, so the admin process is replaced too.
    pub(super) fn renew_admin(&mut self) {
        let now = self.clock.now();
        if let Some(admin) = &mut self.observers.admin {
            admin.keeper.handle(AdminEvent::Renew, now);
        }
    }

    /// The server has ended.
    pub(super) fn end_admin(&mut self) {
        let now = self.clock.now();
        self.tell_view(clock::monotonic());
        if let Some(admin) = self.observers.admin.take() {
            admin.end(now);
        }
    }

    /// Carries out what the keeper decides.
    pub(super) fn carry_out_admin(&mut self) {
        while let Some(action) = self.next_admin_action() {
            match action {
                AdminAction::Start(id) => self.start_admin(id),
                AdminAction::Leave(id) => self.with_admin_process(id, |process| {
                    process.tell(Fact::Leave, None);
                }),
                AdminAction::Kill(id) => self.with_admin_process(id, |process| process.kill()),
            }
        }
        self.inform_new_ones();
    }

    fn next_admin_action(&mut self) -> Option<AdminAction> {
        self.observers.admin.as_mut()?.keeper.next_action()
    }

    fn with_admin_process(&mut self, id: AdminId, act: impl FnOnce(&mut AdminProcess)) {
        let admin = self.observers.admin.as_mut();
        if let Some(process) = admin.and_then(|admin| admin.processes.get_mut(&id)) {
            act(process);
        }
    }

    fn start_admin(&mut self, id: AdminId) {
        let now = self.clock.now();
        let started = self.spawn_admin();
        let Some(admin) = &mut self.observers.admin else {
            return;
        };
        match started {
            Ok(process) => {
                admin.processes.insert(id, process);
            }
            Err(error) => {
                tracing::warn!(%error, "the admin process could not be started");
                admin.keeper.handle(AdminEvent::Gone(id), now);
            }
        }
    }

    fn spawn_admin(&self) -> io::Result<AdminProcess> {
        let Some(admin) = &self.observers.admin else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let (ours, theirs) = AdminChannel::pair()?;
        let marker = AdminMarker {
            master: Pid::this(),
            nesting: self.spawner.nesting,
            channel: theirs.as_raw_fd(),
            listener: admin.listener.fd.as_raw_fd(),
        };
        let mut command = command(Path::new(RUNNING_IMAGE), "admin", &arguments());
        set_environment(&mut command, &self.spawner.environment);
        command.env(MARKER, marker.encode());
        let inherit = Inherit {
            fds: marker.descriptors().to_vec(),
            limits: Vec::new(),
            credentials: match admin.listener.takes_commands() {
                // Only the user of the master can connect, so it is no way to more rights.
                true => None,
                false => self.spawner.credentials,
            },
        };
        let pid = spawn(&mut command, inherit)?;
        Ok(AdminProcess::new(pid, ours))
    }
}

/// Milliseconds after 1970.
pub(in crate::master) fn millis() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
