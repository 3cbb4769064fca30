//! System calls, one family in each file, without policy. All `unsafe` code of the crate is here.
#![allow(unsafe_code)]

pub(crate) mod apart;
mod before_main;
pub(crate) mod clock;
pub(crate) mod credentials;
pub(crate) mod discard;
pub(crate) mod exec;
pub(crate) mod fds;
pub(crate) mod file_status;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod locks;
pub(crate) mod memory;
pub(crate) mod processes;
pub(crate) mod random;
pub(crate) mod reap;
#[cfg(feature = "files")]
pub(crate) mod resident;
#[cfg(feature = "sandbox")]
pub(crate) mod sandbox;
pub(crate) mod signals;
pub(crate) mod socket;
pub(crate) mod spawn;
mod terminal;
pub(crate) mod thread_time;
