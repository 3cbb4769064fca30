//! Limits of this process: CPUs and descriptors.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// The soft limit on open descriptors that Linux gives to its first process.
const USUAL_OPEN_FILES: usize = 1024;

/// The number of CPUs that this process may use, and the reason for it.
///
/// ```
/// use prefork_server::{Prefork, usable_cpus};
///
/// // Half of them, because a database runs on the same machine.
/// let cpus = usable_cpus();
/// let server = Prefork::bind("127.0.0.1:8080").workers(cpus.usable.div_ceil(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cpus {
    /// CPUs that this process may use; at least 1.
    pub usable: usize,
    /// CPUs of the machine that are online.
    pub online: usize,
    /// Why `usable` has its value.
    pub reason: CpuReason,
}

/// Reason for the number of CPUs that a process may use.
///
/// ```
/// use prefork_server::{CpuReason, usable_cpus};
///
/// let cpus = usable_cpus();
/// if cpus.reason == CpuReason::Quota {
///     eprintln!("the quota is {} of {} CPUs", cpus.usable, cpus.online);
/// }
/// # assert!(cpus.reason != CpuReason::All || cpus.usable == cpus.online);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuReason {
    /// Nothing limits it.
    All,
    /// The affinity mask of the process (sched_setaffinity(2)), which a cpuset also sets.
    Affinity,
    /// The CPU quota of its cgroup (`cpu.max`).
    Quota,
}

/// Counts the CPUs that this process may use, from its affinity mask and its cgroup's quota.
///
/// ```
/// use prefork_server::usable_cpus;
///
/// let cpus = usable_cpus();
/// assert!(1 <= cpus.usable && cpus.usable <= cpus.online);
/// println!("{} workers ({cpus})", cpus.usable); // such as: 2 workers (CPU affinity: 2 of 8)
/// ```
#[must_use]
pub fn usable_cpus() -> Cpus {
    let usable = available_parallelism().map_or(1, NonZeroUsize::get);
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN)
        .ok()
        .flatten()
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(usable);
    let reason = match affinity() {
        Some(allowed) if usable < allowed => CpuReason::Quota,
        Some(allowed) if allowed < online => CpuReason::Affinity,
        _ => CpuReason::All,
    };
    Cpus {
        usable,
        online,
        reason,
    }
}

fn affinity() -> Option<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).ok()?;
    Some(
        (0..CpuSet::count())
            .filter(|&cpu| set.is_set(cpu).unwrap_or(false))
            .count(),
    )
}

/// Raises the soft limit on open descriptors to the hard one and returns it.
pub(crate) fn raise_open_files() -> io::Result<usize> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(usize::try_from(hard).unwrap_or(usize::MAX))
}

/// The soft limit on open descriptors. A filter may refuse the call that tells it (prlimit(2)).
pub(crate) fn open_files() -> usize {
    let limits = getrlimit(Resource::RLIMIT_NOFILE);
    limits.map_or(USUAL_OPEN_FILES, |(soft, _)| {
        usize::try_from(soft).unwrap_or(usize::MAX)
    })
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            CpuReason::All => write!(f, "one per CPU"),
            CpuReason::Affinity => write!(f, "CPU affinity: {} of {}", self.usable, self.online),
            CpuReason::Quota => write!(f, "cgroup CPU quota: {} of {}", self.usable, self.online),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_one_cpu_is_usable_and_at_most_those_that_are_online() {
        let cpus = usable_cpus();
        assert!(cpus.usable >= 1 && cpus.usable <= cpus.online, "{cpus:?}");
    }
}
