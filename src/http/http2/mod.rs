//! HTTP/2 on one stream (RFC 9113): hyper's, with its streams' handlers kept beside it.
//!
//! Each stream has a [`ConnState`] of its own, for its bodies. The connection's says whether any
//! is open: [`Stage::Streams`] has no deadline but theirs, [`Stage::Quiet`] that of an idle
//! connection. The [`streams`] that wait for their client are looked at when the registry says so.

pub(crate) mod budget;
pub(crate) mod frames;
pub(crate) mod hyper_stream;
pub(crate) mod protocol;
pub(crate) mod spawner;
pub(crate) mod streams;
pub(crate) mod tasks;
pub(crate) mod tracked_body;
