//! HTTP/1.1 on one stream: plain requests [directly](direct), all others by hyper.
//!
//! Nearly every request is a GET without a body whose answer is there at once and short. For that a
//! head is parsed, a handler called, and a head and a body put into the stream's buffer; hyper's
//! connection does more, for twice the instructions. So what is plain beyond doubt is served
//! here, by the same parser, and whatever is not goes to hyper as it came: other methods, bodies,
//! versions, upgrades, anything malformed, or a head that dribbles in; and answers that stream, or
//! are large, with the request that they are for. A connection that has gone to hyper stays there
//! until it rests.

pub(crate) mod buffers;
pub(crate) mod date;
pub(crate) mod direct;
pub(crate) mod field;
pub(crate) mod head;
pub(crate) mod head_cache;
pub(crate) mod protocol;
pub(crate) mod resumed;
pub(crate) mod shared;
pub(crate) mod write;
