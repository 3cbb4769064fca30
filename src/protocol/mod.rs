//! What two processes agree on, a master and a worker or a master and its next image; both ends of
//! each agreement stand side by side.

pub(crate) mod channel;
#[cfg(test)]
mod fuzz;
pub(crate) mod inbox;
pub(crate) mod inheritance;
pub(crate) mod scoreboard;
pub(crate) mod state;
pub(crate) mod ticket_keys;
