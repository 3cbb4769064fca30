//! A prefork HTTP server: one supervised process per core, each with its own listener.

#[cfg(not(target_os = "linux"))]
compile_error!("prefork-server runs on Linux only (5.10 or newer)");

mod config;
mod error;
mod handle;
mod hooks;
mod id;
mod protocol;
mod sys;

pub use crate::config::{Address, AddressError, CrashLimit, Listeners, MAX_WORKERS, Peer};
pub use crate::error::{BoxError, EXIT_MISCONFIGURED, Error};
pub use crate::handle::{Handle, Stop};
pub use crate::hooks::{Core, ExitStatus, Hooks, Limit, Notice, WorkerCommand, WorkerInfo};
pub use crate::id::{Generation, Slot, WorkerId};
pub use crate::sys::limits::{CpuReason, Cpus, usable_cpus};
