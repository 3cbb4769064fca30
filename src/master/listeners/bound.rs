//! One address and its listeners.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use crate::address::Address;
use crate::codec::record;
use crate::config::{Config, ListenerUse, Listeners as Sharing};
use crate::error::Error;
use crate::id::Slot;
use crate::master::init::inherited::{Activated, Inherited, ListenerScope, Stored};
use crate::master::listeners::{NewAddresses, access, bind_error};
use crate::protocol::admin::AcceptQueue;
use crate::sys::discard::discard;
use crate::sys::listener::unix::{self, Access, UnixFile};
use crate::sys::listener::{self, Reuse, harm};

record!(Bound {
    asked,
    address,
    used_for,
    listeners
});
record!(enum ListenerUse {
    0 = App,
    1 = Redirect,
});

/// One address.
#[derive(Debug)]
pub(super) struct Bound {
    /// The address as the user wrote it, perhaps with port 0; `None` if the listener is of a unit
    /// of the service manager.
    pub(super) asked: Option<Address>,
    /// The address with the port that the kernel has chosen.
    pub(super) address: Address,
    pub(super) used_for: ListenerUse,
    pub(super) listeners: SlotListeners,
}

#[derive(Debug)]
pub(super) enum SlotListeners {
    /// Slot `n` has listener `n`.
    PerSlot(Vec<OwnedFd>),
    /// All slots share this one.
    Shared {
        listener: OwnedFd,
        _file: Option<UnixFile>,
    },
}

/// A listener that no client reached, and the result of opening it again.
#[derive(Debug)]
pub(super) struct Reopened {
    pub(super) address: Address,
    /// `None` if all slots share it.
    pub(super) slot: Option<Slot>,
    pub(super) result: io::Result<Socket>,
}

/// Which socket listens after a listener was opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Socket {
    /// The socket that the workers have.
    Same,
    /// A new socket, which the workers need.
    New,
}

impl Bound {
    pub(super) fn open(
        (address, used_for): (&Address, ListenerUse),
        config: &Config,
        inherited: &mut Inherited,
    ) -> Result<Self, Error> {
        let kept = match address {
            Address::Tcp(asked) => inherited.take_stored(*asked),
            Address::Unix(_) => None,
        };
        let bound = match kept {
            Some((real, stored)) => {
                tracing::info!("listening on {real} with what an earlier master left");
                Self::kept((address, used_for), real, stored, config.backlog)
            }
            None => Self::new((address, used_for), config),
        };
        bound.map_err(|source| bind_error(address, source))
    }

    pub(super) fn activated(activated: Activated, config: &Config) -> Self {
        let named = config.use_of(&activated.address);
        Self {
            asked: None,
            address: activated.address,
            used_for: named.unwrap_or(ListenerUse::App),
            listeners: SlotListeners::Shared {
                listener: activated.listener,
                _file: None,
            },
        }
    }

    /// Stored listeners stay shared or not, even if the settings have changed, so that no
    /// connection in their queues is lost. A slot without a stored listener gets a new one.
    fn kept(
        (asked, used_for): (&Address, ListenerUse),
        real: SocketAddr,
        stored: Vec<Stored>,
        backlog: u32,
    ) -> io::Result<Self> {
        let mut by_scope: BTreeMap<_, _> = stored
            .into_iter()
            .map(|stored| (stored.name.scope, stored.listener))
            .collect();
        let listeners = if let Some(listener) = by_scope.remove(&ListenerScope::Shared) {
            SlotListeners::Shared {
                listener,
                _file: None,
            }
        } else {
            let mut listeners = Vec::new();
            let mut slot = 0;
            while !by_scope.is_empty() {
                listeners.push(match by_scope.remove(&ListenerScope::Slot(Slot(slot))) {
                    Some(listener) => listener,
                    None => listener::tcp(real, Reuse::Join, backlog)?,
                });
                slot += 1;
            }
            SlotListeners::PerSlot(listeners)
        };
        Ok(Self {
            asked: Some(asked.clone()),
            address: Address::Tcp(real),
            used_for,
            listeners,
        })
    }

    /// Sets what it is for. That is news if the workers of the image before use it in another way.
    pub(super) fn set_use(&mut self, used_for: ListenerUse, news: &mut NewAddresses) {
        if std::mem::replace(&mut self.used_for, used_for) != used_for {
            *news = NewAddresses::Some;
        }
    }

    pub(super) fn queues(&self, max: u32) -> impl Iterator<Item = AcceptQueue> {
        (0..)
            .zip(self.listeners.all())
            .filter_map(move |(index, listener)| {
                Some(AcceptQueue {
                    address: self.address.clone(),
                    slot: self.listeners.slot(index),
                    connections: u32::try_from(listener::queued(listener)?).unwrap_or(u32::MAX),
                    max,
                })
            })
    }

    /// Whether a worker has closed the slot's listener for all processes, or uses the socket for
    /// something else.
    pub(super) fn is_closed(&self, slot: Slot) -> bool {
        let listener = self.listeners.of(slot);
        listener.is_some_and(|listener| self.is_any_closed(std::slice::from_ref(listener)))
    }

    fn is_any_closed(&self, listeners: &[OwnedFd]) -> bool {
        match self.address {
            Address::Tcp(address) => {
                let listeners: Vec<_> = listeners.iter().map(|it| (it.as_fd(), address)).collect();
                !harm::listen_at(&listeners)
            }
            Address::Unix(_) => listener::is_any_shut_down(listeners.iter().map(AsFd::as_fd)),
        }
    }

    /// Opens the listeners again that are closed, or whose socket file is gone.
    pub(super) fn reopen(&mut self, backlog: u32, unix: Access) -> Vec<Reopened> {
        let mut reopened = Vec::new();
        // Nearly always no listener is closed, and one process looks at all of them (sys::apart).
        if !self.is_any_closed(self.listeners.all()) && !self.listeners.is_lost() {
            return reopened;
        }
        for index in 0..self.listeners.all().len() {
            let slot = self.listeners.slot(index);
            if self.is_closed(slot.unwrap_or(Slot(0))) || self.listeners.is_lost() {
                let is_ours = self.asked.is_some();
                let listeners = &mut self.listeners;
                reopened.push(Reopened {
                    address: self.address.clone(),
                    slot,
                    result: listeners.reopen(index, &self.address, is_ours, backlog, unix),
                });
            }
        }
        reopened
    }

    pub(super) fn new(
        (address, used_for): (&Address, ListenerUse),
        config: &Config,
    ) -> io::Result<Self> {
        let backlog = config.backlog;
        match address {
            Address::Unix(path) => {
                let (listener, file) = unix::listen(path, backlog, access(config))?;
                let listeners = SlotListeners::Shared {
                    listener,
                    _file: Some(file),
                };
                Ok(Self {
                    asked: Some(address.clone()),
                    address: address.clone(),
                    used_for,
                    listeners,
                })
            }
            &Address::Tcp(tcp) => {
                let reuse = match config.listeners {
                    Sharing::Shared => Reuse::None,
                    Sharing::PerSlot => Reuse::First,
                };
                let listener = listener::tcp(tcp, reuse, backlog)?;
                let real = listener::address(&listener)?;
                let listeners = match config.listeners {
                    Sharing::Shared => SlotListeners::Shared {
                        listener,
                        _file: None,
                    },
                    Sharing::PerSlot => SlotListeners::PerSlot(vec![listener]),
                };
                Ok(Self {
                    asked: Some(address.clone()),
                    address: real,
                    used_for,
                    listeners,
                })
            }
        }
    }
}

impl SlotListeners {
    pub(super) fn all(&self) -> &[OwnedFd] {
        match self {
            Self::PerSlot(listeners) => listeners,
            Self::Shared { listener, .. } => std::slice::from_ref(listener),
        }
    }

    /// The listener of a slot.
    pub(super) fn of(&self, slot: Slot) -> Option<&OwnedFd> {
        match self {
            Self::PerSlot(listeners) => listeners.get(usize::from(slot.0)),
            Self::Shared { listener, .. } => Some(listener),
        }
    }

    pub(super) fn into_those_of(self, slots: &BTreeSet<Slot>) -> Vec<OwnedFd> {
        match self {
            Self::PerSlot(listeners) => {
                let own = (0..).map(Slot).zip(listeners);
                let own = own.filter(|(slot, _)| slots.contains(slot));
                own.map(|(_, listener)| listener).collect()
            }
            Self::Shared { .. } if slots.is_empty() => Vec::new(),
            Self::Shared { listener, .. } => vec![listener],
        }
    }

    /// The slot of this listener; `None` if it is shared.
    fn slot(&self, index: usize) -> Option<Slot> {
        match self {
            Self::PerSlot(_) => u16::try_from(index).ok().map(Slot),
            Self::Shared { .. } => None,
        }
    }

    /// How a TCP listener is bound beside the others.
    pub(super) fn reuse(&self) -> Reuse {
        match self {
            Self::PerSlot(_) => Reuse::Join,
            Self::Shared { .. } => Reuse::None,
        }
    }

    /// Whether it is a Unix listener whose socket file is gone.
    fn is_lost(&self) -> bool {
        match self {
            Self::PerSlot(_) => false,
            Self::Shared { _file: file, .. } => file.as_ref().is_some_and(UnixFile::is_gone),
        }
    }

    /// A TCP listener stays the same socket, unless a worker has connected it or bound it to
    /// another port. A Unix socket cannot listen again, so a new one is bound to its path, unless
    /// the path is the service manager's.
    fn reopen(
        &mut self,
        index: usize,
        address: &Address,
        is_ours: bool,
        backlog: u32,
        unix: Access,
    ) -> io::Result<Socket> {
        match (address, self) {
            (&Address::Tcp(address), listeners) => {
                let reuse = listeners.reuse();
                let listener = match listeners {
                    Self::PerSlot(listeners) => &mut listeners[index],
                    Self::Shared { listener, .. } => listener,
                };
                let options = is_ours.then_some(reuse);
                if harm::open_again(&*listener, address, options, backlog) {
                    return Ok(Socket::Same);
                }
                let new = listener::tcp(address, reuse, backlog)?;
                discard(std::mem::replace(listener, new));
                Ok(Socket::New)
            }
            (
                Address::Unix(path),
                Self::Shared {
                    listener,
                    _file: Some(file),
                },
            ) => {
                (*listener, *file) = unix::listen(path, backlog, unix)?;
                Ok(Socket::New)
            }
            (Address::Unix(_), _) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "it was handed in (LISTEN_FDS); restart the .socket unit that it is of",
            )),
        }
    }
}

record!(enum SlotListeners {
    0 = PerSlot(listeners),
    1 = Shared { listener, _file },
});
