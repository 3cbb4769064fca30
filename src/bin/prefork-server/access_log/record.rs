//! A request from its head to its line in the access log.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant, SystemTime},
};

use bytes::Buf;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{HOST, REFERER, USER_AGENT},
};
use http_body::{Body, Frame, SizeHint};
use prefork_server::{ConnectionInfo, Peer, Refused};

use super::AccessLog;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A request that has begun. Its line is made when the record is dropped: after the last byte of
/// the response, or earlier if the client left.
#[derive(Debug)]
pub(crate) struct Record {
    log: Arc<AccessLog>,
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
    pub(super) scheme: &'static str,
    /// The one in the response. `None` if the server gives none.
    pub(super) id: Option<HeaderValue>,
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
    pub(super) host: Option<HeaderValue>,
    /// The place of the request in a trace of several services (W3C Trace Context).
    pub(super) traceparent: Option<HeaderValue>,
}

/// What the line says of the response.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResponseFacts {
    /// `None` if the client left before there was a response.
    pub(super) status: Option<StatusCode>,
    /// How many bytes of the body were passed on to be sent.
    pub(super) body: u64,
    pub(super) took: Duration,
    /// From the head of the request to the head of the response. `None` if there was no response.
    pub(super) began: Option<Duration>,
}

impl Head {
    fn new(method: &Method, uri: &Uri, version: Version, fields: &HeaderMap) -> Self {
        let field = |name: HeaderName| fields.get(name).cloned();
        Self {
            method: method.clone(),
            uri: uri.clone(),
            version,
            referer: field(REFERER),
            user_agent: field(USER_AGENT),
            host: field(HOST),
            traceparent: field(TRACEPARENT),
        }
    }
}

impl AccessLog {
    /// Begins a record. Call it as soon as the head of the request is parsed.
    pub(crate) fn begin<B>(
        self: &Arc<Self>,
        connection: &ConnectionInfo,
        request: &Request<B>,
    ) -> Box<Record> {
        let fields = request.headers();
        let head = Head::new(request.method(), request.uri(), request.version(), fields);
        self.record(connection, fields.get(REQUEST_ID), Some(head))
    }

    /// Records a request to which the server has responded without the app.
    pub(crate) fn refused(self: &Arc<Self>, refused: &Refused<'_>) {
        let head = refused.head;
        let head = head.map(|it| Head::new(&it.method, &it.uri, it.version, &it.headers));
        let mut record = self.record(refused.connection, refused.request_id, head);
        record.response.status = Some(refused.status);
        record.response.began = Some(record.begun.elapsed());
    }

    fn record(
        self: &Arc<Self>,
        connection: &ConnectionInfo,
        id: Option<&HeaderValue>,
        head: Option<Head>,
    ) -> Box<Record> {
        let request = RequestFacts {
            at: SystemTime::now(),
            peer: match connection.client() {
                Peer::Tcp(address) => Some(address.ip()),
                _ => None,
            },
            scheme: scheme(connection),
            id: id.cloned(),
            head,
        };
        Box::new(Record {
            log: Arc::clone(self),
            begun: Instant::now(),
            request,
            response: ResponseFacts::default(),
        })
    }
}

fn scheme(connection: &ConnectionInfo) -> &'static str {
    #[cfg(feature = "tls")]
    if connection.tls().is_some() {
        return "https";
    }
    let _ = connection;
    "http"
}

impl Record {
    /// Whether the client was told of an error.
    pub(super) fn has_failed(&self) -> bool {
        let status = self.response.status;
        status.is_some_and(|status| status.is_client_error() || status.is_server_error())
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.response.took = self.begun.elapsed();
        self.log.shared.record(self);
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
            record.response.began = Some(record.begun.elapsed());
        }
        response.map(|body| Self { body, record })
    }
}

impl<B: Body + Unpin> Body for LoggedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(record)) = (&polled, &mut self.record)
            && let Some(data) = frame.data_ref()
        {
            record.response.body += data.remaining() as u64;
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
