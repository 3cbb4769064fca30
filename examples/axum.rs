//! Any axum router, through `run`. `cargo run --example axum --features axum`
//!
//! `run` also works with any other server that takes tokio streams: `incoming` is a `Stream` of
//! connections, and has a method `accept`.

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use prefork_server::{Exit, Prefork};

fn main() -> Exit {
    let server = Prefork::bind("127.0.0.1:8080").run(async |worker, incoming| {
        let slot = worker.slot();
        let router = Router::new()
            .route(
                "/",
                get(async move || format!("worker {slot} greets you\n")),
            )
            .route(
                "/hello/{name}",
                get(async |Path(name): Path<String>| format!("hello {name}\n")),
            );
        axum::serve(incoming, router)
            .with_graceful_shutdown(worker.drain())
            .await?;
        Ok(())
    });
    server.into()
}
