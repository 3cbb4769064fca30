//! HTTP/2, with a client of the h2 crate and with a client that sends raw frames.

mod abuse;
mod budget;
mod deadlines;
mod draining;
mod early_responses;
mod handlers;
mod moving;
mod protocol;
mod rest;
mod uploads;

use h2::client::{self, ResponseFuture, SendRequest};

use super::gate::Gate;
use super::run::let_turn;
use super::*;
use crate::stats::Count;

/// A client of the h2 crate. A task drives its connection and returns the result.
struct Http2Client {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Http2Client {
    async fn connect(host: &Host) -> Self {
        Self::connect_as(host, &client::Builder::new()).await
    }

    async fn connect_as(host: &Host, builder: &client::Builder) -> Self {
        let stream = host.connect().await.stream;
        let (requests, connection) = builder.handshake(stream).await.expect("a handshake");
        Self {
            requests,
            connection: spawn_local(connection),
        }
    }

    /// Sends a request without a body.
    async fn ask(&mut self, path: &str) -> ResponseFuture {
        let request = http::Request::get(format!("http://test{path}"));
        self.send(request, true).await.0
    }

    /// Sends the head of a request. The body follows later.
    async fn post(&mut self, path: &str) -> (ResponseFuture, h2::SendStream<Bytes>) {
        let request = http::Request::post(format!("http://test{path}"));
        self.send(request, false).await
    }

    async fn send(
        &mut self,
        head: http::request::Builder,
        is_whole: bool,
    ) -> (ResponseFuture, h2::SendStream<Bytes>) {
        let requests = self.requests.clone().ready().await;
        self.requests = requests.expect("the connection is open");
        let head = head.body(()).expect("a request");
        let sent = self.requests.send_request(head, is_whole);
        sent.expect("the connection is open")
    }

    async fn hello(&mut self) {
        let response = whole(self.ask("/hello").await).await;
        let (status, body) = response.expect("a response");
        assert_eq!((status, &*body), (200, "hello"));
    }

    /// Closes the client and returns how the connection ended.
    async fn end(self) -> Result<(), h2::Error> {
        drop(self.requests);
        self.connection.await.expect("no panic")
    }
}

/// Reads a response to its end: its status and its body.
async fn whole(response: ResponseFuture) -> Result<(u16, String), h2::Error> {
    let (head, mut body) = response.await?.into_parts();
    let mut text = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        text.extend_from_slice(&piece);
    }
    Ok((head.status.as_u16(), String::from_utf8(text).expect("text")))
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const PING_LEN: usize = 9 + 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// GET http://t/ (RFC 7541, from the static table except the authority).
const GET: &[u8] = b"\x82\x86\x84\x41\x01t";

#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// A frame's bytes (RFC 9113 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("a small payload");
    let mut bytes = len.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, GET)
}

/// A window of this stream, or of the connection, that is so much larger.
fn more(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// A client that has sent its preface and these settings.
async fn raw(host: &Host, settings: &[u8]) -> Client {
    let mut client = host.connect().await;
    client
        .send([PREFACE, &frame(SETTINGS, 0, 0, settings)].concat())
        .await;
    client
}

impl Client {
    /// The next frame. `None` at the end of the connection, also after a reset.
    async fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// The next frame of this kind that is no acknowledgement.
    async fn next(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.frame().await.expect("the connection is open");
            let is_ack = matches!(frame.kind, SETTINGS | PING) && frame.flags & ACK != 0;
            if frame.kind == kind && !is_ack {
                return frame;
            }
        }
    }

    /// The next frame of one of these kinds.
    async fn one_of(&mut self, kinds: &[u8]) -> Frame {
        loop {
            let frame = self.frame().await.expect("the connection is open");
            if kinds.contains(&frame.kind) {
                return frame;
            }
        }
    }

    /// The last stream that the next GOAWAY names, and its error code.
    async fn next_goaway(&mut self) -> (u32, u32) {
        let payload = self.next(GOAWAY).await.payload;
        (number(&payload[..4]), number(&payload[4..8]))
    }

    /// The error code of the next GOAWAY.
    async fn goaway(&mut self) -> u32 {
        self.next_goaway().await.1
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

/// One setting (RFC 9113 6.5.1).
fn setting(identifier: u16, value: u32) -> Vec<u8> {
    [&identifier.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// Enough ticks for a connection to go to rest, if it can. Less than the shortest timeout.
const TICKS: usize = 16;

/// Lets a second and more pass, in which the event loop runs too.
async fn pass_time(host: &Host) {
    for _ in 0..TICKS {
        tick(host).await;
    }
}

/// Sends bytes, and waits until the server has read them.
async fn send_and_wait(client: &mut Client, host: &Host, bytes: &[u8]) {
    let read = host.server.count(Count::BytesIn) + bytes.len() as u64;
    client.send(bytes).await;
    until(|| host.server.count(Count::BytesIn) >= read).await;
}
