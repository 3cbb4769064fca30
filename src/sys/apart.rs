//! Calls on a socket that wait for its lock: fork(2), so that another process waits.
//!
//! The kernel holds the lock of a TCP socket during setsockopt(2), also while the call reads its
//! argument. If the page with the argument does not come (userfaultfd(2), a file of FUSE), every
//! other call that needs the lock waits, and no signal ends it. Any process that has the socket can
//! do that, so also a worker, and what a worker has left behind.

use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::sys::processes;

/// How long to wait for the other process, which needs less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(2);

/// How much longer, if it does not wait for a lock: the machine has no time for it.
const LONG_PATIENCE: Duration = Duration::from_secs(30);

/// Has another process call `act`, and returns its result, or an error if that takes too long. If
/// no process can be made, or it was killed, `act` is called here, and may wait.
///
/// `act` must be async-signal-safe (signal-safety(7)): system calls on values that are there, and
/// no memory that is allocated. It may use no descriptor but that of `socket`.
pub(crate) fn apart(
    socket: impl AsFd,
    act: impl Fn(BorrowedFd<'_>) -> io::Result<u32>,
) -> io::Result<u32> {
    let socket = socket.as_fd();
    all_apart(&[socket], || act(socket))
}

/// As [`apart`], for several sockets: `act` may use these descriptors.
pub(crate) fn all_apart(
    sockets: &[impl AsFd],
    act: impl Fn() -> io::Result<u32>,
) -> io::Result<u32> {
    let mut results = calls_apart(sockets, 1, |_| act());
    results.pop().expect("one result for one call")
}

/// As [`apart`] for each of these sockets, whose index `act` gets, in one process: to make one
/// takes longer the more descriptors this process has. A socket that is waited for costs the others
/// nothing but another process.
pub(crate) fn each_apart(
    sockets: &[impl AsFd],
    act: impl Fn(usize) -> io::Result<u32>,
) -> Vec<io::Result<u32>> {
    calls_apart(sockets, sockets.len(), act)
}

/// The results of `act` for 0 and each further number below `count`.
fn calls_apart(
    sockets: &[impl AsFd],
    count: usize,
    act: impl Fn(usize) -> io::Result<u32>,
) -> Vec<io::Result<u32>> {
    let mut results = Vec::with_capacity(count);
    while results.len() < count {
        let first = results.len();
        let Ok((process, ends)) = fork_for(sockets, first..count, &act) else {
            results.extend((first..count).map(act));
            break;
        };
        match results_of(process, ends, count - first, &mut results) {
            Ended::WithAll => {}
            Ended::Waits => {
                let why = "another process holds the lock of the socket";
                results.push(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
            // The kernel kills processes if memory is short. That says nothing about the socket.
            Ended::Killed => results.push(act(results.len())),
        }
    }
    results
}

/// Forks a process that writes the result of each call to the pipe of which this returns the end.
fn fork_for(
    sockets: &[impl AsFd],
    calls: Range<usize>,
    act: impl Fn(usize) -> io::Result<u32>,
) -> io::Result<(Pid, io::PipeReader)> {
    let (results, to) = io::pipe()?;
    let sockets = sockets.iter().map(|socket| socket.as_fd().as_raw_fd());
    let mut kept: Vec<_> = sockets.chain([to.as_raw_fd()]).collect();
    kept.sort_unstable();
    // SAFETY: the new process makes only async-signal-safe calls: those of `act`, close_range(2),
    // write(2) and _exit(2). It drops nothing that this process has made before.
    unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                close_all_but(&kept);
                for call in calls {
                    let bytes = encode(act(call));
                    libc::write(to.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
                }
                libc::_exit(0)
            }
            process => Ok((Pid::from_raw(process), results)),
        }
    }
}

/// How a process that calls has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    WithAll,
    /// It waits for a lock, and ends when it has got that. The caller reaps it as it reaps any
    /// unknown process.
    Waits,
    Killed,
}

/// Reads the results of `count` calls.
fn results_of(
    process: Pid,
    mut from: io::PipeReader,
    count: usize,
    results: &mut Vec<io::Result<u32>>,
) -> Ended {
    let mut ended = Ended::WithAll;
    for _ in 0..count {
        let mut bytes = [0; 8];
        let comes = |patience| comes(from.as_fd(), patience);
        if !comes(PATIENCE) && (is_blocked(process) || !comes(LONG_PATIENCE)) {
            let _ = kill(process, Signal::SIGKILL);
            return Ended::Waits;
        }
        if from.read_exact(&mut bytes).is_err() {
            ended = Ended::Killed;
            break;
        }
        results.push(decode(bytes));
    }
    // It fails if another thread waits for every process.
    let _ = waitpid(process, None);
    ended
}

/// Whether the process waits in the kernel and no signal can end that (state D), as for a lock.
fn is_blocked(process: Pid) -> bool {
    let stat = processes::read(process, "stat");
    let stat = stat.unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, fields)| fields);
    state.is_none_or(|fields| fields.starts_with('D'))
}

/// Whether the result comes in time.
fn comes(result: BorrowedFd<'_>, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(result, PollFlags::POLLIN)], left) {
            Err(Errno::EINTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

/// Closes all descriptors but these, which are sorted. A process that waits for long keeps nothing
/// of its parent open: the end of a channel says that a process has ended.
fn close_all_but(kept: &[RawFd]) {
    let close = |first: libc::c_uint, last: libc::c_uint| {
        // SAFETY: close_range(2) takes three integers. Nothing in this process, which has only this
        // thread, uses the descriptors that it closes.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }
    };
    let mut first = 0;
    for kept in kept.iter().map(|fd| fd.unsigned_abs()) {
        if first < kept {
            close(first, kept - 1);
        }
        first = kept + 1;
    }
    close(first, libc::c_uint::MAX);
}

fn encode(result: io::Result<u32>) -> [u8; 8] {
    let (value, error) = match result {
        Ok(value) => (value, 0),
        Err(error) => (0, error.raw_os_error().unwrap_or(libc::EIO)),
    };
    let ([a, b, c, d], [e, f, g, h]) = (value.to_ne_bytes(), error.to_ne_bytes());
    [a, b, c, d, e, f, g, h]
}

fn decode([a, b, c, d, e, f, g, h]: [u8; 8]) -> io::Result<u32> {
    match i32::from_ne_bytes([e, f, g, h]) {
        0 => Ok(u32::from_ne_bytes([a, b, c, d])),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpListener;
    use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
    use std::ptr::null_mut;

    use nix::fcntl::{FcntlArg, fcntl};
    use nix::unistd::{dup, read};

    use super::*;
    use crate::sys::listener::adopt;

    /// A multiple of the size of a page.
    const PAGE: usize = 64 << 10;

    /// Calls `act` while another thread is in setsockopt(2) for the socket and waits for half of
    /// its argument (userfaultfd(2)), so that it has the lock. Returns `None` if the kernel or the
    /// rights of this process do not allow that.
    pub(crate) fn while_locked<T>(socket: impl AsFd, act: impl FnOnce() -> T) -> Option<T> {
        let socket = socket.as_fd().as_raw_fd();
        // SAFETY: the numbers and structures are those of linux/userfaultfd.h. The mapping has two
        // pages and stays. The first one is present, and the second one is registered.
        let (faults, argument) = unsafe {
            let faults = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            let faults = OwnedFd::from_raw_fd(RawFd::try_from(faults).ok().filter(|it| *it >= 0)?);
            let mut api = [0xAA_u64, 0, 0];
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let pages = libc::mmap(null_mut(), 2 * PAGE, access, flags, -1, 0).cast::<u8>();
            pages.write_bytes(0, PAGE);
            let second = u64::try_from(pages as usize + PAGE).expect("an address");
            let mut range = [second, PAGE as u64, 1, 0];
            let number = faults.as_raw_fd();
            if libc::ioctl(number, 0xC018_AA3F, api.as_mut_ptr()) != 0
                || libc::ioctl(number, 0xC020_AA00, range.as_mut_ptr()) != 0
            {
                return None;
            }
            (faults, pages as usize + PAGE - size_of::<libc::c_int>())
        };
        let len = libc::socklen_t::try_from(size_of::<libc::linger>()).expect("small");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
                // SAFETY: the argument is in the mapping, which has room for it.
                unsafe { libc::setsockopt(socket, level, name, argument as *const _, len) }
            });
            // The kernel tells of the fault, and the thread waits.
            read(&faults, &mut [0; 32]).expect("a message");
            let done = act();
            drop(faults);
            Some(done)
        })
    }

    #[test]
    fn the_result_of_another_process_comes_back() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let own = std::process::id();
        assert_eq!(apart(&listener, |_| Ok(7)).expect("it ends"), 7);
        let other = apart(&listener, |_| Ok(std::process::id())).expect("it ends");
        assert_ne!(other, own);
        let error = apart(&listener, |_| Err(Errno::EADDRINUSE.into())).expect_err("its error");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn the_other_process_has_the_sockets_and_no_other_descriptor() {
        let all = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let is_open = |it: &TcpListener| fcntl(it, FcntlArg::F_GETFD).is_ok();
        let open = || {
            Ok(all
                .iter()
                .fold(0, |bits, it| bits << 1 | u32::from(is_open(it))))
        };
        assert_eq!(
            all_apart(&[&all[2], &all[0]], open).expect("it ends"),
            0b101
        );
        assert_eq!(open().expect("here"), 0b111);
    }

    #[test]
    fn one_process_calls_for_many_sockets() {
        let all = [(); 100].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let results = each_apart(&all, |_| Ok(std::process::id()));
        let processes: BTreeSet<_> = results.into_iter().map(|it| it.expect("it ends")).collect();
        assert_eq!(processes.len(), 1);
        assert!(!processes.contains(&std::process::id()));
    }

    #[test]
    fn each_socket_has_its_own_result() {
        let all = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let own = Pid::this();
        let results = each_apart(&all, |at| match at {
            1 => Err(Errno::EADDRINUSE.into()),
            2 if Pid::this() != own => {
                kill(Pid::this(), Signal::SIGKILL)?;
                Ok(0)
            }
            other => Ok(u32::try_from(other).expect("few")),
        });
        let results: Vec<_> = results.into_iter().map(Result::ok).collect();
        assert_eq!(results, [Some(0), None, Some(2), Some(3)]);
    }

    #[test]
    fn a_socket_that_is_waited_for_hides_no_other() {
        let all = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        // listen(2) takes the lock.
        let listen = |at: usize| crate::sys::listener::listen(&all[at], 8).map(|()| 0);
        let Some(results) = while_locked(&all[1], || each_apart(&all, listen)) else {
            println!("not tested: it needs userfaultfd(2), and root");
            return;
        };
        let kinds = results.into_iter().map(|it| it.err().map(|it| it.kind()));
        let waited = Some(io::ErrorKind::TimedOut);
        assert_eq!(kinds.collect::<Vec<_>>(), [None, waited, None]);
    }

    #[test]
    fn a_process_that_is_killed_is_done_without() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let own = Pid::this();
        let result = apart(&listener, |_| {
            if Pid::this() != own {
                kill(Pid::this(), Signal::SIGKILL)?;
            }
            Ok(7)
        });
        assert_eq!(result.expect("it is called here"), 7);
    }

    #[test]
    fn a_process_that_waits_for_no_lock_may_take_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let longer = PATIENCE + Duration::from_millis(1);
        let timeout = PollTimeout::try_from(longer).expect("short");
        let slow = apart(&listener, |_| Ok(poll(&mut [], timeout)?.unsigned_abs()));
        assert_eq!(slow.expect("it ends"), 0);
    }

    #[test]
    fn a_lock_that_is_held_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        // listen(2) takes the lock.
        let listen = || {
            apart(&listener, |it| {
                crate::sys::listener::listen(it, 8).map(|()| 0)
            })
        };
        assert_eq!(listen().expect("it is free"), 0);
        let Some(result) = while_locked(&listener, listen) else {
            println!("not tested: it needs userfaultfd(2), and root");
            return;
        };
        let error = result.expect_err("the lock is held");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(listen().expect("it is free again"), 0);
    }

    #[test]
    fn a_listener_that_is_inherited_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        // A copy has no FD_CLOEXEC, as a descriptor that was inherited.
        let copy = dup(&listener).expect("a descriptor").into_raw_fd();
        let Some(result) = while_locked(&listener, || adopt(copy)) else {
            println!("not tested: it needs userfaultfd(2), and root");
            return;
        };
        let error = result.expect_err("the lock is held");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        adopt(copy).expect("it is free again");
    }
}
