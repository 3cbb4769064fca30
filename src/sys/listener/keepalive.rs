//! TCP keepalive (tcp(7)): the kernel sends probes to a client that is silent, and ends the
//! connection if the client does not respond. Accepted connections have these options from their
//! listener, without a system call.

use std::os::fd::AsFd;

use nix::libc::{self, IPPROTO_TCP, SOL_SOCKET, c_int};
use nix::sys::socket::{getsockopt, sockopt};
use socket2::{Domain, Socket, Type};

use crate::sys::fds;

/// The level, the number and the value of each option.
///
/// The first probe comes after two minutes of silence. That is longer than the default of
/// `Http::idle_timeout`, so a connection between two requests is closed before it costs a packet.
/// Of a million other connections that are silent, 8,000 get a probe in a second, which takes 3 %
/// of a CPU. Load balancers of clouds forget silent connections after four minutes or more. After
/// four probes without a response, a minute later, the connection ends.
const OPTIONS: [(c_int, c_int, c_int); 4] = [
    (SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    (IPPROTO_TCP, libc::TCP_KEEPIDLE, 120),
    (IPPROTO_TCP, libc::TCP_KEEPINTVL, 15),
    (IPPROTO_TCP, libc::TCP_KEEPCNT, 4),
];

/// Sets the options of a listener.
pub(super) fn set(listener: impl AsFd) {
    for (level, option, value) in OPTIONS {
        // If the kernel refuses one, the server serves without it.
        let _ = fds::set_option(&listener, level, option, value);
    }
}

/// Sets the options of a listener that another program has made, but none that it has chosen: if
/// `SO_KEEPALIVE` is on, all count as chosen, else those that differ from a new socket's.
///
/// Makes only system calls ([`apart`](crate::sys::apart::apart)).
pub(super) fn set_unless_chosen(listener: impl AsFd, domain: Domain) {
    if getsockopt(&listener, sockopt::KeepAlive) != Ok(false) {
        return;
    }
    let Ok(new) = Socket::new(domain, Type::STREAM.cloexec(), None) else {
        return;
    };
    for (level, option, value) in OPTIONS {
        let default = fds::option(&new, level, option).ok();
        if fds::option(&listener, level, option).ok() == default {
            // As in `set`.
            let _ = fds::set_option(&listener, level, option, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::sys::listener::tests::tcp_address;
    use crate::sys::listener::{Reuse, accept, tcp};

    const ANY: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

    fn values(socket: impl AsFd) -> [c_int; 4] {
        OPTIONS.map(|(level, option, _)| fds::option(&socket, level, option).expect("TCP"))
    }

    /// A connection that the listener has accepted.
    fn accepted(listener: &OwnedFd) -> OwnedFd {
        let _client = TcpStream::connect(tcp_address(listener)).expect("it listens");
        accept(listener).expect("it listens").expect("one waits").0
    }

    #[test]
    fn a_connection_has_the_options_of_its_listener() {
        for any in ANY {
            for reuse in [Reuse::First, Reuse::None] {
                let any: SocketAddr = any.parse().expect("valid");
                let listener = tcp(any, reuse, 8).expect("a free port");
                assert_eq!(
                    values(accepted(&listener)),
                    [1, 120, 15, 4],
                    "{any} {reuse:?}"
                );
            }
        }
    }

    #[test]
    fn a_listener_of_another_program_keeps_what_that_has_chosen() {
        let [keepalive, idle, interval, count] = OPTIONS.map(|(level, option, _)| (level, option));
        let [_, _, default_interval, default_count] = {
            let new = TcpListener::bind(ANY[0]).expect("a free port");
            values(&new)
        };
        for (chosen, wanted) in [
            (vec![], [1, 120, 15, 4]),
            (vec![(idle, 600)], [1, 600, 15, 4]),
            (vec![(interval, 5), (count, 7)], [1, 120, 5, 7]),
            (
                vec![(keepalive, 1), (idle, 600)],
                [1, 600, default_interval, default_count],
            ),
        ] {
            for any in ANY {
                let listener = TcpListener::bind(any).expect("a free port");
                for &((level, option), value) in &chosen {
                    fds::set_option(&listener, level, option, value).expect("it is TCP");
                }
                set_unless_chosen(&listener, Domain::for_address(any.parse().expect("valid")));
                let listener = listener.into();
                assert_eq!(values(accepted(&listener)), wanted, "{any} {chosen:?}");
            }
        }
    }
}
