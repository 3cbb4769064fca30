//! A server without workers.

use super::{Prefork, Processes};
use crate::error::{BoxError, Error};
use crate::worker::Worker;
use crate::worker::alone::Purpose;
use crate::worker::incoming::Incoming;
use crate::{master, worker};

impl Prefork {
    /// Serves in this process instead of in workers: no master, no respawn, no signals, one thread.
    /// It is for debuggers, and for tests that need the thread of the server: a test binary that is
    /// executed again would run its tests again. [`TestServer`](crate::TestServer) is shorter, and
    /// works inside a runtime; [`serve`](Self::serve) and [`run`](Self::run) panic there, because
    /// they make one. Its [`handle`](Self::handle) ends it. What needs a master has no effect: no
    /// recycling, no hang detection, no other user, no pid file, no admin address. The only notice
    /// is [`Notice::Serving`](crate::Notice::Serving), and it goes only to hooks.
    ///
    /// ```no_run
    /// use prefork_server::{Exit, Prefork, Response, handler};
    ///
    /// fn main() -> Exit {
    ///     let mut server = Prefork::bind("127.0.0.1:8080");
    ///     if std::env::args().any(|argument| argument == "--debug") {
    ///         server = server.in_process();
    ///     }
    ///     let app = async |_worker| Ok(handler(async |_request| Ok(Response::default())));
    ///     server.serve(app).into()
    /// }
    /// ```
    ///
    /// Default: workers.
    #[must_use]
    pub fn in_process(mut self) -> Self {
        self.processes = Processes::ThisOne;
        self
    }

    pub(super) fn run_in_process<A>(mut self, app: A) -> Result<(), Error>
    where
        A: AsyncFnOnce(Worker, Incoming) -> Result<(), BoxError>,
    {
        self.parsed()?;
        if let Some(tls) = &self.tls {
            tls.read_files()?;
        }
        let (handle, commands) = self.take_handle()?;
        // The files of Unix listeners are removed at the end.
        let opened = master::listen_once(&self.config)?;
        let setup = self.worker_setup(handle, commands);
        worker::alone::run(Purpose::App, setup, opened.listeners, opened.addresses, app)
    }
}
