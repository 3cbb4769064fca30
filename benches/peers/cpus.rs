//! Where the servers and the load run: on different CPUs if there are two.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The CPUs that this process had when it started.
#[derive(Clone, Copy)]
pub(crate) struct Cpus {
    all: CpuSet,
    pub(crate) server: usize,
    pub(crate) load: usize,
}

impl Cpus {
    pub(crate) fn of_this_process() -> Result<Self, Errno> {
        let all = sched_getaffinity(Pid::from_raw(0))?;
        let mut usable = (0..CpuSet::count()).filter(|&cpu| all.is_set(cpu).unwrap_or(false));
        let server = usable.next().ok_or(Errno::ENODEV)?;
        let load = usable.next().unwrap_or(server);
        Ok(Self { all, server, load })
    }

    /// The calling thread stays on the load's CPU.
    pub(crate) fn load_here(&self) -> Result<(), Errno> {
        pin(self.load)
    }

    /// Runs `start` on the server's CPU, and so on what it starts.
    pub(crate) fn on_server<T>(&self, start: impl FnOnce() -> T) -> Result<T, Errno> {
        pin(self.server)?;
        let started = start();
        pin(self.load)?;
        Ok(started)
    }

    /// Runs `build` where it may use every CPU.
    pub(crate) fn on_all<T>(&self, build: impl FnOnce() -> T) -> Result<T, Errno> {
        sched_setaffinity(Pid::from_raw(0), &self.all)?;
        let built = build();
        pin(self.load)?;
        Ok(built)
    }
}

fn pin(cpu: usize) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}
