//! The announce stream: a JSON object on a line of its own for each notice.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use serde_json::{Map, Value, json};

use crate::address::Address;
use crate::hooks::{Notice, WorkerInfo};
use crate::sys::fds;

/// The descriptor that notices are written to.
#[derive(Debug)]
pub(crate) struct Announcer {
    fd: OwnedFd,
    lost: u64,
}

impl Announcer {
    pub(crate) fn new(fd: RawFd) -> io::Result<Self> {
        Ok(Self {
            fd: fds::duplicate(fd)?,
            lost: 0,
        })
    }

    /// Writes one line. If the reader does not read, notices are lost; the master never waits for
    /// it.
    pub(crate) fn announce(&mut self, notice: &Notice) {
        let mut line = object(notice).to_string();
        line.push('\n');
        if fds::is_writable(&self.fd) && fds::write_all(&self.fd, line.as_bytes()).is_ok() {
            return;
        }
        self.lost += 1;
        // At 1, 2, 4, 8, ... lost notices.
        if self.lost.is_power_of_two() {
            tracing::warn!(
                lost = self.lost,
                "the announce stream is full: notices are lost"
            );
        }
    }
}

fn object(notice: &Notice) -> Value {
    let mut object = Map::new();
    object.insert("notice".to_owned(), notice.name().into());
    if let Value::Object(fields) = fields(notice) {
        object.extend(fields);
    }
    Value::Object(object)
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
        | Notice::WorkerHung(worker) => identity(worker),
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
        Notice::UpgradeStarted | Notice::UpgradeFinished | Notice::Draining => json!({}),
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
        let line = object(&Notice::WorkerExited {
            worker,
            status,
            cut: 4,
        })
        .to_string();
        let parsed: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(parsed["notice"], "worker_exited");
        assert_eq!(parsed["status"], "signal 9");
        assert_eq!((&parsed["slot"], &parsed["cut"]), (&json!(1), &json!(4)));
    }

    #[test]
    fn a_reader_that_does_not_read_does_not_stop_the_master() {
        let (_reader, writer) = io::pipe().expect("a pipe");
        let mut announcer =
            Announcer::new(std::os::fd::AsRawFd::as_raw_fd(&writer)).expect("an open descriptor");
        for _ in 0..10_000 {
            announcer.announce(&Notice::Draining);
        }
        assert!(announcer.lost > 0);
    }
}
