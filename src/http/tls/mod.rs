//! TLS: what comes before HTTP on a connection that is to be private.
//!
//! [`Tls`] is what the user says, [`identity`] what its files hold, [`secure`] the stream that
//! HTTP sees, [`tickets`] how a session is resumed on another worker than it began on.

pub(crate) mod acceptor;
pub(crate) mod alpn;
pub(crate) mod config;
pub(crate) mod identity;
pub(crate) mod pem;
pub(crate) mod secure;
pub(crate) mod tickets;
