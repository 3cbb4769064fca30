//! Serves HTTP/1 on a stream: directly, then by hyper.

use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::server::conn::http1::UpgradeableConnection;

use crate::http::conn::protocol::{Failure, Protocol};
use crate::http::conn::socket::Socket;
use crate::http::conn::stream::Stream;
use crate::http::exchange::service::{Guarded, Handler};
use crate::http::http1::direct::{Direct as DirectConnection, Outcome};
use crate::http::http1::resumed::Resumed;
use crate::http::http1::shared::Shared;
use crate::http::options::KeepAlive;
use crate::http::registry::list::Registry;
use crate::http::registry::state::ConnState;

/// Serves connections with one service.
pub(crate) struct Http1<S> {
    shared: Rc<Shared>,
    registry: Rc<Registry>,
    service: Rc<S>,
}

impl<S> Http1<S> {
    pub(crate) fn new(registry: &Rc<Registry>, service: &Rc<S>) -> Self {
        Self {
            shared: Rc::new(Shared::new(&registry.http)),
            registry: Rc::clone(registry),
            service: Rc::clone(service),
        }
    }

    pub(crate) fn begin<I>(&self, stream: Stream<I>, state: &Arc<ConnState>) -> Box<dyn Protocol<I>>
    where
        I: Socket,
        S: Handler,
    {
        let guarded = Guarded {
            inner: Rc::clone(&self.service),
            registry: Rc::clone(&self.registry),
            state: Arc::clone(state),
        };
        if self.registry.http.keep_alive == KeepAlive::Disabled {
            let service = Resumed::new(guarded, None);
            return Box::new(Http1Connection::by_hyper(&self.shared, stream, service));
        }
        let shared = Rc::clone(&self.shared);
        Box::new(Http1Connection::Direct(DirectConnection::new(
            stream, guarded, shared,
        )))
    }
}

/// A connection, served directly or by hyper.
#[expect(
    clippy::large_enum_variant,
    reason = "most connections are served directly to their end"
)]
enum Http1Connection<I, S>
where
    S: Handler,
    Resumed<S>: hyper::service::HttpService<hyper::body::Incoming>,
{
    Direct(DirectConnection<I, S>),
    Hyper(Box<UpgradeableConnection<Stream<I>, Resumed<S>>>),
    /// Being changed from `Direct` to `Hyper`.
    Moving,
}

impl<I, S> Http1Connection<I, S>
where
    I: Socket,
    S: Handler,
{
    fn by_hyper(shared: &Shared, stream: Stream<I>, service: Resumed<S>) -> Self {
        let connection = shared.builder.serve_connection(stream, service);
        Self::Hyper(Box::new(connection.with_upgrades()))
    }
}

impl<I, S> Protocol<I> for Http1Connection<I, S>
where
    I: Socket,
    S: Handler,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            let response = match self {
                Self::Direct(direct) => match ready!(direct.poll(cx)) {
                    Outcome::Over(result) => return Poll::Ready(result),
                    Outcome::NotPlain(response) => response,
                },
                Self::Hyper(connection) => {
                    return Pin::new(connection).poll(cx).map_err(Failure::Hyper);
                }
                Self::Moving => return Poll::Ready(Ok(())),
            };
            if let Self::Direct(direct) = mem::replace(self, Self::Moving) {
                let (stream, service, shared) = direct.into_hyper(response);
                *self = Self::by_hyper(&shared, stream, service);
            }
        }
    }

    fn into_stream(self: Box<Self>) -> Option<Stream<I>> {
        match *self {
            Self::Direct(direct) => Some(direct.into_stream()),
            Self::Hyper(connection) => {
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
