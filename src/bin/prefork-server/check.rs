//! `--check`: says what a start would do, or why it would fail.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use prefork_server::{BoxError, Prefork};

use crate::cli::{LogTarget, Options};
use crate::console::{print, refuse, summary};
use crate::sandbox::place_of_new;

pub(crate) fn check(options: &Options, server: Prefork) -> ExitCode {
    if let Some(LogTarget::File(path)) = &options.logs.access_log
        && let Err(error) = is_writable(path)
    {
        let path = path.display();
        let error = io::Error::from(error);
        let why: BoxError = format!("cannot write the access log {path}: {error}").into();
        return refuse(&*why, 2);
    }
    if let Err(error) = server.check() {
        return refuse(&error, error.exit_code());
    }
    let summary = summary(options);
    print(&format!(
        "{summary}The options, files and addresses are good.\n"
    ))
}

/// Whether this process may append to the file, or make it.
fn is_writable(path: &Path) -> nix::Result<()> {
    match access(path, AccessFlags::W_OK) {
        Ok(()) if path.is_dir() => Err(Errno::EISDIR),
        Err(Errno::ENOENT) => {
            let folder = place_of_new(path).ok_or(Errno::ENOENT)?;
            access(&folder, AccessFlags::W_OK | AccessFlags::X_OK)
        }
        done => done,
    }
}
