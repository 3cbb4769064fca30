//! HTTP/2 across processes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest, handshake};
use nix::sys::signal::Signal;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::https::Authority;
use crate::placing::{assert_even, until_they_know_each_other};
use crate::support::{CEILING, Server, until};
use crate::tls::{self, VERSIONS};

tests! {
    connections_move_in_a_reload,
    connections_within_tls_move_in_a_reload,
    busy_connections_of_one_worker_are_spread_over_both,
    connections_are_spread_evenly,
}

const CLIENTS: usize = 4;
const RELOADS: usize = 3;
const ARGUMENTS: &[&str] = &["--respond", "hi", "--delay", "1ms", "--worker-header"];

/// They move to the next workers with their clients' header tables and windows, and no client gets
/// GOAWAY.
fn connections_move_in_a_reload() {
    reload_beside_clients(Server::start(ARGUMENTS), None);
}

fn connections_within_tls_move_in_a_reload() {
    for version in VERSIONS {
        let authority = Authority::new();
        let server = tls::start(&authority, ARGUMENTS);
        let config = Arc::new(authority.client(version).http2());
        reload_beside_clients(server, Some(config.into()));
    }
}

/// What one client has used.
#[derive(Default)]
struct Used {
    connections: usize,
    workers: BTreeSet<Vec<u8>>,
}

fn reload_beside_clients(mut server: Server, tls: Option<TlsConnector>) {
    let address = server.address();
    let progress = Arc::new(Progress::default());
    let clients = {
        let progress = Arc::clone(&progress);
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let clients = (0..CLIENTS).map(|number| {
                    let (progress, tls) = (Arc::clone(&progress), tls.clone());
                    async move { ask_until_over(address, tls, number, &progress).await }
                });
                clients.collect::<JoinSet<_>>().join_all().await
            })
        })
    };
    for _ in 0..RELOADS {
        progress.wait_for_more(&clients);
        server.signal(Signal::SIGHUP);
        for _ in 0..2 {
            assert_eq!(server.wait("worker_exited")["cut"], 0);
        }
    }
    progress.wait_for_more(&clients);
    progress.over.store(true, Ordering::Relaxed);
    let used = clients.join().expect("every request is answered");
    server.stop();
    for used in used {
        assert_eq!(used.connections, 1);
        // One of each generation.
        assert!(used.workers.len() > RELOADS, "{:?}", used.workers);
    }
}

#[derive(Default)]
struct Progress {
    responses: AtomicUsize,
    over: AtomicBool,
}

impl Progress {
    fn wait_for_more<T>(&self, clients: &JoinHandle<T>) {
        let wanted = self.responses.load(Ordering::Relaxed) + 100;
        until(|| clients.is_finished() || self.responses.load(Ordering::Relaxed) >= wanted);
    }
}

async fn ask_until_over(
    address: SocketAddr,
    tls: Option<TlsConnector>,
    number: usize,
    progress: &Progress,
) -> Used {
    let mut used = Used::default();
    while !progress.over.load(Ordering::Relaxed) {
        used.connections += 1;
        let stream = TcpStream::connect(address).await.expect("it listens");
        match &tls {
            None => ask_until_goaway(stream, number, progress, &mut used).await,
            Some(tls) => {
                let name = ServerName::try_from("localhost").expect("a name");
                let stream = tls.connect(name, stream).await.expect("a handshake");
                ask_until_goaway(stream, number, progress, &mut used).await;
            }
        }
    }
    used
}

/// Eight requests at a time, each with a field that no other has.
async fn ask_until_goaway<I>(stream: I, number: usize, progress: &Progress, used: &mut Used)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (requests, connection) = handshake(stream).await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    while !progress.over.load(Ordering::Relaxed) {
        let mut asked = JoinSet::new();
        for _ in 0..8 {
            // An error is the server's GOAWAY. No request was sent.
            let Ok(requests) = requests.clone().ready().await else {
                break;
            };
            let count = progress.responses.load(Ordering::Relaxed);
            asked.spawn(ask(requests, format!("{number}-{count}")));
        }
        if asked.is_empty() {
            break;
        }
        for worker in asked.join_all().await.into_iter().flatten() {
            used.workers.insert(worker);
            progress.responses.fetch_add(1, Ordering::Relaxed);
        }
    }
    drop(requests);
    connection.await.expect("no panic").expect("an orderly end");
}

/// The worker that has responded, or `None` if GOAWAY comes before the request has left. The client
/// then sends the request after its PONG, so the final GOAWAY does not include it, and the client
/// may repeat it on another connection (RFC 9113 6.8). A request that the server accepts and does
/// not respond to fails with another error.
async fn ask(mut requests: SendRequest<Bytes>, id: String) -> Option<Vec<u8>> {
    let request = http::Request::get("http://test/").header("x-request-id", id);
    let sent = requests.send_request(request.body(()).expect("a request"), true);
    let response = match sent.ok()?.0.await {
        Ok(response) => response,
        Err(error) if error.is_go_away() && error.is_remote() => {
            assert_eq!(error.reason(), Some(h2::Reason::NO_ERROR));
            return None;
        }
        Err(error) => panic!("a request got no response: {error}"),
    };
    assert_eq!(response.status(), 200);
    let worker = response.headers()["x-prefork-worker"].as_bytes().to_vec();
    let mut body = response.into_body();
    assert_eq!(body.data().await.expect("a body").expect("whole"), "hi");
    Some(worker)
}

/// A new connection, and the worker that serves it.
async fn speak(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let (requests, connection) = handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    requests
}

async fn connect(address: SocketAddr) -> (SendRequest<Bytes>, String) {
    let mut requests = speak(address).await;
    let worker = worker(&mut requests).await;
    (requests, worker)
}

async fn worker(requests: &mut SendRequest<Bytes>) -> String {
    let request = http::Request::get("http://test/").body(());
    let sent = requests.send_request(request.expect("a request"), true);
    worker_of(sent.expect("it is open").0).await
}

async fn worker_of(response: ResponseFuture) -> String {
    let response = response.await.expect("a response");
    let worker = response.headers()["x-prefork-worker"].to_str();
    worker.expect("text").to_owned()
}

fn busy_connections_of_one_worker_are_spread_over_both() {
    let mut server = Server::start(&["--respond", "hi", "--worker-header"]);
    let address = server.address();
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut clients = Vec::new();
        let (first, one) = connect(address).await;
        clients.push(first);
        while clients.len() < 4 {
            let (client, worker) = connect(address).await;
            if worker == one {
                clients.push(client);
            }
        }
        let begun = Instant::now();
        let mut here = 4;
        while here != 2 {
            assert!(begun.elapsed() < CEILING, "no connection moves");
            here = 0;
            for client in &mut clients {
                here += usize::from(worker(client).await == one);
            }
        }
    });
    server.stop();
}

/// The first bytes show that a connection speaks HTTP/2. It is placed before they come. All have an
/// open request: one that rests, for a second or longer, is no load.
fn connections_are_spread_evenly() {
    let mut server = Server::start(&["--echo", "--worker-header"]);
    let address = server.address();
    until_they_know_each_other(&server);
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let (mut open, mut workers) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let mut requests = speak(address).await;
            let upload = http::Request::post("http://test/").body(());
            let sent = requests.send_request(upload.expect("a request"), false);
            let (response, mut upload) = sent.expect("it is open");
            upload.send_data("begun".into(), false).expect("it is open");
            workers.push(worker_of(response).await);
            open.push((requests, upload));
        }
        let workers = workers.iter().map(|worker| worker.as_bytes());
        assert_even(&server, workers);
    });
}
