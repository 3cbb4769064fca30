//! Descriptors: adopting an inherited number, close-on-exec, and sending them to another process
//! (unix(7), `SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, getsockopt, recvmsg, sendmsg,
    socketpair, sockopt,
};
use nix::unistd::{Pid, dup};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::codec::{Kept, Malformed, Reader, Record, Writer};

/// The most descriptors that travel in one message (unix(7), `SCM_MAX_FD`).
pub(crate) const MESSAGE_FDS_MAX: usize = 253;

/// Whether a socket takes descriptors (unix(7); Linux 6.16, `asm-generic/socket.h`).
const SO_PASSRIGHTS: libc::c_int = if cfg!(target_arch = "sparc64") {
    0x5c
} else {
    83
};

/// A connected pair of `SOCK_SEQPACKET` sockets: message borders are kept, and the end of one side
/// is seen by the other. Close-on-exec and non-blocking.
pub(crate) fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        flags,
    )?)
}

/// Sends one message, with descriptors or without; never blocks, never raises `SIGPIPE`.
pub(crate) fn send(to: impl AsFd, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    let rights = [ControlMessage::ScmRights(fds)];
    let control = if fds.is_empty() {
        &rights[..0]
    } else {
        &rights[..]
    };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    sendmsg::<()>(
        to.as_fd().as_raw_fd(),
        &[IoSlice::new(bytes)],
        control,
        flags,
        None,
    )?;
    Ok(())
}

/// Has the kernel refuse messages with descriptors to this socket: their sender gets `EPERM`. Linux
/// before 6.16 cannot, and goes on as before.
pub(crate) fn refuse_descriptors(socket: impl AsFd) {
    let off: libc::c_int = 0;
    let len = libc::socklen_t::try_from(size_of_val(&off)).expect("a small integer");
    // SAFETY: the kernel reads `len` bytes of `off`, which is that large. An option that the kernel
    // does not know is an error (`ENOPROTOOPT`), which changes nothing.
    unsafe {
        let socket = socket.as_fd().as_raw_fd();
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            len,
        );
    }
}

/// Receives one message without descriptors; length 0 is the other side's end. A message that is
/// longer than `bytes` is an error, and gone.
///
/// A message with descriptors is an error too, and stays in the socket. To receive a descriptor and
/// close it can block (a FUSE file, a TCP socket with `SO_LINGER`), and so can closing the socket:
/// see [`discard`](crate::sys::discard).
pub(crate) fn receive_bytes(from: impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    let fd = from.as_fd().as_raw_fd();
    let mut slices = [IoSliceMut::new(bytes)];
    // Without room for descriptors their presence is told, and while the message stays in the
    // socket no close is the last one.
    let peek = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    if recvmsg::<()>(fd, &mut slices, None, peek)?
        .flags
        .contains(MsgFlags::MSG_CTRUNC)
    {
        let why = "it sent descriptors, which the master takes from nobody";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let message = recvmsg::<()>(fd, &mut slices, None, MsgFlags::MSG_DONTWAIT)?;
    match message.flags.contains(MsgFlags::MSG_TRUNC) {
        true => Err(io::ErrorKind::InvalidData.into()),
        false => Ok(message.bytes),
    }
}

/// Receives one message and the descriptors that came with it; length 0 is the other side's end. A
/// message that is longer than `bytes` is an error, and gone.
///
/// At the limit on descriptors the kernel closes those that it has no number for (unix(7),
/// `MSG_CTRUNC`): then there are fewer than were sent.
pub(crate) fn receive(from: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control([0; CONTROL_LEN]);
    let mut slices = [IoSliceMut::new(bytes)];
    // SAFETY: a `msghdr` is integers and addresses, for which zero is a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = slices.as_mut_ptr().cast();
    header.msg_iovlen = slices.len() as _;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_LEN as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the header names one slice (`IoSliceMut` is laid out as an `iovec`) and the control
    // buffer, each with its length, and both outlive the call.
    let len = unsafe { libc::recvmsg(from.as_fd().as_raw_fd(), &raw mut header, flags) };
    let len = Errno::result(len)?;
    // Owned before anything is judged: what fails below closes them.
    let fds = received(&header);
    match header.msg_flags & libc::MSG_TRUNC {
        0 => Ok((usize::try_from(len).expect("a length"), fds)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Room for as many descriptors as a message can have.
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

// SAFETY: CMSG_SPACE(3) computes a length.
const CONTROL_LEN: usize =
    unsafe { libc::CMSG_SPACE((MESSAGE_FDS_MAX * size_of::<RawFd>()) as u32) } as usize;

/// Takes ownership of all descriptors in what recvmsg(2) has just filled in.
fn received(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel has written whole control messages to the buffer that the header names,
    // and their length over the header's. Cmsg(3) steps from one to the next within that length.
    // The data of `SCM_RIGHTS` are descriptors that were installed in this process for this
    // message; no other code knows their numbers, so each gets exactly one owner here.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = part.as_ref() {
            if (message.cmsg_level, message.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(part).cast::<RawFd>();
                let bytes = message.cmsg_len as u64 - u64::from(libc::CMSG_LEN(0));
                for at in 0..bytes as usize / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(data.add(at).read_unaligned()));
                }
            }
            part = libc::CMSG_NXTHDR(header, part);
        }
    }
    fds
}

/// Descriptors that are kept so that as many can be received though the process is at its limit.
/// They are copies of standard input.
#[derive(Debug)]
pub(crate) struct Spares {
    kept: Vec<OwnedFd>,
    most: usize,
}

impl Spares {
    /// Keeps as many, or as many as there are numbers for.
    pub(crate) fn new(most: usize) -> Self {
        let mut spares = Self {
            kept: Vec::new(),
            most,
        };
        spares.fill();
        spares
    }

    /// Gives their numbers up while `receive` runs.
    pub(crate) fn lend<T>(&mut self, receive: impl FnOnce() -> T) -> T {
        self.kept.clear();
        let received = receive();
        self.fill();
        received
    }

    fn fill(&mut self) {
        let copies = std::iter::from_fn(|| io::stdin().as_fd().try_clone_to_owned().ok());
        self.kept.extend(copies.take(self.most - self.kept.len()));
    }
}

/// Fails if there is no number for one descriptor more. The kernel would throw away what comes with
/// a message then (unix(7), `MSG_CTRUNC`).
pub(crate) fn has_room(for_one_beside: impl AsFd) -> io::Result<()> {
    for_one_beside.as_fd().try_clone_to_owned().map(drop)
}

/// The pid that made the socket pair `fd` belongs to, if `fd` is an open `SOCK_SEQPACKET` socket
/// (unix(7), `SO_PEERCRED`: for a pair, the credentials at socketpair(2)).
pub(crate) fn seqpacket_maker(fd: RawFd) -> Option<Pid> {
    // SAFETY: the borrow ends within this function, in which nothing closes a descriptor; if `fd`
    // is not open the calls fail with EBADF, which is an answer here.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    if getsockopt(&fd, sockopt::SockType).ok()? != SockType::SeqPacket {
        return None;
    }
    let maker = getsockopt(&fd, sockopt::PeerCredentials).ok()?;
    Some(Pid::from_raw(maker.pid()))
}

/// Takes ownership of an inherited descriptor and makes it close-on-exec, so that it goes no
/// further. Fails if the number is not open.
///
/// The caller vouches that the number was inherited for this purpose and that it adopts it once.
pub(crate) fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the borrow is used for one fcntl(2), which fails with EBADF if `fd` is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: `fd` is open, as the call above has shown, and by the contract of this function the
    // number was handed to this process by exec for it to own, and is adopted once.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A close-on-exec duplicate of a descriptor that the user named by number.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the borrow is used for one fcntl(2), which fails with EBADF if `fd` is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = fcntl(borrowed, FcntlArg::F_GETFD)?;
    debug_assert!(flags >= 0);
    let copy = dup(borrowed)?;
    fcntl(&copy, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(copy)
}

/// A descriptor crosses into the next image under its number.
impl Record for OwnedFd {
    fn put(&self, to: &mut Writer) {
        Kept(self.as_raw_fd()).put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let Kept(fd) = Record::take(from)?;
        adopt(fd).map_err(|_| Malformed)
    }
}

/// Watches a descriptor for something to read, inside a tokio runtime.
pub(crate) fn watch_readable(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: the descriptor is owned by the `Arc` that the registration holds, so it stays open,
    // and the same, until after it is deregistered.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// Watches a descriptor for room to write, inside a tokio runtime.
pub(crate) fn watch_writable(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: as in `watch_readable`.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::WRITABLE) }?)
}

/// Whether a read would not have to wait.
pub(crate) fn is_readable(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1))
}

/// Whether a write(2) of up to `PIPE_BUF` bytes would go through without blocking.
pub(crate) fn is_writable(fd: impl AsFd) -> bool {
    is_writable_within(fd, Duration::ZERO)
}

/// Whether that is so now or becomes so in this time.
pub(crate) fn is_writable_within(fd: impl AsFd, patience: Duration) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
    let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    matches!(poll(&mut fds, patience), Ok(1))
        && fds[0]
            .revents()
            .is_some_and(|events| events.contains(PollFlags::POLLOUT))
}

/// Whether the other end of a pipe is closed, now or within this time.
pub(crate) fn is_ended_within(fd: impl AsFd, patience: Duration) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::empty())];
    let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    matches!(poll(&mut fds, patience), Ok(1))
}

/// write(2), the whole of it, retried when a signal interrupts it.
pub(crate) fn write_all(fd: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match nix::unistd::write(fd.as_fd(), bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_travel_with_their_message() {
        let (here, there) = seqpacket_pair().expect("a pair");
        let (mut reader, writer) = io::pipe().expect("a pipe");
        send(&here, b"take it", &[writer.as_raw_fd()]).expect("room for one");
        drop(writer);
        let mut bytes = [0; 16];
        let (len, fds) = receive(&there, &mut bytes).expect("a message");
        assert_eq!((&bytes[..len], fds.len()), (&b"take it"[..], 1));
        write_all(&fds[0], b"hello").expect("the pipe is open");
        drop(fds);
        assert_eq!(io::read_to_string(&mut reader).expect("readable"), "hello");
    }

    #[test]
    fn a_message_that_is_too_long_is_no_message() {
        let (here, there) = seqpacket_pair().expect("a pair");
        send(&here, b"far too long", &[here.as_raw_fd()]).expect("room for one");
        send(&here, b"next", &[]).expect("room for one");
        let mut bytes = [0; 4];
        let error = receive(&there, &mut bytes).expect_err("it does not fit");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let (len, _) = receive(&there, &mut bytes).expect("the next one fits");
        assert_eq!(&bytes[..len], b"next");
    }

    /// As many as travel at once, and after each way of failing: no number stays taken.
    #[test]
    fn every_descriptor_that_comes_has_an_owner() {
        let (here, there) = seqpacket_pair().expect("a pair");
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut bytes = [0; 4];
        let most = vec![writer.as_raw_fd(); MESSAGE_FDS_MAX];
        send(&here, b"most", &most).expect("as many as may");
        let (_, fds) = receive(&there, &mut bytes).expect("a message");
        assert_eq!(fds.len(), MESSAGE_FDS_MAX);
        send(&here, b"too long", &most).expect("as many as may");
        receive(&there, &mut bytes).expect_err("the bytes do not fit");
        let more = vec![writer.as_raw_fd(); MESSAGE_FDS_MAX + 1];
        send(&here, b"more", &more).expect_err("more than may");
        drop((fds, writer));
        // The end of the pipe comes when the last writer is closed.
        assert!(is_ended_within(&reader, Duration::from_secs(20)));
    }

    #[test]
    fn a_message_with_descriptors_is_refused_where_none_are_taken_and_stays() {
        let (here, there) = seqpacket_pair().expect("a pair");
        let mut bytes = [0; 16];
        let nothing = receive_bytes(&there, &mut bytes).expect_err("nothing was sent");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        send(&here, b"plain", &[]).expect("room for one");
        send(&here, b"far too long to fit", &[]).expect("room for one");
        send(&here, b"two", &[here.as_raw_fd(); 2]).expect("room for one");
        assert_eq!(receive_bytes(&there, &mut bytes).expect("a message"), 5);
        let error = receive_bytes(&there, &mut bytes).expect_err("it does not fit");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        for _ in 0..2 {
            let error = receive_bytes(&there, &mut bytes).expect_err("it has descriptors");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        let (len, fds) = receive(&there, &mut bytes).expect("it is still there");
        assert_eq!((&bytes[..len], fds.len()), (&b"two"[..], 2));
        drop(here);
        drop(fds);
        assert_eq!(receive_bytes(&there, &mut bytes).expect("the end"), 0);
    }

    #[test]
    fn a_socket_that_refuses_descriptors_takes_bytes() {
        let (here, there) = seqpacket_pair().expect("a pair");
        refuse_descriptors(&there);
        let mut bytes = [0; 16];
        // Linux before 6.16 takes the message, and `receive_bytes` does not.
        if let Err(error) = send(&here, b"fds", &[here.as_raw_fd()]) {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            send(&here, b"bytes", &[]).expect("room for one");
            assert_eq!(receive_bytes(&there, &mut bytes).expect("a message"), 5);
        }
        send(&there, b"fds", &[here.as_raw_fd()]).expect("the other side takes them");
        assert_eq!(receive(&here, &mut bytes).expect("a message").1.len(), 1);
    }

    #[test]
    fn the_end_of_a_side_is_seen() {
        let (here, there) = seqpacket_pair().expect("a pair");
        let mut bytes = [0; 4];
        let error = receive(&there, &mut bytes).expect_err("nothing was sent");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(here);
        assert_eq!(receive(&there, &mut bytes).expect("the end").0, 0);
    }

    #[test]
    fn the_maker_of_a_pair_is_known_and_other_descriptors_have_none() {
        let (here, _there) = seqpacket_pair().expect("a pair");
        assert_eq!(seqpacket_maker(here.as_raw_fd()), Some(Pid::this()));
        let (reader, _writer) = io::pipe().expect("a pipe");
        assert_eq!(seqpacket_maker(reader.as_raw_fd()), None);
        assert_eq!(seqpacket_maker(1_000_000), None);
    }
}
