//! The service manager (sd_notify(3)): its socket, its watchdog, its store of descriptors.
//! [`report`] decides what the master sends to it.

pub(super) mod inherited;
mod report;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use sd_notify::NotifyState;

pub(super) use self::inherited::Inherited;
use crate::address::Address;
use crate::hooks::{Notice, WorkerInfo};
use crate::master::init::report::{Report, message};
use crate::master::listeners::Listeners;
use crate::sys::{clock, fds};

/// Variables that a service manager sets only for the process that it starts. Workers are spawned
/// without them, so that no worker speaks for the master or takes its listeners.
pub(crate) const VARIABLES: [&str; 8] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_PIDFDID",
    "LISTEN_FDNAMES",
    FD_STORE,
];

/// How many descriptors the service manager keeps for the master (`FileDescriptorStoreMax=`).
/// systemd sets it since version 254; for an older one the unit sets `Environment=FDSTORE=64`.
const FD_STORE: &str = "FDSTORE";

/// How long the master waits for the manager to read. Then the message is lost, because the master
/// must attend to its workers.
const PATIENCE: Duration = Duration::from_millis(250);

/// The service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Init {
    report: Report,
    manager: Option<Manager>,
    watchdog: Option<Watchdog>,
    store: Store,
}

impl Init {
    pub(crate) fn of_this_process() -> Self {
        let manager =
            std::env::var_os("NOTIFY_SOCKET").and_then(|address| Manager::at(address.as_os_str()));
        let max = std::env::var(FD_STORE).ok();
        Self {
            report: Report::default(),
            watchdog: manager.as_ref().and(Watchdog::of_this_process()),
            store: Store {
                max: max.and_then(|max| max.parse().ok()).unwrap_or(0),
                kept: BTreeMap::new(),
                left_out: 0,
            },
            manager,
        }
    }

    /// In the next image. The image before it has reported the start.
    pub(crate) fn resume(
        &mut self,
        addresses: Vec<Address>,
        workers: u16,
        serving: impl Iterator<Item = WorkerInfo>,
    ) {
        self.report.resume(addresses, workers, serving);
    }

    pub(crate) fn notify(&mut self, notice: &Notice) {
        let Some(manager) = &mut self.manager else {
            return;
        };
        // clock_gettime(2) does not fail for a clock that exists.
        // `NotifyState::monotonic_usec_now` overflows in a program of 32 bits after 36 minutes.
        let now = i128::try_from(clock::monotonic().as_micros()).unwrap_or(i128::MAX);
        let now = NotifyState::MonotonicUsec(now);
        if let Some(lines) = self.report.on_notice(notice, now) {
            manager.send(&lines, &[]);
        }
    }

    /// When the watchdog expects the next report; `None` if there is no watchdog.
    pub(crate) fn next_report(&self) -> Option<Duration> {
        self.watchdog.map(|watchdog| watchdog.next)
    }

    /// Tells the service manager's watchdog that the master works, if that is due.
    pub(crate) fn report_alive(&mut self, now: Duration) {
        if let (Some(manager), Some(watchdog)) = (&mut self.manager, &mut self.watchdog)
            && watchdog.next <= now
        {
            watchdog.next = now + watchdog.every;
            manager.send(&message(&[NotifyState::Watchdog]), &[]);
        }
    }

    /// Gives the manager those listeners that it does not have yet, so that they outlive the
    /// master, and removes those that were replaced. Does nothing if the manager has no store.
    pub(crate) fn store(&mut self, listeners: &Listeners) {
        let Some(manager) = self.manager.as_mut().filter(|_| self.store.max > 0) else {
            return;
        };
        let number = |(name, listener): (_, BorrowedFd<'_>)| (listener.as_raw_fd(), name);
        let listeners: BTreeMap<_, _> = listeners.storable().map(number).collect();
        for name in self.store.remove_all_but(&listeners) {
            manager.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), &[]);
        }
        let wanted = listeners.len();
        for (fd, name) in listeners {
            if self.store.add(fd, &name) {
                // With FDPOLL=0 the manager also keeps a listener that a worker shuts down, which
                // the master opens again. Without it, systemd forgets the listener at once.
                manager.send(&format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}\n"), &[fd]);
            }
        }
        let Store { max, left_out, .. } = &mut self.store;
        let now = wanted.saturating_sub(*max);
        if std::mem::replace(left_out, now) < now {
            tracing::warn!(
                max,
                "the service manager keeps fewer descriptors than there are listeners; raise \
                 FileDescriptorStoreMax"
            );
        }
    }

    /// Removes names from the manager's store.
    pub(crate) fn forget(&mut self, names: &[String]) {
        let Some(manager) = &mut self.manager else {
            return;
        };
        for name in names {
            manager.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), &[]);
        }
    }
}

/// Reports at half the time after which the manager takes the master for hung
/// (sd_watchdog_enabled(3)).
#[derive(Clone, Copy, Debug)]
struct Watchdog {
    every: Duration,
    /// On the monotonic clock.
    next: Duration,
}

impl Watchdog {
    fn of_this_process() -> Option<Self> {
        let limit = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero())?;
        Some(Self {
            every: limit / 2,
            next: Duration::ZERO,
        })
    }
}

/// The manager's store of descriptors.
#[derive(Debug)]
struct Store {
    max: usize,
    /// The listeners that it has, and their names. They stay open, and keep their numbers, until
    /// they are replaced or the server ends.
    kept: BTreeMap<RawFd, String>,
    /// For how many listeners it has no room, as the log has said.
    left_out: usize,
}

impl Store {
    /// Adds the listener, unless the store has it or is full. Returns whether it was added.
    fn add(&mut self, listener: RawFd, name: &str) -> bool {
        if self.kept.len() >= self.max || self.kept.contains_key(&listener) {
            return false;
        }
        self.kept.insert(listener, name.to_owned());
        true
    }

    /// Returns the names of those that it has removed. If several were replaced, one of the new
    /// ones may have the number of an old one, and then another name.
    fn remove_all_but(&mut self, listeners: &BTreeMap<RawFd, String>) -> Vec<String> {
        let mut gone = Vec::new();
        self.kept.retain(|fd, name| {
            let stays = listeners.get(fd) == Some(&*name);
            if !stays {
                gone.push(std::mem::take(name));
            }
            stays
        });
        gone
    }
}

/// The manager's socket.
#[derive(Debug)]
struct Manager {
    address: SocketAddr,
    lost: u64,
}

impl Manager {
    /// `name` is a path, or an `@` and a name in the abstract namespace.
    fn at(name: &OsStr) -> Option<Self> {
        let address = match name.as_bytes() {
            [b'/', ..] => SocketAddr::from_pathname(name),
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            _ => Err(io::ErrorKind::Unsupported.into()),
        };
        match address {
            Ok(address) => Some(Self { address, lost: 0 }),
            Err(error) => {
                tracing::warn!(name = %name.display(), %error, "NOTIFY_SOCKET cannot be used");
                None
            }
        }
    }

    /// Sends one message. If the manager does not read, the message is lost; the master goes on.
    fn send(&mut self, lines: &str, fds: &[RawFd]) {
        let Err(error) = self.try_send(lines, fds) else {
            return;
        };
        self.lost += 1;
        // At 1, 2, 4, 8, ... lost messages.
        if self.lost.is_power_of_two() {
            tracing::warn!(lost = self.lost, %error, "a message to the service manager was lost");
        }
    }

    /// Opens a socket for each message, because the manager may have been restarted since the last.
    fn try_send(&self, lines: &str, fds: &[RawFd]) -> io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&self.address)?;
        if !fds::is_writable_within(&socket, PATIENCE) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        fds::send(&socket, lines.as_bytes(), fds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_that_was_replaced_is_stored_again_under_its_name() {
        let mut store = Store {
            max: 2,
            kept: BTreeMap::new(),
            left_out: 0,
        };
        let named = |fd, name: &str| (fd, name.to_owned());
        assert!(store.add(3, "a") && store.add(4, "b"));
        assert!(!store.add(4, "b"), "it has it");
        let now = [named(4, "b"), named(5, "a")].into();
        assert_eq!(store.remove_all_but(&now), ["a"]);
        assert_eq!(store.remove_all_but(&now), [""; 0]);
        assert!(store.add(5, "a") && !store.add(4, "b"));
        assert!(!store.add(6, "c"), "it is full");
        assert_eq!(
            store.remove_all_but(&[named(4, "b"), named(6, "c")].into()),
            ["a"]
        );
        assert!(store.add(6, "c"), "it has room again");
    }

    #[test]
    fn a_listener_that_has_the_number_of_one_that_was_replaced_is_stored() {
        let mut store = Store {
            max: 2,
            kept: BTreeMap::new(),
            left_out: 0,
        };
        assert!(store.add(3, "a") && store.add(4, "b"));
        let now = [(5, "a".to_owned()), (3, "b".to_owned())].into();
        assert_eq!(store.remove_all_but(&now), ["a", "b"]);
        assert!(store.add(5, "a") && store.add(3, "b"));
    }
}
