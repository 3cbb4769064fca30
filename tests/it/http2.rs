//! HTTP/2 across processes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use h2::client::{SendRequest, handshake};
use nix::sys::signal::Signal;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::placing::assert_even;
use crate::support::{Server, until};

tests! {
    a_reload_loses_no_request,
    connections_are_spread_evenly,
}

/// Clients send requests until they get GOAWAY, and then connect again. Each request gets its
/// response, whichever worker drains.
fn a_reload_loses_no_request() {
    let mut server = Server::start(&["--respond", "hi", "--delay", "1ms"]);
    let address = server.address();
    let done = Arc::new(AtomicBool::new(false));
    let responses = Arc::new(AtomicUsize::new(0));
    let connections = Arc::new(AtomicUsize::new(0));
    let clients = {
        let (done, responses) = (Arc::clone(&done), Arc::clone(&responses));
        let connections = Arc::clone(&connections);
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut clients = JoinSet::new();
                for _ in 0..4 {
                    let (done, responses) = (Arc::clone(&done), Arc::clone(&responses));
                    let connections = Arc::clone(&connections);
                    clients.spawn(async move {
                        while !done.load(Ordering::Relaxed) {
                            connections.fetch_add(1, Ordering::Relaxed);
                            ask_until_told_to_go(address, &done, &responses).await;
                        }
                    });
                }
                clients.join_all().await;
            });
        })
    };
    let more = |responses: &AtomicUsize| {
        let wanted = responses.load(Ordering::Relaxed) + 100;
        until(|| responses.load(Ordering::Relaxed) >= wanted);
    };
    for reloads in 1..=2 {
        more(&responses);
        server.signal(Signal::SIGHUP);
        server.wait("reload_finished");
        // Each client has got GOAWAY and has connected again.
        until(|| connections.load(Ordering::Relaxed) >= 4 + 4 * reloads);
    }
    more(&responses);
    done.store(true, Ordering::Relaxed);
    clients.join().expect("every request is answered");
    server.signal(Signal::SIGTERM);
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let mut exits = ended.notices.iter();
    assert!(exits.all(|notice| notice["cut"].as_u64().unwrap_or(0) == 0));
}

/// Eight requests at a time.
async fn ask_until_told_to_go(address: SocketAddr, done: &AtomicBool, responses: &AtomicUsize) {
    let stream = TcpStream::connect(address)
        .await
        .expect("the server accepts");
    let (requests, connection) = handshake(stream).await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    while !done.load(Ordering::Relaxed) {
        let mut asked = JoinSet::new();
        for _ in 0..8 {
            // An error is the server's GOAWAY. No request was sent.
            let Ok(requests) = requests.clone().ready().await else {
                break;
            };
            asked.spawn(ask(requests));
        }
        if asked.is_empty() {
            break;
        }
        let count = asked.join_all().await.into_iter().sum::<usize>();
        responses.fetch_add(count, Ordering::Relaxed);
    }
    drop(requests);
    connection.await.expect("no panic").expect("an orderly end");
}

/// The number of responses: 1, or 0 if GOAWAY comes before the request has left. The client then
/// sends the request after its PONG, so the final GOAWAY does not include it, and the client may
/// repeat it on another connection (RFC 9113 6.8). A request that the server accepts and does not
/// respond to fails with another error.
async fn ask(mut requests: SendRequest<Bytes>) -> usize {
    let request = http::Request::get("http://test/").body(());
    let sent = requests.send_request(request.expect("a request"), true);
    let Ok((response, _)) = sent else {
        return 0;
    };
    let response = match response.await {
        Ok(response) => response,
        Err(error) if error.is_go_away() && error.is_remote() => {
            assert_eq!(error.reason(), Some(h2::Reason::NO_ERROR));
            return 0;
        }
        Err(error) => panic!("a request got no response: {error}"),
    };
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    assert_eq!(body.data().await.expect("a body").expect("whole"), "hi");
    1
}

/// The first bytes show that a connection speaks HTTP/2. It is placed before they come.
fn connections_are_spread_evenly() {
    let mut server = Server::start(&["--respond", "hi", "--worker-header"]);
    let address = server.address();
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let (mut open, mut workers) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let stream = TcpStream::connect(address).await.expect("it listens");
            let (mut requests, connection) = handshake(stream).await.expect("HTTP/2");
            tokio::spawn(connection);
            let request = http::Request::get("http://test/").body(());
            let sent = requests.send_request(request.expect("a request"), true);
            let response = sent.expect("it is open").0.await.expect("a response");
            workers.push(response.headers()["x-prefork-worker"].clone());
            open.push(requests);
        }
        let workers = workers.iter().map(|worker| worker.as_bytes());
        assert_even(&server, workers);
    });
}
