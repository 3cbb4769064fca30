//! Which worker has accepted a connection. The kernel knows: `sock_diag(7)` lists connections, and
//! `/proc/PID/fd` the sockets of a process.
//!
//! A killed worker takes along the connections it has accepted; those that wait in its listener's
//! queue are what a good server saves. The client cannot see the difference. The kernel can: a
//! connection in a queue has no inode yet.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};

use nix::unistd::Pid;
use socket2::{Domain, Protocol, Socket, Type};

const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;

const TCP: u8 = 6;
const ESTABLISHED: u32 = 1 << 1;
const LISTEN: u32 = 1 << 10;

/// `struct nlmsghdr`, and how much of `struct inet_diag_msg` follows it.
const HEADER_LEN: usize = 16;
const MESSAGE_LEN: usize = HEADER_LEN + 72;

/// One socket of the server's port.
struct Row {
    peer_port: u16,
    inode: u32,
}

/// The clients' ports of the open connections that `worker` has accepted. It must be stopped, or
/// the response is old when it comes.
pub(crate) fn accepted_by(worker: Pid, server_port: u16) -> io::Result<BTreeSet<u16>> {
    let inodes = inodes_of(worker)?;
    let rows = dump(server_port, ESTABLISHED)?.into_iter();
    Ok(rows
        .filter(|row| inodes.contains(&row.inode))
        .map(|row| row.peer_port)
        .collect())
}

/// How many listeners the port has.
pub(crate) fn listeners(server_port: u16) -> io::Result<usize> {
    Ok(dump(server_port, LISTEN)?.len())
}

fn inodes_of(process: Pid) -> io::Result<BTreeSet<u32>> {
    let mut inodes = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        let Ok(target) = fs::read_link(entry?.path()) else {
            continue;
        };
        let name = target.to_string_lossy();
        let inode = name
            .strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'));
        inodes.extend(inode.and_then(|inode| inode.parse::<u32>().ok()));
    }
    Ok(inodes)
}

/// The IPv4 sockets bound to `port` that are in one of `states`.
fn dump(port: u16, states: u32) -> io::Result<Vec<Row>> {
    let netlink = Domain::from(nix::libc::AF_NETLINK);
    let protocol = Protocol::from(NETLINK_SOCK_DIAG);
    let mut socket = Socket::new(netlink, Type::DGRAM, Some(protocol))?;
    socket.write_all(&request(port, states))?;
    let mut rows = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let len = socket.read(&mut buffer)?;
        if let Part::Last = take_rows(&buffer[..len], port, &mut rows)? {
            return Ok(rows);
        }
    }
}

/// A `struct nlmsghdr` and a `struct inet_diag_req_v2`.
fn request(port: u16, states: u32) -> Vec<u8> {
    const LEN: usize = HEADER_LEN + 56;
    let mut request = Vec::with_capacity(LEN);
    request.extend((LEN as u32).to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(DUMP.to_ne_bytes());
    request.extend([0; 8]);
    let family = nix::libc::AF_INET as u8;
    request.extend([family, TCP, 0, 0]);
    request.extend(states.to_ne_bytes());
    request.extend(port.to_be_bytes());
    request.resize(LEN, 0);
    request
}

enum Part {
    Last,
    MoreToCome,
}

fn take_rows(mut bytes: &[u8], port: u16, rows: &mut Vec<Row>) -> io::Result<Part> {
    while bytes.len() >= HEADER_LEN {
        let len = u32_at(bytes, 0) as usize;
        if len < HEADER_LEN || len > bytes.len() {
            return Err(io::Error::other("sock_diag(7) sent half a message"));
        }
        match u16::from_ne_bytes([bytes[4], bytes[5]]) {
            NLMSG_DONE => return Ok(Part::Last),
            NLMSG_ERROR => return Err(io::Error::other("sock_diag(7) refuses to list")),
            _ if len >= MESSAGE_LEN => {
                let message = &bytes[HEADER_LEN..];
                let port_at = |at| u16::from_be_bytes([message[at], message[at + 1]]);
                if port_at(4) == port {
                    rows.push(Row {
                        peer_port: port_at(6),
                        inode: u32_at(message, 68),
                    });
                }
            }
            _ => {}
        }
        bytes = &bytes[len.next_multiple_of(4).min(bytes.len())..];
    }
    Ok(Part::MoreToCome)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes[at..at + 4].try_into();
    u32::from_ne_bytes(field.expect("a slice of four"))
}
