//! Which worker has accepted a connection. The kernel knows: `/proc/net/tcp` lists connections, and
//! `/proc/PID/fd` the sockets of a process.
//!
//! A killed worker takes along the connections it has accepted; those that wait in its listener's
//! queue are what a good server saves. The client cannot see the difference. The kernel can: a
//! connection in a queue has no inode yet.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use nix::unistd::Pid;

const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";

/// One socket of the server's port: proc_net(5).
struct Row {
    peer_port: u16,
    inode: String,
}

/// The clients' ports of the open connections that `worker` has accepted. It must be stopped, or
/// the list is old when it comes.
pub(crate) fn accepted_by(worker: Pid, server_port: u16) -> io::Result<BTreeSet<u16>> {
    let mut sockets = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{worker}/fd"))? {
        if let Ok(target) = fs::read_link(entry?.path()) {
            sockets.insert(target.to_string_lossy().into_owned());
        }
    }
    let rows = rows(server_port, ESTABLISHED)?.into_iter();
    Ok(rows
        .filter(|row| sockets.contains(&format!("socket:[{}]", row.inode)))
        .map(|row| row.peer_port)
        .collect())
}

/// How many listeners the port has.
pub(crate) fn listeners(server_port: u16) -> io::Result<usize> {
    Ok(rows(server_port, LISTEN)?.len())
}

/// The IPv4 sockets bound to `port` that are in this state.
fn rows(port: u16, state: &str) -> io::Result<Vec<Row>> {
    let text = fs::read_to_string("/proc/net/tcp")?;
    let row = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, local, peer, its_state, _, _, _, _, _, inode, ..] = fields.as_slice() else {
            return None;
        };
        let is_wanted = *its_state == state && port_of(local) == Some(port);
        is_wanted.then_some(Row {
            peer_port: port_of(peer)?,
            inode: (*inode).to_owned(),
        })
    };
    Ok(text.lines().filter_map(row).collect())
}

/// Of `ADDRESS:PORT` in hexadecimal digits.
fn port_of(address: &str) -> Option<u16> {
    let (_, port) = address.split_once(':')?;
    u16::from_str_radix(port, 16).ok()
}
