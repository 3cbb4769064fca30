//! The listeners of the servers that are in this package's benches.

use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

/// As many connections may wait as the kernel allows; it cuts this to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Non-blocking. The address may have more listeners.
pub(crate) fn listen(address: SocketAddr) -> Socket {
    let listener = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None);
    let listener = listener.expect("socket(2)");
    listener.set_reuse_port(true).expect("SO_REUSEPORT");
    // Accepted connections inherit it, as in prefork.
    listener.set_tcp_nodelay(true).expect("TCP_NODELAY");
    listener.bind(&address.into()).expect("bind(2)");
    listener.listen(BACKLOG).expect("listen(2)");
    listener
}
