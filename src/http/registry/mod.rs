//! All connections of a worker: their state, deadlines, drain and eviction.
//!
//! [`list`] has the connections and looks at each when its turn comes. [`timeouts`] says what is
//! due, [`drain`] what ends in a drain, [`eviction`] what ends at the limit on connections. Each
//! leaves an [`Order`](timeouts::Order), which the connection's task carries out.

pub(crate) mod active_set;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod drain;
pub(crate) mod eviction;
pub(crate) mod idle_queue;
pub(crate) mod list;
pub(crate) mod member;
pub(crate) mod mode;
pub(crate) mod request_ids;
pub(crate) mod sharing;
pub(crate) mod state;
#[cfg(feature = "http2")]
pub(crate) mod streams;
pub(crate) mod timeouts;
pub(crate) mod wheel;
