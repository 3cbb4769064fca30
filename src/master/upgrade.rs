//! Carries out an upgrade: starts a canary of the binary on disk, then makes this process that
//! binary (execve(2)), which goes on where this image was.
//!
//! These belong to the process and go on by themselves: its pid, its workers, the signals that have
//! arrived and are not read yet, the limits. A [`MasterState`] carries the rest by name: what the
//! supervisor knows, the workers' channels, the listeners. The exec closes everything else, and the
//! next image makes it anew.

mod program;
mod state;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use self::program::Identity;
pub(super) use self::program::Program;
use self::state::MasterState;
use crate::config::Config;
use crate::error::{Error, chain};
use crate::handle::Command;
use crate::hooks::Notice;
use crate::id::WorkerId;
use crate::master::admin::Admin;
use crate::master::balance::Balancing;
use crate::master::clock::Clock;
use crate::master::commands::Commands;
use crate::master::failures::Failures;
use crate::master::init::Init;
use crate::master::listeners::{ListenerWatch, Listeners, NewAddresses};
use crate::master::observers::Observers;
use crate::master::observers::announce::Announcer;
use crate::master::pid_file::PidFile;
use crate::master::start::{policy, raise_limits, tell_rights};
use crate::master::tls::{Secrets, SecretsOrigin};
use crate::master::workers::Workers;
use crate::master::workers::outbox::Message;
use crate::master::workers::process::Process;
use crate::master::workers::spawn::{Environment, Spawner};
use crate::master::{KEPT_MAX, Master, Setup, hang};
use crate::protocol::scoreboard::{Page, Scoreboard};
use crate::protocol::state::{VERSION, Versions};
use crate::status::is_dry_run;
use crate::supervisor::{Abandoned, Event, Pause, Policy, PreStop, Snapshot, Supervisor, Time};
use crate::sys::credentials::Credentials;
use crate::sys::exec;
use crate::sys::signals::Signals;

/// What upgrades need of the master.
#[derive(Debug)]
pub(super) struct Upgrade {
    pub(super) program: Program,
    /// The canary of the latest upgrade.
    canary: Option<Canary>,
    /// Whether the upgrade that was asked for is to be tried only.
    pub(super) is_trial: bool,
}

impl Upgrade {
    pub(super) fn of(program: Program) -> Self {
        Self {
            program,
            canary: None,
            is_trial: false,
        }
    }
}

/// A canary, and what is known of it.
#[derive(Debug)]
struct Canary {
    worker: WorkerId,
    /// The file that it runs; `None` if there is none.
    image: Option<Identity>,
    /// Why it failed, for the notice.
    failure: Option<String>,
}

impl Master {
    /// Fails if the program on disk must not be executed.
    pub(super) fn begin_canary(&mut self, worker: WorkerId) -> Result<(), String> {
        self.upgrade.canary = Some(Canary {
            worker,
            image: self.upgrade.program.identity().ok(),
            failure: None,
        });
        self.trust_program()
    }

    /// Fails if the workers' user could replace the program that the master would execute.
    fn trust_program(&self) -> Result<(), String> {
        let Some(user) = self
            .spawner
            .credentials
            .filter(|user| user.is_another_user())
        else {
            return Ok(());
        };
        match self.upgrade.program.changeable_by(user) {
            Ok(Some(path)) => Err(format!(
                "the workers' {user} may change {} by its owner or mode, and the master would \
                 execute it",
                path.display()
            )),
            Ok(None) => Ok(()),
            // The spawn gives a better error for a file that is not there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!("cannot find out who may change it: {error}")),
        }
    }

    pub(super) fn is_canary(&self, worker: WorkerId) -> bool {
        self.upgrade
            .canary
            .as_ref()
            .is_some_and(|canary| canary.worker == worker)
    }

    /// Keeps why the canary failed, for the notice that the upgrade is abandoned.
    pub(super) fn canary_failed(&mut self, failure: String) {
        if let Some(canary) = &mut self.upgrade.canary {
            canary.failure = Some(failure);
        }
    }

    /// A worker accepts connections. A canary's image must also read this master's state. The
    /// master checks that before the exec, because after it there is no way back.
    pub(super) fn on_ready(&mut self, worker: WorkerId, reads: Versions) {
        let ours = VERSION;
        if self.is_canary(worker) && !reads.include(ours) {
            self.canary_failed(format!(
                "it reads {reads} of a master's state, and this master writes version {ours}"
            ));
            return self.handle_event(Event::CanaryIncompatible);
        }
        if self.pre_stop.is_running() {
            self.send(worker, Message::Stopping);
        }
        self.handle_event(Event::Ready(worker));
        self.let_leave(worker);
    }

    pub(super) fn on_upgrade_abandoned(&mut self, why: Abandoned) {
        let mut why = why.to_string();
        let failure = self
            .upgrade
            .canary
            .as_mut()
            .and_then(|canary| canary.failure.take());
        if let Some(failure) = failure {
            why = format!("{why}: {failure}");
        }
        // With the path, because the operator may have put the new binary elsewhere.
        let why = format!("{}: {why}", self.upgrade.program.path().display());
        if is_dry_run(&why) {
            tracing::info!("upgrade tried: {why}");
        } else {
            tracing::warn!("upgrade abandoned: {why}");
        }
        self.observers.notify(&Notice::UpgradeAbandoned { why });
    }

    /// Starts a trial. If an upgrade was asked for before, it is made all the same.
    pub(super) fn try_upgrade(&mut self) {
        let is_trial = self.upgrade.is_trial || !self.supervisor.awaits_upgrade();
        self.handle_event(Event::Upgrade);
        self.upgrade.is_trial = is_trial;
    }

    /// Becomes the next image, or reports `UpgradeFailed`.
    pub(super) fn exec_in_place(&mut self) {
        let variables = match self.check_exec() {
            Ok(variables) => variables,
            Err(why) => {
                self.canary_failed(why);
                return self.handle_event(Event::UpgradeFailed);
            }
        };
        if self.upgrade.is_trial {
            return self.handle_event(Event::UpgradeTried);
        }
        let (error, commands) = match self.detach() {
            Err(error) => (error, Vec::new()),
            Ok(state) => {
                let Err(error) = state.exec(variables);
                (error, self.restore(state))
            }
        };
        self.canary_failed(error.to_string());
        self.handle_event(Event::UpgradeFailed);
        commands
            .into_iter()
            .for_each(|command| self.apply_command(command));
    }

    /// Fails if the hooks refuse the upgrade, or if the program is not what was tried. The hooks
    /// are first: the file may change while they work. Returns their variables for the new image.
    fn check_exec(&mut self) -> Result<Vec<(OsString, OsString)>, String> {
        let checked = self.observers.hooks.check_upgrade();
        let variables = checked.map_err(|error| chain(&*error))?;
        let tried = self.upgrade.canary.as_ref().and_then(|canary| canary.image);
        if tried.is_none() || self.upgrade.program.identity().ok() != tried {
            return Err("it is not the file any more that the canary was started from".into());
        }
        self.trust_program().map(|()| variables)
    }

    /// Moves what crosses out of this master.
    fn detach(&mut self) -> io::Result<MasterState> {
        Ok(MasterState {
            scoreboard: self.workers.scoreboard.share()?,
            ticket_keys: self.secrets.as_ref().and_then(Secrets::share_keys),
            tls_files: self.secrets.as_ref().and_then(Secrets::share_files),
            program: self.upgrade.program.clone(),
            nesting: self.spawner.nesting,
            credentials: self.spawner.credentials,
            signals: self.signals.before(),
            supervisor: self.supervisor.snapshot(),
            pause: self.pre_stop.pause(),
            listeners: self.listeners.detach(),
            processes: std::mem::take(&mut self.workers.processes),
            respawning: std::mem::take(&mut self.workers.respawning),
            failures: std::mem::take(&mut self.failures.recent),
            pid_file: self.pid_file.take(),
            history: self.observers.history.clone(),
            operations: self.observers.operations.clone(),
            admin: self.observers.admin.take().map(Admin::detach),
            commands: std::iter::from_fn(|| self.next_command()).collect(),
        })
    }

    /// Tells the handles of this image, and the report to the service manager, that the server
    /// serves.
    fn resume_observers(&mut self) {
        let addresses = self.listeners.addresses();
        self.commands.handle.set_serving(&addresses);
        let (count, workers) = (self.workers.count, self.workers.wanted());
        self.observers.init.resume(addresses, count, workers);
    }

    /// Makes socket files and the pid file again if they were removed. If workers of this image get
    /// other things than the canary has got, the canary is replaced too.
    fn renew_files(&mut self, is_canary_current: bool) {
        let renewed = self.renew_listeners();
        self.renew_pid_file();
        if !is_canary_current || renewed == NewAddresses::Some {
            self.handle_event(Event::Reload);
        }
    }

    /// Acts on what workers and handles have asked the image before for.
    fn take_over(&mut self, commands: Vec<Command>) {
        let workers: Vec<_> = self.workers.processes.keys().copied().collect();
        workers.into_iter().for_each(|it| self.let_leave(it));
        let commands = commands.into_iter();
        commands.for_each(|command| self.apply_command(command));
    }

    /// Moves it back, because this image goes on. Returns the commands that have come meanwhile.
    fn restore(&mut self, state: MasterState) -> Vec<Command> {
        self.listeners.restore(state.listeners);
        self.workers.processes = state.processes;
        self.workers.respawning = state.respawning;
        self.failures.recent = state.failures;
        self.pid_file = state.pid_file;
        self.observers.admin = state.admin.map(Admin::restore);
        state.commands
    }
}

/// The master in the next image. It fails only if it cannot go on at all, because no other image
/// can.
pub(super) fn resume(
    setup: Setup,
    credentials: Result<Option<Credentials>, String>,
    state: RawFd,
) -> Result<Master, Error> {
    let Setup {
        config,
        workers,
        tls,
        hooks,
        handle,
        commands,
    } = setup;
    let mut state = read(state)?;
    let signals =
        Signals::resume(&state.signals).map_err(|error| Error::system("signalfd(2)", error))?;
    raise_limits();
    tell_rights(&config);
    let credentials = credentials.unwrap_or_else(|error| {
        tracing::error!("{error}; workers run as before");
        state.credentials
    });
    let (listeners, news) = Listeners::resume(state.listeners, &config);
    let epoch = state.supervisor.now();
    let scoreboard = take_scoreboard(state.scoreboard, &mut state.processes)?;
    let (secrets, origin) = Secrets::resume(tls, state.ticket_keys, state.tls_files);
    // The image before has started the canary.
    let is_canary_current = news == NewAddresses::None
        && origin == SecretsOrigin::Inherited
        && credentials == state.credentials;
    let mut master = Master {
        workers: Workers {
            count: state.supervisor.workers().get(),
            processes: state.processes,
            respawning: state.respawning,
            scoreboard,
        },
        supervisor: supervisor(state.supervisor, policy(&config, workers), epoch),
        pre_stop: pre_stop(state.pause, &config),
        clock: Clock::starting_at(epoch),
        signals,
        commands: Commands::new(handle, commands, &config),
        balance: Balancing::new(&config, &listeners),
        listeners,
        listener_watch: ListenerWatch::default(),
        spawner: Spawner {
            nesting: state.nesting,
            credentials,
            environment: Environment::default(),
        },
        upgrade: Upgrade::of(state.program),
        failures: Failures::of(state.failures),
        observers: Observers {
            hooks,
            announcer: config.announce_fd.and_then(announcer),
            init: Init::of_this_process(),
            history: state.history,
            operations: state.operations,
            admin: Admin::resume(state.admin, &config.admin, epoch),
        },
        secrets,
        hang: hang::from_config(&config),
        pid_file: pid_file(state.pid_file, &config),
    };
    master.resume_observers();
    master.ask_for_environment();
    master.renew_files(is_canary_current);
    master.take_over(state.commands);
    Ok(master)
}

/// A number of workers that an operator has chosen stays.
fn supervisor(left: Snapshot, policy: Policy, epoch: Time) -> Supervisor {
    let (configured, workers) = (policy.workers, left.workers_after(policy.workers));
    if workers != configured {
        tracing::warn!(
            "there are {workers} workers, as a signal or a verb has asked for, and not \
             {configured}, as the settings say; a restart changes that"
        );
    }
    Supervisor::resume(left, policy, epoch)
}

fn read(state: RawFd) -> Result<MasterState, Error> {
    exec::take_state(state)
        .map_err(|error| error.to_string())
        .and_then(|bytes| MasterState::read(&bytes))
        .map_err(Error::Upgrade)
}

/// The pause goes on. The image before may have made it so long for what the kernel kept then.
fn pre_stop(pause: Pause, config: &Config) -> PreStop {
    let mut pre_stop = PreStop::new(config.pre_stop_delay, pause);
    if pre_stop.is_running() {
        pre_stop.last_at_least(KEPT_MAX);
    }
    pre_stop
}

fn pid_file(left: Option<PidFile>, config: &Config) -> Option<PidFile> {
    PidFile::resume(left, config.pid_file.as_deref())
        .inspect_err(|error| tracing::error!(%error, "cannot write the pid file"))
        .unwrap_or_default()
}

fn announcer(fd: RawFd) -> Option<Announcer> {
    Announcer::new(fd)
        .inspect_err(|error| tracing::error!(fd, %error, "cannot announce"))
        .ok()
}

/// The scoreboard of the image before this one. If its layout is another, all counts begin at zero;
/// the version of the state prevents that.
fn take_scoreboard(
    fd: OwnedFd,
    processes: &mut BTreeMap<WorkerId, Process>,
) -> Result<Scoreboard, Error> {
    Scoreboard::inherit(fd).or_else(|error| {
        tracing::error!(%error, "the counts of the image before this one are lost");
        let mut fresh = || -> io::Result<Scoreboard> {
            for process in processes.values_mut() {
                process.stats = Arc::new(Page::new()?);
            }
            Scoreboard::new()
        };
        fresh().map_err(|error| Error::system("memfd_create(2)", error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Stop;
    use crate::supervisor::Passage;

    #[test]
    fn a_pause_is_as_long_in_the_next_image() {
        let config = Config::default();
        let since = Time::ZERO;
        let running = pre_stop(Pause::Running { since }, &config);
        assert_eq!(running.next_deadline(), Some(since + KEPT_MAX));
        // Without a delay, and without a rush at the moment, the next image makes none itself.
        let mut none = pre_stop(Pause::NotAsked, &config);
        let asked = none.on_event(Event::Stop(Stop::Drain), since);
        assert_eq!(asked, Passage::Pass);
    }
}
