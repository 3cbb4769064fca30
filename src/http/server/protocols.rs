//! The versions of HTTP that a server has, all with one service.

use std::rc::Rc;
use std::sync::Arc;

use crate::http::conn::protocol::{Protocol, StartProtocol};
use crate::http::conn::socket::{Socket, Version};
use crate::http::conn::stream::Stream;
use crate::http::exchange::service::Handler;
use crate::http::http1::protocol::Http1;
#[cfg(feature = "http2")]
use crate::http::http2::protocol::Http2;
use crate::http::registry::list::Registry;
use crate::http::registry::state::ConnState;

/// Starts HTTP/1 or HTTP/2 on a connection.
pub(crate) struct Protocols<S> {
    http1: Http1<S>,
    #[cfg(feature = "http2")]
    http2: Http2,
}

impl<S: Handler> Protocols<S> {
    pub(crate) fn new(registry: &Rc<Registry>, service: S) -> Self {
        let service = Rc::new(service);
        Self {
            #[cfg(feature = "http2")]
            http2: Http2::new(registry, Rc::<S>::clone(&service)),
            http1: Http1::new(registry, &service),
        }
    }
}

impl<I, S> StartProtocol<I> for Protocols<S>
where
    I: Socket,
    S: Handler,
{
    fn start(
        &self,
        version: Version,
        stream: Stream<I>,
        state: &Arc<ConnState>,
    ) -> Box<dyn Protocol<I>> {
        match version {
            Version::Http1 => self.http1.begin(stream, state),
            #[cfg(feature = "http2")]
            Version::Http2 => self.http2.begin(stream, state),
            // HTTP/2 is not offered to clients. A client that uses it anyway gets an error from
            // HTTP/1.
            #[cfg(not(feature = "http2"))]
            Version::Http2 => self.http1.begin(stream, state),
        }
    }

    #[cfg(feature = "http2")]
    fn resume(
        &self,
        stream: Stream<I>,
        state: &Arc<ConnState>,
        record: &[u8],
    ) -> Option<Box<dyn Protocol<I>>> {
        self.http2.resume(stream, state, record)
    }

    #[cfg(not(feature = "http2"))]
    fn resume(&self, _: Stream<I>, _: &Arc<ConnState>, _: &[u8]) -> Option<Box<dyn Protocol<I>>> {
        None
    }
}
