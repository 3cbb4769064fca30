//! HTTP/1.1 on one stream: plain requests [directly](direct), all others by hyper.
//!
//! Nearly every request has no body or a small one, and its response is short and ready at once.
//! For such a request this module parses the head, calls the handler, and writes the response's
//! head and body into the stream's buffer. A long piece of a body is sent from where it is, also
//! from a file ([`sending`]). hyper's connection does more, for twice the instructions, and cannot
//! send files. So a plain request is served here, by the parser that hyper uses. All others go to
//! hyper unchanged: unusual methods, other versions, bodies that have not come as a whole,
//! upgrades, malformed heads, and heads that come in many pieces. A response of unknown length goes
//! to hyper together with its request. A connection that hyper serves stays with hyper until the
//! connection rests.

pub(crate) mod direct;
pub(crate) mod field;
pub(crate) mod head;
pub(crate) mod head_cache;
mod input;
mod permanent;
pub(crate) mod protocol;
pub(crate) mod resumed;
mod sending;
pub(crate) mod shared;
mod turn;
pub(crate) mod write;
