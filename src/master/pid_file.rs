//! The file with the master's pid.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc;

use crate::codec::record;
use crate::sys::random;

/// The master writes it when the listeners are bound. Dropping this removes it.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    line: String,
}

record!(PidFile { path, line });

impl PidFile {
    /// In the next image: the same file if the path is the same, else a new one. The process is the
    /// same, so the file is correct all the time.
    pub(crate) fn resume(left: Option<Self>, path: Option<&Path>) -> io::Result<Option<Self>> {
        match (left, path) {
            (Some(left), Some(path)) if left.path == path => Ok(Some(left)),
            (_, Some(path)) => Self::write(path).map(Some),
            (_, None) => Ok(None),
        }
    }

    /// Replaces what is there: a file that was left means nothing, and a server that still runs on
    /// the same address was found when the listeners were bound. A symbolic link is replaced
    /// itself.
    pub(crate) fn write(path: &Path) -> io::Result<Self> {
        let line = format!("{}\n", std::process::id());
        let new = new_name(path)?;
        create(&new, &line)
            // Renamed, so that a reader never sees half a number.
            .and_then(|()| fs::rename(&new, path))
            .inspect_err(|_| drop(fs::remove_file(&new)))?;
        Ok(Self {
            path: path.to_owned(),
            line,
        })
    }

    /// Whether the file is still this master's. Another process may have put a link there, or a
    /// FIFO, whose open(2) would wait for a writer.
    fn is_ours(&self) -> io::Result<bool> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(&self.path)?;
        if !file.metadata()?.is_file() {
            return Ok(false);
        }
        let mut line = String::new();
        // A longer line differs within this length.
        let limit = self.line.len() as u64 + 1;
        file.take(limit).read_to_string(&mut line)?;
        Ok(line == self.line)
    }
}

/// Other users may be able to write to the directory, so the file must be a new one: `O_EXCL` fails
/// if the name exists, and follows no symbolic link (open(2)).
fn create(new: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o644);
    options.open(new)?.write_all(line.as_bytes())
}

/// A name in the same directory that no other user can guess.
fn new_name(path: &Path) -> io::Result<PathBuf> {
    let mut bytes = [0; 8];
    random::fill(&mut bytes)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}", u64::from_ne_bytes(bytes)));
    Ok(name.into())
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another master may have written its own file by now.
        if matches!(self.is_ours(), Ok(true))
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the pid file stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn it_holds_the_pid_and_is_removed_unless_another_has_written_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("server.pid");
        let file = PidFile::write(&path).expect("writable");
        let pid: u32 = fs::read_to_string(&path)
            .expect("there")
            .trim()
            .parse()
            .expect("a number");
        assert_eq!(pid, std::process::id());
        drop(file);
        assert!(!path.exists());
        let file = PidFile::write(&path).expect("writable");
        fs::write(&path, "1\n").expect("writable");
        drop(file);
        assert!(path.exists());
    }

    #[test]
    fn links_and_fifos_of_others_are_neither_followed_nor_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let precious = dir.path().join("precious");
        fs::write(&precious, "data").expect("writable");
        let path = dir.path().join("server.pid");
        // At the name of the file, and at one that its new version might have.
        for name in ["server.pid.new", "server.pid"] {
            symlink(&precious, dir.path().join(name)).expect("a new name");
        }
        let file = PidFile::write(&path).expect("writable");
        assert!(path.symlink_metadata().expect("there").is_file());
        assert_eq!(fs::read_to_string(&precious).expect("there"), "data");
        fs::remove_file(&path).expect("it is ours");
        mkfifo(&path, Mode::S_IRWXU).expect("a new name");
        drop(file);
        assert!(path.exists(), "the FIFO is another's");
        let file = PidFile::write(&path).expect("it replaces the FIFO");
        fs::write(&precious, &file.line).expect("writable");
        fs::remove_file(&path).expect("it is ours");
        symlink(&precious, &path).expect("a new name");
        drop(file);
        assert!(path.exists(), "the link is another's");
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("server.pid");
        fs::create_dir(&path).expect("writable");
        PidFile::write(&path).expect_err("a directory is there");
        assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 1);
    }
}
