//! What two processes agree on: a master and a worker, or a master and its next image. Each file
//! has both sides of one agreement.

pub(crate) mod channel;
#[cfg(test)]
mod fuzz;
pub(crate) mod inbox;
pub(crate) mod inheritance;
pub(crate) mod scoreboard;
pub(crate) mod state;
pub(crate) mod ticket_keys;
