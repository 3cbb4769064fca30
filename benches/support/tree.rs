//! What the processes of a server use: CPU time, memory and descriptors.

use std::fs;
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::process::{Trouble, started_by};

/// Two looks this far apart that agree mean that a server has come to rest. Ours lets go of what a
/// connection was served with a second after its last response.
const REST_MS: u16 = 1500;

/// Agreement: what a thread's own housekeeping may move.
const REST_BYTES: u64 = 64 * 1024;

/// No server took longer to let go of what it held for its requests.
const REST_MAX: Duration = Duration::from_secs(10);

/// Descriptors that a process needs beside its connections.
const SPARE: u64 = 500;

/// A process and all that it has started, looked up anew each time.
#[derive(Clone, Copy)]
pub(crate) struct Tree {
    pub(crate) root: Pid,
}

impl Tree {
    /// The root comes first.
    pub(crate) fn pids(self) -> Vec<Pid> {
        let mut pids = vec![self.root];
        let mut at = 0;
        while at < pids.len() {
            pids.extend(started_by(pids[at]));
            at += 1;
        }
        pids
    }

    /// User and system time of all their threads so far, of those that have ended too.
    pub(crate) fn cpu_time(self) -> Duration {
        let clock = |pid| clock_getcpuclockid(pid).expect("a server's process lives");
        let pids = self.pids().into_iter();
        pids.map(|pid| time_of(clock(pid))).sum()
    }

    /// The proportional set size of all of them together, in bytes: pages that several of them
    /// share count once (proc_pid_smaps_rollup(5)). Without what the kernel keeps for sockets.
    pub(crate) fn memory(self) -> u64 {
        let of_process = |pid: Pid| {
            let path = format!("/proc/{pid}/smaps_rollup");
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
            let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
            let kib: Option<u64> = kib.and_then(|kib| kib.trim().parse().ok());
            kib.expect("smaps_rollup has a line for it") * 1024
        };
        self.pids().into_iter().map(of_process).sum()
    }

    /// The same when they have come to rest.
    pub(crate) fn memory_at_rest(self) -> Result<u64, Trouble> {
        let deadline = Instant::now() + REST_MAX;
        let mut last = self.memory();
        loop {
            poll(&mut [], PollTimeout::from(REST_MS))?;
            let now = self.memory();
            if now.abs_diff(last) <= REST_BYTES || Instant::now() > deadline {
                return Ok(now);
            }
            last = now;
        }
    }

    /// How many descriptors they have open.
    pub(crate) fn descriptors(self) -> usize {
        // A process that has ended has none.
        let of_process = |pid| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        self.pids().into_iter().map(of_process).sum()
    }
}

/// What a clock of CPU time shows, such as that of this process or of the calling thread.
pub(crate) fn time_of(clock: ClockId) -> Duration {
    clock_gettime(clock).expect("clock_gettime(2)").into()
}

/// As many connections as this process and what it starts may have open, up to `wanted`. Raises the
/// soft limit, and no higher than needed: a server may size things by it.
pub(crate) fn allowed(wanted: usize) -> usize {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("getrlimit(2)");
    let needed = wanted as u64 + SPARE;
    if soft < needed {
        setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard).expect("up to the hard limit");
    }
    usize::try_from(needed.min(hard).saturating_sub(SPARE)).unwrap_or(wanted)
}
