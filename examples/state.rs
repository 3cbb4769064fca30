//! State without locks: each worker has its own, in an `Rc`. `cargo run --example state`
//!
//! A worker does not see the counts of other workers. Keep state that all workers share in a
//! database.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use prefork_server::{Prefork, Request, Response, service_fn};

fn main() -> Result<(), prefork_server::Error> {
    Prefork::bind("127.0.0.1:8080").serve(async |worker| {
        let slot = worker.slot();
        let count = Rc::new(Cell::new(0_u64));
        Ok(service_fn(move |_request: Request| {
            count.set(count.get() + 1);
            let text = format!("worker {slot} has answered {} times\n", count.get());
            async { Ok::<Response, Infallible>(Response::new(text.into())) }
        }))
    })
}
