//! The setting of the sandbox.

use super::Prefork;
use crate::config::Sandbox;

impl Prefork {
    /// Restricts what workers may open and reach, by Landlock (landlock(7)). An attacker who
    /// controls a handler can then open and reach only what the sandbox allows. The kernel refuses
    /// the rest with `EACCES`, whatever user the worker runs as. A worker can then neither trace
    /// (ptrace(2)) nor signal processes that it has not started, and cannot gain rights by
    /// set-user-ID programs.
    ///
    /// The code before [`serve`](Self::serve) and [`run`](Self::run) is not restricted; their app
    /// is. So what the app opens, also later, must be in the sandbox: files for name resolution
    /// (`/etc/resolv.conf`, `/etc/hosts`), certificates of authorities, `/proc/self`. Descriptors
    /// that are open before stay as they are. The master, which starts programs and reads the files
    /// for TLS, is never restricted, and neither is the admin process.
    ///
    /// A thread that the program starts before `serve` is restricted from Linux 7.0 on. On an older
    /// kernel it is not, and an attacker may use it.
    ///
    /// If the kernel has no Landlock or an old one, the log says at the start what it cannot
    /// refuse, and the server serves. If a path is missing, no worker starts. Has no effect [in
    /// process](Self::in_process). Needs the feature `sandbox`. The
    /// [guide](crate::guide::privileges#the-sandbox) has a table.
    ///
    /// ```no_run
    /// use prefork_server::{Exit, Prefork, Response, Sandbox, handler};
    ///
    /// fn main() -> Exit {
    ///     // Templates are read, uploads written. The app makes no connections.
    ///     let sandbox = Sandbox::new()
    ///         .read("/srv/app/templates")
    ///         .write("/var/lib/app/uploads")
    ///         .no_network();
    ///     Prefork::bind("127.0.0.1:8080")
    ///         .sandbox(sandbox)
    ///         .serve(async |_worker| {
    ///             let page = std::fs::read_to_string("/srv/app/templates/index.html")?;
    ///             Ok(handler(move |_request| {
    ///                 let page = page.clone();
    ///                 async move { Ok(Response::new(page.into())) }
    ///             }))
    ///         })
    ///         .into()
    /// }
    /// ```
    ///
    /// Default: `None`, no restriction.
    #[must_use]
    pub fn sandbox(mut self, sandbox: impl Into<Option<Sandbox>>) -> Self {
        self.config.sandbox = sandbox.into();
        self
    }
}
