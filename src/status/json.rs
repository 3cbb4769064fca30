//! The state of a server as JSON: the admin process writes it, and serde serializes it so.

use serde_json::{Value, json};

use super::history::{Exits, Operation, Operations};
use super::{History, SlotStatus, Status, WorkerStatus};
use crate::address::Address;
use crate::stats::Totals;

impl Status {
    pub(crate) fn to_json(&self) -> Value {
        let addresses: Vec<_> = self.addresses.iter().map(Address::to_string).collect();
        let slots: Vec<_> = self.slots.iter().map(SlotStatus::to_json).collect();
        json!({
            "state": self.state.to_string(),
            "addresses": addresses,
            "workers": self.workers,
            "generation": self.generation.0,
            "slots": slots,
            "totals": totals(&self.totals),
        })
    }
}

impl SlotStatus {
    fn to_json(&self) -> Value {
        let workers: Vec<_> = self.workers.iter().map(WorkerStatus::to_json).collect();
        json!({
            "slot": self.slot.0,
            "workers": workers,
            "adopted_by": self.adopted_by.map(|by| by.0),
            "backing_off": self.backing_off,
        })
    }
}

impl WorkerStatus {
    fn to_json(&self) -> Value {
        json!({
            "slot": self.worker.slot.0,
            "generation": self.worker.generation.0,
            "pid": self.worker.pid,
            "state": self.state.to_string(),
            "connections": self.connections,
            "requests": self.requests,
        })
    }
}

fn totals(totals: &Totals) -> Value {
    json!({
        "connections": totals.connections,
        "requests": totals.requests,
        "responses": totals.responses,
        "bytes_in": totals.bytes_in,
        "bytes_out": totals.bytes_out,
        "panics": totals.panics,
        "timeouts": totals.timeouts,
        "tls_handshakes": totals.tls_handshakes,
        "tls_resumed": totals.tls_resumed,
        "tls_handshake_failures": totals.tls_handshake_failures,
        "latency_p50": totals.latency_p50.as_secs_f64(),
        "latency_p99": totals.latency_p99.as_secs_f64(),
        "handed_over": totals.handed_over,
        "upgrades_cut": totals.upgrades_cut,
        "limited": totals.limited,
        "longest_stall": totals.longest_stall.as_secs_f64(),
    })
}

impl History {
    pub(crate) fn to_json(&self) -> Value {
        let Exits {
            clean,
            failed,
            signal,
        } = self.exits;
        let exits = self.last_exits.iter().map(|(at, (worker, status))| {
            json!({
                "at": seconds(*at),
                "slot": worker.slot.0,
                "generation": worker.generation.0,
                "pid": worker.pid,
                "status": status.to_string(),
            })
        });
        json!({
            "worker_starts": self.starts,
            "worker_exits": { "clean": clean, "failed": failed, "signal": signal },
            "worker_hangs": self.hung,
            "reloads": operations(self.reloads),
            "upgrades": operations(self.upgrades),
            "resizes": self.resizes,
            "listeners_reopened": self.reopened,
            "last_operation": self.operation.as_ref().map(Operation::to_json),
            "last_exits": exits.collect::<Vec<_>>(),
        })
    }
}

impl Operation {
    fn to_json(&self) -> Value {
        json!({
            "operation": self.name(),
            "began": seconds(self.began),
            "ended": self.ended.map(seconds),
            "abandoned": self.why,
        })
    }
}

fn operations(operations: Operations) -> Value {
    let Operations {
        finished,
        abandoned,
    } = operations;
    json!({ "finished": finished, "abandoned": abandoned })
}

/// Seconds after 1970.
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

#[cfg(feature = "serde")]
mod serialize {
    use serde::{Serialize, Serializer};

    use super::{SlotStatus, Status, Totals, WorkerStatus, totals};

    macro_rules! as_json {
        ($($type:ident: $to_json:expr),+ $(,)?) => {
            $(impl Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    $to_json(self).serialize(serializer)
                }
            })+
        };
    }

    as_json!(
        Status: Status::to_json,
        SlotStatus: SlotStatus::to_json,
        WorkerStatus: WorkerStatus::to_json,
        Totals: totals,
    );
}
