//! The file with the master's pid.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc;

use crate::codec::record;
use crate::master::Master;
use crate::sys::locks::{self, PathLock, is_at};
use crate::sys::random;

/// The longest pid, and the end of its line.
const LINE_MAX: u64 = 11;

/// The master writes it when the listeners are bound. Dropping this removes it.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// The file itself, which this master [holds](locks::hold), so that no other server replaces
    /// it.
    file: OwnedFd,
}

record!(PidFile { path, file });

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

    /// Makes the file again if it was removed.
    fn renew(&mut self) -> io::Result<()> {
        if !self.path.try_exists()? {
            *self = Self::write(&self.path)?;
        }
        Ok(())
    }

    /// Replaces what is there, unless a server that runs holds it. The file of one that was killed
    /// means nothing. A symbolic link is replaced itself.
    pub(crate) fn write(path: &Path) -> io::Result<Self> {
        let _lock = PathLock::acquire(path)?;
        if let Some(pid) = holder(path)? {
            let why = format!("the server with process id {pid} runs and holds it");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        let new = new_name(path)?;
        let file = create(&new)
            // Renamed, so that a reader never sees half a number, or a file that is not held.
            .and_then(|file| fs::rename(&new, path).map(|()| file))
            .inspect_err(|_| drop(fs::remove_file(&new)))?;
        Ok(Self {
            path: path.to_owned(),
            file: file.into(),
        })
    }
}

/// The pid in the file at the path, if a process holds that file. There may be a link, or a FIFO,
/// whose open(2) would wait for a writer. What cannot be read is no server's.
fn holder(path: &Path) -> io::Result<Option<String>> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let Ok(file) = options.open(path) else {
        return Ok(None);
    };
    if !locks::is_held(&file)? {
        return Ok(None);
    }
    let mut line = String::new();
    file.take(LINE_MAX).read_to_string(&mut line)?;
    Ok(Some(line.trim_end().to_owned()))
}

/// Other users may be able to write to the directory, so the file must be a new one: `O_EXCL` fails
/// if the name exists, and follows no symbolic link (open(2)).
fn create(new: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o644);
    let mut file = options.open(new)?;
    locks::hold(&file)?;
    writeln!(file, "{}", std::process::id())?;
    Ok(file)
}

/// A name in the same directory that no other user can guess.
fn new_name(path: &Path) -> io::Result<PathBuf> {
    let mut bytes = [0; 8];
    random::fill(&mut bytes)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}", u64::from_ne_bytes(bytes)));
    Ok(name.into())
}

impl Master {
    /// At a reload and an upgrade, for an operator who has removed the file or its directory.
    pub(super) fn renew_pid_file(&mut self) {
        if let Some(file) = &mut self.pid_file
            && let Err(error) = file.renew()
        {
            tracing::error!(path = %file.path.display(), %error, "the pid file is not made again");
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another process may have put its own file there.
        if matches!(is_at(&self.file, &self.path), Ok(true))
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
    fn it_holds_the_pid_and_is_removed_unless_another_has_replaced_it() {
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
        fs::remove_file(&path).expect("it is ours");
        fs::write(&path, format!("{pid}\n")).expect("writable");
        drop(file);
        assert!(path.exists());
    }

    /// As after a server was killed, the second time.
    #[test]
    fn it_is_replaced_only_if_no_process_holds_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("server.pid");
        let held = PidFile::write(&path).expect("writable");
        let error = PidFile::write(&path).expect_err("it is held").to_string();
        let why = format!("process id {} runs", std::process::id());
        assert!(error.contains(&why), "{error}");
        drop(held);
        fs::write(&path, "1\n").expect("writable");
        let reader = File::open(&path).expect("there");
        let locked = nix::fcntl::Flock::lock(reader, nix::fcntl::FlockArg::LockShared);
        let _reader = locked.expect("any user who may read the file can do that");
        let _file = PidFile::write(&path).expect("nobody holds it");
        assert_ne!(fs::read_to_string(&path).expect("there"), "1\n");
        let left = fs::read_dir(dir.path()).expect("a directory");
        assert_eq!(left.count(), 1);
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
