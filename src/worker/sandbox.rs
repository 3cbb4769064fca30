//! Restricts this worker, as the builder says.

use std::io;
#[cfg(feature = "sandbox")]
use std::sync::Arc;

use crate::config::Config;
#[cfg(feature = "sandbox")]
use crate::config::Sandbox;
use crate::error::BoxError;
#[cfg(feature = "sandbox")]
use crate::sys::sandbox;
use crate::worker::Worker;
use crate::worker::incoming::Incoming;

/// The sandbox that this worker will enter. By default none, as without a master.
#[derive(Clone, Debug, Default)]
pub(super) struct Entrance {
    #[cfg(feature = "sandbox")]
    sandbox: Option<Arc<Sandbox>>,
}

impl Entrance {
    #[cfg_attr(not(feature = "sandbox"), expect(unused_variables))]
    pub(super) fn of(config: &Config) -> Self {
        Self {
            #[cfg(feature = "sandbox")]
            sandbox: config.sandbox.clone().map(Arc::new),
        }
    }

    fn enter(&self) -> io::Result<()> {
        #[cfg(feature = "sandbox")]
        if let Some(sandbox) = &self.sandbox {
            return sandbox::enter(sandbox);
        }
        Ok(())
    }
}

impl Worker {
    /// Restricts the thread of this worker, and so each thread that it starts. The server has
    /// opened what it needs: the master has left it descriptors, and a worker to which a new binary
    /// gave TLS has read the files itself.
    pub(super) fn enter_sandbox(&self) -> io::Result<()> {
        self.sandbox.enter()
    }

    /// Runs the app of [`run`](crate::Prefork::run).
    pub(crate) async fn run_in_sandbox<A>(self, app: A, incoming: Incoming) -> Result<(), BoxError>
    where
        A: AsyncFnOnce(Self, Incoming) -> Result<(), BoxError>,
    {
        self.enter_sandbox()?;
        app(self, incoming).await
    }
}
