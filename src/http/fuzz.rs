//! Any bytes as all that a client ever sends, up to its end of file.
//!
//! No socket, no runtime and no clock take part: the connection is polled by hand, so that one that
//! waits for what never comes is seen at once. The same bytes are brought in different pieces, and
//! answers taken in different pieces; what is answered must not depend on that, nor on who serves
//! what is plain.

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
use crate::stats::WorkerStats;

/// Small enough to be broken by short inputs.
const BODY_MAX: u64 = 48;
const TARGET_MAX: usize = 32;
const REQUESTS_MAX: NonZeroU32 = NonZeroU32::new(20).expect("not zero");

/// What hyper says to what is no head, and to one of too many fields, by the version of the request
/// before it.
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
        assert_answers(&whole, bytes);
        let by_hyper = Http {
            by_hyper: true,
            ..options()
        };
        assert_eq!(text(&play(bytes, Pieces::Whole, by_hyper)), text(&whole));
        if has_preface(bytes) {
            return;
        }
        let seed = bytes.iter().fold(1, |seed: u64, &byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let pieces = [Pieces::Random(seed), Pieces::Bytes];
        let is_short = bytes.len() <= 256;
        for pieces in pieces.into_iter().take(if is_short { 2 } else { 1 }) {
            let answers = play(bytes, pieces, options());
            let (answers, whole) = (comparable(&answers, bytes), comparable(&whole, bytes));
            let is_part = answers.starts_with(&whole) || whole.starts_with(&answers);
            if !(is_part && may_end_early(bytes)) {
                assert_eq!(answers, whole, "in {pieces:?}");
            }
        }
    });
}

/// Of a head that does not come to its end hyper finds out what is wrong with it if it comes in one
/// piece, and else waits for the end. Then the client is gone, and is not told.
fn comparable(answers: &[u8], sent: &[u8]) -> String {
    let shown = text(answers);
    let is_unfinished = !sent.ends_with(b"\n\r\n") && !sent.ends_with(b"\n\n");
    let before = REFUSALS.iter().find_map(|last| shown.strip_suffix(last));
    match before {
        Some(before) if is_unfinished => before.to_owned(),
        _ => shown,
    }
}

/// A body that nobody reads is read past if it is there, and else ends the connection. And after a
/// request to upgrade, though it was refused, hyper does not send its last words if that takes more
/// than one write.
fn may_end_early(bytes: &[u8]) -> bool {
    let lower = bytes.to_ascii_lowercase();
    let says = |word: &[u8]| lower.windows(word.len()).any(|part| part == word);
    says(b"/unread") || says(b"upgrade") || says(b"connect ")
}

/// Of HTTP/2: hyper hangs up on one that comes at once, and refuses one that comes in pieces as a
/// version it does not know.
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

/// Serves one connection to its end, and tells what was answered.
fn play(bytes: &[u8], pieces: Pieces, options: Http) -> Vec<u8> {
    let server = Server::new(options, WorkerStats::own());
    let front = server.endpoint(service_fn(answer));
    let (wire, answers) = Wire::new(bytes, pieces);

    let alarm = Arc::new(Alarm::default());
    let waker = Waker::from(Arc::clone(&alarm));
    let mut cx = Context::from_waker(&waker);
    let mut life = pin!(front.serve(wire));
    // For each byte that comes, each piece that goes, and each round between two of them.
    let mut rounds = 1000 + 16 * bytes.len();
    while life.as_mut().poll(&mut cx) == Poll::Pending {
        assert!(alarm.0.swap(false, Relaxed), "it waits for nobody");
        rounds = rounds.checked_sub(1).expect("it comes to an end");
    }
    assert_eq!(server.connections(), 0);
    assert_eq!(server.counts().panics, 0);
    answers.take()
}

/// Tells what it was asked, and has no body, so that answers are easy to tell apart.
async fn answer(request: Request) -> Result<Response<Empty<Bytes>>, BodyError> {
    let (head, body) = request.into_parts();
    let mut response = Response::new(Empty::new());
    if head.method == Method::CONNECT {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return Ok(response);
    }
    match head.uri.path() {
        "/unread" => return Ok(response),
        // Not plain, which is known when the handler has answered.
        "/none" => *response.status_mut() = StatusCode::NO_CONTENT,
        "/wait" => yield_now().await,
        _ => {}
    }
    let body = body.collect().await?.to_bytes();
    assert!(body.len() as u64 <= BODY_MAX);
    let heard = format!("{} {} {}", head.method, head.uri, body.escape_ascii());
    if let Ok(heard) = HeaderValue::from_str(&heard) {
        response.headers_mut().insert("x-heard", heard);
    }
    Ok(response)
}

/// What is answered is heads and nothing else, no more of them than were sent but for a last
/// refusal, and none after a connection's last.
fn assert_answers(answers: &[u8], sent: &[u8]) {
    let shown = text(answers);
    let mut finals = 0;
    let mut is_over = false;
    for head in shown.split_inclusive("\r\n\r\n") {
        assert!(!is_over, "something follows the last answer: {shown}");
        let is_head = head.starts_with("HTTP/1.") && head.ends_with("\r\n\r\n");
        assert!(is_head, "half an answer: {shown}");
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
        "{finals} answers to {heads} heads: {shown}"
    );
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Has been asked to poll again.
#[derive(Default)]
struct Alarm(AtomicBool);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}
