//! HTTP on one stream after the other, for any acceptor: this knows nothing of slots, signals or
//! processes.

mod conn;
mod exchange;
#[cfg(test)]
mod fuzz;
mod http1;
#[cfg(feature = "http2")]
mod http2;
mod info;
#[cfg(not(feature = "tls"))]
mod no_tls;
mod options;
mod registry;
mod server;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;

pub(crate) use conn::handover::HandoverTarget;
pub(crate) use conn::socket::{Closed, Socket, Version};
pub use exchange::body::{Body, BodyError};
pub use exchange::message::{Request, Response};
pub use exchange::reply::reply;
pub use info::ConnectionInfo;
#[cfg(feature = "tls")]
pub use info::tls::{TlsHandshake, TlsInfo, TlsVersion};
#[cfg(not(feature = "tls"))]
pub(crate) use no_tls::{Acceptor, Tls};
#[cfg(feature = "http2")]
pub use options::Http2;
pub use options::refused::Refused;
pub use options::{DateHeader, Http, KeepAlive};
pub(crate) use server::Server;
#[cfg(feature = "tls")]
pub(crate) use tls::acceptor::Acceptor;
#[cfg(feature = "tls")]
pub use tls::config::{ClientAuth, Tls};
