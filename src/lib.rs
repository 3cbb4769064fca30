//! A prefork HTTP server: one supervised process per core, each with its own listener.

#[cfg(not(target_os = "linux"))]
compile_error!("prefork-server runs on Linux only (5.10 or newer)");

mod id;

pub use crate::id::{Generation, Slot, WorkerId};
