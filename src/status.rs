//! The state of a server at one moment, as a [`Handle`](crate::Handle) returns it.

mod history;
mod json;
mod operations;

use crate::address::Address;
use crate::codec::{Malformed, Reader, Record, Writer, record};
use crate::hooks::WorkerInfo;
use crate::id::{Generation, Slot};
use crate::policy::{ServerState, WorkerState};
use crate::stats::Totals;
pub(crate) use crate::status::history::History;
pub(crate) use crate::status::operations::{Operation, Operations, serving};

/// Why an upgrade is abandoned that was to be tried only, and could be made.
pub(crate) const DRY_RUN: &str = "a dry run: the new binary serves";

/// Whether an upgrade that was abandoned for this reason was a trial that worked.
pub(crate) fn is_dry_run(why: &str) -> bool {
    // The path of the binary comes before it.
    why.ends_with(DRY_RUN)
}

/// The state of a server at one moment. [`Handle::status`](crate::Handle::status) returns it.
///
/// With the feature `serde` it can be serialized: states in lower case, addresses as text,
/// durations in seconds, and the fields of `worker` beside its state.
///
/// ```
/// # use prefork_server::TestServer;
/// # let server = TestServer::start_with(|server| {
/// #     server.run(async |_worker, mut incoming| {
/// #         while incoming.accept().await.is_some() {}
/// #         Ok(())
/// #     })
/// # })?;
/// # let handle = server.handle();
/// let status = handle.status().expect("the server runs");
/// assert_eq!((status.workers, status.slots.len()), (1, 1));
///
/// // With the feature `serde`:
/// let json = serde_json::to_value(&status)?;
/// assert_eq!((&json["state"], &json["workers"]), (&"serving".into(), &1.into()));
/// # Ok::<(), prefork_server::BoxError>(())
/// ```
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

/// The state of a slot. With the feature `serde` it can be serialized.
///
/// ```
/// use prefork_server::{Slot, Status};
/// # use prefork_server::TestServer;
///
/// /// The slots without a worker of their own that serves.
/// fn without_worker(status: &Status) -> Vec<Slot> {
///     let slots = status.slots.iter();
///     slots.filter(|it| it.adopted_by.is_some()).map(|it| it.slot).collect()
/// }
/// # let server = TestServer::start_with(|server| {
/// #     server.run(async |_worker, mut incoming| {
/// #         while incoming.accept().await.is_some() {}
/// #         Ok(())
/// #     })
/// # })?;
/// # assert_eq!(server.handle().status().as_ref().map(without_worker), Some(vec![]));
/// # Ok::<(), prefork_server::Error>(())
/// ```
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

/// The state of a worker. With the feature `serde` it can be serialized.
///
/// ```
/// use prefork_server::Status;
/// # use prefork_server::TestServer;
///
/// /// The process to profile: the worker with the most open connections.
/// fn busiest(status: &Status) -> Option<u32> {
///     let workers = status.slots.iter().flat_map(|slot| &slot.workers);
///     let busiest = workers.max_by_key(|worker| worker.connections)?;
///     Some(busiest.worker.pid)
/// }
/// # let server = TestServer::start_with(|server| {
/// #     server.run(async |_worker, mut incoming| {
/// #         while incoming.accept().await.is_some() {}
/// #         Ok(())
/// #     })
/// # })?;
/// # assert_eq!(server.handle().status().as_ref().and_then(busiest), Some(std::process::id()));
/// # Ok::<(), prefork_server::Error>(())
/// ```
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

/// Without the totals, which each process has from the pages of the workers.
impl Record for Status {
    fn put(&self, to: &mut Writer) {
        self.state.put(to);
        self.addresses.put(to);
        self.workers.put(to);
        self.generation.put(to);
        self.slots.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            state: Record::take(from)?,
            addresses: Record::take(from)?,
            workers: Record::take(from)?,
            generation: Record::take(from)?,
            slots: Record::take(from)?,
            totals: Totals::default(),
        })
    }
}

record!(SlotStatus {
    slot,
    workers,
    adopted_by,
    backing_off
});
record!(WorkerStatus {
    worker,
    state,
    connections,
    requests
});
record!(enum ServerState {
    0 = Starting,
    1 = Serving,
    2 = Reloading,
    3 = Upgrading,
    4 = Draining,
    5 = Stopping,
});
record!(enum WorkerState { 0 = Starting, 1 = Serving, 2 = Draining, 3 = Ending });

#[cfg(all(test, feature = "serde"))]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_serialized_in_the_words_of_the_notices() {
        let worker = WorkerStatus {
            worker: WorkerInfo::new(Slot(1), Generation(2), 3),
            state: WorkerState::Draining,
            connections: 4,
            requests: 5,
        };
        let slot = SlotStatus {
            slot: Slot(1),
            workers: vec![worker],
            adopted_by: Some(Slot(0)),
            backing_off: false,
        };
        let totals = Totals {
            requests: 6,
            latency_p99: Duration::from_millis(1500),
            ..Totals::default()
        };
        let status = Status {
            state: ServerState::Reloading,
            addresses: vec!["127.0.0.1:80".parse().expect("an address")],
            workers: 2,
            generation: Generation(2),
            slots: vec![slot],
            totals,
        };
        let mut json = serde_json::to_value(&status).expect("JSON");
        let totals = json["totals"].take();
        assert_eq!(totals["requests"], 6);
        assert_eq!(totals["latency_p99"], 1.5);
        assert_eq!(
            json,
            json!({
                "state": "reloading",
                "addresses": ["127.0.0.1:80"],
                "workers": 2,
                "generation": 2,
                "slots": [{
                    "slot": 1,
                    "workers": [{
                        "slot": 1,
                        "generation": 2,
                        "pid": 3,
                        "state": "draining",
                        "connections": 4,
                        "requests": 5,
                    }],
                    "adopted_by": 0,
                    "backing_off": false,
                }],
                "totals": null,
            })
        );
    }
}
