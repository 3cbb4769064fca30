//! Descriptors: takes ownership of inherited ones, sets close-on-exec, and sends them to another
//! process (unix(7), `SCM_RIGHTS`).

#[cfg(test)]
pub(crate) mod tests;

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, getsockopt, recvmsg, sendmsg,
    socketpair, sockopt,
};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::codec::{Kept, Malformed, Reader, Record, Writer};
use crate::sys::socket::has_ended;

/// The most descriptors in one message (unix(7), `SCM_MAX_FD`).
pub(crate) const MESSAGE_FDS_MAX: usize = 253;

/// The socket option that allows or refuses messages with descriptors (Linux 6.16,
/// `asm-generic/socket.h`).
pub(crate) const SO_PASSRIGHTS: libc::c_int = if cfg!(target_arch = "sparc64") {
    0x5c
} else {
    83
};

/// The control message with a descriptor of the sender's process (Linux 6.5, `linux/socket.h`).
const SCM_PIDFD: libc::c_int = 4;

/// Makes a connected pair of `SOCK_SEQPACKET` sockets, close-on-exec and non-blocking. Such sockets
/// preserve message boundaries, and each side notices when the other is closed.
pub(crate) fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        flags,
    )?)
}

/// Sends one message, with or without descriptors. Never blocks and never raises `SIGPIPE`.
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

/// Makes the kernel refuse messages with descriptors to this socket: the sender gets `EPERM`. On
/// Linux before 6.16 this has no effect.
pub(crate) fn refuse_descriptors(socket: impl AsFd) {
    let _: io::Result<()> = set_option(socket, libc::SOL_SOCKET, SO_PASSRIGHTS, 0);
}

/// Whether the kernel refuses messages with descriptors to this socket.
pub(crate) fn refuses_descriptors(socket: impl AsFd) -> bool {
    option(socket, libc::SOL_SOCKET, SO_PASSRIGHTS).is_ok_and(|passes| passes == 0)
}

/// Makes the kernel refuse programs that choose what a socket receives (socket(7),
/// `SO_LOCK_FILTER`). A process that has the socket could attach one, and it would stay when the
/// process has ended. Connections accepted from a listener refuse them too.
pub(crate) fn refuse_filters(socket: impl AsFd) {
    // It fails on a kernel without filters.
    let _: io::Result<()> = set_option(socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1);
}

/// Sets an option of a socket that is an integer (setsockopt(2)).
pub(crate) fn set_option(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set_option_bytes(socket, level, option, &value.to_ne_bytes())
}

/// Sets an option of a socket to a value with these bytes (setsockopt(2)).
pub(crate) fn set_option_bytes(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the kernel reads at most `len` bytes of `value`, which has as many. For an unknown
    // option the kernel returns an error (`ENOPROTOOPT`) and changes nothing.
    let result = unsafe { libc::setsockopt(socket, level, option, value.as_ptr().cast(), len) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

/// An option of a socket that is an integer (getsockopt(2)).
pub(crate) fn option(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value = [0; size_of::<libc::c_int>()];
    option_bytes(socket, level, option, &mut value)?;
    Ok(libc::c_int::from_ne_bytes(value))
}

/// Writes the value of an option of a socket to `value`, or as much of it as fits (getsockopt(2)).
/// Returns how many bytes were written.
pub(crate) fn option_bytes(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let socket = socket.as_fd().as_raw_fd();
    let mut len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::EINVAL)?;
    let (into, len_into) = (value.as_mut_ptr().cast(), &raw mut len);
    // SAFETY: the kernel writes at most `len` bytes to `value`, which has as many, and the number
    // of bytes to `len`.
    let result = unsafe { libc::getsockopt(socket, level, option, into, len_into) };
    Errno::result(result)?;
    Ok(len as usize)
}

/// Receives one message without descriptors, and returns its length; 0 means that the other side is
/// closed. A message that is longer than `bytes`, or empty, is an error, and is lost.
///
/// A message with descriptors is an error too, and stays in the socket. To receive a descriptor and
/// close it can block (a FUSE file, a TCP socket with `SO_LINGER`). To close the socket can block
/// for the same reason: see [`discard`](crate::sys::discard).
pub(crate) fn receive_bytes(from: impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    let fd = from.as_fd().as_raw_fd();
    let mut slices = [IoSliceMut::new(bytes)];
    // Without a buffer for descriptors the kernel reports them by `MSG_CTRUNC`. The message stays
    // in the socket, so the kernel does not do the last close of a descriptor here.
    let peek = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    if recvmsg::<()>(fd, &mut slices, None, peek)?
        .flags
        .contains(MsgFlags::MSG_CTRUNC)
    {
        let why = "it sent descriptors, which the master does not accept";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let message = recvmsg::<()>(fd, &mut slices, None, MsgFlags::MSG_DONTWAIT)?;
    let is_empty = message.bytes == 0 && !has_ended(&from);
    match is_empty || message.flags.contains(MsgFlags::MSG_TRUNC) {
        true => Err(io::ErrorKind::InvalidData.into()),
        false => Ok(message.bytes),
    }
}

/// Receives one message with its descriptors. Length 0 means that the other side is closed. A
/// message that is longer than `bytes` is an error, and is lost.
///
/// At the limit on open descriptors the kernel closes those for which no number is left (unix(7),
/// `MSG_CTRUNC`). Then this returns fewer descriptors than were sent.
pub(crate) fn receive(from: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control([0; CONTROL_LEN]);
    let mut slices = [IoSliceMut::new(bytes)];
    // SAFETY: a `msghdr` has only integers and addresses, for which zero is a valid value.
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
    // Takes ownership before any check, so that an error below closes the descriptors.
    let fds = received(&header);
    match header.msg_flags & libc::MSG_TRUNC {
        0 => Ok((usize::try_from(len).expect("a length"), fds)),
        _ => {
            close_received(fds);
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

/// Closes descriptors from another process. Does not wait until the unsent data of a TCP socket are
/// sent, whatever `SO_LINGER` its sender has set (socket(7)).
pub(crate) fn close_received(fds: Vec<OwnedFd>) {
    for fd in fds {
        // Fails for what is not a socket.
        let _ = SockRef::from(&fd).set_linger(None);
    }
}

/// A control buffer for [`MESSAGE_FDS_MAX`] descriptors.
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

// SAFETY: CMSG_SPACE(3) computes a length.
const CONTROL_LEN: usize =
    unsafe { libc::CMSG_SPACE((MESSAGE_FDS_MAX * size_of::<RawFd>()) as u32) } as usize;

/// Takes ownership of all descriptors in a header that recvmsg(2) has just filled in. Closes the
/// one that stands for the sender's process. A process that has the socket may have asked for that,
/// and the option (`SO_PASSPIDFD`) is then on for all that have it.
fn received(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel has written whole control messages to the buffer that the header names,
    // and their length over the header's. Cmsg(3) steps from one to the next within that length.
    // The data of `SCM_RIGHTS` are descriptors that were installed in this process for this
    // message, and so is that of `SCM_PIDFD`; no other code knows their numbers, so each gets
    // exactly one owner here.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = part.as_ref() {
            let data = libc::CMSG_DATA(part).cast::<RawFd>();
            let bytes = message.cmsg_len as u64 - u64::from(libc::CMSG_LEN(0));
            for at in 0..bytes as usize / size_of::<RawFd>() {
                let fd = data.add(at).read_unaligned();
                match (message.cmsg_level, message.cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_RIGHTS) => fds.push(OwnedFd::from_raw_fd(fd)),
                    // A negative one is an error number.
                    (libc::SOL_SOCKET, SCM_PIDFD) if fd >= 0 => drop(OwnedFd::from_raw_fd(fd)),
                    _ => {}
                }
            }
            part = libc::CMSG_NXTHDR(header, part);
        }
    }
    fds
}

/// Reserves numbers of descriptors, so that as many descriptors can be received even if the process
/// is at its limit. The numbers are in use by copies of standard input.
#[derive(Debug)]
pub(crate) struct Spares {
    copies: Vec<OwnedFd>,
    max: usize,
}

impl Spares {
    /// Reserves `max` numbers, or as many as are left.
    pub(crate) fn new(max: usize) -> Self {
        let mut spares = Self {
            copies: Vec::new(),
            max,
        };
        spares.fill();
        spares
    }

    /// Frees the reserved numbers while `receive` runs.
    pub(crate) fn lend<T>(&mut self, receive: impl FnOnce() -> T) -> T {
        self.copies.clear();
        let received = receive();
        self.fill();
        received
    }

    fn fill(&mut self) {
        let copies = std::iter::from_fn(|| io::stdin().as_fd().try_clone_to_owned().ok());
        let missing = self.max - self.copies.len();
        self.copies.extend(copies.take(missing));
    }
}

/// Fails if the process cannot open so many more descriptors, by duplicating `fd`. Then the kernel
/// would close descriptors that come with a message (unix(7), `MSG_CTRUNC`).
pub(crate) fn has_room(fd: impl AsFd, count: usize) -> io::Result<()> {
    match count {
        0 => Ok(()),
        _ => has_room(fd.as_fd().try_clone_to_owned()?, count - 1),
    }
}

/// Returns the pid of the process that made the socket pair of `fd`, if `fd` is an open
/// `SOCK_SEQPACKET` socket (unix(7), `SO_PEERCRED`: for a pair, the credentials at socketpair(2)).
pub(crate) fn seqpacket_maker(fd: RawFd) -> Option<Pid> {
    // SAFETY: the borrow ends within this function, in which nothing closes a descriptor. If `fd`
    // is not open, the calls fail with EBADF, and the result is `None`.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    if getsockopt(&fd, sockopt::SockType).ok()? != SockType::SeqPacket {
        return None;
    }
    let maker = getsockopt(&fd, sockopt::PeerCredentials).ok()?;
    Some(Pid::from_raw(maker.pid()))
}

/// Opens a path as a place, neither to read nor to write (open(2), `O_PATH`), with these flags. std
/// cannot do it with musl, where it removes the flag.
pub(crate) fn open_path(path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | flags;
    Ok(open(path, flags, Mode::empty())?)
}

/// Takes ownership of an inherited descriptor and makes it close-on-exec. Fails if the number is
/// not open.
///
/// The caller must ensure that the number was inherited for this purpose, and must adopt it once.
pub(crate) fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the borrow is used for one fcntl(2), which fails with EBADF if `fd` is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: `fd` is open, as the call above has shown, and by the contract of this function the
    // process inherited the number to own it, and adopts it once.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a close-on-exec duplicate of a descriptor that the user chose by number.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(Errno::EBADF.into());
    }
    // SAFETY: the number is not -1, which no borrow may have. The borrow is used for one fcntl(2),
    // which fails with EBADF if `fd` is not open.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

/// A descriptor keeps its number over an upgrade.
impl Record for OwnedFd {
    fn put(&self, to: &mut Writer) {
        Kept(self.as_raw_fd()).put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let Kept(fd) = Record::take(from)?;
        adopt(fd).map_err(|_| Malformed)
    }
}

/// Makes a descriptor that a task can wait to read from. Call it inside a tokio runtime.
pub(crate) fn watch_readable(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: the registration holds the `Arc` that owns the descriptor, so the descriptor stays
    // open until it is deregistered.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// Makes a descriptor that a task can wait to write to. Call it inside a tokio runtime.
pub(crate) fn watch_writable(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: as in `watch_readable`.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::WRITABLE) }?)
}

/// Whether a read would not block.
pub(crate) fn is_readable(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1))
}

/// Whether the other side of a Unix socket has not yet received all that was sent (unix(7),
/// `SIOCOUTQ`). `false` if the kernel does not tell.
pub(crate) fn has_unread(socket: impl AsFd) -> bool {
    queued(socket) > 0
}

/// Number of bytes in the queue of a socket that sends (`SIOCOUTQ`); zero if the kernel does not
/// tell.
pub(super) fn queued(socket: impl AsFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes an integer to `bytes`, which outlives the call.
    let result = unsafe {
        let socket = socket.as_fd().as_raw_fd();
        libc::ioctl(socket, libc::TIOCOUTQ, &raw mut bytes)
    };
    match result {
        0 => usize::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}

/// Whether a write(2) of up to `PIPE_BUF` bytes would not block.
pub(crate) fn is_writable(fd: impl AsFd) -> bool {
    is_writable_within(fd, Duration::ZERO)
}

/// As [`is_writable`], but waits up to `timeout` until the descriptor is writable.
pub(crate) fn is_writable_within(fd: impl AsFd, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    matches!(poll(&mut fds, timeout), Ok(1))
        && fds[0]
            .revents()
            .is_some_and(|events| events.contains(PollFlags::POLLOUT))
}

/// Writes all bytes by write(2), and retries when a signal interrupts it.
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
