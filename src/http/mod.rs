//! HTTP on accepted sockets. This room knows nothing of slots, signals or processes.
//!
//! The life of a connection:
//!
//! 1. `Endpoint::serve()` takes a socket (`server.rs`). The connection becomes a member of the
//!    registry with a state of its own (`registry/member.rs`, `registry/state.rs`), and gets a task
//!    (`conn/task.rs`), which the caller spawns.
//! 2. First comes what precedes HTTP: a TLS handshake, a PROXY header (`conn/socket.rs`, `tls/`).
//! 3. The connection rests: it is a socket and a small task, and waits for its first byte.
//! 4. When a byte comes, the task builds a stream around the socket and gives it to a protocol:
//!    HTTP/2 if the first bytes are its preface or ALPN chose it, else HTTP/1 (`conn/stream.rs`,
//!    `server/protocols.rs`). The stream keeps the bytes that are received and not parsed.
//! 5. A plain HTTP/1 request is served without hyper (`http1/direct.rs`); any other request makes
//!    hyper serve the connection until it rests (`http1/protocol.rs`, `http2/protocol.rs`).
//! 6. Each request is checked against the rules and given to the handler; its response is
//!    completed and counted (`exchange/`).
//! 7. Every step writes into the connection's state. `Registry::tick()` looks at each connection
//!    when its turn comes (`registry/list.rs`), and orders its task to end it when a deadline has
//!    passed (`registry/timeouts.rs`).
//! 8. A connection that is idle for a second gives up everything but its socket and rests again. In
//!    HTTP/2 it also keeps what the client will not send again (`http2/protocol.rs`).
//! 9. In a drain an idle connection goes to the slot's next worker, or is closed after a moment; a
//!    busy one ends with its next response (`registry/drain.rs`, `conn/handover.rs`). An HTTP/2
//!    connection goes when no stream is open, with a record of its client
//!    (`http2/client_record.rs`). One within TLS goes with its session
//!    (`tls/stream/session_record.rs`).
//! 10. At the end the server sends what is left, and discards what the client still sends, so that
//!     the client can read its last response (`conn/lingering_close.rs`).
//!
//! A room may use the rooms on floors below it; `tests/tidy.rs` enforces that, and that no files
//! import each other in a circle.
//!
//! ```text
//! floor 6  server               takes sockets, drains, hands over
//! floor 5  http1 http2 tls      protocols; what comes before them
//! floor 4  conn                 one connection: task, stream, socket, preface, lingering close
//! floor 3  exchange             one request and its response: rules, service, bodies
//! floor 2  registry             all connections: state, clock, deadlines, drain, eviction
//! floor 1  options              what the user chose
//! floor 0  info                 what is known of a connection's client
//! ```

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
pub use exchange::handler::{ServiceFn, handler, service_fn};
pub use exchange::into_service::IntoService;
pub use exchange::message::{Request, Response};
pub use exchange::piece::Piece;
#[cfg(feature = "files")]
pub(crate) use exchange::piece::{FILE_CHANGED, FilePart};
pub use exchange::reply::{reply, reply_with};
pub(crate) use exchange::rules::named_host;
pub(crate) use exchange::service::Handler;
#[cfg(feature = "tower")]
pub use exchange::tower::{TowerFuture, TowerService, tower_service};
pub use info::ConnectionInfo;
#[cfg(feature = "tls")]
pub use info::tls::{TlsHandshake, TlsInfo, TlsVersion};
#[cfg(not(feature = "tls"))]
pub(crate) use no_tls::{Acceptor, Secure, Tls};
#[cfg(feature = "http2")]
pub use options::Http2;
pub use options::refused::Refused;
pub use options::{DateHeader, Http, KeepAlive};
pub(crate) use registry::state::Stage;
pub(crate) use server::{Endpoint, Server};
#[cfg(feature = "tls")]
pub(crate) use tls::acceptor::Acceptor;
#[cfg(feature = "tls")]
pub use tls::certificate::Certificate;
#[cfg(feature = "tls")]
pub use tls::config::{ClientAuth, Tls};
#[cfg(feature = "tls")]
pub(crate) use tls::secure::Secure;
