//! The smallest server: one worker per CPU, one response. `cargo run --example hello`

use std::convert::Infallible;

use prefork_server::{Prefork, Request, Response, service_fn};

async fn hello(_request: Request) -> Result<Response, Infallible> {
    Ok(Response::new("Hello, World!".into()))
}

fn main() -> Result<(), prefork_server::Error> {
    Prefork::bind("127.0.0.1:8080").serve(async |_worker| Ok(service_fn(hello)))
}
