//! What is asked, by how many, and what must come back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::tls::Tls;

/// A server that is silent for longer hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Failures that end a run: enough to tell how a server fails, few enough not to run for long
/// against one that is gone.
const BUDGET: u64 = 1000;

/// One kind of request, and what its response must be.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(super) request: Vec<u8>,
    pub(super) expected: Expected,
    pub(super) afterwards: Afterwards,
}

/// What the body of a response with status 200 must be.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    Bytes(Arc<[u8]>),
    /// Anything; its beginning is kept to be looked at.
    Told,
}

/// What becomes of a connection when the response is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Afterwards {
    Keep,
    /// The server closes it, and the response is there when it has.
    ServerCloses,
}

impl Ask {
    /// `GET path`, kept alive, whose response may be anything until [`expecting`](Self::expecting)
    /// says more.
    pub(crate) fn get(path: &str) -> Self {
        Self {
            request: format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes(),
            expected: Expected::Told,
            afterwards: Afterwards::Keep,
        }
    }

    /// Whether the connection stays open.
    pub(crate) fn keeps(&self) -> bool {
        self.afterwards == Afterwards::Keep
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
            afterwards: Afterwards::ServerCloses,
            ..self
        }
    }
}

/// How many of a thousand requests are of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share(pub(crate) usize);

/// How many requests a connection sends at once, in one write, before it waits for their responses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pipeline(pub(crate) usize);

/// What a [`Driver`](super::Driver) does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(super) address: SocketAddr,
    pub(super) connections: usize,
    pub(super) usual: Ask,
    pub(super) seldom: Option<(Share, Ask)>,
    pub(super) pipeline: Pipeline,
    pub(super) tls: Option<Tls>,
    /// How long a run waits for responses when nothing is to be sent any more, or nothing comes.
    pub(crate) patience: Duration,
    /// More failures than this end a run.
    pub(crate) budget: u64,
}

impl Plan {
    pub(crate) fn new(address: SocketAddr, connections: usize, usual: Ask) -> Self {
        Self {
            address,
            connections,
            usual,
            seldom: None,
            pipeline: Pipeline(1),
            tls: None,
            patience: PATIENCE,
            budget: BUDGET,
        }
    }

    /// Mixes another kind of request in, by chance that is the same in each run.
    pub(crate) fn seldom(self, share: Share, ask: Ask) -> Self {
        Self {
            seldom: Some((share, ask)),
            ..self
        }
    }

    pub(crate) fn pipelined(self, pipeline: Pipeline) -> Self {
        Self { pipeline, ..self }
    }

    /// Everything within TLS, where there is any.
    pub(crate) fn within(self, tls: impl Into<Option<Tls>>) -> Self {
        let tls = tls.into();
        Self { tls, ..self }
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

/// How many requests an open loop sends in a second, over all its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate(f64);

impl Rate {
    /// # Panics
    ///
    /// If this is not a positive number.
    pub(crate) fn per_second(requests: f64) -> Self {
        assert!(
            requests.is_finite() && requests > 0.0,
            "{requests} requests per second"
        );
        Self(requests)
    }

    pub(super) fn interval(self) -> Duration {
        Duration::from_secs_f64(1.0 / self.0)
    }
}
