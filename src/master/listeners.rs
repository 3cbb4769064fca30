//! The listeners of each address and slot, and the inbox of each slot. The master owns them, so
//! they outlive every worker.

mod bound;
mod close;
mod mend;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroU16;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::address::{self, Address};
use crate::codec::record;
use crate::config::{Config, DeferAccept, ListenerUse};
use crate::error::{Error, with_limit};
use crate::id::Slot;
use crate::master::check::check_distinct;
use crate::master::init::inherited::{Inherited, ListenerScope, Name};
use crate::master::listeners::bound::{Bound, SlotListeners};
use crate::master::listeners::close::close;
pub(super) use crate::master::listeners::watch::ListenerWatch;
use crate::protocol::admin::AcceptQueue;
use crate::protocol::inbox::Inbox;
use crate::sys::fds;
use crate::sys::listener::unix::{Access, UnixFile};
use crate::sys::listener::{self, Reuse};

/// The most queues that are looked at: a system call each.
const QUEUES_MAX: usize = 1024;

/// All listeners and inboxes of the server.
#[derive(Debug)]
pub(crate) struct Listeners {
    bound: Vec<Bound>,
    /// Slot `n` has inbox `n`. The master keeps both ends until the server has ended.
    inboxes: Vec<Inbox>,
    backlog: u32,
    defer_accept: DeferAccept,
    /// The slots whose own listeners defer although not all do.
    deferred: BTreeSet<Slot>,
    /// How long the kernel may keep a connection of a slot that defers no more, on the monotonic
    /// clock.
    keeps_until: Duration,
    unix: Access,
    /// TCP listeners that killed workers may still have when the server has ended.
    held: Vec<OwnedFd>,
}

/// The listeners and inboxes on their way into the next image.
#[derive(Debug)]
pub(super) struct Detached {
    bound: Vec<Bound>,
    inboxes: Vec<Inbox>,
}

record!(Detached { bound, inboxes });

/// Whether there is an address whose socket the workers before do not have, or use in another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewAddresses {
    None,
    Some,
}

/// What [`Listeners::ensure`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ensured {
    /// The slot had its listeners before.
    Existing,
    /// Listeners were made, the first of them for the slot `from`: a slot before may have gone
    /// without one. From now on the kernel sends new connections to them.
    New { from: Slot },
}

impl Listeners {
    /// Takes over the listeners of the image before. An address stays as it was bound, shared or
    /// not. It stays even if the settings do not name it any more, because closing it would reset
    /// the connections in its queues. New addresses are bound; if one cannot be, the server goes on
    /// without it. What an address is for changes only if the settings name it.
    pub(super) fn resume(left: Detached, config: &Config) -> (Self, NewAddresses) {
        let Detached {
            bound: mut left,
            inboxes,
        } = left;
        let (mut bound, mut news) = (Vec::new(), NewAddresses::None);
        if left.iter().any(|bound| bound.asked.is_none()) {
            // As at the start, listeners of the service manager's units replace the settings.
            for bound in &mut left {
                let used_for = config.use_of(&bound.address).unwrap_or(bound.used_for);
                bound.set_use(used_for, &mut news);
            }
            warn_of_redirects_not_passed(&left, config);
            return (Self::new(left, inboxes, config).mended(), news);
        }
        for (address, used_for) in config.wanted() {
            let same = left
                .iter()
                .position(|bound| bound.asked.as_ref() == Some(address))
                .or_else(|| left.iter().position(|bound| bound.address == *address));
            if let Some(same) = same {
                let mut same = left.remove(same);
                same.set_use(used_for, &mut news);
                bound.push(same);
                continue;
            }
            match Bound::new((address, used_for), config) {
                Ok(new) => {
                    bound.push(new);
                    news = NewAddresses::Some;
                }
                Err(error) => tracing::error!(%address, %error, "cannot listen; others serve on"),
            }
        }
        for kept in &left {
            let address = &kept.address;
            tracing::warn!(%address, "not in the settings any more; served until the end");
        }
        bound.extend(left);
        (Self::new(bound, inboxes, config).mended(), news)
    }

    fn new(bound: Vec<Bound>, inboxes: Vec<Inbox>, config: &Config) -> Self {
        let listeners = Self {
            bound,
            inboxes,
            backlog: config.backlog,
            defer_accept: config.defer_accept,
            deferred: BTreeSet::new(),
            keeps_until: Duration::ZERO,
            held: Vec::new(),
            unix: access(config),
        };
        listeners.set_defer_accept(&listeners.places());
        listeners
    }

    /// For listeners that are not new.
    fn mended(self) -> Self {
        self.mend_places(&self.places());
        self
    }

    /// Moves all of them out, for the next image.
    pub(super) fn detach(&mut self) -> Detached {
        Detached {
            bound: std::mem::take(&mut self.bound),
            inboxes: std::mem::take(&mut self.inboxes),
        }
    }

    /// Moves them back, because the exec has failed.
    pub(super) fn restore(&mut self, left: Detached) {
        (self.bound, self.inboxes) = (left.bound, left.inboxes);
    }

    /// Opens every address for the first `slots` slots, or fails: takes what is inherited, and
    /// binds the rest. Inherited listeners of the service manager's units replace those in
    /// `config`.
    pub(crate) fn open(
        config: &Config,
        slots: NonZeroU16,
        mut inherited: Inherited,
    ) -> Result<Self, Error> {
        let clamped = listener::clamped_backlog(config.backlog);
        if let Some(limit) = clamped {
            tracing::info!(
                wished = config.backlog,
                limit,
                "the kernel shortens the accept queues; raise net.core.somaxconn"
            );
        }
        let activated = std::mem::take(&mut inherited.activated);
        let is_any_stored = !inherited.stored.is_empty();
        let bound = if activated.is_empty() {
            check_distinct(config)?;
            let open = |wanted| Bound::open(wanted, config, &mut inherited);
            config.wanted().map(open).collect::<Result<_, _>>()?
        } else {
            let activated = activated.into_iter();
            let bound: Vec<_> = activated.map(|it| Bound::activated(it, config)).collect();
            let addresses: Vec<_> = bound.iter().map(|it| it.address.clone()).collect();
            tracing::info!(
                "listening on what was inherited (LISTEN_FDS) and on nothing else: {}, shared by \
                 all workers",
                address::list(&addresses)
            );
            warn_of_redirects_not_passed(&bound, config);
            bound
        };
        let mut listeners = Self::new(bound, Vec::new(), config);
        if is_any_stored {
            listeners = listeners.mended();
        }
        let last = slots.get().max(listeners.slots()) - 1;
        listeners.ensure(Slot(last))?;
        Ok(listeners)
    }

    /// How many slots have listeners of their own. They are more than the wanted slots if an
    /// earlier master had more.
    pub(crate) fn slots(&self) -> u16 {
        let own = |bound: &Bound| match &bound.listeners {
            SlotListeners::PerSlot(listeners) => u16::try_from(listeners.len()).unwrap_or(u16::MAX),
            SlotListeners::Shared { .. } => 0,
        };
        self.bound.iter().map(own).max().unwrap_or(0)
    }

    /// The listeners that a service manager may store for the next master, by name: the TCP
    /// listeners that a master has bound. The manager has those of its own units already. A Unix
    /// listener is useless without its file, which the master removes at its end.
    pub(crate) fn storable(&self) -> impl Iterator<Item = (String, BorrowedFd<'_>)> {
        self.bound.iter().flat_map(|bound| {
            let named = |scope, listener| match bound.asked {
                Some(Address::Tcp(asked)) => Some((Name { asked, scope }.to_string(), listener)),
                _ => None,
            };
            let listeners = bound.listeners.all();
            let scope = |slot| match bound.listeners {
                SlotListeners::PerSlot(_) => ListenerScope::Slot(Slot(slot)),
                SlotListeners::Shared { .. } => ListenerScope::Shared,
            };
            (0..)
                .zip(listeners)
                .filter_map(move |(slot, listener)| named(scope(slot), listener.as_fd()))
        })
    }

    /// The queues of the TCP listeners, of so many at most.
    pub(super) fn queues(&self) -> Vec<AcceptQueue> {
        let max = listener::clamped_backlog(self.backlog).unwrap_or(self.backlog);
        let queues = self.bound.iter().flat_map(|bound| bound.queues(max));
        queues.take(QUEUES_MAX).collect()
    }

    /// The addresses of the server, with the ports that the kernel has chosen.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.bound
            .iter()
            .map(|bound| bound.address.clone())
            .collect()
    }

    /// Makes the listeners and the inbox of a slot, unless it has them. If one listener cannot be
    /// made, none is; but a slot goes without an address that the machine has lost. A slot keeps
    /// its listeners for the life of the server.
    pub(crate) fn ensure(&mut self, slot: Slot) -> Result<Ensured, Error> {
        let last = usize::from(slot.0);
        while self.inboxes.len() <= last {
            let inbox = Inbox::new().map_err(|error| Error::system("socketpair(2)", error))?;
            self.inboxes.push(inbox);
        }
        let mut made = Vec::new();
        for (at, bound) in self.bound.iter().enumerate() {
            let SlotListeners::PerSlot(listeners) = &bound.listeners else {
                continue;
            };
            let Address::Tcp(address) = bound.address else {
                unreachable!("a Unix listener is shared")
            };
            for _ in listeners.len()..=last {
                match listener::tcp(address, Reuse::Join, self.backlog) {
                    Ok(listener) => made.push((at, listener)),
                    Err(error)
                        if error.kind() == io::ErrorKind::AddrNotAvailable
                            && self.bound.len() > 1 =>
                    {
                        tracing::warn!(%address, %slot, %error, "a slot has no listener there");
                        break;
                    }
                    Err(source) => return Err(bind_error(&bound.address, source)),
                }
            }
        }
        let existing = |&(at, _): &(usize, _)| self.bound[at].listeners.all().len();
        let from = made.iter().map(existing).min();
        for (at, listener) in made {
            if let SlotListeners::PerSlot(listeners) = &mut self.bound[at].listeners {
                listeners.push(listener);
            }
        }
        let Some(from) = from else {
            return Ok(Ensured::Existing);
        };
        if self.defer_accept == DeferAccept::On {
            self.set_defer_accept(&self.places());
        }
        let from = Slot(u16::try_from(from).unwrap_or(slot.0));
        Ok(Ensured::New { from })
    }

    /// The inbox by which workers hand connections over to the slot.
    pub(crate) fn inbox(&self, slot: Slot) -> Option<&Inbox> {
        self.inboxes.get(usize::from(slot.0))
    }

    /// Whether a connection waits in a listener of the slot, or in its inbox.
    pub(crate) fn is_waited_in(&self, slot: Slot) -> bool {
        self.of(slot).into_iter().any(fds::is_readable)
            || self.inbox(slot).is_some_and(Inbox::is_waited_in)
    }

    /// The listeners of all slots.
    pub(super) fn all(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let all = self.bound.iter().flat_map(|bound| bound.listeners.all());
        all.map(AsFd::as_fd)
    }

    /// The sockets of all slots that a worker can shut down for the others.
    fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let inboxes = self.inboxes.iter().map(Inbox::receiver);
        self.all().chain(inboxes)
    }

    /// Makes new inboxes for the slots whose inbox was shut down. Returns the slot of each, and the
    /// result. The slot's worker takes what is left in the old one.
    fn renew_inboxes(&mut self) -> Vec<(Slot, io::Result<()>)> {
        let mut old = Vec::new();
        let mut renew = |inbox: &mut Inbox| {
            old.push(std::mem::replace(inbox, Inbox::new()?));
            Ok(())
        };
        let slots = (0..).map(Slot).zip(&mut self.inboxes);
        let shut_down = slots.filter(|(_, inbox)| listener::is_shut_down(inbox.receiver()));
        let renewed = shut_down
            .map(|(slot, inbox)| (slot, renew(inbox)))
            .collect();
        close(old);
        renewed
    }

    /// Opens the listeners again that are closed, or whose socket file is gone.
    fn reopen(&mut self) -> Vec<bound::Reopened> {
        let (backlog, unix) = (self.backlog, self.unix);
        let reopen = |bound: &mut Bound| bound.reopen(backlog, unix);
        self.bound.iter_mut().flat_map(reopen).collect()
    }

    /// The slot's listeners, shared ones too; none after they were closed.
    pub(crate) fn of(&self, slot: Slot) -> Vec<BorrowedFd<'_>> {
        let own = self.bound.iter().map(|bound| bound.listeners.of(slot));
        own.flatten().map(AsFd::as_fd).collect()
    }

    /// The descriptors of the slot's listeners, and what each is for; none after they were closed.
    pub(crate) fn numbers(&self, slot: Slot) -> Vec<(RawFd, ListenerUse)> {
        let number = |bound: &Bound| {
            let own = bound.listeners.of(slot)?;
            Some((own.as_raw_fd(), bound.used_for))
        };
        self.bound.iter().filter_map(number).collect()
    }

    /// The listeners of the first slot, for a server without workers, what each is for, and the
    /// files of Unix listeners.
    pub(crate) fn into_first(self) -> (Vec<(OwnedFd, ListenerUse)>, Vec<UnixFile>) {
        let mut files = Vec::new();
        let listeners = self
            .bound
            .into_iter()
            .filter_map(|bound| {
                let listener = match bound.listeners {
                    SlotListeners::PerSlot(listeners) => listeners.into_iter().next()?,
                    SlotListeners::Shared { listener, _file } => {
                        files.extend(_file);
                        listener
                    }
                };
                Some((listener, bound.used_for))
            })
            .collect();
        (listeners, files)
    }
}

/// The service manager chooses the addresses, so such a redirect does not exist.
fn warn_of_redirects_not_passed(bound: &[Bound], config: &Config) {
    for asked in &config.redirects {
        if !bound.iter().any(|bound| asked.is_met_by(&bound.address)) {
            tracing::warn!(
                "{asked} of redirect_to_https is no address of LISTEN_FDS; nothing listens there"
            );
        }
    }
}

fn access(config: &Config) -> Access {
    Access {
        mode: config.unix_mode,
        group: config.unix_group,
    }
}

pub(super) fn bind_error(address: &Address, source: io::Error) -> Error {
    Error::Bind {
        address: address.clone(),
        source: with_limit(source),
    }
}
