//! A tower service with layers of tower-http. `cargo run --example tower`
//!
//! The server has limits and timeouts of its own, for the client's side of a request: see `Http`.
//! Layers have those for the handler's side.

use std::convert::Infallible;
use std::time::Duration;

use http::StatusCode;
use prefork_server::{Body, Exit, Prefork, Response};
use tower::ServiceBuilder;
use tower::limit::ConcurrencyLimitLayer;
use tower_http::body::Limited;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

// A body under `RequestBodyLimitLayer` is `Limited`. Without that layer the type is `Request`.
async fn hello(_request: http::Request<Limited<Body>>) -> Result<Response, Infallible> {
    Ok(Response::new("Hello, World!\n".into()))
}

fn main() -> Exit {
    let timeout =
        TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(5));
    Prefork::bind("127.0.0.1:8080")
        .serve(async |_worker| {
            Ok(ServiceBuilder::new()
                // One limit for all connections of this worker.
                .layer(ConcurrencyLimitLayer::new(100))
                .layer(TraceLayer::new_for_http())
                .layer(RequestBodyLimitLayer::new(64 * 1024))
                .layer(CompressionLayer::new())
                .layer(CorsLayer::permissive())
                .layer(timeout)
                .service_fn(hello))
        })
        .into()
}
