//! All connections of a worker: their state, deadlines, drain and eviction.

pub(crate) mod active_set;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod drain;
pub(crate) mod eviction;
pub(crate) mod idle_queue;
pub(crate) mod list;
pub(crate) mod member;
pub(crate) mod mode;
pub(crate) mod state;
#[cfg(feature = "http2")]
pub(crate) mod streams;
pub(crate) mod timeouts;
pub(crate) mod wheel;
