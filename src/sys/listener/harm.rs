//! What a worker can do to a TCP listener for all workers after it: use the socket for something
//! else, and set options. A connection has the options of its listener (tcp(7)), so some values
//! keep clients out.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use nix::libc::{self, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};
use nix::sys::socket::{getsockopt, sockopt};

use crate::address::Address;
use crate::sys::apart::{all_apart, apart, each_apart};
use crate::sys::fds;
use crate::sys::listener::{self, Reuse, address, listen_again, prepared};

/// An option, by its level and its number (setsockopt(2)).
#[derive(Clone, Copy, Debug)]
struct Name(&'static str, libc::c_int, libc::c_int);

/// How long the kernel holds each packet back, in microseconds (Linux 5.3, `linux/tcp.h`). libc
/// does not have it.
const TCP_TX_DELAY: libc::c_int = 37;

/// Those that keep clients out, end connections or delay them. With `SO_TIMESTAMPING` a connection
/// looks as if it was reset, because times wait in its queue of errors. Without `SO_REUSEADDR` and
/// `SO_REUSEPORT` no listener can be made beside this one, or after it.
///
/// Not here: sizes, which make connections only slower; and keys of signatures (`TCP_MD5SIG`),
/// because the kernel does not tell which ones a listener has.
const OPTIONS: [Name; 26] = [
    Name("SO_REUSEADDR", SOL_SOCKET, libc::SO_REUSEADDR),
    Name("SO_REUSEPORT", SOL_SOCKET, libc::SO_REUSEPORT),
    Name("SO_BINDTODEVICE", SOL_SOCKET, libc::SO_BINDTOIFINDEX),
    Name("SO_DONTROUTE", SOL_SOCKET, libc::SO_DONTROUTE),
    Name("SO_INCOMING_CPU", SOL_SOCKET, libc::SO_INCOMING_CPU),
    Name("SO_KEEPALIVE", SOL_SOCKET, libc::SO_KEEPALIVE),
    Name("SO_LINGER", SOL_SOCKET, libc::SO_LINGER),
    Name("SO_MAX_PACING_RATE", SOL_SOCKET, libc::SO_MAX_PACING_RATE),
    Name("SO_RCVLOWAT", SOL_SOCKET, libc::SO_RCVLOWAT),
    Name("SO_TIMESTAMPING", SOL_SOCKET, libc::SO_TIMESTAMPING),
    Name("IP_MINTTL", IPPROTO_IP, libc::IP_MINTTL),
    Name("IP_MTU_DISCOVER", IPPROTO_IP, libc::IP_MTU_DISCOVER),
    Name("IP_RECVERR", IPPROTO_IP, libc::IP_RECVERR),
    Name("IP_TTL", IPPROTO_IP, libc::IP_TTL),
    Name("IPV6_MINHOPCOUNT", IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
    Name("IPV6_MTU_DISCOVER", IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    Name("IPV6_RECVERR", IPPROTO_IPV6, libc::IPV6_RECVERR),
    Name("IPV6_RTHDR", IPPROTO_IPV6, libc::IPV6_RTHDR),
    Name("IPV6_UNICAST_HOPS", IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    Name("TCP_CORK", IPPROTO_TCP, libc::TCP_CORK),
    Name("TCP_KEEPCNT", IPPROTO_TCP, libc::TCP_KEEPCNT),
    Name("TCP_KEEPIDLE", IPPROTO_TCP, libc::TCP_KEEPIDLE),
    Name("TCP_KEEPINTVL", IPPROTO_TCP, libc::TCP_KEEPINTVL),
    Name("TCP_NODELAY", IPPROTO_TCP, libc::TCP_NODELAY),
    Name("TCP_TX_DELAY", IPPROTO_TCP, TCP_TX_DELAY),
    Name("TCP_USER_TIMEOUT", IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
];

/// Whether each of these sockets listens at its address. A process that has one can shut it down
/// and use it for a connection, which poll(2) does not report. A socket whose lock a process holds
/// counts as one that does not listen.
pub(crate) fn listen_at(listeners: &[(BorrowedFd<'_>, SocketAddr)]) -> bool {
    let here = |&(it, wanted): &(BorrowedFd<'_>, SocketAddr)| listens_here(it, wanted);
    let sockets: Vec<_> = listeners.iter().map(|(it, _)| it).collect();
    let listen = all_apart(&sockets, || Ok(listeners.iter().all(here).into()));
    listen.is_ok_and(|listen| listen == 1)
}

fn listens_here(listener: BorrowedFd<'_>, wanted: SocketAddr) -> bool {
    let same = |real: SocketAddr| real.ip() == wanted.ip() && real.port() == wanted.port();
    let is_there = matches!(address(listener), Ok(Address::Tcp(real)) if same(real));
    is_there && getsockopt(&listener, sockopt::AcceptConn) == Ok(true)
}

/// Makes a listener listen again at its address, with the options of a new one if `reuse` is given.
/// Returns whether it does. Without those options no socket can listen beside it.
pub(crate) fn open_again(
    listener: impl AsFd,
    address: SocketAddr,
    reuse: Option<Reuse>,
    backlog: u32,
) -> bool {
    let open = |it: BorrowedFd<'_>| {
        if let Some(reuse) = reuse {
            // What follows shows if this has failed.
            let _ = restore_here(it, address, reuse);
        }
        // If the machine has lost the address, bind(2) fails, and the socket goes on as it is.
        match listens_here(it, address) {
            true => listener::listen(it, backlog)?,
            false => listen_again(it, address, backlog)?,
        }
        Ok(listens_here(it, address).into())
    };
    apart(listener, open).is_ok_and(|listens| listens == 1)
}

/// Gives a listener the options that a new one at this address would have. They are not touched if
/// none is different.
pub(crate) fn restore(listener: impl AsFd, address: SocketAddr, reuse: Reuse) -> io::Result<()> {
    apart(listener, |it| restore_here(it, address, reuse)).map(drop)
}

/// As [`restore`] for each of these, and gives the listener the length of its queue again. Returns
/// the names of the options that were different. Does nothing if the socket does not listen at its
/// address: if it is not bound, listen(2) binds it to another port.
pub(crate) fn mend(
    listeners: &[(BorrowedFd<'_>, SocketAddr, Reuse)],
    backlog: u32,
) -> Vec<io::Result<Vec<&'static str>>> {
    let sockets: Vec<_> = listeners.iter().map(|(it, ..)| it).collect();
    let changed = each_apart(&sockets, |at| {
        let (it, address, reuse) = listeners[at];
        if !listens_here(it, address) {
            return Ok(0);
        }
        listener::listen(it, backlog)?;
        restore_here(it, address, reuse)
    });
    changed.into_iter().map(|it| it.map(names)).collect()
}

/// The options of these bits.
fn names(changed: u32) -> Vec<&'static str> {
    let changed = (0..)
        .zip(OPTIONS)
        .filter(|(at, _)| changed & (1 << at) != 0);
    changed.map(|(_, name)| name.0).collect()
}

/// Returns a bit for each option that was different.
fn restore_here(listener: impl AsFd, address: SocketAddr, reuse: Reuse) -> io::Result<u32> {
    let new = prepared(address, reuse)?;
    let mut changed = 0;
    for (at, name) in (0..).zip(OPTIONS) {
        // A kernel that does not know the option, or has it for the other family only.
        let (Ok(wanted), Ok(found)) = (Value::of(&new, name), Value::of(&listener, name)) else {
            continue;
        };
        if found != wanted {
            changed |= 1 << at;
            wanted.set(&listener, name)?;
        }
    }
    Ok(changed)
}

/// The value of an option: an integer, a pair of them, or nothing. A longer one is cut off.
#[derive(Debug, PartialEq, Eq)]
struct Value {
    bytes: [u8; 8],
    len: usize,
}

impl Value {
    fn of(socket: impl AsFd, Name(_, level, option): Name) -> io::Result<Self> {
        let mut bytes = [0; 8];
        let len = fds::option_bytes(socket, level, option, &mut bytes)?;
        Ok(Self { bytes, len })
    }

    fn set(&self, socket: impl AsFd, Name(_, level, option): Name) -> io::Result<()> {
        fds::set_option_bytes(socket, level, option, &self.bytes[..self.len])
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::sys::listener::tcp;
    use crate::sys::listener::tests::tcp_address;
    use crate::sys::socket::is_closed;

    /// A worker has asked for the time of each packet: sent (2), and told by software (16).
    #[test]
    fn a_connection_does_not_look_closed_because_of_its_listener() {
        let any = "127.0.0.1:0".parse().expect("valid");
        let listener = tcp(any, Reuse::None, 8).expect("a free port");
        let local = tcp_address(&listener);
        let looks_closed = || {
            let mut client = TcpStream::connect(local).expect("it listens");
            let accepted = listener::accept(&listener).expect("no error");
            let mut server = TcpStream::from(accepted.expect("it waits").0);
            server.write_all(b"x").expect("connected");
            client.read_exact(&mut [0]).expect("it was sent");
            is_closed(&server)
        };
        let times = [18, 0, 0, 0];
        // Not every kernel knows the option.
        let _ = fds::set_option_bytes(&listener, SOL_SOCKET, libc::SO_TIMESTAMPING, &times);
        restore(&listener, local, Reuse::None).expect("it may");
        assert!(!looks_closed());
    }

    #[test]
    fn a_listener_whose_address_the_machine_has_lost_listens_on() {
        // RFC 5737: no machine has this address.
        let lost: SocketAddr = "192.0.2.1:0".parse().expect("valid");
        let socket = prepared(lost, Reuse::None).expect("a socket");
        if socket.set_freebind_v4(true).is_err() || socket.bind(&lost.into()).is_err() {
            println!("not tested: it needs IP_FREEBIND");
            return;
        }
        socket.set_freebind_v4(false).expect("it may");
        socket.listen(8).expect("it is bound");
        let local = socket.local_addr().expect("it is bound");
        let local = local.as_socket().expect("an IPv4 address");
        assert!(open_again(&socket, local, Some(Reuse::None), 8));
    }

    /// Each option gets another value if the kernel and the rights of this process allow one.
    #[test]
    fn a_listener_gets_the_options_of_a_new_one() {
        for (any, reuse) in [
            ("127.0.0.1:0", Reuse::First),
            ("127.0.0.1:0", Reuse::None),
            ("[::1]:0", Reuse::First),
        ] {
            let listener = tcp(any.parse().expect("valid"), reuse, 8).expect("a free port");
            let local = tcp_address(&listener);
            let reuse = match reuse {
                Reuse::First => Reuse::Join,
                other => other,
            };
            let this = [(listener.as_fd(), local, reuse)];
            let restore = || mend(&this, 8).remove(0).expect("it may");
            assert_eq!(restore(), [""; 0], "{any}: untouched");
            let mut changed = Vec::new();
            for name in OPTIONS {
                let Ok(before) = Value::of(&listener, name) else {
                    continue;
                };
                // `lo` is the interface 1.
                for first in [1, 0, 2] {
                    let mut other = Value { ..before };
                    other.bytes = [first, 0, 0, 0, 0, 0, 0, 0];
                    let _ = other.set(&listener, name);
                    if Value::of(&listener, name).expect("it is known") != before {
                        changed.push(name.0);
                        break;
                    }
                }
            }
            // gVisor knows fewer options.
            for known in ["SO_LINGER", "IP_TTL", "TCP_USER_TIMEOUT"] {
                assert!(changed.contains(&known), "{any}: {known}");
            }
            assert_eq!(restore(), changed, "{any}");
            assert_eq!(restore(), [""; 0], "{any}: as before");
        }
    }
}
