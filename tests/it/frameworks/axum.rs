//! What an axum `Router` in `serve` can rely on: `ConnectInfo`, state, streams of events, uploads.
//! WebSockets are in `websocket`.

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{ConnectInfo, Multipart, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream::{self, Stream, StreamExt};
use nix::sys::signal::Signal;
use prefork_server::files::Files;
use prefork_server::{ConnectionInfo, Error, Network, Peer, Prefork, Slot, Worker, tower_service};
use tower::{Layer, ServiceExt};

use super::{start, with_app};
use crate::client::{Client, get as get_once};
use crate::handover::settled;
use crate::support::{Server, program, this};

tests! {
    handlers_get_the_address_of_their_client,
    behind_a_balancer_handlers_get_the_address_in_its_header,
    a_client_on_a_unix_socket_has_no_socket_address,
    a_router_behind_tower_service_has_no_connect_info,
    each_worker_has_a_state_of_its_own,
    the_paths_that_a_router_lacks_may_be_files,
    an_event_stream_ends_at_the_drain_and_its_connection_moves,
    the_end_of_the_server_ends_event_streams,
    an_upload_arrives_whole_and_one_beyond_the_limit_gets_413,
    an_upload_that_stops_coming_gets_408,
    a_layer_around_the_router_may_want_the_body_of_axum,
    connect_info_in_run_is_the_peer,
}

/// Names the path of a Unix socket to listen on.
const SOCKET: &str = "PREFORK_TEST_SOCKET";

pub(super) fn app(server: Prefork, name: &str) -> Result<(), Error> {
    match name {
        "routes" => server.serve(async |worker| Ok(routes(worker))),
        "files" => server.serve(async |worker| {
            let files = Files::new(env!("CARGO_MANIFEST_DIR")).open()?;
            Ok(routes(worker).fallback_service(files.into_tower()))
        }),
        "lean" => server.serve(async |worker| Ok(tower_service(routes(worker)))),
        "unix" => {
            let path = std::env::var(SOCKET).expect("the test says where");
            let server = server.also_bind(format!("unix:{path}"));
            server.serve(async |worker| Ok(routes(worker)))
        }
        "balanced" => {
            let network: Network = "127.0.0.0/31".parse().expect("a network");
            let server = server.proxy_protocol([network]);
            server.serve(async |worker| Ok(routes(worker)))
        }
        "rewritten" => server.serve(async |worker| {
            let outside = from_fn(rewrite).layer(routes(worker));
            Ok(outside
                .map_request(|request: prefork_server::Request| request.map(axum::body::Body::new)))
        }),
        "run" => server.run(async |worker, incoming| {
            let router = Router::new().route("/peer", get(peer));
            let service = router.into_make_service_with_connect_info::<Peer>();
            let serve = axum::serve(incoming, service);
            Ok(serve.with_graceful_shutdown(worker.drain()).await?)
        }),
        other => panic!("no such app: {other}"),
    }
}

fn routes(worker: Worker) -> Router {
    Router::new()
        .route("/", get(pid))
        .route("/address", get(address))
        .route("/peer", get(peer))
        .route("/connection", get(connection))
        .route("/count", get(count))
        .route("/events", get(events))
        .route("/upload", post(upload))
        .with_state((worker.slot(), Arc::new(AtomicUsize::new(0))))
}

async fn pid() -> String {
    std::process::id().to_string()
}

async fn address(ConnectInfo(address): ConnectInfo<SocketAddr>) -> String {
    address.to_string()
}

async fn peer(ConnectInfo(peer): ConnectInfo<Peer>) -> String {
    peer.to_string()
}

async fn connection(ConnectInfo(info): ConnectInfo<ConnectionInfo>) -> String {
    format!("{} for {}", info.peer, info.client())
}

/// The slot, and how many requests for this its worker had before.
async fn count(State((slot, count)): State<(Slot, Arc<AtomicUsize>)>) -> String {
    format!("{slot} {}", count.fetch_add(1, Ordering::Relaxed))
}

/// One event, and then none for as long as the client stays.
async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let first = stream::once(ready(Ok(Event::default().data("hello"))));
    Sse::new(first.chain(stream::pending()))
}

async fn upload(mut parts: Multipart) -> Result<String, Response> {
    let mut said = String::new();
    while let Some(part) = parts
        .next_field()
        .await
        .map_err(IntoResponse::into_response)?
    {
        let name = part.name().unwrap_or_default().to_owned();
        let bytes = part.bytes().await.map_err(IntoResponse::into_response)?;
        said += &format!("{name}={} ", bytes.len());
    }
    Ok(said)
}

async fn rewrite(mut request: Request, next: Next) -> Response {
    *request.uri_mut() = "/peer".parse().expect("a path");
    next.run(request).await
}

fn handlers_get_the_address_of_their_client() {
    let mut server = start("routes");
    let mut client = Client::connect(server.address());
    let local = client.local().to_string();
    assert_eq!(client.get("/address").body, local);
    assert_eq!(client.get("/peer").body, local);
    assert_eq!(
        client.get("/connection").body,
        format!("{local} for {local}")
    );
}

fn behind_a_balancer_handlers_get_the_address_in_its_header() {
    let mut server = start("balanced");
    let mut client = Client::connect(server.address());
    let local = client.local();
    client.send("PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n");
    for path in ["/address", "/peer"] {
        assert_eq!(client.get(path).body, "192.0.2.7:4711");
    }
    let both = client.get("/connection").body;
    assert_eq!(both, format!("{local} for 192.0.2.7:4711"));
}

fn a_client_on_a_unix_socket_has_no_socket_address() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let mut server = Server::spawn(with_app(program(this()), "unix").env(SOCKET, &path));
    server.addresses();
    let mut client = Client::connect_unix(&path);
    assert_eq!(client.get("/peer").body, "unix");
    let refused = client.get("/address").body;
    assert!(refused.contains("ConnectInfo"), "{refused}");
}

fn a_router_behind_tower_service_has_no_connect_info() {
    let mut server = start("lean");
    let mut client = Client::connect(server.address());
    for path in ["/address", "/peer", "/connection"] {
        let response = client.get(path);
        assert_eq!(response.status(), 500, "{path}: {response:?}");
    }
    assert!(client.get("/count").body.ends_with(" 0"));
}

fn the_paths_that_a_router_lacks_may_be_files() {
    let mut server = start("files");
    let mut client = Client::connect(server.address());
    let file = client.get("/Cargo.toml");
    assert_eq!(file.body, include_str!("../../../Cargo.toml"));
    assert!(file.header("etag").is_some());
    assert!(client.get("/address").body.starts_with("127.0.0.1:"));
    assert_eq!(client.get("/none").status(), 404);
}

fn each_worker_has_a_state_of_its_own() {
    let mut server = start("routes");
    let address = server.address();
    let mut clients = Client::connect_many(address, 10);
    let mut counts = [0, 0];
    for _ in 0..3 {
        for client in &mut clients {
            // One request: a worker may give the connection to another one after it.
            let told = client.get("/count").body;
            let (slot, count) = told.split_once(' ').expect("two numbers");
            let slot: usize = slot.parse().expect("a slot");
            assert_eq!(count, counts[slot].to_string());
            counts[slot] += 1;
        }
    }
}

/// Sends a request for events, and reads up to the first of them.
fn listen(client: &mut Client) {
    client.ask("/events");
    let response = client.response_without_body();
    assert_eq!(response.header("transfer-encoding"), Some("chunked"));
    let chunk = b"D\r\ndata: hello\n\n\r\n";
    assert_eq!(client.take(chunk.len()), chunk);
}

const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn an_event_stream_ends_at_the_drain_and_its_connection_moves() {
    let mut server = start("routes");
    let mut client = Client::connect(server.address());
    for _ in 0..2 {
        listen(&mut client);
        server.signal(Signal::SIGHUP);
        assert_eq!(client.take(LAST_CHUNK.len()), LAST_CHUNK);
        for _ in 0..2 {
            assert_eq!(server.wait("worker_exited")["cut"], 0);
        }
        let pid = client.get("/").body.parse().expect("a pid");
        assert!(settled(&server, 2).contains(&pid), "{pid}");
    }
}

fn the_end_of_the_server_ends_event_streams() {
    let mut server = start("routes");
    let mut client = Client::connect(server.address());
    listen(&mut client);
    server.signal(Signal::SIGTERM);
    assert_eq!(client.take(LAST_CHUNK.len()), LAST_CHUNK);
    client.expect_end();
    server.end_well();
}

fn an_upload_arrives_whole_and_one_beyond_the_limit_gets_413() {
    let mut server = start("routes");
    let mut client = Client::connect(server.address());
    client.send(&upload_of(100_000));
    assert_eq!(client.response().body, "file=100000 ");
    // The limit of axum's `Multipart` is 2 MB.
    client.send(&upload_of(3_000_000));
    assert_eq!(client.response().status(), 413);
}

/// axum's `Multipart` responds with 500 to a body that it cannot read.
fn an_upload_that_stops_coming_gets_408() {
    let mut server = start("routes");
    let mut client = Client::connect(server.address());
    let upload = upload_of(100);
    client.send(&upload[..upload.len() - 50]);
    assert_eq!(client.response().status(), 408);
    client.expect_hang_up();
}

fn upload_of(size: usize) -> String {
    let part = "--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
    let body = format!("{part}{}\r\n--cut--\r\n", "x".repeat(size));
    format!(
        "POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\
         Content-Type: multipart/form-data; boundary=cut\r\n\r\n{body}",
        body.len()
    )
}

fn a_layer_around_the_router_may_want_the_body_of_axum() {
    let mut server = start("rewritten");
    let mut client = Client::connect(server.address());
    let local = client.local().to_string();
    assert_eq!(client.get("/anything").body, local);
}

fn connect_info_in_run_is_the_peer() {
    let mut server = start("run");
    let body = get_once(server.address(), "/peer").body;
    assert!(body.starts_with("127.0.0.1:"), "{body}");
}
