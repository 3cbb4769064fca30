//! Responds with the worker and the addresses of the client. `cargo run --example whoami`
//!
//! Send several requests: new connections go to different workers. An open connection moves if its
//! worker has more to do than another one, and in a reload.

use prefork_server::{Exit, Prefork, Request, Response, handler};

fn main() -> Exit {
    Prefork::bind("127.0.0.1:8080")
        .also_bind("[::1]:8080")
        .serve(async |worker| {
            Ok(handler(move |request: Request| {
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
                async { Ok(Response::new(text.into())) }
            }))
        })
        .into()
}
