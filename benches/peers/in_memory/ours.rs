//! The rows in this process: our connection path, and plain hyper on the same stream.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{self, ReadBufCursor};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use nix::sys::resource::{UsageWho, getrusage};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, LocalOptions};

use super::{PerConnection, REQUEST, Requests};
use crate::address::{Address, Peer};
use crate::http::{Closed, ConnectionInfo, Front, Http, Server, Socket, reply};
use crate::peer::BODY;
use crate::process::Trouble;
use crate::stats::WorkerStats;

/// Who serves.
#[derive(Clone, Copy)]
pub(super) enum Path {
    Ours,
    Hyper,
}

/// Nanoseconds of user and system time per request.
pub(super) fn in_this_process(
    path: Path,
    length: PerConnection,
    requests: Requests,
) -> Result<f64, Trouble> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    // Our clock lives in it, and stands still.
    let _runtime = runtime.enter();
    let host = Host::new(path);
    let answer = AnswerLength(host.serve_one(Requests(1), AnswerLength(1))?);
    // A tenth of it first, so that pools are filled.
    host.serve(length, Requests(requests.0 / 10 + 1), answer)?;
    let before = used()?;
    host.serve(length, requests, answer)?;
    let used = used()? - before;
    Ok(used.as_nanos() as f64 / requests.0 as f64)
}

/// Polls until it is done. What waits here waits for the same thread, and so for nothing.
fn drive<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
    }
}

enum Host {
    Ours(Front<Memory>),
    Hyper,
}

impl Host {
    fn new(path: Path) -> Self {
        match path {
            Path::Hyper => Self::Hyper,
            Path::Ours => {
                let server = Server::new(Http::new(), WorkerStats::own());
                Self::Ours(server.front(service_fn(greet)))
            }
        }
    }

    /// Answers `requests`, so many on each connection.
    fn serve(
        &self,
        length: PerConnection,
        requests: Requests,
        answer: AnswerLength,
    ) -> Result<(), Trouble> {
        let mut left = requests.0;
        while left > 0 {
            let of_this_one = length.0.min(left);
            left -= of_this_one;
            self.serve_one(Requests(of_this_one), answer)?;
        }
        Ok(())
    }

    /// Gives the bytes of all answers.
    fn serve_one(&self, requests: Requests, answer: AnswerLength) -> Result<u64, Trouble> {
        let answered = Arc::default();
        let stream = Memory::new(requests, answer, Arc::clone(&answered));
        match self {
            Self::Ours(front) => drive(front.serve(stream)),
            Self::Hyper => {
                let connection = http1::Builder::new().serve_connection(stream, service_fn(hello));
                drive(connection).map_err(|error| Trouble::Stuck(error.to_string()))?;
            }
        }
        Ok(answered.load(Relaxed))
    }
}

/// As a user of the crate who cares would write it.
async fn greet(request: crate::http::Request) -> Result<Response<Full<Bytes>>, http::Error> {
    let (head, _unread) = request.into_parts();
    reply(head)
        .header(CONTENT_TYPE, HeaderValue::from_static("text/plain"))
        .body(Full::new(Bytes::from_static(BODY.as_bytes())))
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
    answered: Arc<AtomicU64>,
    expected: u64,
}

impl Memory {
    fn new(requests: Requests, answer: AnswerLength, answered: Arc<AtomicU64>) -> Self {
        Self {
            left: requests.0,
            at: 0,
            answered,
            expected: requests.0 * answer.0,
        }
    }

    fn read(&mut self, mut room: impl FnMut(&[u8]) -> usize) -> Poll<()> {
        if self.left == 0 && self.answered.load(Relaxed) < self.expected {
            // To leave before the last answer would cut it off.
            return Poll::Pending;
        }
        while self.left > 0 {
            let count = room(&REQUEST.as_bytes()[self.at..]);
            if count == 0 {
                break;
            }
            self.at += count;
            if self.at == REQUEST.len() {
                self.at = 0;
                self.left -= 1;
            }
        }
        Poll::Ready(())
    }

    fn write(&mut self, len: usize) -> Poll<io::Result<usize>> {
        self.answered.fetch_add(len as u64, Relaxed);
        Poll::Ready(Ok(len))
    }
}

impl Socket for Memory {
    fn info(&self) -> ConnectionInfo {
        let local = Address::Tcp((Ipv4Addr::LOCALHOST, 80).into());
        ConnectionInfo::new(Peer::Unix, local)
    }

    fn has_unread(&self) -> bool {
        self.left > 0
    }

    fn poll_readable(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn closed(&self) -> Closed {
        Closed::Nothing
    }

    fn is_bare(&self) -> bool {
        true
    }
}

impl AsyncRead for Memory {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = |bytes: &[u8]| {
            let count = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes[..count]);
            count
        };
        self.read(room).map(Ok)
    }
}

impl rt::Read for Memory {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let room = |bytes: &[u8]| {
            let count = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes[..count]);
            count
        };
        self.read(room).map(Ok)
    }
}

impl AsyncWrite for Memory {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(bytes.len())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl rt::Write for Memory {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(bytes.len())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
