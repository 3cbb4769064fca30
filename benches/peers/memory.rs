//! What a server's processes have in memory: the sum of their proportional set sizes, in which a
//! page that two processes share counts half for each.

use std::fs;
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};
use nix::unistd::Pid;

use crate::process::{Trouble, started_by};

/// Two looks this far apart that agree mean that a server has come to rest.
const REST_MS: u16 = 500;

/// Agreement: what a thread's own housekeeping may move.
const REST_BYTES: u64 = 64 * 1024;

/// No server took longer to let go of what it held for its requests.
const REST_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) u64);

/// What all processes beneath `root` hold when they have come to rest.
pub(crate) fn at_rest(root: Pid) -> Result<Bytes, Trouble> {
    let deadline = Instant::now() + REST_MAX;
    let mut last = of(root)?;
    loop {
        poll(&mut [], PollTimeout::from(REST_MS))?;
        let now = of(root)?;
        if now.0.abs_diff(last.0) <= REST_BYTES || Instant::now() > deadline {
            return Ok(now);
        }
        last = now;
    }
}

fn of(root: Pid) -> Result<Bytes, Trouble> {
    let mut sum = proportional_set_size(root)?;
    for process in started_by(root) {
        sum.0 += of(process)?.0;
    }
    Ok(sum)
}

fn proportional_set_size(process: Pid) -> Result<Bytes, Trouble> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let kilobytes = kilobytes.ok_or_else(|| Trouble::Stuck(format!("{path} tells no Pss")))?;
    Ok(Bytes(kilobytes * 1024))
}
