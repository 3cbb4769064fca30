//! The row in this process. It is plain hyper as long as our connection path has no way in from
//! outside that takes a stream from memory; [`ours_in_memory`] is where that belongs, and [`NAME`]
//! then says so.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use nix::sys::resource::{UsageWho, getrusage};
use tokio::runtime::Builder;

use super::{PerConnection, REQUEST, Requests};
use crate::peer::BODY;
use crate::process::Trouble;

/// What is measured here.
pub(super) const NAME: &str = "hyper";

/// Nanoseconds of user and system time per request.
pub(super) fn ours_in_memory(length: PerConnection, requests: Requests) -> Result<f64, Trouble> {
    let runtime = Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let answer = AnswerLength(serve_one(Requests(1), AnswerLength(1)).await?);
        // A tenth of it first, so that pools are filled.
        serve(length, Requests(requests.0 / 10 + 1), answer).await?;
        let before = used()?;
        serve(length, requests, answer).await?;
        let used = used()? - before;
        Ok(used.as_nanos() as f64 / requests.0 as f64)
    })
}

/// Answers `requests`, so many on each connection.
async fn serve(
    length: PerConnection,
    requests: Requests,
    answer: AnswerLength,
) -> Result<(), Trouble> {
    let mut left = requests.0;
    while left > 0 {
        let of_this_one = length.0.min(left);
        left -= of_this_one;
        serve_one(Requests(of_this_one), answer).await?;
    }
    Ok(())
}

/// Gives the bytes of all answers.
async fn serve_one(requests: Requests, answer: AnswerLength) -> Result<u64, Trouble> {
    let mut stream = Memory::new(requests, answer);
    let served = http1::Builder::new()
        .serve_connection(&mut stream, service_fn(hello))
        .await;
    served.map_err(|error| Trouble::Stuck(error.to_string()))?;
    Ok(stream.answered)
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(BODY.as_bytes())));
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    Ok(response)
}

fn used() -> Result<Duration, Trouble> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let times = [usage.user_time(), usage.system_time()];
    let micros = times.map(|it| it.tv_sec() * 1_000_000 + it.tv_usec());
    Ok(Duration::from_micros(
        micros.iter().sum::<i64>().unsigned_abs(),
    ))
}

/// The bytes of one answer. All are alike but for the date, which is always as long.
#[derive(Clone, Copy)]
struct AnswerLength(u64);

/// A client that sends all it has to say at once, reads everything, and then leaves.
struct Memory {
    left: u64,
    /// How much of the next request has been read.
    at: usize,
    /// In bytes, as is what all answers come to.
    answered: u64,
    expected: u64,
    /// Who waits for another request.
    reader: Option<Waker>,
}

impl Memory {
    fn new(requests: Requests, answer: AnswerLength) -> Self {
        Self {
            left: requests.0,
            at: 0,
            answered: 0,
            expected: requests.0 * answer.0,
            reader: None,
        }
    }
}

impl Read for Memory {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 && self.answered < self.expected {
            // To leave before the last answer would cut it off.
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        while room.remaining() > 0 && self.left > 0 {
            let rest = &REQUEST.as_bytes()[self.at..];
            let count = rest.len().min(room.remaining());
            room.put_slice(&rest[..count]);
            self.at += count;
            if self.at == REQUEST.len() {
                self.at = 0;
                self.left -= 1;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Memory {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.answered += bytes.len() as u64;
        if self.answered >= self.expected
            && let Some(reader) = self.reader.take()
        {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
