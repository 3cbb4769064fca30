//! What each signal to the master means. The README has the same table for users.

use nix::sys::signal::Signal;

use crate::supervisor::{Event, Step, Stop};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Something to decide.
    Supervise(Event),
    /// Every process calls its hook.
    ReopenLogs,
    /// Processes have ended.
    Reap,
    /// Nothing, on purpose.
    Ignore,
}

/// `WINCH` is ignored: a terminal that is resized must not stop a server. A second `TERM`, `QUIT`
/// or `INT` is a second `Stop`, which the supervisor takes as "now", unless it is the same ask.
pub(crate) fn order(signal: Signal) -> Order {
    match signal {
        Signal::SIGTERM | Signal::SIGQUIT => Order::Supervise(Event::Stop(Stop::Drain)),
        Signal::SIGINT => Order::Supervise(Event::Stop(Stop::Interrupt)),
        Signal::SIGHUP => Order::Supervise(Event::Reload),
        Signal::SIGUSR2 => Order::Supervise(Event::Upgrade),
        Signal::SIGTTIN => Order::Supervise(Event::ResizeBy(Step::More)),
        Signal::SIGTTOU => Order::Supervise(Event::ResizeBy(Step::Fewer)),
        Signal::SIGUSR1 => Order::ReopenLogs,
        Signal::SIGCHLD => Order::Reap,
        _ => Order::Ignore,
    }
}
