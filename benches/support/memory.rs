//! What a server's processes hold: memory and descriptors.

use std::fs;
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::cpu::Processes;
use super::process::Trouble;

/// Two looks this far apart that agree mean that a server has come to rest. Ours lets go of what a
/// connection was served with a second after its last response.
const REST_MS: u16 = 1500;

/// Agreement: what a thread's own housekeeping may move.
const REST_BYTES: u64 = 64 * 1024;

/// No server took longer to let go of what it held for its requests.
const REST_MAX: Duration = Duration::from_secs(10);

/// Descriptors that a process needs beside its connections.
const SPARE: u64 = 500;

/// The proportional set size of all processes together, in bytes: pages that several of them share
/// count once (proc_pid_smaps_rollup(5)). Without what the kernel keeps for their sockets.
pub(crate) fn pss(server: Processes) -> u64 {
    let mut bytes = 0;
    server.each(|pid| {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
        let kib: Option<u64> = kib.and_then(|kib| kib.trim().parse().ok());
        bytes += kib.expect("smaps_rollup has a line for it") * 1024;
    });
    bytes
}

/// The same when they have come to rest.
pub(crate) fn pss_at_rest(server: Processes) -> Result<u64, Trouble> {
    let deadline = Instant::now() + REST_MAX;
    let mut last = pss(server);
    loop {
        poll(&mut [], PollTimeout::from(REST_MS))?;
        let now = pss(server);
        if now.abs_diff(last) <= REST_BYTES || Instant::now() > deadline {
            return Ok(now);
        }
        last = now;
    }
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

/// Open descriptors of all processes of a server.
pub(crate) fn descriptors(server: Processes) -> usize {
    let mut count = 0;
    server.each(|process| {
        // A process that has ended has none.
        count += fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
    });
    count
}
