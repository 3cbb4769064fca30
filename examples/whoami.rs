//! Responds with the worker and the addresses of the client. `cargo run --example whoami`
//!
//! Send several requests: new connections go to different workers; an open connection stays with
//! its worker.

use std::convert::Infallible;

use prefork_server::{Prefork, Request, Response, service_fn};

fn main() -> Result<(), prefork_server::Error> {
    Prefork::bind("127.0.0.1:8080")
        .also_bind("[::1]:8080")
        .serve(async |worker| {
            Ok(service_fn(move |request: Request| {
                let connection = request.body().connection();
                let text = format!(
                    "slot {} of {}, generation {}, pid {}\nyou are {}, came to {}\n",
                    worker.slot(),
                    worker.workers(),
                    worker.generation(),
                    worker.info().pid,
                    connection.peer,
                    connection.local,
                );
                async { Ok::<Response, Infallible>(Response::new(text.into())) }
            }))
        })
}
