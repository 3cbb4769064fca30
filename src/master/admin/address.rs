//! An admin address: its listener, and the processes that serve it.
//!
//! Each address has a process of its own. So a client of a port cannot keep an operator waiting,
//! and a process that everyone can connect to gives no commands, also if it serves beside one that
//! does.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::unistd::Pid;

use crate::address::Address;
use crate::codec::record;
use crate::error::{Error, chain};
use crate::handle::Command;
use crate::hooks::WorkerExit;
use crate::master::admin::listener::AdminListener;
use crate::master::admin::process::{AdminProcess, Ping, Stage};
use crate::master::listeners::bind_error;
use crate::master::workers::spawn::{
    RUNNING_IMAGE, Spawner, arguments, command, set_environment, spawn_error,
};
use crate::protocol::admin::{AdminChannel, AdminMarker, Fact, FromAdmin};
use crate::protocol::channel::Received;
use crate::protocol::inheritance::MARKER;
use crate::supervisor::{AdminAction, AdminEvent, AdminId, AdminKeeper, Time};
use crate::sys::discard::discard;
use crate::sys::spawn::{Inherit, spawn};

/// The process that serves the address, and those that leave.
#[derive(Debug)]
pub(super) struct AdminAddress {
    pub(super) keeper: AdminKeeper,
    listener: AdminListener,
    pub(super) processes: BTreeMap<AdminId, AdminProcess>,
}

/// What crosses into the next image.
#[derive(Debug)]
pub(super) struct DetachedAddress {
    keeper: AdminKeeper,
    listener: AdminListener,
    processes: Vec<(AdminId, (Pid, AdminChannel))>,
}

record!(DetachedAddress {
    keeper,
    listener,
    processes
});

/// What the processes of an address have sent.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Commands of operators, at most one of each process.
    pub(super) commands: Vec<(u64, Command)>,
    /// Whether one wants a view of this moment.
    pub(super) look: bool,
}

impl AdminAddress {
    pub(super) fn open(asked: &Address, now: Time) -> Result<Self, Error> {
        let listener = AdminListener::open(asked).map_err(|source| bind_error(asked, source))?;
        tracing::info!(address = %listener.address, "admin address");
        Ok(Self {
            keeper: AdminKeeper::new(now),
            listener,
            processes: BTreeMap::new(),
        })
    }

    pub(super) fn detach(self) -> DetachedAddress {
        let processes = self.processes.into_iter();
        DetachedAddress {
            keeper: self.keeper,
            listener: self.listener,
            processes: processes
                .map(|(id, process)| (id, (process.pid, process.channel)))
                .collect(),
        }
    }

    pub(super) fn restore(left: DetachedAddress) -> Self {
        let address = &left.listener.address;
        let processes = left.processes.into_iter().map(|(id, (pid, channel))| {
            let process = AdminProcess::new(pid, address.clone(), channel);
            (id, process)
        });
        Self {
            processes: processes.collect(),
            keeper: left.keeper,
            listener: left.listener,
        }
    }

    pub(super) fn listening(&self) -> &Address {
        &self.listener.address
    }

    /// Whether the settings mean this address. The kernel may have chosen its port.
    pub(super) fn is(&self, asked: &Address) -> bool {
        self.listener.asked == *asked
    }

    pub(super) fn is_socket(&self) -> bool {
        self.listener.file.is_some()
    }

    /// Removes the socket file.
    pub(super) fn free_name(&mut self) {
        self.listener.file = None;
    }

    /// Makes the listener as it was. The process that follows a reload or an upgrade gets it.
    pub(super) fn renew_listener(&mut self) {
        if let Err(error) = self.listener.renew() {
            let address = &self.listener.address;
            tracing::error!(%address, %error, "the admin address has lost its listener");
        }
    }

    /// The admin process with this pid has ended. Returns the commands that it sent before, and
    /// that were not received.
    pub(super) fn on_ended(
        &mut self,
        pid: Pid,
        status: WorkerExit,
        now: Time,
    ) -> Option<Vec<(u64, Command)>> {
        let mut processes = self.processes.iter();
        let (&id, _) = processes.find(|(_, process)| process.pid == pid)?;
        if self.keeper.stays(id) {
            let address = &self.listener.address;
            let what = "an admin process has ended; another one starts";
            tracing::warn!(%pid, %address, %status, "{what}");
        }
        let process = self.processes.remove(&id)?;
        let commands = self.taken(process.final_commands());
        // It may run as another user, who may have sent a descriptor whose close(2) blocks.
        discard(process.channel);
        self.keeper.handle(AdminEvent::Gone(id), now);
        Some(commands)
    }

    /// Receives what the processes have sent, and sends what waits for them.
    pub(super) fn exchange(&mut self, now: Time) -> Heard {
        let mut heard = Heard::default();
        let processes = self.processes.iter_mut();
        for (&id, process) in processes.filter(|(_, process)| process.stage != Stage::Silent) {
            process.send_waiting();
            match process.channel.recv() {
                Ok(Received::Message(FromAdmin::Ready)) => {
                    self.keeper.handle(AdminEvent::Ready(id), now);
                }
                Ok(Received::Message(FromAdmin::Alive)) => process.ping = Ping::Closed,
                Ok(Received::Message(FromAdmin::Look)) => heard.look = true,
                Ok(Received::Message(FromAdmin::Asked { number, command })) => {
                    heard.commands.push((number, command));
                }
                Ok(Received::Nothing) => {}
                // It ends soon and is reaped.
                Ok(Received::End) => process.stage = Stage::Silent,
                Err(error) => {
                    let address = &self.listener.address;
                    tracing::error!(
                        %address,
                        %error,
                        "the admin process broke the protocol and is killed"
                    );
                    process.stage = Stage::Silent;
                    process.kill();
                }
            }
        }
        heard.commands = self.taken(heard.commands);
        heard
    }

    /// The process of a port may run as the workers' user, who may give no commands.
    fn taken(&self, commands: Vec<(u64, Command)>) -> Vec<(u64, Command)> {
        match self.listener.takes_commands() {
            true => commands,
            false => Vec::new(),
        }
    }

    /// Carries out what the keeper decides.
    pub(super) fn carry_out(&mut self, spawner: &Spawner, now: Time) {
        while let Some(action) = self.keeper.next_action() {
            match action {
                AdminAction::Start(id) => self.start(id, spawner, now),
                AdminAction::Leave(id) => self.with_process(id, |process| {
                    process.tell(Fact::Leave, None);
                }),
                AdminAction::Kill(id) => self.with_process(id, |process| process.kill()),
            }
        }
    }

    fn with_process(&mut self, id: AdminId, act: impl FnOnce(&mut AdminProcess)) {
        if let Some(process) = self.processes.get_mut(&id) {
            act(process);
        }
    }

    fn start(&mut self, id: AdminId, spawner: &Spawner, now: Time) {
        match self.spawn(spawner) {
            Ok(process) => {
                self.processes.insert(id, process);
            }
            Err(error) => {
                tracing::warn!(
                    address = %self.listener.address,
                    error = chain(&error),
                    "the admin process could not be started"
                );
                self.keeper.handle(AdminEvent::Gone(id), now);
            }
        }
    }

    fn spawn(&self, spawner: &Spawner) -> Result<AdminProcess, Error> {
        let pair = AdminChannel::pair();
        let (ours, theirs) = pair.map_err(|error| Error::system("socketpair(2)", error))?;
        let marker = AdminMarker {
            master: Pid::this(),
            nesting: spawner.nesting,
            channel: theirs.as_raw_fd(),
            listener: self.listener.fd.as_raw_fd(),
        };
        let program = Path::new(RUNNING_IMAGE);
        let mut command = command(program, "admin", &arguments());
        set_environment(&mut command, &spawner.environment);
        command.env(MARKER, marker.encode());
        let credentials = match self.listener.takes_commands() {
            // Only the user of the master can connect, so it is no way to more rights.
            true => None,
            false => spawner.credentials,
        };
        let inherit = Inherit {
            fds: marker.descriptors().to_vec(),
            limits: Vec::new(),
            credentials,
        };
        let pid = spawn(&mut command, inherit)
            .map_err(|error| spawn_error(error, program, credentials))?;
        Ok(AdminProcess::new(pid, self.listener.address.clone(), ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_of_a_port_gives_no_commands() {
        let dir = tempfile::tempdir().expect("a directory");
        let port = "127.0.0.1:0".parse().expect("an address");
        let socket = Address::Unix(dir.path().join("socket"));
        for (asked, taken) in [(port, 0), (socket, 1)] {
            let mut address = AdminAddress::open(&asked, Time::ZERO).expect("it is free");
            let started = address.keeper.next_action();
            let Some(AdminAction::Start(id)) = started else {
                panic!("{started:?}")
            };
            let (ours, theirs) = AdminChannel::pair().expect("a pair");
            let process = AdminProcess::new(Pid::this(), asked.clone(), ours);
            address.processes.insert(id, process);
            let (number, command) = (1, Command::Reload);
            let give = || theirs.send(FromAdmin::Asked { number, command });
            give().expect("room");
            let heard = address.exchange(Time::ZERO);
            assert_eq!(heard.commands.len(), taken, "{asked}");
            give().expect("room");
            let sent_before = address.on_ended(Pid::this(), WorkerExit::Unknown, Time::ZERO);
            assert_eq!(sent_before.map(|it| it.len()), Some(taken), "{asked}");
        }
    }
}
