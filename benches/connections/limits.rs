//! How many connections the machine allows, and how many processes they take.

use std::fs;

use crate::support::machine;
use crate::support::report::counted;
use crate::support::tree::allowed;

/// Of the descriptors of a worker, the share that is planned for: the kernel does not spread
/// connections evenly, and a server keeps some for other things.
const WORKER_SHARE: f64 = 0.75;

/// More than nginx's setting in this bench allows a worker.
const WORKER_MAX: usize = 15_000;

/// How many clients have an address in common, each with a port of its own.
const CLIENTS_MAX: usize = 16_000;

/// How the connections are spread.
pub(crate) struct Plan {
    pub(crate) connections: usize,
    /// Processes of clients.
    pub(crate) clients: usize,
    pub(crate) workers: usize,
    /// Which limit allows fewer than are wanted.
    pub(crate) said: Option<String>,
}

/// What the machine allows.
pub(crate) struct Limits {
    /// Descriptors of a process.
    pub(crate) of_process: usize,
    /// Files that the system may open besides.
    pub(crate) files: u64,
    /// Free memory, in bytes.
    pub(crate) memory: u64,
}

impl Limits {
    /// Those of this machine, now. Raises the soft limit on descriptors as far as this number asks
    /// for: servers and clients inherit it.
    pub(crate) fn now(wanted: usize) -> Self {
        Self {
            of_process: allowed(wanted),
            files: open_files_left(),
            memory: machine::available(),
        }
    }
}

impl Plan {
    pub(crate) fn of(wanted: usize, bytes_each: u64, limits: &Limits) -> Self {
        let of_process = limits.of_process;
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let by_files = number(limits.files / 2);
        let by_memory = number(limits.memory / bytes_each);
        let connections = wanted.min(by_files).min(by_memory);
        let said = (connections < wanted).then(|| {
            let (limit, name) = match by_files < by_memory {
                true => (by_files, "fs.file-max"),
                false => (by_memory, "memory"),
            };
            let (limit, wanted) = (counted(limit), counted(wanted));
            format!("{name} allows {limit} connections of {wanted}")
        });
        let of_worker = ((of_process as f64 * WORKER_SHARE) as usize).clamp(1, WORKER_MAX);
        Self {
            connections,
            clients: connections.div_ceil(of_process.clamp(1, CLIENTS_MAX)),
            workers: connections.div_ceil(of_worker).max(2),
            said,
        }
    }

    /// How many connections each process of clients has.
    pub(crate) fn shares(&self) -> impl Iterator<Item = usize> {
        let (connections, clients) = (self.connections, self.clients);
        (0..clients).map(move |client| {
            let until = |client| connections * client / clients;
            until(client + 1) - until(client)
        })
    }
}

/// As many files as the system may open besides (proc_sys_fs(5), `file-nr`).
fn open_files_left() -> u64 {
    let text = fs::read_to_string("/proc/sys/fs/file-nr").unwrap_or_default();
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    match (
        numbers.next().flatten(),
        numbers.next(),
        numbers.next().flatten(),
    ) {
        (Some(open), Some(_), Some(max)) => u64::saturating_sub(max, open),
        _ => u64::MAX,
    }
}
