//! An axum router in `serve`: state of the worker, the client's address, events, an upload, and
//! the files of a directory for all other paths.
//! `cargo run --example axum`
//!
//! Run `curl -N http://127.0.0.1:8080/events`, then reload (`kill -HUP PID` of the master): the
//! events end in order, and no other connection is closed.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::multipart::MultipartError;
use axum::extract::{ConnectInfo, Multipart, Path, State};
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use futures_util::stream::{Stream, unfold};
use prefork_server::files::{Files, TowerFiles};
use prefork_server::{Exit, Peer, Prefork};

/// What the requests of one worker share: a database pool in a real program.
struct Visits(AtomicUsize);

async fn visit(
    State(visits): State<Arc<Visits>>,
    ConnectInfo(client): ConnectInfo<Peer>,
) -> String {
    let number = visits.0.fetch_add(1, Ordering::Relaxed) + 1;
    format!("{client} is visitor {number} of this worker\n")
}

async fn hello(Path(name): Path<String>) -> String {
    format!("hello {name}\n")
}

/// Ends by itself when the worker drains; the browser connects again.
async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    Sse::new(unfold(0, async |number| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let event = Event::default().data(number.to_string());
        Some((Ok(event), number + 1))
    }))
}

async fn upload(mut parts: Multipart) -> Result<String, MultipartError> {
    let mut sizes = String::new();
    while let Some(mut part) = parts.next_field().await? {
        let mut size = 0;
        while let Some(piece) = part.chunk().await? {
            size += piece.len();
        }
        sizes += &format!("{}: {size} bytes\n", part.name().unwrap_or("?"));
    }
    Ok(sizes)
}

fn router(files: TowerFiles) -> Router {
    Router::new()
        .route("/", get(visit))
        .route("/hello/{name}", get(hello))
        .route("/events", get(events))
        .route("/upload", post(upload))
        .with_state(Arc::new(Visits(AtomicUsize::new(0))))
        .fallback_service(files)
}

fn main() -> Exit {
    Prefork::bind("127.0.0.1:8080")
        .serve(async |_worker| {
            let files = Files::new("examples").listing(true).open()?;
            Ok(router(files.into_tower()))
        })
        .into()
}
