//! Starts worker processes: the first one of a slot, every later one, and the canary of an upgrade.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::Pid;

use crate::address;
use crate::error::{BoxError, Error, chain};
use crate::hooks::{Notice, WorkerCommand};
use crate::id::{Generation, Slot, WorkerId};
use crate::master::listeners::Ensured;
use crate::master::tls::Secrets;
use crate::master::workers::process::{MasterSide, Process};
use crate::master::{Master, init};
use crate::protocol::channel::Channel;
use crate::protocol::inheritance::{MARKER, Marker, ProcessRole};
use crate::protocol::scoreboard::Page;
use crate::supervisor::{CANARY_SLOT, Change, Event};
use crate::sys::credentials::Credentials;
use crate::sys::spawn::{Inherit, spawn};

/// The running program, even if its file was replaced or removed (proc(5)).
pub(in crate::master) const RUNNING_IMAGE: &str = "/proc/self/exe";

/// What every spawn needs of the master.
#[derive(Debug)]
pub(in crate::master) struct Spawner {
    /// 0 if the master was not started by a worker of another server.
    pub(in crate::master) nesting: u8,
    /// The user and group of the workers; `None` if they are the master's own.
    pub(in crate::master) credentials: Option<Credentials>,
    /// What the hook has changed in the environment of the latest worker of this image. The admin
    /// process, which runs the same program, gets it too.
    pub(in crate::master) environment: Environment,
}

/// Names of variables and their values; `None` removes one.
pub(in crate::master) type Environment = BTreeMap<OsString, Option<OsString>>;

/// What a new worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::master) enum Image {
    /// The image that the master runs.
    Running,
    /// The program on disk, for the canary of an upgrade.
    OnDisk,
}

/// Why a worker was not spawned.
enum NotSpawned {
    Failed(Error),
    Refused(&'static str, BoxError),
}

impl Master {
    pub(in crate::master) fn spawn(
        &mut self,
        worker: WorkerId,
        slot: Slot,
        generation: Generation,
        image: Image,
    ) {
        match self.start(slot, generation, image) {
            Ok(process) => {
                let info = process.info();
                if let Some(admin) = &mut self.observers.admin {
                    admin.on_spawned(info, &process.stats);
                }
                self.workers.processes.insert(worker, process);
                self.handle_event(Event::Spawned(worker));
                self.publish_status();
                if let Err(source) = self.observers.hooks.worker_spawned(&info) {
                    self.on_hook_refused("worker_spawned", source);
                }
                if image == Image::Running
                    && let Some((old, status)) = self.workers.respawning.remove(&slot)
                {
                    self.observers.hooks.worker_respawned(&old, status, &info);
                }
                self.observers.notify(&Notice::WorkerSpawned(info));
            }
            Err(NotSpawned::Failed(error)) => {
                let why = format!("worker {slot} could not be spawned: {}", chain(&error));
                tracing::warn!("{why}");
                self.failures.last = Some((generation, why.clone()));
                match image {
                    Image::Running => {
                        let is_empty = !self.has_another(slot);
                        let operations = &mut self.observers.operations;
                        operations.on_failed_start(slot, None, &why);
                        if is_empty {
                            operations.on_empty_slot(slot, &why);
                        }
                        self.failures.keep(why);
                    }
                    Image::OnDisk => self.canary_failed(why),
                }
                self.handle_event(Event::SpawnFailed(worker));
            }
            Err(NotSpawned::Refused(hook, source)) => {
                self.handle_event(Event::SpawnFailed(worker));
                self.on_hook_refused(hook, source);
            }
        }
    }

    fn start(
        &mut self,
        slot: Slot,
        generation: Generation,
        image: Image,
    ) -> Result<Process, NotSpawned> {
        self.ensure_listeners_of_worker(slot)
            .map_err(NotSpawned::Failed)?;
        let stats = Page::new()
            .map_err(|error| NotSpawned::Failed(Error::system("memfd_create(2)", error)))?;
        let (ours, theirs) = Channel::pair()
            .map_err(|error| NotSpawned::Failed(Error::system("socketpair(2)", error)))?;
        let inbox = self.listeners.inbox(slot).expect("the slot has listeners");
        let marker = Marker {
            master: Pid::this(),
            slot,
            generation,
            workers: self.workers.count,
            nesting: self.spawner.nesting,
            channel: theirs.as_raw_fd(),
            stats: stats.number(),
            inbox: [inbox.sender(), inbox.receiver()].map(|end| end.as_raw_fd()),
            ticket_keys: self.secrets.as_ref().and_then(Secrets::keys_number),
            tls_files: self.secrets.as_ref().and_then(Secrets::files_number),
            listeners: self.listeners.numbers(slot),
        };
        let WorkerCommand {
            arguments,
            environment,
            limits,
        } = self
            .worker_command(slot, generation)
            .map_err(|source| NotSpawned::Refused("worker_command", source))?;
        let program = match image {
            Image::Running => Path::new(RUNNING_IMAGE),
            Image::OnDisk => self.upgrade.program.path(),
        };
        let role = format!("worker slot={slot} generation={generation}");
        let mut command = command(program, &role, &arguments);
        set_environment(&mut command, &environment);
        command.env(MARKER, marker.encode());
        let inherit = Inherit {
            fds: marker.descriptors().collect(),
            limits,
            credentials: self.spawner.credentials,
        };
        let pid = spawn(&mut command, inherit).map_err(|error| {
            NotSpawned::Failed(spawn_error(error, program, self.spawner.credentials))
        })?;
        if image == Image::Running {
            self.spawner.environment = environment;
        }
        let ours = MasterSide {
            channel: ours,
            stats,
        };
        Ok(Process::new(pid, slot, generation, ours))
    }

    /// What the hook makes of the command of a worker.
    fn worker_command(
        &mut self,
        slot: Slot,
        generation: Generation,
    ) -> Result<WorkerCommand, BoxError> {
        let mut command = WorkerCommand {
            arguments: arguments(),
            ..WorkerCommand::default()
        };
        let hooks = &mut self.observers.hooks;
        hooks.worker_command(slot, generation, &mut command)?;
        Ok(command)
    }

    /// In the next image, whose canary the image before has started: asks for its command as this
    /// image would start it. Admin processes need its environment, and if the canary is the only
    /// worker, no other is started.
    pub(in crate::master) fn ask_for_environment(&mut self) {
        let generation = self.supervisor.generation();
        match self.worker_command(CANARY_SLOT, generation) {
            Ok(command) => self.spawner.environment = command.environment,
            Err(source) => self.on_hook_refused("worker_command", source),
        }
    }

    /// Makes the listeners of a slot that it does not have yet, and those of the slots before it.
    /// The workers that attend to these slots get them.
    pub(in crate::master) fn ensure_listeners(&mut self, slot: Slot) -> Result<Ensured, Error> {
        let ensured = self.listeners.ensure(slot)?;
        self.observers.init.store(&self.listeners);
        if let Ensured::New { from } = ensured {
            self.give_to_workers(from..=slot);
        }
        Ok(ensured)
    }

    /// As [`ensure_listeners`](Self::ensure_listeners). If the listeners could not be made when the
    /// slot was adopted, its adopter gets them now.
    fn ensure_listeners_of_worker(&mut self, slot: Slot) -> Result<(), Error> {
        if self.ensure_listeners(slot)? != Ensured::Existing
            && let Some(by) = self.supervisor.adopter_of(slot)
        {
            self.on_change(Change::Adopted { slot, by });
        }
        Ok(())
    }
}

/// The arguments of this process.
pub(in crate::master) fn arguments() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

/// A command for a process of this server, without what belongs to the master alone.
pub(in crate::master) fn command(program: &Path, role: &str, arguments: &[OsString]) -> Command {
    let mut command = Command::new(program);
    command.arg0(title(role)).args(arguments);
    for name in init::VARIABLES {
        command.env_remove(name);
    }
    ProcessRole::hide_upgrade(&mut command);
    // A canary looks up each host name, as the image that follows it will.
    if program == Path::new(RUNNING_IMAGE) {
        command.env(address::HOSTS, address::hosts());
    }
    command
}

pub(in crate::master) fn set_environment(command: &mut Command, environment: &Environment) {
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// What ps(1) shows as the name of the process: the program's name, and what the process is.
fn title(role: &str) -> OsString {
    let program = std::env::args_os().next().unwrap_or_default();
    let mut title = Path::new(&program)
        .file_name()
        .unwrap_or(OsStr::new("prefork"))
        .to_owned();
    title.push(format!(": {role}"));
    title
}

/// The error of a spawn, with the limit that is reached, or the file or the right that the worker's
/// user lacks.
pub(in crate::master) fn spawn_error(
    error: io::Error,
    program: &Path,
    credentials: Option<Credentials>,
) -> Error {
    match (error.raw_os_error().map(Errno::from_raw), credentials) {
        (None, _) if error.kind() == io::ErrorKind::PermissionDenied => {
            Error::system("setrlimit(2)", error)
        }
        (Some(Errno::EAGAIN), _) => {
            let limit = "a limit on processes is reached (ulimit -u, LimitNPROC=, TasksMax=)";
            let why = format!("{error}: {limit}");
            Error::system("fork(2)", io::Error::new(error.kind(), why))
        }
        // What the new process reads from, and by which it reports that execve(2) has failed.
        (Some(Errno::EMFILE | Errno::ENFILE), _) => Error::system("open(2)", error),
        (Some(Errno::ENOENT), _) => {
            let why = format!("{error}: {}", missing(program));
            Error::system("execve(2)", io::Error::new(error.kind(), why))
        }
        (Some(Errno::EACCES), _) if is_noexec(program) => {
            let why = format!(
                "{} is on a file system that is mounted with noexec",
                program.display()
            );
            Error::system("execve(2)", io::Error::new(error.kind(), why))
        }
        (Some(Errno::EACCES), Some(credentials)) => {
            let program = std::env::current_exe()
                .ok()
                .filter(|_| program == Path::new(RUNNING_IMAGE))
                .unwrap_or_else(|| program.into());
            let why = format!("{credentials} may not execute {}", program.display());
            Error::system("execve(2)", io::Error::new(error.kind(), why))
        }
        // In a user namespace root may lack the right, or the id may not be mapped.
        (Some(Errno::EPERM | Errno::EINVAL), Some(credentials)) => {
            let why = format!("the kernel does not allow the master to become {credentials}");
            Error::system("setuid(2)", io::Error::new(error.kind(), why))
        }
        (Some(Errno::ENOMEM), _) => Error::system("fork(2) or execve(2)", error),
        // A filter (seccomp(2)) may refuse what a new process does first.
        (Some(Errno::EPERM), None) => Error::system("prctl(2), setsid(2) or execve(2)", error),
        _ => Error::system("execve(2)", error),
    }
}

fn is_noexec(program: &Path) -> bool {
    statvfs(program).is_ok_and(|it| it.flags().contains(FsFlags::ST_NOEXEC))
}

/// The file that a new process lacks. Its standard input is `/dev/null`.
fn missing(program: &Path) -> String {
    let files = [program, Path::new("/dev/null")];
    match files.into_iter().find(|file| !file.exists()) {
        Some(file) if file == Path::new(RUNNING_IMAGE) => {
            format!("{RUNNING_IMAGE}; /proc must be mounted")
        }
        Some(file) => file.display().to_string(),
        None => format!("the interpreter of {}", program.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::chain;

    #[test]
    fn a_limit_that_is_reached_is_named() {
        for (error, limit) in [
            (
                Errno::EAGAIN,
                "fork(2) failed: Resource temporarily unavailable (os error 11): a limit on \
                 processes is reached (ulimit -u, LimitNPROC=, ",
            ),
            (
                Errno::ENOMEM,
                "fork(2) or execve(2) failed: Cannot allocate memory",
            ),
            (
                Errno::EMFILE,
                "open(2) failed: the limit on open files is reached; raise it (ulimit -n, ",
            ),
        ] {
            let error = io::Error::from_raw_os_error(error as i32);
            let told = chain(&spawn_error(error, Path::new("/program"), None));
            assert!(told.starts_with(limit), "{told}");
        }
    }

    #[test]
    fn a_file_system_without_programs_is_named() {
        // Nearly each system mounts it so.
        let program = Path::new("/proc/version");
        if !is_noexec(program) {
            println!("not tested: /proc is mounted without noexec");
            return;
        }
        let error = io::Error::from_raw_os_error(Errno::EACCES as i32);
        let told = chain(&spawn_error(error, program, Some(Credentials::of(33, 33))));
        assert!(told.contains("/proc/version is on a file system"), "{told}");
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        for (program, file) in [
            ("/no/such/program", "/no/such/program"),
            ("/dev/null", "the interpreter of /dev/null"),
        ] {
            let error = io::Error::from_raw_os_error(Errno::ENOENT as i32);
            let told = chain(&spawn_error(error, Path::new(program), None));
            assert!(told.starts_with("execve(2) failed: No such file"), "{told}");
            assert!(told.ends_with(&format!(": {file}")), "{told}");
        }
    }
}
