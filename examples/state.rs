//! State without locks: each worker has its own, in an `Rc`. `cargo run --example state`
//!
//! A worker does not see the counts of other workers. Keep state that all workers share in a
//! database.

use std::cell::Cell;
use std::rc::Rc;

use prefork_server::{Exit, Prefork, Response, handler};

fn main() -> Exit {
    Prefork::bind("127.0.0.1:8080")
        .serve(async |worker| {
            let slot = worker.slot();
            let count = Rc::new(Cell::new(0_u64));
            Ok(handler(move |_request| {
                count.set(count.get() + 1);
                let text = format!("worker {slot} has answered {} times\n", count.get());
                async { Ok(Response::new(text.into())) }
            }))
        })
        .into()
}
