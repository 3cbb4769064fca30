//! HTTP/2 on one connection (RFC 9113), by hyper. The tasks of the streams' handlers are stored
//! beside hyper's connection.
//!
//! Each stream has a [`ConnState`] of its own, for its bodies. The state of the connection says
//! whether any stream is open: in [`Stage::Streams`] only the streams have deadlines, in
//! [`Stage::Quiet`] the connection has the idle timeout. When the registry orders it, the
//! connection looks for [`streams`] whose client takes too long.
//!
//! A connection that has been quiet for a second rests: it gives up hyper's connection, and keeps
//! its stream and the [`client_state`], which [`frames`] has learned from the bytes of both sides.
//! When bytes come, a new hyper connection reads a replay first: what a client would send that
//! begins a connection in this state. What it writes meanwhile is discarded. Then it goes on where
//! the old one was, and the client sees no difference ([`protocol`]). If the connection must go
//! away while it is at [`rest`], it needs no hyper connection unless its client sends a request. A
//! connection whose state cannot be replayed does not rest.
//!
//! A connection without an open stream can also go on in another server, which gets the
//! [`client_record`] and the bytes that were read and not processed. While a connection is to move
//! and streams are open, new ones wait ([`waiting`]), for a short time, and the client keeps their
//! bodies ([`own_settings`]). The next server begins with a connection at rest. If it announces
//! more than the one before, it tells the client ([`announced`]).
//!
//! [`ConnState`]: crate::http::registry::state::ConnState
//! [`Stage::Quiet`]: crate::http::registry::state::Stage::Quiet
//! [`Stage::Streams`]: crate::http::registry::state::Stage::Streams

pub(crate) mod announced;
pub(crate) mod budget;
pub(crate) mod client_record;
pub(crate) mod client_state;
pub(crate) mod credits;
pub(crate) mod frames;
pub(crate) mod goaway;
pub(crate) mod header_table;
pub(crate) mod hyper_connection;
pub(crate) mod hyper_stream;
pub(crate) mod kept_bodies;
pub(crate) mod own_settings;
pub(crate) mod protocol;
pub(crate) mod response;
pub(crate) mod rest;
pub(crate) mod scan;
pub(crate) mod spawner;
pub(crate) mod streams;
pub(crate) mod tasks;
pub(crate) mod tracked_body;
pub(crate) mod unanswered;
pub(crate) mod waiting;
