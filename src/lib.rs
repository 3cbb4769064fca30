//! A prefork HTTP server: one supervised process per core, each with its own listener.

#[cfg(not(target_os = "linux"))]
compile_error!("prefork-server runs on Linux only (5.10 or newer)");

mod address;
mod config;
mod error;
mod handle;
mod hooks;
mod http;
mod id;
mod master;
mod prefork;
mod protocol;
mod record;
mod supervisor;
mod sys;
mod worker;

pub use hyper::service::service_fn;

pub use crate::address::{Address, AddressError, Peer};
pub use crate::config::{Backoff, CrashLimit, Listeners, MAX_WORKERS};
pub use crate::error::{BoxError, EXIT_MISCONFIGURED, Error};
pub use crate::handle::{Handle, Stop};
pub use crate::hooks::{Core, ExitStatus, Hooks, Limit, Notice, WorkerCommand, WorkerInfo};
pub use crate::http::{
    Body, BodyError, ConnectionInfo, DateHeader, Http, KeepAlive, Request, Response,
};
pub use crate::id::{Generation, Slot, WorkerId};
pub use crate::prefork::{Prefork, Role, role};
pub use crate::sys::limits::{CpuReason, Cpus, usable_cpus};
pub use crate::worker::Worker;
pub use crate::worker::connection::Connection;
pub use crate::worker::incoming::Incoming;
