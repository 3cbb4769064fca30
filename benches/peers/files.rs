//! Open descriptors: how many a process may have, and has.

use std::fs;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::cpu::Processes;

/// Descriptors that a process needs besides.
const SPARE: u64 = 500;

/// As many connections as this process and what it starts may have open, up to `wanted`.
pub(crate) fn allowed(wanted: usize) -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return wanted;
    };
    let needed = wanted as u64 + SPARE;
    if soft < needed {
        // Then the soft limit is what there is.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard);
    }
    let allowed = needed.min(hard.max(soft)).saturating_sub(SPARE);
    usize::try_from(allowed).unwrap_or(wanted)
}

/// Open descriptors of all processes of a server.
pub(crate) fn of(server: Processes) -> usize {
    let mut count = 0;
    server.each(|process| {
        // One that has ended has none.
        count += fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
    });
    count
}
