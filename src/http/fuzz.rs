//! Connections whose client sends any bytes, and then the end of file.
//!
//! The test uses no socket, no runtime and no clock. It polls the connection itself, so that it
//! sees at once if the connection waits for an event that never comes. The same bytes come in
//! different pieces, and the responses are taken in different pieces. The responses must not depend
//! on that, nor on whether plain requests are served directly or by hyper. The end of file comes
//! when nothing else happens, and no response may wait for it.

#[cfg(feature = "http2")]
mod rests;
mod wire;

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::service::service_fn;
use tokio::task::yield_now;

use self::wire::{Pieces, Wire};
use super::{BodyError, DateHeader, Http, Request, Server};
use crate::fuzz;
use crate::stats::{Count, WorkerStats};

/// Small limits, so that short inputs exceed them.
const BODY_MAX: u64 = 48;
const TARGET_MAX: usize = 32;
const REQUESTS_MAX: NonZeroU32 = NonZeroU32::new(20).expect("not zero");

/// Has hyper serve the rest of the connection too, also plain requests.
const NOT_PLAIN: &[u8] =
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";

/// hyper's responses to a head with too many fields, and to an invalid head. The version is that of
/// the request before.
const REFUSALS: [&str; 4] = [
    "HTTP/1.1 431 Request Header Fields Too Large\r\n\
     connection: close\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.0 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.0 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
];

#[test]
fn connections() {
    fuzz::check("http-connections", |bytes| {
        let whole = play(bytes, Pieces::Whole, options());
        assert_responses(&whole.all, bytes);
        if has_preface(bytes) {
            return;
        }
        let one_more = options().max_connection_requests(REQUESTS_MAX.saturating_add(1));
        let by_hyper = play(&[NOT_PLAIN, bytes].concat(), Pieces::Whole, one_more);
        let first = play(NOT_PLAIN, Pieces::Whole, options());
        for (by_hyper, whole) in by_hyper.each().into_iter().zip(whole.each()) {
            assert_eq!(text(by_hyper), text(&[&first.all, whole].concat()));
        }
        let seed = bytes.iter().fold(1, |seed: u64, &byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let pieces = [Pieces::Random(seed), Pieces::Bytes];
        let is_short = bytes.len() <= 256;
        for pieces in pieces.into_iter().take(if is_short { 2 } else { 1 }) {
            let responses = play(bytes, pieces, options());
            for (responses, whole) in responses.each().into_iter().zip(whole.each()) {
                let (responses, whole) = (comparable(responses, bytes), comparable(whole, bytes));
                if !(may_end_early(bytes) && is_part(&responses, &whole)) {
                    assert_eq!(responses, whole, "in {pieces:?}");
                }
            }
        }
    });
}

/// The responses without a refusal of the last head, if that head is not complete. If such a head
/// comes in one piece, hyper finds its errors and responds. If it comes in more pieces, hyper waits
/// for the end of the head, and the connection ends without a response.
fn comparable(responses: &[u8], sent: &[u8]) -> String {
    let shown = text(responses);
    let is_unfinished = !sent.ends_with(b"\n\r\n") && !sent.ends_with(b"\n\n");
    let before = REFUSALS.iter().find_map(|last| shown.strip_suffix(last));
    match before {
        Some(before) if is_unfinished => before.to_owned(),
        _ => shown,
    }
}

/// Whether the number of responses may depend on the pieces. If the handler does not read a body,
/// hyper skips the body if it has come, and else ends the connection. After a request to upgrade,
/// also a refused one, hyper does not send its last response if that takes more than one write.
fn may_end_early(bytes: &[u8]) -> bool {
    let lower = bytes.to_ascii_lowercase();
    let has = |word: &[u8]| lower.windows(word.len()).any(|part| part == word);
    has(b"/unread") || has(b"upgrade") || has(b"connect ")
}

/// Whether one is the start of the other, also without the fields by which a response says that the
/// connection ends.
fn is_part(one: &str, other: &str) -> bool {
    let is_start = |one: &str, other: &str| one.starts_with(other) || other.starts_with(one);
    let [short, long] = [one, other].map(|text| text.replace("connection: close\r\n", ""));
    is_start(one, other) || is_start(&short, &long)
}

/// Whether the bytes have the preface of HTTP/2. hyper closes the connection without a response if
/// the preface comes at once, and refuses it as an unknown version if it comes in pieces.
fn has_preface(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|part| part == b"PRI *")
}

fn options() -> Http {
    let options = Http::new()
        .date_header(DateHeader::Omitted)
        .max_target_size(TARGET_MAX)
        .max_body_size(BODY_MAX)
        .max_connection_requests(REQUESTS_MAX);
    #[cfg(feature = "http2")]
    let options = options.http2(super::Http2::Disabled);
    options
}

/// The bytes that the server has sent.
struct Responses {
    all: Vec<u8>,
    /// How many of them came before the end of file.
    before_end: usize,
}

impl Responses {
    fn each(&self) -> [&[u8]; 2] {
        [&self.all[..self.before_end], &self.all]
    }
}

/// Serves one connection to its end.
fn play(bytes: &[u8], pieces: Pieces, options: Http) -> Responses {
    let server = Server::new(options, WorkerStats::own());
    let endpoint = server.endpoint(service_fn(respond));
    let (wire, client) = Wire::new(bytes, pieces);

    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    let mut serving = pin!(endpoint.serve(wire));
    // Enough for each byte received, each piece sent, and the rounds between them.
    let mut rounds = 1000 + 16 * bytes.len();
    let mut before_end = None;
    while serving.as_mut().poll(&mut cx) == Poll::Pending {
        if !woken.0.swap(false, Relaxed) {
            assert_eq!(before_end, None, "it waits for no event");
            before_end = Some(client.end());
        }
        rounds = rounds.checked_sub(1).expect("it ends");
    }
    assert_eq!(server.connections(), 0);
    assert_eq!(server.count(Count::Panics), 0);
    let all = client.take();
    Responses {
        before_end: before_end.unwrap_or(all.len()),
        all,
    }
}

/// The response has the request in a field and has no body, so that responses are easy to separate.
async fn respond(request: Request) -> Result<Response<Empty<Bytes>>, BodyError> {
    let (head, body) = request.into_parts();
    let mut response = Response::new(Empty::new());
    if head.method == Method::CONNECT {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return Ok(response);
    }
    match head.uri.path() {
        "/unread" => return Ok(response),
        // Not plain, which the server finds out after the handler has responded.
        "/none" => *response.status_mut() = StatusCode::NO_CONTENT,
        "/wait" => yield_now().await,
        _ => {}
    }
    let body = body.collect().await?.to_bytes();
    assert!(body.len() as u64 <= BODY_MAX);
    let received = format!("{} {} {}", head.method, head.uri, body.escape_ascii());
    if let Ok(received) = HeaderValue::from_str(&received) {
        response.headers_mut().insert("x-received", received);
    }
    Ok(response)
}

/// The server sends only heads: at most one for each head that was sent, and a last refusal. No
/// head follows one with `connection: close`.
fn assert_responses(responses: &[u8], sent: &[u8]) {
    let shown = text(responses);
    let mut finals = 0;
    let mut is_over = false;
    for head in shown.split_inclusive("\r\n\r\n") {
        assert!(!is_over, "something follows the last response: {shown}");
        let is_head = head.starts_with("HTTP/1.") && head.ends_with("\r\n\r\n");
        assert!(is_head, "not a whole response: {shown}");
        if !head.starts_with("HTTP/1.1 100 ") {
            finals += 1;
        }
        is_over = head.contains("\r\nconnection: close\r\n");
    }
    let is_blank_line = |at: usize| {
        let rest = &sent[at + 1..];
        sent[at] == b'\n' && (rest.starts_with(b"\n") || rest.starts_with(b"\r\n"))
    };
    let heads = (0..sent.len()).filter(|&at| is_blank_line(at)).count();
    assert!(
        finals <= heads + 1,
        "{finals} responses to {heads} heads: {shown}"
    );
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether the waker was called.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}
