//! One request on its way to becoming a line.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{REFERER, USER_AGENT},
};
use http_body::{Body, Frame, SizeHint};
use prefork_server::{Peer, Refused};

use super::{AccessLog, Shared};

/// A request that has begun. Its line is written when it is dropped: after the last byte of the
/// answer, or earlier if the client left.
#[derive(Debug)]
pub(crate) struct Record {
    log: Arc<Shared>,
    begun: Instant,
    pub(super) request: RequestFacts,
    pub(super) response: ResponseFacts,
}

/// What was asked.
#[derive(Clone, Debug)]
pub(super) struct RequestFacts {
    pub(super) at: SystemTime,
    /// `None` over a unix socket.
    pub(super) peer: Option<IpAddr>,
    /// `None` for what was not parsed.
    pub(super) head: Option<Head>,
}

/// What is told of a request's head.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) version: Version,
    pub(super) referer: Option<HeaderValue>,
    pub(super) user_agent: Option<HeaderValue>,
}

/// What was answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResponseFacts {
    /// `None` if the client left before there was an answer.
    pub(super) status: Option<StatusCode>,
    /// Bytes of the body that were handed on to be sent.
    pub(super) body: u64,
    pub(super) took: std::time::Duration,
}

impl AccessLog {
    /// Call it when the request's head is there.
    pub(crate) fn begin<B>(&self, client: Peer, request: &Request<B>) -> Box<Record> {
        let head = Head {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            referer: request.headers().get(REFERER).cloned(),
            user_agent: request.headers().get(USER_AGENT).cloned(),
        };
        self.record(client, Some(head))
    }

    /// Records what the server answered in the handler's place.
    pub(crate) fn refused(&self, refused: &Refused<'_>) {
        let head = refused.head.map(|head| Head {
            method: head.method.clone(),
            uri: head.uri.clone(),
            version: head.version,
            referer: head.headers.get(REFERER).cloned(),
            user_agent: head.headers.get(USER_AGENT).cloned(),
        });
        let mut record = self.record(refused.connection.client(), head);
        record.response.status = Some(refused.status);
    }

    fn record(&self, client: Peer, head: Option<Head>) -> Box<Record> {
        let request = RequestFacts {
            at: SystemTime::now(),
            peer: match client {
                Peer::Tcp(address) => Some(address.ip()),
                _ => None,
            },
            head,
        };
        let log = Arc::clone(&self.shared);
        Box::new(Record {
            log,
            begun: Instant::now(),
            request,
            response: ResponseFacts::default(),
        })
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.response.took = self.begun.elapsed();
        self.log.record(self);
    }
}

/// A body that is counted for the record it carries, if it carries one.
#[derive(Debug)]
pub(crate) struct LoggedBody<B> {
    body: B,
    // Boxed: a response is moved often on its way, and most servers have no access log.
    record: Option<Box<Record>>,
}

impl<B> LoggedBody<B> {
    /// The same response; `None` for a server without an access log.
    pub(crate) fn wrap(response: Response<B>, mut record: Option<Box<Record>>) -> Response<Self> {
        if let Some(record) = &mut record {
            record.response.status = Some(response.status());
        }
        response.map(|body| Self { body, record })
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for LoggedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(record)) = (&polled, &mut self.record)
            && let Some(data) = frame.data_ref()
        {
            record.response.body += data.len() as u64;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
