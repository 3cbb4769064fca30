//! The sandbox of the workers, from the options: what they open after the start.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::path::{Path, PathBuf};

use prefork_server::Sandbox;

use crate::cli::{LogTarget, Options, SandboxMode, Serve};

/// Where `--symlinks anywhere` may lead.
const ROOT: &str = "/";

/// How many links the kernel follows on the way to a file (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// `None`: workers are not restricted. A path that does not exist is left out: what opens it says
/// so better.
pub(crate) fn of(options: &Options) -> Option<Sandbox> {
    if options.processes.sandbox == SandboxMode::Off {
        return None;
    }
    let mut sandbox = Sandbox::new().no_network();
    if let Serve::Files(directory) = options.serving.serve() {
        let readable = match options.files.follows_all_links() {
            true => Some(ROOT.into()),
            false => directory.canonicalize().ok(),
        };
        sandbox = readable.into_iter().fold(sandbox, Sandbox::read);
    }
    if let Some(LogTarget::File(path)) = &options.logs.access_log {
        sandbox = place_of(path).into_iter().fold(sandbox, Sandbox::append);
    }
    // For the names of functions.
    if Backtrace::capture().status() == BacktraceStatus::Captured {
        let program = env::current_exe().ok().filter(|path| path.exists());
        sandbox = program.into_iter().fold(sandbox, Sandbox::read);
    }
    Some(sandbox)
}

/// Says that the sandbox is wider than its user may expect.
pub(crate) fn tell(options: &Options) {
    let is_on = options.processes.sandbox == SandboxMode::On;
    let has_files = matches!(options.serving.serve(), Serve::Files(_));
    if is_on && has_files && options.files.follows_all_links() {
        tracing::info!("--symlinks anywhere: the sandbox lets workers read all files");
    }
}

/// The folder in which the file is made again after a rotation. What is no file, such as a FIFO or
/// a terminal, is opened again itself: its folder may be that of all devices.
fn place_of(log: &Path) -> Option<PathBuf> {
    match log.canonicalize() {
        Ok(path) if path.is_file() => path.parent().map(Into::into),
        Ok(path) => Some(path),
        // `/dev/stdout` may lead to a pipe, which has no path and needs no right.
        Err(_) if log.exists() => None,
        Err(_) => place_of_new(log),
    }
}

/// The folder in which the file is made the first time: that of the target if the path is a link.
pub(crate) fn place_of_new(log: &Path) -> Option<PathBuf> {
    let mut path = log.to_owned();
    for _ in 0..=LINKS_MAX {
        let parent = path.parent()?;
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        match path.read_link() {
            Ok(target) => path = parent.join(target),
            Err(_) => return parent.canonicalize().ok(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_log_is_made_again_in_its_folder_and_a_device_is_opened_itself() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().canonicalize().expect("it is there");
        let new = dir.join("new");
        assert_eq!(place_of(&new), Some(dir.clone()));
        fs::write(&new, "").expect("writable");
        assert_eq!(place_of(&new), Some(dir.clone()));
        let folder = dir.join("logs");
        fs::create_dir(&folder).expect("a new name");
        fs::write(folder.join("real"), "").expect("writable");
        let link = dir.join("link");
        std::os::unix::fs::symlink("logs/real", &link).expect("a new name");
        assert_eq!(place_of(&link), Some(folder.clone()));
        fs::remove_file(folder.join("real")).expect("it is ours");
        assert_eq!(place_of(&link), Some(folder.clone()));
        for (link, target) in [
            ("logs/next", "../link"),
            ("again", "logs/next"),
            ("loop", "loop"),
        ] {
            std::os::unix::fs::symlink(target, dir.join(link)).expect("a new name");
        }
        assert_eq!(place_of(&dir.join("again")), Some(folder));
        assert_eq!(place_of(&dir.join("loop")), None);
        assert_eq!(place_of(Path::new("/dev/null")), Some("/dev/null".into()));
        assert_eq!(place_of(&dir.join("missing/log")), None);
        let here = env::current_dir().and_then(|path| path.canonicalize());
        assert_eq!(place_of(Path::new("no-such-log")), here.ok());
    }
}
