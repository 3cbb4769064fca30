//! What two processes agree on: a master and a worker, the admin process, or its next image. Each
//! file has both sides of one agreement.

pub(crate) mod admin;
pub(crate) mod channel;
#[cfg(test)]
mod fuzz;
pub(crate) mod inbox;
pub(crate) mod inheritance;
pub(crate) mod own_metrics;
pub(crate) mod scoreboard;
pub(crate) mod state;
pub(crate) mod ticket_keys;
