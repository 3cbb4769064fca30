//! What is asked, by how many, and what must come back.

use std::sync::Arc;
use std::time::Duration;

use super::tls::Tls;

/// A server that is silent for longer hangs.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Failures that end a run: enough to tell how a server fails, few enough not to run for long
/// against one that is gone.
const BUDGET: u64 = 1000;

/// One kind of request, and what its response must be.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(super) request: Vec<u8>,
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
        Self {
            request: format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes(),
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
    pub(crate) fn closing(mut self) -> Self {
        let blank_line = self.request.len() - 2;
        self.request.truncate(blank_line);
        self.request.extend(b"Connection: close\r\n\r\n");
        Self {
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
