//! Closing descriptors without waiting. This test is not in the library, because it forks: the new
//! process has every descriptor of this one for a moment, and tests of the library wait until some
//! are closed.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};
use socket2::SockRef;

use crate::support::{CEILING, until};

#[allow(unsafe_code, unreachable_pub, reason = "the library does not show it")]
#[path = "../../src/sys/discard.rs"]
mod sys;

tests! {
    descriptors_queued_in_a_socket_are_closed_without_waiting,
    a_port_is_free_when_its_listener_was_discarded,
}

/// Far longer than the test waits.
const LINGER: Duration = Duration::from_secs(600);

fn descriptors_queued_in_a_socket_are_closed_without_waiting() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let _silent = listener.accept().expect("one waits");
    stream.set_nonblocking(true).expect("a socket");
    while stream.write(&[0; 65536]).is_ok() {}
    SockRef::from(&stream)
        .set_linger(Some(LINGER))
        .expect("a socket");
    let pair = || {
        let flags = SockFlag::SOCK_CLOEXEC;
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a pair")
    };
    let send = |to: &dyn AsRawFd, fd: &dyn AsRawFd| {
        let (bytes, fds) = ([std::io::IoSlice::new(b"x")], [fd.as_raw_fd()]);
        let rights = [ControlMessage::ScmRights(&fds)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(to.as_raw_fd(), &bytes, &rights, flags, None)
    };
    // One descriptor waits in the socket, and one in a socket that waits in the socket.
    let ((here, there), (inner, outer)) = (pair(), pair());
    send(&here, &stream).expect("room");
    send(&inner, &stream).expect("room");
    send(&here, &outer).expect("room");
    drop((stream, inner, outer));
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        sys::discard(there);
        done.send(()).expect("the test waits");
    });
    is_done.recv_timeout(CEILING).expect("it does not wait");
    until(|| send(&here, &here).is_err());
}

fn a_port_is_free_when_its_listener_was_discarded() {
    // An address of its own: no other test gets the port between two rounds.
    let listener = TcpListener::bind("127.0.0.27:0").expect("a free port");
    let port = listener.local_addr().expect("bound");
    let mut listener = Some(listener);
    for _ in 0..100 {
        // Their processes have the listener too, and may end later.
        (0..3).for_each(sys::discard);
        sys::discard(listener.take());
        sys::until_discarded(CEILING);
        listener = Some(TcpListener::bind(port).expect("it is free"));
    }
}
