//! Graceful end: a slow response is completed first. `cargo run --example graceful`
//!
//! Run `curl http://127.0.0.1:8080/slow`, then press Ctrl-C in the server's terminal: curl gets its
//! response before the server ends. A second Ctrl-C ends the server at once.

use std::time::Duration;

use prefork_server::{BoxError, Exit, Http, Prefork, Request, Response, Worker, handler};

async fn respond(worker: Worker, request: Request) -> Result<Response, BoxError> {
    if request.uri().path() == "/slow" {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let state = if worker.is_draining() {
        "draining"
    } else {
        "serving"
    };
    Ok(Response::new(format!("answered while {state}\n").into()))
}

fn main() -> Exit {
    Prefork::bind("127.0.0.1:8080")
        .workers(2)
        .drain_timeout(Duration::from_secs(10))
        .http(Http::new().idle_timeout(Duration::from_secs(20)))
        .serve(async |worker| {
            let cleaner = worker.clone();
            // Other tasks of a worker can wait for its drain too.
            tokio::task::spawn_local(async move {
                cleaner.drain().await;
                eprintln!("worker {} finishes what is open", cleaner.slot());
            });
            // After the last request: here a program flushes its buffers or closes its pool.
            let slot = worker.slot();
            worker.at_exit(async move { eprintln!("worker {slot} has finished") });
            Ok(handler(move |request| respond(worker.clone(), request)))
        })
        .into()
}
