//! What is asked, by how many, and what must come back.

use std::sync::Arc;
use std::time::Duration;

use super::tls::Tls;

/// A server that is silent for longer hangs.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Failures that end a run: enough to tell how a server fails, few enough not to run for long
/// against one that is gone.
const BUDGET: u64 = 1000;

/// Different requests, where no two in a row are the same.
const VARIANTS: usize = 4096;

/// One kind of request, and what its response must be.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// Each client sends one after the other, from the first again after the last.
    pub(super) requests: Arc<[Vec<u8>]>,
    pub(super) expected: Expected,
    /// Whether the server closes the connection when the response is there, or keeps it.
    pub(crate) closes: bool,
}

/// What the body of a response with status 200 must be.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    Bytes(Arc<[u8]>),
    /// Anything; its beginning is kept to be looked at.
    Told,
}

impl Ask {
    /// `GET path`, kept alive, whose response may be anything until [`expecting`](Self::expecting)
    /// says more.
    pub(crate) fn get(path: &str) -> Self {
        Self::each([path.to_owned()].into_iter())
    }

    /// Requests as a browser sends them from page to page: fourteen fields, and another path,
    /// referer, cookie and request number each time. No client repeats one within 4,096.
    pub(crate) fn browsing() -> Self {
        let page = |at: usize| format!("/articles/{}/{at:04}?page={}", at % 37, at % 7);
        let request = |at: usize| {
            let (path, before) = (page(at), page(at.wrapping_sub(1) % VARIANTS));
            let cookie = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\
                 User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 \
                 Firefox/145.0\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,\
                 */*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n\
                 Accept-Encoding: gzip, deflate, br, zstd\r\n\
                 Referer: http://localhost{before}\r\n\
                 Cookie: session=5f2c9a7be1d04c3f; seen={cookie:016x}; theme=dark\r\n\
                 Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\n\
                 Sec-Fetch-Mode: navigate\r\nSec-Fetch-Site: same-origin\r\n\
                 Priority: u=0, i\r\nX-Request-Id: {at:08x}-{cookie:016x}\r\n\r\n"
            )
        };
        Self::of((0..VARIANTS).map(|at| request(at).into_bytes()).collect())
    }

    /// Requests as a service sends them to another: ten fields and a body of 1 KiB, and another
    /// path, trace, request number and body each time. No client repeats one within 4,096.
    pub(crate) fn posting() -> Self {
        let request = |at: usize| {
            let trace = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let method = ["POST", "PUT", "PATCH"][at % 3];
            let body = format!(
                "{{\"order\":{at:08},\"note\":\"{}\"}}",
                "x".repeat(1024 - 28)
            );
            format!(
                "{method} /orders/{at:04} HTTP/1.1\r\nHost: localhost\r\n\
                 User-Agent: orders/3.1\r\nAccept: application/json\r\n\
                 Authorization: Bearer 5f2c9a7be1d04c3f5f2c9a7be1d04c3f\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\
                 Traceparent: 00-{trace:032x}-{trace:016x}-01\r\n\
                 X-Request-Id: {at:08x}-{trace:016x}\r\nX-Forwarded-For: 10.0.0.7\r\n\
                 X-Forwarded-Proto: https\r\n\r\n{body}",
                body.len()
            )
        };
        Self::of((0..VARIANTS).map(|at| request(at).into_bytes()).collect())
    }

    /// What is sent, one after the other.
    pub(crate) fn requests(&self) -> &[Vec<u8>] {
        &self.requests
    }

    /// `GET` of each path in turn.
    pub(crate) fn each(paths: impl Iterator<Item = String>) -> Self {
        let requests = paths.map(|path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        Self::of(requests.map(String::into_bytes).collect())
    }

    fn of(requests: Arc<[Vec<u8>]>) -> Self {
        Self {
            requests,
            expected: Expected::Told,
            closes: false,
        }
    }

    /// The body must be these bytes.
    pub(crate) fn expecting(self, body: impl Into<Vec<u8>>) -> Self {
        Self {
            expected: Expected::Bytes(body.into().into()),
            ..self
        }
    }

    /// Each request on a connection of its own, which the server closes.
    pub(crate) fn closing(self) -> Self {
        let closing = |request: &Vec<u8>| {
            let fields = &request[..request.len() - 2];
            [fields, b"Connection: close\r\n\r\n"].concat()
        };
        Self {
            requests: self.requests.iter().map(closing).collect(),
            closes: true,
            ..self
        }
    }
}

/// What a [`Driver`](super::Driver) does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) connections: usize,
    pub(crate) usual: Ask,
    /// Another kind of request, and how many of a thousand are of it: by chance that is the same in
    /// each run.
    pub(crate) seldom: Option<(usize, Ask)>,
    /// How many requests a connection sends at once, in one write, before it waits for their
    /// responses.
    pub(crate) pipeline: usize,
    /// Everything within TLS.
    pub(crate) tls: Option<Tls>,
    /// How long a run waits for responses when nothing is to be sent any more, or nothing comes.
    pub(crate) timeout: Duration,
    /// More failures than this end a run.
    pub(crate) budget: u64,
}

impl Plan {
    pub(crate) fn new(connections: usize, usual: Ask) -> Self {
        Self {
            connections,
            usual,
            seldom: None,
            pipeline: 1,
            tls: None,
            timeout: TIMEOUT,
            budget: BUDGET,
        }
    }
}

/// How long a closed loop runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent {
    /// Until so many requests have been sent and answered.
    Requests(u64),
    /// Sends for so long and waits for the responses.
    For(Duration),
}
