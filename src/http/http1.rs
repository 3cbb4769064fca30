//! HTTP/1.1 on one stream: plain requests [directly](direct), all others by hyper.
//!
//! Nearly every request is a GET without a body whose answer is there at once and short. For that a
//! head is parsed, a handler called, and a head and a body put into the stream's buffer; hyper's
//! connection does more, for twice the instructions. So what is plain beyond doubt is served
//! here, by the same parser, and whatever is not goes to hyper as it came: other methods, bodies,
//! versions, upgrades, anything malformed, or a head that dribbles in; and answers that stream, or
//! are large, with the request that they are for. A connection that has gone to hyper stays there
//! until it rests.

mod answer;
mod date;
mod direct;
mod head;
mod known;
mod resumed;
mod rooms;

use std::error::Error;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper::service::Service;

use self::date::Date;
use self::direct::{Direct, Outcome};
use self::resumed::Resumed;
use self::rooms::Rooms;
use super::activity::Activity;
use super::connection::{Failure, Protocol};
use super::options::{DateHeader, Http, KeepAlive};
use super::registry::Registry;
use super::service::Guarded;
use super::socket::Socket;
use super::stream::{READ_AT_ONCE, Stream};
use super::{Request, rules};

/// Serves connections with one service.
pub(super) struct Http1<S> {
    ways: Rc<Ways>,
    registry: Rc<Registry>,
    service: Rc<S>,
}

/// What the connections have in common, whatever their service is.
struct Ways {
    builder: Builder,
    date: Date,
    rooms: Rooms,
}

impl<S> Http1<S> {
    pub(super) fn new(registry: &Rc<Registry>, service: &Rc<S>) -> Self {
        Self {
            ways: Rc::new(Ways {
                builder: builder(&registry.http),
                date: Date::new(),
                rooms: Rooms::new(),
            }),
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
        let guarded = Guarded {
            inner: Rc::clone(&self.service),
            registry: Rc::clone(&self.registry),
            activity: Arc::clone(activity),
        };
        if !self.registry.http.serves_directly() {
            let service = Resumed::new(guarded, None);
            return Box::new(Served::by_hyper(&self.ways, stream, service));
        }
        let ways = Rc::clone(&self.ways);
        Box::new(Served::Directly(Direct::new(stream, guarded, ways)))
    }
}

/// A connection, and who has it.
#[expect(
    clippy::large_enum_variant,
    reason = "most connections are served directly to their end"
)]
enum Served<I, S, B>
where
    S: Service<Request, Response = http::Response<B>>,
    Resumed<S, B>: hyper::service::HttpService<hyper::body::Incoming>,
{
    Directly(Direct<I, S, B>),
    ByHyper(Box<UpgradeableConnection<Stream<I>, Resumed<S, B>>>),
    /// On its way from one to the other.
    Moving,
}

impl<I, S, B> Served<I, S, B>
where
    I: Socket,
    S: Service<Request, Response = http::Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: http_body::Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn by_hyper(ways: &Ways, stream: Stream<I>, service: Resumed<S, B>) -> Self {
        let connection = ways.builder.serve_connection(stream, service);
        Self::ByHyper(Box::new(connection.with_upgrades()))
    }
}

impl<I, S, B> Protocol<I> for Served<I, S, B>
where
    I: Socket,
    S: Service<Request, Response = http::Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: http_body::Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            match self {
                Self::Directly(direct) => match ready!(direct.poll(cx)) {
                    Outcome::Over(result) => return Poll::Ready(result),
                    Outcome::NotPlain => {}
                },
                Self::ByHyper(connection) => {
                    return Pin::new(connection).poll(cx).map_err(Failure::Hyper);
                }
                Self::Moving => return Poll::Ready(Ok(())),
            }
            if let Self::Directly(direct) = mem::replace(self, Self::Moving) {
                let (stream, service, ways) = direct.resign();
                *self = Self::by_hyper(&ways, stream, service);
            }
        }
    }

    fn into_stream(self: Box<Self>) -> Option<Stream<I>> {
        match *self {
            Self::Directly(direct) => Some(direct.into_stream()),
            Self::ByHyper(connection) => {
                let mut parts = connection.into_parts()?;
                parts.io.put_back(parts.read_buf);
                Some(parts.io)
            }
            Self::Moving => None,
        }
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

#[cfg(test)]
mod tests;
