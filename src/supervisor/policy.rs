//! The limits and timeouts of the supervisor.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::id;
use crate::policy::{Backoff, CrashLimit};

/// The most slots. It bounds what a `Resize` can ask for. It also keeps a worker within a usual
/// limit on descriptors, because a worker may have to adopt the listeners and inboxes of all other
/// slots.
pub(crate) const MAX_WORKERS: NonZeroU16 =
    NonZeroU16::new(id::MAX_WORKERS as u16).expect("a server may have slots");

/// With so many draining workers in a slot a reload does not replace the slot's worker until one of
/// them has left, which takes the drain timeout at most. To kill the oldest would cut what it is
/// finishing: a drain takes longer than a reload as soon as one client is idle.
pub(crate) const DRAINING_MAX: usize = 4;

/// How many workers may leave one slot at a time, killed ones among them. A killed process can stay
/// for as long as the kernel holds it (an unreachable disk). With this many of them the slot spawns
/// no worker, and slot 0 no canary, until one is gone.
pub(crate) const LEAVING_MAX: usize = 8;

/// The kernel ends a process that was sent SIGKILL within this time, unless something holds it.
/// Then the worker is stuck, and nothing waits for it any more.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// After this time a worker that could not adopt a slot may be asked again. It was at its limit on
/// descriptors, and connections end all the time.
pub(crate) const ADOPT_AGAIN: Duration = Duration::from_secs(1);

/// A worker that serves for less than this before it exits with 0, leaves or asks to be replaced
/// gives its slot a strike. If that happens again and again, the slot pauses as after crashes. A
/// start takes some 20 ms of a CPU, so workers that serve for longer cost 2 % of a CPU at most.
pub(crate) const HASTY: Duration = Duration::from_secs(1);

/// The settings of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Policy {
    /// Slots at the start. More than [`MAX_WORKERS`] is taken as that many. Default: 1.
    pub(crate) workers: NonZeroU16,
    /// How long a draining worker may take before it cuts its own connections. Default: 30 s.
    pub(crate) drain_timeout: Duration,
    /// How long after `drain_timeout` the worker may still take to report what it cut and exit,
    /// before the master kills it. Default: 1 s.
    pub(crate) kill_grace: Duration,
    /// How long a worker that hung may take to end by SIGABRT and to leave its core, before the
    /// master kills it. A worker that was stopped (SIGSTOP) does not end by it. Default: 1 s.
    pub(crate) abort_grace: Duration,
    /// How long a worker may take from `Spawn` to `Ready`. Default: 60 s.
    pub(crate) ready_timeout: Duration,
    /// Crashes beyond this end the server. Default: 10 per 60 s.
    pub(crate) crash_limit: CrashLimit,
    /// How long a slot rests between its crashes. Default: see [`Backoff`].
    pub(crate) backoff: Backoff,
    /// How many serving workers a reload replaces at a time. Default: 1.
    pub(crate) reload_batch: NonZeroU16,
    /// Where the jitter of the backoff starts. The same seed gives the same pauses. Default: 1.
    pub(crate) seed: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            workers: NonZeroU16::MIN,
            drain_timeout: Duration::from_secs(30),
            kill_grace: Duration::from_secs(1),
            abort_grace: Duration::from_secs(1),
            ready_timeout: Duration::from_secs(60),
            crash_limit: CrashLimit::default(),
            backoff: Backoff::default(),
            reload_batch: NonZeroU16::MIN,
            seed: 1,
        }
    }
}
