//! TLS: the handshake before HTTP, and the encrypted stream.
//!
//! [`config`] has the user's options, [`identity`] the contents of the files, [`certificates`] the
//! choice between them, [`secure`] the stream that HTTP reads and writes, [`stream`] the encryption
//! below it, and [`tickets`] the session tickets, by which a client resumes a session on another
//! worker. A connection that is open moves to another worker with its session: [`acceptor`] hands
//! it over.

pub(crate) mod acceptor;
pub(crate) mod alpn;
pub(crate) mod certificate;
pub(crate) mod certificates;
pub(crate) mod config;
mod crypto;
pub(crate) mod identity;
mod learned;
pub(crate) mod ocsp;
pub(crate) mod pem;
pub(crate) mod secure;
mod stream;
pub(crate) mod tickets;
mod validity;
