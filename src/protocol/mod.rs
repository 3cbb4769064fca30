//! What the master and a worker agree on; both ends of each agreement stand side by side.

pub(crate) mod channel;
pub(crate) mod inheritance;
pub(crate) mod scoreboard;
