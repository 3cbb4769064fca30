//! The files of processes in `/proc` (proc(5)).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::unistd::Pid;

/// The path of a file of this process or another. Fails if `/proc` is not mounted, or is that of
/// another process namespace (pid_namespaces(7)): there the number is another process.
pub(crate) fn file(pid: Pid, name: &str) -> io::Result<PathBuf> {
    /// The master asks for its workers' files all the time.
    static IS_OF_THIS_NAMESPACE: OnceLock<bool> = OnceLock::new();
    let look = || {
        let this = fs::read_link("/proc/self");
        this.is_ok_and(|this| this == Path::new(&Pid::this().to_string()))
    };
    match *IS_OF_THIS_NAMESPACE.get_or_init(look) {
        true => Ok(PathBuf::from(format!("/proc/{pid}/{name}"))),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// What the file tells, which has lines of text.
pub(crate) fn read(pid: Pid, name: &str) -> io::Result<String> {
    fs::read_to_string(file(pid, name)?)
}
