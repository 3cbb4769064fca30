//! HTTP/1.1 on one stream: hyper's.

use std::error::Error;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper::service::Service;

use super::activity::Activity;
use super::connection::Protocol;
use super::options::{DateHeader, Http, KeepAlive};
use super::registry::Registry;
use super::service::Guarded;
use super::socket::Socket;
use super::stream::{READ_AT_ONCE, Stream};
use super::{Request, rules};

/// Serves connections with one service.
pub(super) struct Http1<S> {
    builder: Builder,
    registry: Rc<Registry>,
    service: Rc<S>,
}

impl<S> Http1<S> {
    pub(super) fn new(registry: &Rc<Registry>, service: &Rc<S>) -> Self {
        Self {
            builder: builder(&registry.http),
            registry: Rc::clone(registry),
            service: Rc::clone(service),
        }
    }

    pub(super) fn begin<I, B>(
        &self,
        stream: Stream<I>,
        activity: &Arc<Activity>,
    ) -> Box<dyn Protocol<I>>
    where
        I: Socket,
        S: Service<Request, Response = http::Response<B>> + 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: http_body::Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let service = Guarded {
            inner: Rc::clone(&self.service),
            registry: Rc::clone(&self.registry),
            activity: Arc::clone(activity),
        };
        let connection = self.builder.serve_connection(stream, service);
        Box::new(Hyper(connection.with_upgrades()))
    }
}

/// A connection as hyper has it.
struct Hyper<I, S>(UpgradeableConnection<Stream<I>, Guarded<S>>)
where
    Guarded<S>: hyper::service::HttpService<hyper::body::Incoming>;

impl<I, S, B> Protocol<I> for Hyper<I, S>
where
    I: Socket,
    S: Service<Request, Response = http::Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: http_body::Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        Pin::new(&mut self.0).poll(cx)
    }

    fn into_parts(self: Box<Self>) -> Option<(Stream<I>, Bytes)> {
        let parts = self.0.into_parts()?;
        Some((parts.io, parts.read_buf))
    }
}

fn builder(http: &Http) -> Builder {
    let max_head = rules::raw_head_size(http);
    let mut builder = Builder::new();
    builder
        .keep_alive(http.keep_alive == KeepAlive::Enabled)
        .auto_date_header(http.date_header == DateHeader::Sent)
        .max_header_size(max_head)
        // It bounds what is read ahead of a handler and what is written ahead of a client; a head
        // must fit in.
        .max_buf_size(READ_AT_ONCE.max(max_head))
        // Our registry times heads, without a timer for each.
        .header_read_timeout(None)
        // `false` has hyper read on while a handler works, to notice a client that leaves: into a
        // second read buffer (8 KiB, allocated anew) for each request, and a client that
        // half-closes after its request is taken for one that left. Our registry has the stream
        // look whether the client is still there instead, and only if there is silence for a while.
        .half_close(true)
        // Our stream gathers pipelined answers: see there.
        .pipeline_flush(false);
    builder
}
