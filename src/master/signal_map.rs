//! What each signal to the master means. The README has this table for users.

use nix::sys::signal::Signal;

use crate::policy::Stop;
use crate::supervisor::{Event, Step};
use crate::sys::signals::Received;

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalMeaning {
    /// An event for the supervisor.
    Supervise(Event),
    /// Every process calls its hook.
    ReopenLogs,
    /// A process has ended.
    Ended,
    /// Nothing, on purpose.
    Ignore,
}

/// `WINCH` is ignored, because the size of a terminal must not stop a server. A second `TERM`,
/// `QUIT` or `INT` is a second `Stop`. For the supervisor it means "now", unless it repeats the
/// first one.
///
/// When its terminal closes, the server ends as by Ctrl-C: nobody would look for it, and it would
/// keep its addresses.
pub(crate) fn meaning(received: Received) -> SignalMeaning {
    let signal = match received {
        Received::Signal(signal) => signal,
        Received::TerminalClosed => Signal::SIGINT,
    };
    match signal {
        Signal::SIGTERM | Signal::SIGQUIT => SignalMeaning::Supervise(Event::Stop(Stop::Drain)),
        Signal::SIGINT => SignalMeaning::Supervise(Event::Interrupt),
        Signal::SIGHUP => SignalMeaning::Supervise(Event::ReloadAsked),
        Signal::SIGUSR2 => SignalMeaning::Supervise(Event::Upgrade),
        Signal::SIGTTIN => SignalMeaning::Supervise(Event::ResizeBy(Step::More)),
        Signal::SIGTTOU => SignalMeaning::Supervise(Event::ResizeBy(Step::Fewer)),
        Signal::SIGUSR1 => SignalMeaning::ReopenLogs,
        Signal::SIGCHLD => SignalMeaning::Ended,
        _ => SignalMeaning::Ignore,
    }
}
