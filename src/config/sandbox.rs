//! What workers may open and reach.

use std::path::PathBuf;

/// What workers may open and reach, for [`Prefork::sandbox`](crate::Prefork::sandbox).
///
/// A path is a folder with all that is below it, or one file. It is resolved when the worker
/// starts, symbolic links too, and must exist then. A folder that takes its place later is another
/// folder: it is refused until a reload. Rights of several paths add up.
///
/// ```
/// use prefork_server::{Prefork, Sandbox};
///
/// // Converts pictures with a program, and keeps a log.
/// let sandbox = Sandbox::new()
///     .execute("/usr")
///     .write("/var/lib/app/pictures")
///     .append("/var/log/app")
///     .no_network();
/// let server = Prefork::bind("127.0.0.1:8080").sandbox(sandbox);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    pub(crate) paths: Vec<(PathBuf, Access)>,
    pub(crate) connections: Connections,
}

/// What may be done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Append,
    Execute,
}

/// Whether a worker may bind and connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Connections {
    #[default]
    Any,
    None,
}

impl Sandbox {
    /// No file and no folder may be opened. The network is as without a sandbox.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Files may be read and folders listed.
    #[must_use]
    pub fn read(self, path: impl Into<PathBuf>) -> Self {
        self.allow(path, Access::Read)
    }

    /// Files and folders may be read, made, changed, renamed and removed. Nothing may be executed.
    #[must_use]
    pub fn write(self, path: impl Into<PathBuf>) -> Self {
        self.allow(path, Access::Write)
    }

    /// Files may be made, and opened to write to them; not read, cut, renamed or removed. For the
    /// folder of a log that is opened again after a rotation. The kernel does not check that the
    /// worker writes at the end, so the folder should have no other files that the worker's user
    /// may write to.
    #[must_use]
    pub fn append(self, path: impl Into<PathBuf>) -> Self {
        self.allow(path, Access::Append)
    }

    /// Files may be read and executed, and folders listed. A program needs its loader and libraries
    /// too, as in `execute("/usr")`. It runs in the sandbox of the worker.
    #[must_use]
    pub fn execute(self, path: impl Into<PathBuf>) -> Self {
        self.allow(path, Access::Execute)
    }

    /// The worker may neither bind nor connect. It accepts from the server's listeners all the
    /// same. The guide's page `privileges` says which kernels refuse what.
    #[must_use]
    pub fn no_network(self) -> Self {
        let connections = Connections::None;
        Self {
            connections,
            ..self
        }
    }

    fn allow(mut self, path: impl Into<PathBuf>, access: Access) -> Self {
        self.paths.push((path.into(), access));
        self
    }
}
