//! HTTP on one stream after the other, for any acceptor: this knows nothing of slots, signals or
//! processes.
//!
//! A [`Server`] takes streams. [`connection`] is the life of one of them, [`versions`] what it may
//! speak, [`stream`] what they see of it, [`service`] and [`body`] stand between them and the
//! user, and [`rules`] says which heads get no further. Each notes what happens in the connection's
//! [`activity`], where the [`registry`] finds it when it looks for clients that take too long;
//! [`timeouts`] says when that is, and the [`wheel`] whose turn it is. What may come before HTTP is
//! in `tls`.

mod activity;
mod body;
mod clock;
mod connection;
mod counters;
mod exchange;
mod farewell;
#[cfg(test)]
mod fuzz;
mod http1;
#[cfg(feature = "http2")]
mod http2;
mod info;
#[cfg(not(feature = "tls"))]
mod no_tls;
mod options;
mod preface;
mod refused;
mod registry;
mod reply;
mod rules;
mod service;
mod socket;
mod stream;
#[cfg(test)]
mod tests;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod versions;
mod warm;
mod wheel;

use std::error::Error;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use hyper::service::Service;

pub use body::{Body, BodyError};
use connection::{Begin, Life};
pub(crate) use counters::Counts;
pub use info::ConnectionInfo;
#[cfg(not(feature = "tls"))]
pub(crate) use no_tls::{Acceptor, Tls};
#[cfg(feature = "http2")]
pub use options::Http2;
pub use options::{DateHeader, Http, KeepAlive};
pub use refused::Refused;
use registry::Registry;
pub use reply::reply;
pub(crate) use socket::{Closed, Socket, Version};
#[cfg(feature = "tls")]
pub(crate) use tls::Acceptor;
#[cfg(feature = "tls")]
pub use tls::{ClientAuth, Tls, TlsHandshake, TlsInfo, TlsVersion};
use versions::Versions;

use crate::row::Row;

/// A request as handlers get it.
///
/// What is no request by RFC 9112 never becomes one: there is one valid `Host` (HTTP/1.0 may lack
/// it), the target fits the method, the body is framed by a `Content-Length` or by `chunked` and no
/// other coding. The target is as it was sent, less a fragment: a path, or a whole URI, or `*` for
/// OPTIONS, or host and port for CONNECT. If it names a host, `Host` names the same, whatever the
/// client sent (RFC 9112 3.2.2). That is for HTTP/1; in HTTP/2 the host is in the target, in
/// `Host`, or the same in both, and a field's value that begins or ends with white space is refused
/// (RFC 9113 8.2.1). A fragment is left out in HTTP/2 too, though RFC 9113 8.3.1 has no place for
/// one: h2 has removed it when the server gets the request.
pub type Request = http::Request<Body>;

/// An answer. The default body is one piece of bytes, made by `"text".into()`.
pub type Response<B = http_body_util::Full<bytes::Bytes>> = http::Response<B>;

/// Serves any number of connections, on the thread it is on. Clones are the same server.
#[derive(Clone)]
pub(crate) struct Server {
    registry: Rc<Registry>,
}

/// A server's service at work on one kind of stream. Clones are the same.
pub(crate) struct Front<I> {
    registry: Rc<Registry>,
    means: Rc<Means<I>>,
}

/// What the connections of a front have in common.
struct Means<I> {
    http: Rc<dyn Begin<I>>,
    heir: Option<Rc<dyn Heir<I>>>,
}

/// Takes connections over when a server hands over, or shares.
pub(crate) trait Heir<I> {
    /// Takes a connection, with what was read from it and not answered. If it cannot, or not any
    /// more, it gives the connection back, from which these bytes are read again.
    fn take(self: Rc<Self>, io: I, read_ahead: Bytes) -> Taken<I>;
}

/// A connection on its way to an [`Heir`], which may be long.
pub(crate) type Taken<I> = Pin<Box<dyn Future<Output = Result<(), I>>>>;

impl<I: Socket> Front<I> {
    /// Serves one connection to its end. It counts as live from this call on; the future is to be
    /// spawned on this thread, and [`Server::clock`] is to run beside it.
    pub(crate) fn serve(&self, io: I) -> impl Future<Output = ()> + use<I> {
        Life::new(self.registry.join(), Rc::clone(&self.means), io)
    }

    /// With somebody who takes these streams over, in [`Server::hand_over`] and
    /// [`Server::share`]. Without, they stay.
    pub(crate) fn with_heir(mut self, heir: Rc<dyn Heir<I>>) -> Self {
        self.means = Rc::new(Means {
            http: Rc::clone(&self.means.http),
            heir: Some(heir),
        });
        self
    }
}

impl<I> Clone for Front<I> {
    fn clone(&self) -> Self {
        Self {
            registry: Rc::clone(&self.registry),
            means: Rc::clone(&self.means),
        }
    }
}

impl Server {
    /// `row` is where it counts.
    pub(crate) fn new(http: Http, row: Row) -> Self {
        Self {
            registry: Registry::new(http, row),
        }
    }

    /// Serves with this service.
    pub(crate) fn front<I, S, B>(&self, service: S) -> Front<I>
    where
        I: Socket,
        S: Service<Request, Response = http::Response<B>> + 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: http_body::Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let means = Means {
            http: Rc::new(Versions::new(&self.registry, service)),
            heir: None,
        };
        Front {
            registry: Rc::clone(&self.registry),
            means: Rc::new(means),
        }
    }

    /// Drives every deadline; never ends. Run it once, beside the connections, and do not go on
    /// without it: if it panics, no client is timed out any more.
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

    /// From now on each connection goes to its heir as soon as it is idle, at once or when it has
    /// answered what it is about. Those that cannot are drained, and so are the ones that an heir
    /// gives back. A [`Server::drain`] ends it.
    pub(crate) fn hand_over(&self) {
        self.registry.hand_over();
    }

    /// From now on so many connections go to their heirs, those that are busy: each as soon as it
    /// has been answered. What an heir gives back stays and is served.
    pub(crate) fn share(&self, connections: usize) {
        self.registry.share(connections);
    }

    /// Ends the connection that has been idle longest, if any is, with a GOAWAY in HTTP/2. A busy
    /// one is never ended.
    pub(crate) fn make_room(&self) {
        self.registry.make_room();
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

    /// How many connections are served, being not at rest.
    #[cfg(test)]
    pub(crate) fn served(&self) -> usize {
        self.registry.served()
    }

    /// What has happened so far.
    pub(crate) fn counts(&self) -> Counts {
        self.registry.counters.get()
    }
}
