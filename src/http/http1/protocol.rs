//! Begins HTTP/1 on a stream.

use std::error::Error;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::server::conn::http1::UpgradeableConnection;
use hyper::service::Service;

use crate::http::conn::protocol::{Failure, Protocol};
use crate::http::conn::socket::Socket;
use crate::http::conn::stream::Stream;
use crate::http::exchange::message::Request;
use crate::http::exchange::service::Guarded;
use crate::http::http1::direct::{Direct, Outcome};
use crate::http::http1::resumed::Resumed;
use crate::http::http1::shared::Ways;
use crate::http::registry::list::Registry;
use crate::http::registry::state::Activity;

/// Serves connections with one service.
pub(crate) struct Http1<S> {
    ways: Rc<Ways>,
    registry: Rc<Registry>,
    service: Rc<S>,
}

impl<S> Http1<S> {
    pub(crate) fn new(registry: &Rc<Registry>, service: &Rc<S>) -> Self {
        Self {
            ways: Rc::new(Ways::new(&registry.http)),
            registry: Rc::clone(registry),
            service: Rc::clone(service),
        }
    }

    pub(crate) fn begin<I, B>(
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

#[cfg(test)]
mod tests;
