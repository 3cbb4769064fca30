//! Connections that become WebSockets (RFC 6455). A drain sends them Going Away, and cuts those
//! that do not close.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::routing::get as get_route;
use http_body_util::BodyExt;
use hyper::header::{CONNECTION, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use nix::sys::signal::Signal;
use prefork_server::{Error, Http, Request, Response, Worker, handler};
use tokio::io::{AsyncWriteExt, copy, split};

use crate::apps;
use crate::client::{Client, get};
use crate::support::{CEILING, Server, descriptors, pid_of, until};

tests! {
    messages_are_echoed_and_a_closed_connection_leaves_nothing_behind,
    a_connection_whose_upgrade_is_refused_stays_http,
    a_reload_sends_going_away_to_websockets_and_to_no_other_connection,
    a_websocket_client_that_does_not_close_is_cut_after_the_grace,
}

/// The grace of the app `hasty_websocket`.
pub(crate) const HASTY: Duration = Duration::from_secs(1);

/// Echoes messages at `/ws`, and responds with its pid on other paths. Its drain timeout is longer
/// than any test.
pub(crate) fn app(grace: Duration) -> Result<(), Error> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    apps::server()
        .workers(1)
        .drain_timeout(CEILING * 3)
        .http(Http::new().upgrade_grace(grace))
        .serve(async |worker: Worker| {
            let echo = async move |upgrade: WebSocketUpgrade| {
                let drain = worker.drain();
                upgrade.on_upgrade(move |socket| echo(socket, drain))
            };
            let pid = std::process::id().to_string();
            let router = Router::new().route("/", get_route(async move || pid));
            Ok(router.route("/ws", get_route(echo)))
        })
}

async fn echo(mut socket: WebSocket, drain: impl Future<Output = ()>) {
    let mut drain = pin!(drain);
    loop {
        let message = tokio::select! {
            () = &mut drain => break,
            message = socket.recv() => message,
        };
        match message {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                if socket.send(message).await.is_err() {
                    return;
                }
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
    let close = CloseFrame {
        code: close_code::AWAY,
        reason: "".into(),
    };
    if socket.send(Message::Close(Some(close))).await.is_ok() {
        while let Some(Ok(_)) = socket.recv().await {}
    }
}

/// Sends back at `/tunnel` what comes after an upgrade, until the client ends its half. A POST gets
/// its body, and any other request the worker's pid.
pub(crate) fn tunnel() -> Result<(), Error> {
    let http = Http::new().upgrade_grace(CEILING);
    let server = apps::server().workers(1).drain_timeout(CEILING * 3);
    server.http(http).serve(async |_worker| {
        Ok(handler(async |mut request: Request| {
            if request.uri().path() == "/tunnel" {
                tokio::task::spawn_local(send_back(hyper::upgrade::on(&mut request)));
                let mut response = Response::new("".into());
                *response.status_mut() = hyper::StatusCode::SWITCHING_PROTOCOLS;
                let fields = response.headers_mut();
                fields.insert(CONNECTION, "upgrade".parse()?);
                fields.insert(UPGRADE, "echo".parse()?);
                return Ok(response);
            }
            let body = request.into_body().collect().await?.to_bytes();
            let pid = std::process::id().to_string();
            Ok(Response::new(match body.is_empty() {
                true => pid.into(),
                false => body.into(),
            }))
        }))
    })
}

async fn send_back(upgrade: OnUpgrade) {
    let tunnel = TokioIo::new(upgrade.await.expect("the response switches"));
    let (mut from, mut to) = split(tunnel);
    if copy(&mut from, &mut to).await.is_ok() {
        // Fails if the client has gone.
        let _ = to.shutdown().await;
    }
}

/// The handshake of RFC 6455 1.3.
const OFFER: &str = "Host: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Version: 13\r\n\
                     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The opcode of a frame (RFC 6455 11.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

/// A client that writes and reads single frames.
pub(crate) struct Talk<S = TcpStream>(pub(crate) Client<S>);

impl Talk {
    fn begin(address: SocketAddr) -> Self {
        Self::on(Client::connect(address))
    }
}

impl<S: Read + Write> Talk<S> {
    pub(crate) fn on(mut client: Client<S>) -> Self {
        client.send(&format!("GET /ws HTTP/1.1\r\n{OFFER}"));
        let response = client.response_without_body();
        assert_eq!(response.status(), 101, "{}", response.head);
        assert_eq!(response.header("sec-websocket-accept"), Some(ACCEPT));
        Self(client)
    }

    fn say(&mut self, kind: Kind, payload: &[u8]) {
        self.0.send_bytes(&frame(kind, payload));
    }

    /// Reads the server's next frame, which must be this one.
    fn expect(&mut self, kind: Kind, payload: &[u8]) {
        let head = self.0.take(2);
        assert_eq!(head[0], 0x80 | kind as u8, "whole, and of this kind");
        assert_eq!(usize::from(head[1]), payload.len(), "short and not masked");
        assert_eq!(self.0.take(payload.len()), payload);
    }

    pub(crate) fn is_echoed(&mut self) {
        self.say(Kind::Text, b"still there?");
        self.expect(Kind::Text, b"still there?");
    }

    pub(crate) fn expect_close(&mut self) {
        self.expect(Kind::Close, &AWAY);
    }

    /// Sends its own Close after the server's.
    pub(crate) fn leave(mut self) {
        self.say(Kind::Close, &AWAY);
        self.0.expect_end();
    }
}

/// 1001, going away (RFC 6455 7.4.1).
const AWAY: [u8; 2] = 1001_u16.to_be_bytes();

/// A frame as a client sends it: masked.
fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x5a, 0xc3, 0x0f, 0x96];
    let mut frame = vec![0x80 | kind as u8];
    match u16::try_from(payload.len()).expect("not that long") {
        len @ ..126 => frame.push(0x80 | u8::try_from(len).expect("below 126")),
        len => {
            frame.push(0x80 | 126);
            frame.extend(len.to_be_bytes());
        }
    }
    frame.extend(MASK);
    let masked = payload.iter().zip(MASK.iter().cycle());
    frame.extend(masked.map(|(byte, mask)| byte ^ mask));
    frame
}

fn messages_are_echoed_and_a_closed_connection_leaves_nothing_behind() {
    let mut server = Server::start_app("websocket");
    let worker = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let mut plain = Client::connect(address);
    plain.get("/");
    let before = descriptors(worker);
    let mut talks = [0; 3].map(|_| Talk::begin(address));
    for talk in &mut talks {
        talk.is_echoed();
        talk.say(Kind::Binary, &[0, 255, 7]);
        talk.expect(Kind::Binary, &[0, 255, 7]);
        talk.say(Kind::Ping, b"tick");
        talk.expect(Kind::Pong, b"tick");
    }
    assert_eq!(descriptors(worker), before + 3);
    let [mut closes, drops, _stays] = talks;
    closes.say(Kind::Close, &AWAY);
    closes.expect(Kind::Close, &AWAY);
    closes.0.expect_end();
    drop(drops);
    until(|| descriptors(worker) == before + 1);
    assert_eq!(plain.get("/").body, worker.to_string());
}

fn a_connection_whose_upgrade_is_refused_stays_http() {
    let mut server = Server::start_app("websocket");
    let mut client = Client::connect(server.address());
    for _ in 0..3 {
        client.send(&format!("GET / HTTP/1.1\r\n{OFFER}"));
        assert_eq!(client.response().status(), 200);
        // This request has no handshake, so it is refused.
        assert!(client.get("/ws").head.starts_with("HTTP/1.1 4"));
    }
}

fn a_reload_sends_going_away_to_websockets_and_to_no_other_connection() {
    let mut server = Server::start_app("websocket");
    let first = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let mut plain = Client::connect(address);
    assert_eq!(plain.get("/").body, first.to_string());
    let mut talks = [0; 2].map(|_| Talk::begin(address));
    talks.iter_mut().for_each(Talk::is_echoed);
    server.signal(Signal::SIGHUP);
    let next = pid_of(&server.wait("worker_ready"));
    talks.iter_mut().for_each(Talk::expect_close);
    let [left, stays] = talks;
    left.leave();
    // The next worker serves the other connections while one WebSocket has not closed yet.
    assert_eq!(plain.get("/").body, next.to_string());
    let mut later = Talk::begin(address);
    later.is_echoed();
    assert!(
        server.workers().contains(&first),
        "it waits for the other WebSocket"
    );
    stays.leave();
    let exited = server.wait("worker_exited");
    assert_eq!(pid_of(&exited), first);
    assert_eq!(
        (&exited["status"], &exited["cut"]),
        (&"exit 0".into(), &0.into())
    );
    later.is_echoed();
    server.signal(Signal::SIGTERM);
    later.expect_close();
    later.leave();
    let ended = server.end_well();
    assert_eq!(ended.notices.last().expect("some")["upgrades_cut"], 0);
}

fn a_websocket_client_that_does_not_close_is_cut_after_the_grace() {
    let mut server = Server::start_app("hasty_websocket");
    let first = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let mut silent = Talk::begin(address);
    let mut closes = Talk::begin(address);
    let mut stuck = Talk::begin(address);
    // This client sends and does not read, so the server's task is blocked in sending.
    stuck
        .0
        .send_until_blocked(&frame(Kind::Binary, &[0; 60_000]));
    let asked = Instant::now();
    server.signal(Signal::SIGHUP);
    closes.expect_close();
    closes.leave();
    silent.expect_close();
    silent.0.expect_end();
    assert!(asked.elapsed() >= HASTY, "{:?}", asked.elapsed());
    let exited = server.wait("worker_exited");
    assert_eq!(
        (pid_of(&exited), &exited["status"]),
        (first, &"exit 0".into())
    );
    assert_eq!(exited["cut"], 0, "no connection was open at its end");
    assert_ne!(get(address, "/").body, first.to_string());
    let ended = server.stop();
    assert_eq!(ended.notices.last().expect("some")["upgrades_cut"], 2);
    assert!(ended.log.contains("open=0 upgraded=2"), "{}", ended.log);
}
