//! Notices as JSON objects: the announce stream writes them, and serde serializes them so.

use serde_json::{Map, Value, json};

use super::{Notice, WorkerInfo};
use crate::address::Address;

impl Notice {
    /// The notice as the announce stream writes it.
    pub(crate) fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("notice".to_owned(), self.name().into());
        if let Value::Object(fields) = fields(self) {
            object.extend(fields);
        }
        Value::Object(object)
    }
}

/// As a line of the announce stream.
#[cfg(feature = "serde")]
impl serde::Serialize for Notice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

fn fields(notice: &Notice) -> Value {
    match notice {
        Notice::Serving {
            addresses,
            workers,
            pid,
        } => {
            let addresses: Vec<_> = addresses.iter().map(Address::to_string).collect();
            json!({ "addresses": addresses, "workers": workers, "pid": pid })
        }
        Notice::WorkerSpawned(worker)
        | Notice::WorkerReady(worker)
        | Notice::WorkerDraining(worker)
        | Notice::WorkerHung(worker)
        | Notice::WorkerStuck(worker) => identity(worker),
        Notice::WorkerExited {
            worker,
            status,
            cut,
        } => {
            let mut fields = identity(worker);
            fields["status"] = status.to_string().into();
            fields["cut"] = (*cut).into();
            fields
        }
        Notice::Adopted { slot, by }
        | Notice::NotAdopted { slot, by }
        | Notice::Released { slot, by } => {
            json!({ "slot": slot.0, "by": by.0 })
        }
        Notice::ListenerReopened { address, slot } => {
            json!({ "address": address.to_string(), "slot": slot.map(|slot| slot.0) })
        }
        Notice::BackingOff { slot, pause } => {
            let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            json!({ "slot": slot.0, "pause_ms": pause })
        }
        Notice::ReloadStarted { generation } | Notice::ReloadFinished { generation } => {
            json!({ "generation": generation.0 })
        }
        Notice::ReloadAbandoned { generation, why } => {
            json!({ "generation": generation.0, "why": why })
        }
        Notice::Resized { workers } => json!({ "workers": workers }),
        Notice::Finished { outcome, totals } => {
            let [.., server_errors] = totals.responses;
            json!({
                "outcome": outcome.to_string(),
                "requests": totals.requests,
                "connections": totals.connections,
                "handed_over": totals.handed_over,
                "upgrades_cut": totals.upgrades_cut,
                "bytes_out": totals.bytes_out,
                "responses_5xx": server_errors,
            })
        }
        Notice::UpgradeStarted | Notice::UpgradeFinished | Notice::Stopping | Notice::Draining => {
            json!({})
        }
        Notice::UpgradeAbandoned { why } => json!({ "why": why }),
    }
}

fn identity(worker: &WorkerInfo) -> Value {
    json!({ "slot": worker.slot.0, "generation": worker.generation.0, "pid": worker.pid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::{Core, WorkerExit};
    use crate::id::{Generation, Slot};

    #[test]
    fn a_notice_is_one_line_with_its_name_first() {
        let worker = WorkerInfo {
            slot: Slot(1),
            generation: Generation(2),
            pid: 3,
        };
        let status = WorkerExit::Signal {
            signal: 9,
            core: Core::None,
        };
        let notice = Notice::WorkerExited {
            worker,
            status,
            cut: 4,
        };
        let line = notice.to_json().to_string();
        #[cfg(feature = "serde")]
        assert_eq!(serde_json::to_string(&notice).expect("JSON"), line);
        let parsed: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(parsed["notice"], "worker_exited");
        assert_eq!(parsed["status"], "signal 9");
        assert_eq!((&parsed["slot"], &parsed["cut"]), (&json!(1), &json!(4)));
    }
}
