//! The command that a worker is started with.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The command that a worker is started with; see
/// [`Hooks::worker_command`](crate::Hooks::worker_command).
///
/// A hook cannot choose the program: a worker always runs the image of the master, so a reload
/// never changes code. Only the first worker of an upgrade, the canary, runs the binary on disk.
///
/// ```
/// use prefork_server::{BoxError, Generation, Hooks, Slot, WorkerCommand};
///
/// struct Environment;
///
/// impl Hooks for Environment {
///     fn worker_command(
///         &mut self,
///         slot: Slot,
///         _generation: Generation,
///         command: &mut WorkerCommand,
///     ) -> Result<(), BoxError> {
///         command.env("CACHE", format!("/var/cache/app/{slot}")).env_remove("ADMIN_PASSWORD");
///         Ok(())
///     }
/// }
/// ```
#[derive(Debug, Default)]
pub struct WorkerCommand {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: BTreeMap<OsString, Option<OsString>>,
    pub(crate) limits: Vec<(Limit, u64)>,
}

/// A resource limit of a worker (getrlimit(2)), both its soft and its hard limit.
///
/// ```
/// use prefork_server::{Limit, WorkerCommand};
///
/// /// For `Hooks::worker_command`.
/// fn set_limits(command: &mut WorkerCommand) {
///     // With a leak, the worker ends at 2 GiB, before the machine has no memory left.
///     command.limit(Limit::AddressSpace, 2 << 30).limit(Limit::Core, 0);
/// }
/// # set_limits(&mut WorkerCommand::default());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// `RLIMIT_NOFILE`: open descriptors.
    OpenFiles,
    /// `RLIMIT_AS`: bytes of address space.
    AddressSpace,
    /// `RLIMIT_CORE`: bytes of a core file.
    Core,
    /// `RLIMIT_CPU`: seconds of CPU time.
    CpuTime,
}

impl WorkerCommand {
    /// The arguments after the name of the program. At first they are those of the master.
    pub fn arguments(&mut self) -> &mut Vec<OsString> {
        &mut self.arguments
    }

    /// Sets an environment variable in the worker.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.environment
            .insert(name.as_ref().to_owned(), Some(value.as_ref().to_owned()));
        self
    }

    /// Removes an environment variable from the worker.
    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.environment.insert(name.as_ref().to_owned(), None);
        self
    }

    /// Limits a resource of the worker (setrlimit(2)). To raise a hard limit needs a privilege;
    /// without the privilege the spawn fails, which counts as a crash.
    pub fn limit(&mut self, limit: Limit, value: u64) -> &mut Self {
        self.limits.push((limit, value));
        self
    }
}
