//! What a server's processes have in memory when they have nothing to do.

use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};

use crate::cpu::Processes;
use crate::process::Trouble;
use crate::pss::pss;

/// Two looks this far apart that agree mean that a server has come to rest. Ours lets go of what a
/// connection was served with a second after its last answer.
const REST_MS: u16 = 1500;

/// Agreement: what a thread's own housekeeping may move.
const REST_BYTES: u64 = 64 * 1024;

/// No server took longer to let go of what it held for its requests.
const REST_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
pub(crate) struct Bytes(pub(crate) u64);

/// What all processes of a server hold when they have come to rest.
pub(crate) fn at_rest(server: Processes) -> Result<Bytes, Trouble> {
    let deadline = Instant::now() + REST_MAX;
    let mut last = pss(server);
    loop {
        poll(&mut [], PollTimeout::from(REST_MS))?;
        let now = pss(server);
        if now.abs_diff(last) <= REST_BYTES || Instant::now() > deadline {
            return Ok(Bytes(now));
        }
        last = now;
    }
}
