//! The start of a master: checks and opens everything before the first worker is spawned.

use std::num::NonZeroU16;
use std::os::fd::RawFd;
use std::path::Path;

use crate::config::Config;
use crate::error::Error;
use crate::master::admin::Admin;
use crate::master::balance::Balancing;
use crate::master::clock::Clock;
use crate::master::commands::Commands;
use crate::master::failures::Failures;
use crate::master::init::{Inherited, Init};
use crate::master::listeners::{ListenerWatch, Listeners};
use crate::master::observers::Observers;
use crate::master::observers::announce::Announcer;
use crate::master::pid_file::PidFile;
use crate::master::tls::Secrets;
use crate::master::upgrade::{Program, Upgrade};
use crate::master::workers::Workers;
use crate::master::workers::spawn::{Environment, Spawner};
use crate::master::{Master, Setup, hang};
use crate::protocol::inheritance::ProcessRole;
use crate::protocol::scoreboard::Scoreboard;
use crate::status::{History, Operations};
use crate::supervisor::{Pause, Policy, PreStop, Supervisor, Time};
use crate::sys::credentials::{self, Credentials};
#[cfg(feature = "sandbox")]
use crate::sys::sandbox::Support;
use crate::sys::signals::Signals;
use crate::sys::{limits, reap};

/// The user and group of the workers, or why workers cannot run as them.
pub(super) fn choose_credentials(config: &mut Config) -> Result<Option<Credentials>, String> {
    let credentials = Credentials::choose(config.user.as_deref(), config.group.as_deref());
    if let Ok(Some(credentials)) = &credentials {
        config.unix_group = Some(credentials.group());
    }
    credentials
}

pub(super) fn begin(
    setup: Setup,
    credentials: Result<Option<Credentials>, String>,
    nesting: u8,
) -> Result<Master, Error> {
    check_nesting(nesting)?;
    let Setup {
        config,
        workers,
        tls,
        hooks,
        handle,
        commands,
    } = setup;
    // First, because a descriptor that is opened before might get the number of an inherited one.
    let mut inherited = Inherited::take()?;
    let credentials = credentials.map_err(Error::Config)?;
    let secrets = tls.map(Secrets::new).transpose()?;
    let announcer = config.announce_fd.map(announcer).transpose()?;
    // Before the first line of the log, whose file may be as long as a file may be.
    let signals = Signals::block().map_err(|error| Error::system("signalfd(2)", error))?;
    reap::check().map_err(|error| Error::system("waitid(2)", error))?;
    tell_rights(&config);
    raise_limits();
    let mut init = Init::of_this_process();
    let wanted = [&config.addresses[..], &config.redirects].concat();
    init.forget(&inherited.give_up_all_but(&wanted));
    let listeners = Listeners::open(&config, workers, inherited)?;
    init.store(&listeners);
    let scoreboard = Scoreboard::new().map_err(|error| Error::system("memfd_create(2)", error))?;
    let admin = Admin::open(&config.admin, Time::ZERO)?;
    // Last, because another server may have the file, and the addresses.
    let pid_file = config.pid_file.as_deref().map(pid_file).transpose()?;
    let mut supervisor = Supervisor::new(policy(&config, workers), Time::ZERO);
    // If an earlier master had more slots, their listeners stay, and the other slots adopt them.
    supervisor.add_retired(listeners.slots());
    let balance = Balancing::new(&config, &listeners);
    Ok(Master {
        supervisor,
        pre_stop: PreStop::new(config.pre_stop_delay, Pause::NotAsked),
        clock: Clock::starting_at(Time::ZERO),
        signals,
        commands: Commands::new(handle, commands, &config),
        listeners,
        listener_watch: ListenerWatch::default(),
        workers: Workers::new(workers.get(), scoreboard),
        spawner: Spawner {
            nesting,
            credentials,
            environment: Environment::default(),
        },
        upgrade: Upgrade::of(Program::of_this_process()),
        failures: Failures::default(),
        observers: Observers {
            hooks,
            announcer,
            init,
            history: History::default(),
            operations: Operations::default(),
            admin,
        },
        balance,
        secrets,
        hang: hang::from_config(&config),
        pid_file,
    })
}

fn check_nesting(nesting: u8) -> Result<(), Error> {
    match ProcessRole::may_nest(nesting) {
        true => Ok(()),
        false => Err(Error::Config(
            "servers started by workers of servers, too many levels deep: does the app start its \
             own program?"
                .into(),
        )),
    }
}

fn announcer(fd: RawFd) -> Result<Announcer, Error> {
    Announcer::new(fd)
        .map_err(|error| Error::Config(format!("cannot announce on descriptor {fd}: {error}")))
}

fn pid_file(path: &Path) -> Result<PidFile, Error> {
    PidFile::write(path).map_err(|error| {
        let path = path.display();
        Error::Config(format!("cannot write the pid file {path}: {error}"))
    })
}

/// Says what workers may do that the user may not expect.
pub(super) fn tell_rights(config: &Config) {
    #[cfg(feature = "sandbox")]
    tell_sandbox(config);
    if credentials::is_root() && config.user.is_none() {
        tracing::warn!(
            "Workers run as root. Choose a user with fewer rights, or root to confirm \
             (Prefork::user; --user NAME of the binary)."
        );
    }
}

/// A filter may refuse the call. A limit that is too low shows when descriptors run out.
pub(super) fn raise_limits() {
    if let Err(error) = limits::raise_open_files() {
        tracing::warn!(%error, "the limit on descriptors stays as it is (setrlimit(2))");
    }
}

#[cfg(feature = "sandbox")]
fn tell_sandbox(config: &Config) {
    match config.sandbox.as_ref().map(Support::of) {
        None | Some(Support::Full) => {}
        Some(Support::Partial(version, what)) => tracing::info!(
            "the sandbox is incomplete: version {version} of Landlock, which this kernel has, lets \
             workers {what}"
        ),
        Some(Support::None(why)) => tracing::warn!("workers have no sandbox: {why}"),
    }
}

pub(super) fn policy(config: &Config, workers: NonZeroU16) -> Policy {
    Policy {
        workers,
        drain_timeout: config.drain_timeout,
        ready_timeout: config.ready_timeout,
        crash_limit: config.crash_limit,
        backoff: config.backoff,
        reload_batch: config.reload_batch,
        seed: u64::from(std::process::id()),
        ..Policy::default()
    }
}
