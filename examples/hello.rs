//! The smallest server: one worker per CPU, one response. `cargo run --example hello`

use prefork_server::{Exit, Prefork, Response, handler};

fn main() -> Exit {
    Prefork::bind("127.0.0.1:8080")
        .serve(async |_worker| {
            Ok(handler(async |_request| {
                Ok(Response::new("Hello, World!".into()))
            }))
        })
        .into()
}
