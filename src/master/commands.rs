//! The commands that handles and workers give, and which of them the master refuses.

use std::os::unix::net::UnixDatagram;

use crate::config::{Config, WorkerRequests};
use crate::handle::{Command, Handle};
use crate::id::WorkerId;
use crate::master::Master;
use crate::supervisor::Asker;
use crate::sys::credentials::Credentials;

/// Which user the workers run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    Masters,
    Another,
}

/// Whether a worker may give a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    Granted,
    Refused,
}

/// Where commands come from, and which of them workers may give.
#[derive(Debug)]
pub(super) struct Commands {
    /// The handle on this server in this process.
    pub(super) handle: Handle,
    /// What handles in this process send.
    pub(super) socket: UnixDatagram,
    allowed: Option<WorkerRequests>,
    /// How many commands of workers were refused.
    refused: u64,
}

impl Commands {
    pub(super) fn new(handle: Handle, socket: UnixDatagram, config: &Config) -> Self {
        Self {
            handle,
            socket,
            allowed: config.worker_requests,
            refused: 0,
        }
    }
}

impl Master {
    /// Carries out the command of a worker, or logs that it is refused.
    pub(super) fn on_request(&mut self, worker: WorkerId, command: Command) {
        let user = match self
            .spawner
            .credentials
            .is_some_and(Credentials::is_another_user)
        {
            true => User::Another,
            false => User::Masters,
        };
        if judge(command, self.commands.allowed, user) == Judgement::Granted {
            return match command {
                Command::Recycle(slot) => self.recycle(slot, Asker::Worker),
                _ => self.apply_command(command),
            };
        }
        self.commands.refused += 1;
        let refused = self.commands.refused;
        // At 1, 2, 4, 8, ... refused ones, because a worker may ask without end.
        if refused.is_power_of_two()
            && let Some(process) = self.workers.processes.get(&worker)
        {
            let (slot, pid) = (process.slot, process.pid);
            tracing::warn!(
                %slot, %pid, %command, refused,
                "a worker asked for what workers may not ask for (Prefork::worker_requests)"
            );
        }
    }
}

fn judge(command: Command, allowed: Option<WorkerRequests>, user: User) -> Judgement {
    let default = match user {
        User::Masters => WorkerRequests::All,
        User::Another => WorkerRequests::Renewal,
    };
    match (command, allowed.unwrap_or(default)) {
        (Command::Reload | Command::Recycle(_) | Command::ReopenLogs, _) => Judgement::Granted,
        (Command::Upgrade, WorkerRequests::All) if user == User::Masters => Judgement::Granted,
        (Command::Stop(_) | Command::Resize(_), WorkerRequests::All) => Judgement::Granted,
        _ => Judgement::Refused,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::policy::Stop;

    /// Stop, resize, upgrade, reload, reopen logs.
    fn judged(allowed: Option<WorkerRequests>, user: User) -> [Judgement; 5] {
        [
            Command::Stop(Stop::Now),
            Command::Resize(NonZeroU16::MIN),
            Command::Upgrade,
            Command::Reload,
            Command::ReopenLogs,
        ]
        .map(|command| judge(command, allowed, user))
    }

    #[test]
    fn workers_of_another_user_may_ask_for_less() {
        use Judgement::{Granted, Refused};
        let (all, renewal) = (WorkerRequests::All, WorkerRequests::Renewal);
        let granted = [Granted; 5];
        let limited = [Refused, Refused, Refused, Granted, Granted];
        let no_upgrade = [Granted, Granted, Refused, Granted, Granted];
        assert_eq!(judged(None, User::Masters), granted);
        assert_eq!(judged(Some(all), User::Masters), granted);
        assert_eq!(judged(Some(renewal), User::Masters), limited);
        assert_eq!(judged(None, User::Another), limited);
        assert_eq!(judged(Some(renewal), User::Another), limited);
        assert_eq!(judged(Some(all), User::Another), no_upgrade);
    }
}
