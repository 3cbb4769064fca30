//! gRPC by tonic: a health service that says `NOT_SERVING` when its worker drains.
//! `cargo run --example grpc`
//!
//! `grpcurl -plaintext 127.0.0.1:8080 grpc.health.v1.Health/Check` asks it (with the service's
//! proto file). HTTP/1 is served on the same port: `curl http://127.0.0.1:8080/`.

use std::time::Duration;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use prefork_server::{Exit, Prefork, Worker};
use tonic::Status;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};

/// Clients that watch the service get `NOT_SERVING` and then the end of the stream.
async fn report_drain(worker: Worker, mut reporter: HealthReporter) {
    worker.drain().await;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        let not_serving = ServingStatus::NotServing;
        reporter.set_service_status("", not_serving).await;
        // The first is over at once. A call that was on its way may be another stream.
        second.tick().await;
        // Ends the streams.
        reporter.clear_service_status("").await;
    }
}

/// The time that the client gives the call: `1S`, `250m` (gRPC over HTTP/2, "Timeout").
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number = number.parse::<u32>().ok()?;
    let unit = match unit {
        "H" => Duration::from_secs(60 * 60),
        "M" => Duration::from_secs(60),
        "S" => Duration::from_secs(1),
        "m" => Duration::from_millis(1),
        "u" => Duration::from_micros(1),
        "n" => Duration::from_nanos(1),
        _ => return None,
    };
    unit.checked_mul(number)
}

/// Ends a call at its deadline, also if the client does not reset it. A stream that has begun by
/// then goes on.
async fn deadline(request: Request, next: Next) -> Response {
    let Some(timeout) = timeout(request.headers()) else {
        return next.run(request).await;
    };
    let response = tokio::time::timeout(timeout, next.run(request)).await;
    response.unwrap_or_else(|_elapsed| {
        let status = Status::deadline_exceeded("the client's time is over");
        status.into_http()
    })
}

fn main() -> Exit {
    Prefork::bind("127.0.0.1:8080")
        .serve(async |worker| {
            let (reporter, health) = health_reporter();
            tokio::task::spawn_local(report_drain(worker, reporter));
            Ok(Routes::new(health)
                .into_axum_router()
                .layer(from_fn(deadline))
                .route("/", get(async || "This server speaks gRPC.\n")))
        })
        .into()
}
