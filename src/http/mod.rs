//! HTTP on one stream after the other, for any acceptor: this knows nothing of slots, signals or
//! processes.
//!
//! A [`Server`] takes streams. [`connection`] is the life of one of them, [`stream`] what hyper
//! sees of it, [`service`] and [`body`] stand between hyper and the user. Each notes what happens
//! in the connection's [`activity`], where the [`registry`] finds it when it looks for clients
//! that take too long; [`timeouts`] says when that is, and the [`wheel`] whose turn it is. What
//! may come before HTTP is in `tls`.

mod activity;
mod body;
mod connection;
mod counters;
#[cfg(not(feature = "tls"))]
mod no_tls;
mod options;
mod registry;
mod service;
mod socket;
mod stream;
#[cfg(test)]
mod tests;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod wheel;

use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::Service;

pub use activity::ConnectionInfo;
pub use body::{Body, BodyError};
pub(crate) use counters::Counts;
#[cfg(not(feature = "tls"))]
pub(crate) use no_tls::{Acceptor, Tls};
pub use options::{DateHeader, Http, KeepAlive};
use registry::Registry;
use service::Guarded;
pub(crate) use socket::{Closed, Socket};
use stream::Stream;
#[cfg(feature = "tls")]
pub(crate) use tls::Acceptor;
#[cfg(feature = "tls")]
pub use tls::{ClientAuth, Tls, TlsHandshake, TlsInfo, TlsVersion};

use crate::row::Row;

/// A request as handlers get it.
pub type Request = http::Request<Body>;

/// An answer. The default body is one piece of bytes, made by `"text".into()`.
pub type Response<B = http_body_util::Full<bytes::Bytes>> = http::Response<B>;

/// Serves any number of connections, on the thread it is on. Clones are the same server.
#[derive(Clone)]
pub(crate) struct Server {
    http: Rc<Http>,
    protocol: Rc<http1::Builder>,
    registry: Rc<Registry>,
}

impl Server {
    /// `row` is where it counts.
    pub(crate) fn new(http: Http, row: Row) -> Self {
        let registry = Registry::new(&http, row);
        Self {
            protocol: Rc::new(protocol(&http)),
            http: Rc::new(http),
            registry,
        }
    }

    /// Serves one connection to its end. It counts as live from this call on; the future is to be
    /// spawned on this thread, and [`Server::clock`] is to run beside it.
    pub(crate) fn serve<I, S, B>(
        &self,
        io: I,
        info: ConnectionInfo,
        service: S,
    ) -> impl Future<Output = ()> + use<I, S, B>
    where
        I: Socket,
        S: Service<Request, Response = http::Response<B>>,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: http_body::Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let member = self.registry.join(info);
        let row = self.registry.counters.row();
        let stream = Stream::new(io, Arc::clone(&member.activity), row);
        let service = Guarded {
            inner: service,
            http: Rc::clone(&self.http),
            registry: Rc::clone(&self.registry),
            activity: Arc::clone(&member.activity),
        };
        connection::live(member, Rc::clone(&self.protocol), stream, service)
    }

    /// Drives every deadline; never ends. Run it once, beside the connections.
    pub(crate) fn clock(&self) -> impl Future<Output = ()> + use<> {
        let registry = Rc::clone(&self.registry);
        async move { registry.run_clock().await }
    }

    /// From now on each answer is its connection's last. Idle connections stay for
    /// [`Http::linger`], in which one more request is answered; then they are closed. Requests that
    /// are being served are finished, half-read heads keep their deadline.
    pub(crate) fn drain(&self) {
        self.registry.drain();
    }

    /// Resolves when no connection is left, upgraded ones included.
    pub(crate) fn drained(&self) -> impl Future<Output = ()> + use<> {
        let registry = Rc::clone(&self.registry);
        async move { registry.emptied().await }
    }

    /// Ends every connection, whatever it is doing, and says how many there were. They are gone
    /// when [`Server::drained`] resolves.
    pub(crate) fn cut(&self) -> usize {
        self.registry.cut()
    }

    /// How many connections are live.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.registry.len()
    }

    /// What has happened so far.
    pub(crate) fn counts(&self) -> Counts {
        self.registry.counters.get()
    }
}

fn protocol(http: &Http) -> http1::Builder {
    let mut protocol = http1::Builder::new();
    protocol
        .keep_alive(http.keep_alive == KeepAlive::Enabled)
        .auto_date_header(http.date_header == DateHeader::Sent)
        .max_header_size(http.max_header_size)
        // It bounds what is read ahead of a handler and what is written ahead of a client; a head
        // must fit in.
        .max_buf_size(stream::READ_AT_ONCE.max(http.max_header_size))
        // Our registry times heads, without a timer for each.
        .header_read_timeout(None)
        // `false` has hyper read on while a handler works, which is how a client that leaves is
        // noticed and its handler cancelled. The price: a second read buffer (8 KiB, allocated
        // anew) for each request, and a client that half-closes after its request is taken for one
        // that left. With `true` we would have to watch the socket ourselves.
        .half_close(false)
        // Our stream gathers pipelined answers: see there.
        .pipeline_flush(false);
    protocol
}
