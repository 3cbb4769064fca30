//! What does a request cost while another process computes on the worker's CPU?
//!
//! Each server has one worker, pinned to one CPU together with a process that never stops
//! computing. The load driver runs on the other CPUs, as clients on a network do: a request wakes
//! the worker by an interrupt, and no waker goes to sleep on the worker's CPU.
//!
//! A setting that makes workers wait for their turn looks good beside a load driver that shares
//! their CPU, and bad here.
//!
//! Not measured: a neighbour that sleeps or does I/O, more than one worker.

use crate::load::Ask;
use crate::question::Question;
use crate::server::{BODY, Neighbour};

/// None where this process may use one CPU only, which is said.
pub(crate) fn questions() -> Vec<Question> {
    if let Err(error) = Neighbour::cpus() {
        eprintln!("neighbour_1, _8 and _64 are left out: {error}");
        return Vec::new();
    }
    [("neighbour_1", 1), ("neighbour_8", 8), ("neighbour_64", 64)]
        .map(|(name, connections)| {
            let ask = Ask::get("/").expecting(BODY);
            Question::new(name, connections, ask).beside_neighbour()
        })
        .into()
}
