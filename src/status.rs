//! The state of a server at one moment, as a [`Handle`](crate::Handle) returns it.

use crate::address::Address;
use crate::hooks::WorkerInfo;
use crate::id::{Generation, Slot};
use crate::policy::{ServerState, WorkerState};
use crate::stats::Totals;

/// The state of a server at one moment. [`Handle::status`](crate::Handle::status) returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// What the server as a whole does.
    pub state: ServerState,
    /// The addresses of the listeners, with the real port where port 0 was given.
    pub addresses: Vec<Address>,
    /// How many slots the server is to have. `slots` has more of them while workers of retired
    /// slots are left.
    pub workers: u16,
    /// The newest generation of which a worker was ready; 1 until then.
    pub generation: Generation,
    /// The slots in order.
    pub slots: Vec<SlotStatus>,
    /// What all workers have done so far.
    pub totals: Totals,
}

/// The state of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotStatus {
    /// The slot.
    pub slot: Slot,
    /// Its workers: one as a rule, more while a worker is replaced, none between a crash and the
    /// next spawn. The canary of an upgrade is among those of slot 0.
    pub workers: Vec<WorkerStatus>,
    /// The slot whose worker accepts from the listeners of this one.
    pub adopted_by: Option<Slot>,
    /// Whether the slot waits before its next spawn, as after
    /// [`Notice::BackingOff`](crate::Notice::BackingOff).
    pub backing_off: bool,
}

/// The state of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The worker.
    pub worker: WorkerInfo,
    /// What it does.
    pub state: WorkerState,
    /// How many connections it has open.
    pub connections: u32,
    /// How many requests have begun and are not finished. It is 0 with
    /// [`Prefork::run`](crate::Prefork::run).
    pub requests: u32,
}
