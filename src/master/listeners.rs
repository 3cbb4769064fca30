//! The listeners of every (address, slot). They belong to the master and outlive every worker.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::address::Address;
use crate::config::{Config, Listeners as Sharing};
use crate::error::Error;
use crate::id::Slot;
use crate::record::{Malformed, Reader, Record, Writer, record};
use crate::sys::listener::{self, Reuse, UnixFile};

record!(Bound {
    asked,
    address,
    seats
});

/// All that the server listens on.
#[derive(Debug)]
pub(crate) struct Listeners {
    bound: Vec<Bound>,
    backlog: u32,
}

/// One address.
#[derive(Debug)]
pub(super) struct Bound {
    /// As it was written: perhaps with the port 0.
    asked: Address,
    /// With the port that the kernel chose, if it was to choose.
    address: Address,
    seats: Seats,
}

#[derive(Debug)]
enum Seats {
    /// Slot `n` has listener `n`.
    PerSlot(Vec<OwnedFd>),
    /// Every slot has this one.
    Shared {
        listener: OwnedFd,
        _file: Option<UnixFile>,
    },
}

/// Whether there is an address that the workers of the image before this one do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    None,
    Address,
}

impl Listeners {
    /// Goes on with what the image before this one listened on. An address stays as it was bound,
    /// shared or not, and stays for good: to close one that is asked for no more would reset what
    /// waits in its queues. New ones are bound; one that cannot be is no reason to end a server
    /// that others serve well.
    pub(super) fn resume(mut left: Vec<Bound>, config: &Config) -> (Self, News) {
        let (mut bound, mut news) = (Vec::new(), News::None);
        for address in &config.addresses {
            let same = left
                .iter()
                .position(|bound| bound.asked == *address)
                .or_else(|| left.iter().position(|bound| bound.address == *address));
            if let Some(same) = same {
                bound.push(left.remove(same));
                continue;
            }
            match Bound::new(address, config) {
                Ok(new) => {
                    bound.push(new);
                    news = News::Address;
                }
                Err(error) => tracing::error!(%address, %error, "cannot listen; others serve on"),
            }
        }
        for kept in &left {
            let address = &kept.address;
            tracing::warn!(%address, "served until the end, though no more asked for");
        }
        bound.extend(left);
        let backlog = config.backlog;
        (Self { bound, backlog }, news)
    }

    /// Gives all of them away, for the next image.
    pub(super) fn leave(&mut self) -> Vec<Bound> {
        std::mem::take(&mut self.bound)
    }

    /// Takes back what the next image did not take over.
    pub(super) fn stay(&mut self, bound: Vec<Bound>) {
        self.bound = bound;
    }

    /// Binds every address for the first `slots` slots, or none at all.
    pub(crate) fn bind(config: &Config, slots: u16) -> Result<Self, Error> {
        let clamped = listener::clamped_backlog(config.backlog);
        if let Some(limit) = clamped {
            tracing::info!(
                wished = config.backlog,
                limit,
                "the kernel shortens the accept queues; raise net.core.somaxconn"
            );
        }
        let mut listeners = Self {
            bound: Vec::new(),
            backlog: config.backlog,
        };
        for address in &config.addresses {
            let bound =
                Bound::new(address, config).map_err(|source| bind_error(address, source))?;
            listeners.bound.push(bound);
        }
        for slot in 0..slots {
            listeners.seat(Slot(slot))?;
        }
        Ok(listeners)
    }

    /// What is listened on, with real ports.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.bound
            .iter()
            .map(|bound| bound.address.clone())
            .collect()
    }

    /// Makes the listeners of a slot that has none yet; a slot that had a worker once keeps its
    /// own for life.
    pub(crate) fn seat(&mut self, slot: Slot) -> Result<(), Error> {
        let backlog = self.backlog;
        for bound in &mut self.bound {
            let Seats::PerSlot(listeners) = &mut bound.seats else {
                continue;
            };
            let Address::Tcp(address) = bound.address else {
                unreachable!("a Unix listener is shared")
            };
            while listeners.len() <= usize::from(slot.0) {
                let listener = listener::tcp(address, Reuse::Port, backlog)
                    .map_err(|source| bind_error(&bound.address, source))?;
                listeners.push(listener);
            }
        }
        Ok(())
    }

    /// The listeners of a slot; none once they are closed.
    pub(crate) fn of(&self, slot: Slot) -> Vec<BorrowedFd<'_>> {
        self.bound
            .iter()
            .filter_map(|bound| match &bound.seats {
                Seats::PerSlot(listeners) => listeners.get(usize::from(slot.0)).map(AsFd::as_fd),
                Seats::Shared { listener, .. } => Some(listener.as_fd()),
            })
            .collect()
    }

    /// As [`of`](Self::of), only those that no other slot has: a shared one needs no adoption.
    pub(crate) fn of_alone(&self, slot: Slot) -> Vec<BorrowedFd<'_>> {
        self.bound
            .iter()
            .filter_map(|bound| match &bound.seats {
                Seats::PerSlot(listeners) => listeners.get(usize::from(slot.0)).map(AsFd::as_fd),
                Seats::Shared { .. } => None,
            })
            .collect()
    }

    /// The numbers of [`of`](Self::of).
    pub(crate) fn numbers(&self, slot: Slot) -> Vec<RawFd> {
        self.of(slot).iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// Lets go of all of them and removes the files of Unix ones.
    pub(crate) fn close(&mut self) {
        self.bound.clear();
    }

    /// Gives the listeners of the first slot away, for a server without workers of its own. The
    /// files of Unix ones are left to the second value.
    pub(crate) fn into_first(self) -> (Vec<OwnedFd>, Vec<UnixFile>) {
        let mut files = Vec::new();
        let listeners = self
            .bound
            .into_iter()
            .filter_map(|bound| match bound.seats {
                Seats::PerSlot(listeners) => listeners.into_iter().next(),
                Seats::Shared { listener, _file } => {
                    files.extend(_file);
                    Some(listener)
                }
            })
            .collect();
        (listeners, files)
    }
}

impl Bound {
    fn new(address: &Address, config: &Config) -> std::io::Result<Self> {
        let backlog = config.backlog;
        match address {
            Address::Unix(path) => {
                let (listener, file) = listener::unix(path, backlog)?;
                let seats = Seats::Shared {
                    listener,
                    _file: Some(file),
                };
                Ok(Self {
                    asked: address.clone(),
                    address: address.clone(),
                    seats,
                })
            }
            &Address::Tcp(tcp) => {
                let listener = match config.listeners {
                    Sharing::Shared => listener::tcp(tcp, Reuse::None, backlog)?,
                    Sharing::PerSlot => {
                        listener::probe(tcp)?;
                        listener::tcp(tcp, Reuse::Port, backlog)?
                    }
                };
                let bound = listener::address(&listener)?;
                let seats = match config.listeners {
                    Sharing::Shared => Seats::Shared {
                        listener,
                        _file: None,
                    },
                    Sharing::PerSlot => Seats::PerSlot(vec![listener]),
                };
                Ok(Self {
                    asked: address.clone(),
                    address: bound,
                    seats,
                })
            }
        }
    }
}

impl Record for Seats {
    fn put(&self, to: &mut Writer) {
        match self {
            Self::PerSlot(listeners) => {
                0_u8.put(to);
                listeners.put(to);
            }
            Self::Shared { listener, _file } => {
                1_u8.put(to);
                listener.put(to);
                _file.put(to);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::take(from)? {
            0 => Record::take(from).map(Self::PerSlot),
            1 => Ok(Self::Shared {
                listener: Record::take(from)?,
                _file: Record::take(from)?,
            }),
            _ => Err(Malformed),
        }
    }
}

fn bind_error(address: &Address, source: std::io::Error) -> Error {
    Error::Bind {
        address: address.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn addresses_are_matched_as_they_were_asked_for_or_bound() {
        let address = |text: &str| text.parse().expect("an address");
        let mut config = Config {
            addresses: vec![address("127.0.0.1:0"), address("[::1]:0")],
            ..Config::default()
        };
        let mut former = Listeners::bind(&config, 1).expect("free ports");
        let bound = former.addresses();
        let first = former.numbers(Slot(0))[0];
        config.addresses = vec![bound[1].clone(), address("127.0.0.1:0")];
        let (mut listeners, news) = Listeners::resume(former.leave(), &config);
        assert_eq!(listeners.addresses(), [bound[1].clone(), bound[0].clone()]);
        assert_eq!(listeners.numbers(Slot(0))[1], first);
        assert_eq!(news, News::None);
        // One is new, and one that is asked for no more stays.
        config.addresses = vec![bound[0].clone(), address("127.0.0.1:0")];
        let (listeners, news) = Listeners::resume(listeners.leave(), &config);
        let served: BTreeSet<_> = listeners
            .addresses()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!((served.len(), news), (3, News::Address));
        assert!(
            bound
                .iter()
                .all(|address| served.contains(&address.to_string()))
        );
    }
}
