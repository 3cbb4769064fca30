//! A request from its head to its line in the access log.

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

/// A request that has begun. Its line is made when the record is dropped: after the last byte of
/// the response, or earlier if the client left.
#[derive(Debug)]
pub(crate) struct Record {
    log: Arc<Shared>,
    begun: Instant,
    pub(super) request: RequestFacts,
    pub(super) response: ResponseFacts,
}

/// What the line says of the request.
#[derive(Clone, Debug)]
pub(super) struct RequestFacts {
    pub(super) at: SystemTime,
    /// `None` on a Unix socket.
    pub(super) peer: Option<IpAddr>,
    /// `None` if no head was parsed.
    pub(super) head: Option<Head>,
}

/// What the line says of the head of the request.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) version: Version,
    pub(super) referer: Option<HeaderValue>,
    pub(super) user_agent: Option<HeaderValue>,
}

/// What the line says of the response.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResponseFacts {
    /// `None` if the client left before there was a response.
    pub(super) status: Option<StatusCode>,
    /// How many bytes of the body were passed on to be sent.
    pub(super) body: u64,
    pub(super) took: std::time::Duration,
}

impl AccessLog {
    /// Begins a record. Call it as soon as the head of the request is parsed.
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

    /// Records a request that the server answered without the app.
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

/// A body with its record, if there is one: it counts its bytes for the record.
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
