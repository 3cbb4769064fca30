//! Restricts this worker, as the builder says.

use std::io;

use crate::config::Config;
#[cfg(feature = "sandbox")]
use crate::sys::sandbox;

/// Restricts the thread of the worker, and so each thread that it starts. Nothing that the worker
/// opens later is of the server but in its own paths: the master has left it the rest as
/// descriptors.
pub(super) fn enter(config: &Config) -> io::Result<()> {
    #[cfg(feature = "sandbox")]
    if let Some(sandbox) = &config.sandbox {
        return sandbox::enter(sandbox);
    }
    #[cfg(not(feature = "sandbox"))]
    let _ = config;
    Ok(())
}
