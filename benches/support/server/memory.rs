//! What a server's processes keep in memory.

use std::fs;

use super::cpu::Processes;

/// The proportional set size of all processes together, in bytes: pages that several of them share
/// count once (proc_pid_smaps_rollup(5)). Without what the kernel keeps for their sockets.
pub(crate) fn pss(processes: Processes) -> u64 {
    let mut bytes = 0;
    processes.each(|pid| {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
        let kib: Option<u64> = kib.and_then(|kib| kib.trim().parse().ok());
        bytes += kib.expect("smaps_rollup has a line for it") * 1024;
    });
    bytes
}
