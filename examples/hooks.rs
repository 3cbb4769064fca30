//! Hooks: prints events, and sets an environment variable for each worker.
//! `cargo run --example hooks`
//!
//! Kill a worker (`kill -9 PID`) or reload (`kill -HUP PID` of the master) and read the output.
//!
//! A server should write to its log instead: `println!` waits for the reader of standard output and
//! panics when it has left, and a hook that panics ends the master.

use prefork_server::{
    Address, BoxError, Exit, Generation, Hooks, Notice, Prefork, Response, Slot, WorkerCommand,
    WorkerExit, WorkerInfo, handler,
};

struct Narrator;

impl Hooks for Narrator {
    fn worker_command(
        &mut self,
        slot: Slot,
        _generation: Generation,
        command: &mut WorkerCommand,
    ) -> Result<(), BoxError> {
        command.env("CACHE_FILE", format!("/tmp/cache-{slot}"));
        Ok(())
    }

    fn serving(&mut self, addresses: &[Address], workers: &[WorkerInfo]) -> Result<(), BoxError> {
        println!("{} workers serve {}", workers.len(), addresses[0]);
        Ok(())
    }

    fn worker_respawned(&mut self, old: &WorkerInfo, status: WorkerExit, new: &WorkerInfo) {
        println!(
            "slot {}: {} ended with {status}, {} follows",
            old.slot, old.pid, new.pid
        );
    }

    fn notice(&mut self, notice: &Notice) {
        println!("{}", notice.name());
    }

    fn master_died(&mut self) {
        eprintln!("worker {}: the master is gone", std::process::id());
    }
}

fn main() -> Exit {
    Prefork::bind("127.0.0.1:8080")
        .hooks(Narrator)
        .serve(async |_worker| {
            Ok(handler(async |_request| {
                let file = std::env::var("CACHE_FILE")?;
                Ok(Response::new(format!("my cache is {file}\n").into()))
            }))
        })
        .into()
}
