//! The admin process of an address: when it starts, when another one replaces it, and when it ends.
//! It is no worker: it has no slot, and its exits are no crashes of the server.
//!
//! As in the [`Supervisor`](crate::supervisor::Supervisor), facts and the time go in, and actions
//! come out. A process is in one of these places:
//!
//! | place | ready | ended, or not started | its deadline has passed |
//! |---|---|---|---|
//! | `successor` | becomes the holder; the old one leaves | another starts after a pause | killed |
//! | `holder` | nothing | another starts after a pause, if none starts | has none |
//! | `leaving` | nothing | forgotten | killed |
//!
//! `Renew` starts a successor, and makes one leave that starts already, because it may run the
//! image from before an upgrade. `End` makes all of them leave, and none starts any more.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use crate::codec::record;
use crate::supervisor::Time;

/// How long a new process may take until it is ready, and one that was asked to leave until it is
/// gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause after the second exit in a row, which doubles up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// When a process has served for this long, the exits before it are forgotten.
const STEADY: Duration = Duration::from_secs(10);

/// One admin process. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AdminId(u32);

record!(AdminId { 0 });

/// What the master learns of admin processes, and what it wants of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AdminEvent {
    Ready(AdminId),
    /// The process has ended, or could not be started.
    Gone(AdminId),
    /// Replace the process: the server has been reloaded or upgraded.
    Renew,
    /// The server has ended.
    End,
}

/// What the master is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AdminAction {
    Start(AdminId),
    /// Ask it to finish its open requests and to exit.
    Leave(AdminId),
    Kill(AdminId),
}

/// Decides about the processes of one admin address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AdminKeeper {
    holder: Option<Holder>,
    successor: Successor,
    leaving: Vec<Leaving>,
    /// Exits in a row, without one that served for [`STEADY`].
    exits: u32,
    last: AdminId,
    actions: VecDeque<AdminAction>,
}

/// The process that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    id: AdminId,
    since: Time,
}

/// The process that is to serve next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Successor {
    /// None is needed.
    None,
    /// It starts at this time.
    Due(Time),
    Starting {
        id: AdminId,
        deadline: Time,
    },
    /// The server has ended.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Leaving {
    id: AdminId,
    /// `None` if it was killed.
    deadline: Option<Time>,
}

record!(AdminKeeper { holder, successor, leaving, exits, last, actions } if AdminKeeper::is_sound);
record!(Holder { id, since });
record!(enum Successor { 0 = None, 1 = Due(at), 2 = Starting { id, deadline }, 3 = Never });
record!(Leaving { id, deadline });
record!(enum AdminAction { 0 = Start(id), 1 = Leave(id), 2 = Kill(id) });

impl AdminKeeper {
    /// The first process starts at once.
    pub(crate) fn new(now: Time) -> Self {
        let mut keeper = Self {
            holder: None,
            successor: Successor::None,
            leaving: Vec::new(),
            exits: 0,
            last: AdminId(0),
            actions: VecDeque::new(),
        };
        keeper.start_at(now);
        keeper
    }

    /// It ignores processes that it does not know.
    pub(crate) fn handle(&mut self, event: AdminEvent, now: Time) {
        match event {
            AdminEvent::Ready(id) => self.ready(id, now),
            AdminEvent::Gone(id) => self.gone(id, now),
            AdminEvent::Renew => self.renew(now),
            AdminEvent::End => {
                self.leave_successor(now);
                self.leave_holder(now);
                self.successor = Successor::Never;
            }
        }
        debug_assert!(self.is_sound(), "{self:?} after {event:?}");
    }

    /// Acts on every deadline that `now` has reached.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        match self.successor {
            Successor::Due(at) if at <= now => self.start_at(now),
            Successor::Starting { id, deadline } if deadline <= now => {
                self.actions.push_back(AdminAction::Kill(id));
                self.leaving.push(Leaving { id, deadline: None });
                self.schedule(now);
            }
            _ => {}
        }
        for process in &mut self.leaving {
            if process.deadline.is_some_and(|deadline| deadline <= now) {
                process.deadline = None;
                self.actions.push_back(AdminAction::Kill(process.id));
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let next = match self.successor {
            Successor::Due(at) => Some(at),
            Successor::Starting { deadline, .. } => Some(deadline),
            Successor::None | Successor::Never => None,
        };
        let leaving = self.leaving.iter().filter_map(|process| process.deadline);
        leaving.chain(next).min()
    }

    /// The next thing to do, until there is none.
    pub(crate) fn next_action(&mut self) -> Option<AdminAction> {
        self.actions.pop_front()
    }

    fn ready(&mut self, id: AdminId, now: Time) {
        if matches!(self.successor, Successor::Starting { id: starting, .. } if starting == id) {
            self.leave_holder(now);
            self.holder = Some(Holder { id, since: now });
            self.successor = Successor::None;
        }
    }

    fn gone(&mut self, id: AdminId, now: Time) {
        self.leaving.retain(|process| process.id != id);
        if let Some(holder) = self.holder.take_if(|holder| holder.id == id) {
            if now.since(holder.since) >= STEADY {
                self.exits = 0;
            }
            if self.successor == Successor::None {
                self.schedule(now);
            }
        }
        if matches!(self.successor, Successor::Starting { id: starting, .. } if starting == id) {
            self.schedule(now);
        }
    }

    fn renew(&mut self, now: Time) {
        if self.successor != Successor::Never {
            self.leave_successor(now);
            self.start_at(now);
        }
    }

    /// Starts the next process after a pause, which depends on how many have ended before.
    fn schedule(&mut self, now: Time) {
        let pause = match self.exits {
            0 => Duration::ZERO,
            more => PAUSE_FIRST.saturating_mul(1 << (more - 1).min(16)),
        };
        self.exits = self.exits.saturating_add(1);
        self.successor = Successor::Due(now + pause.min(PAUSE_MAX));
        if pause.is_zero() {
            self.start_at(now);
        }
    }

    fn start_at(&mut self, now: Time) {
        self.last = AdminId(self.last.0 + 1);
        self.successor = Successor::Starting {
            id: self.last,
            deadline: now + PATIENCE,
        };
        self.actions.push_back(AdminAction::Start(self.last));
    }

    fn leave_holder(&mut self, now: Time) {
        if let Some(Holder { id, .. }) = self.holder.take() {
            self.leave(id, now);
        }
    }

    fn leave_successor(&mut self, now: Time) {
        if let Successor::Starting { id, .. } = self.successor {
            self.leave(id, now);
        }
    }

    fn leave(&mut self, id: AdminId, now: Time) {
        self.actions.push_back(AdminAction::Leave(id));
        let deadline = Some(now + PATIENCE);
        self.leaving.push(Leaving { id, deadline });
    }

    /// The processes that are not to leave: the one that serves, and the one that starts.
    fn staying(&self) -> impl Iterator<Item = AdminId> {
        let starting = match self.successor {
            Successor::Starting { id, .. } => Some(id),
            _ => None,
        };
        self.holder
            .map(|holder| holder.id)
            .into_iter()
            .chain(starting)
    }

    /// Whether the process has not been asked to leave.
    pub(crate) fn stays(&self, id: AdminId) -> bool {
        self.staying().any(|staying| staying == id)
    }

    /// A process serves or is to serve, unless the server has ended. No process is in two places.
    fn is_sound(&self) -> bool {
        let leaving = self.leaving.iter().map(|process| process.id);
        let mut all: Vec<_> = leaving.chain(self.staying()).collect();
        let processes = all.len();
        all.sort_unstable();
        all.dedup();
        let none_twice = all.len() == processes && all.last() <= Some(&self.last);
        match self.successor {
            Successor::None => none_twice && self.holder.is_some(),
            Successor::Never => none_twice && self.holder.is_none(),
            Successor::Due(_) | Successor::Starting { .. } => none_twice,
        }
    }
}
