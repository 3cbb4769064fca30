//! Opens files under one directory, and none outside it. Each call may wait for a disk.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;

/// How often a lookup is tried: a rename at the same time can make it fail (`EAGAIN` of
/// openat2(2)).
const LOOKUP_ATTEMPTS: u32 = 8;

/// The files under one directory. While the kernel resolves a path, it refuses `..`, absolute
/// symbolic links and links that leave the directory, so there is no race between a check and the
/// use. Links that stay inside the directory work.
///
/// A descriptor holds the directory. If the directory is renamed or replaced, the old one is
/// served.
#[derive(Debug)]
pub(super) struct Beneath {
    root: OwnedFd,
}

/// What a path names.
#[derive(Debug)]
pub(super) enum Opened {
    /// A regular file, open for reading.
    File(File, Metadata),
    Directory,
}

impl Beneath {
    /// Fails if there is no such directory, if this process may not search it, or if the kernel (or
    /// a seccomp filter) has no openat2(2).
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(directory, flags, Mode::empty())?;
        let beneath = Self { root };
        beneath.resolve(Path::new("."), OFlag::O_PATH)?;
        Ok(beneath)
    }

    /// Opens a path, which is relative to the directory. Other files than regular ones and
    /// directories are [`io::ErrorKind::NotFound`]. Only a failure of the server (no descriptor
    /// left, a failing disk) is an error of another kind.
    ///
    /// With `O_NONBLOCK`: the open of a FIFO would otherwise wait until a process writes to it.
    pub(super) fn open(&self, path: &Path) -> io::Result<Opened> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = match self.resolve(path, flags) {
            Ok(file) => File::from(file),
            // A directory that may be searched but not read.
            Err(Errno::EACCES) if self.is_directory(path) => return Ok(Opened::Directory),
            Err(errno) => return Err(hide(errno)),
        };
        let metadata = file.metadata()?;
        match metadata.file_type() {
            kind if kind.is_file() => Ok(Opened::File(file, metadata)),
            kind if kind.is_dir() => Ok(Opened::Directory),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn is_directory(&self, path: &Path) -> bool {
        self.resolve(path, OFlag::O_PATH | OFlag::O_DIRECTORY)
            .is_ok()
    }

    fn resolve(&self, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        for _ in 1..LOOKUP_ATTEMPTS {
            match openat2(&self.root, path, how) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                done => return done,
            }
        }
        openat2(&self.root, path, how)
    }
}

/// A file that may not be served is as one that does not exist.
fn hide(errno: Errno) -> io::Error {
    match errno {
        Errno::EACCES
        | Errno::EPERM
        | Errno::ELOOP
        | Errno::ENAMETOOLONG
        | Errno::ENODEV
        | Errno::ENOTDIR
        | Errno::ENXIO
        | Errno::EXDEV => io::Error::new(io::ErrorKind::NotFound, errno.desc()),
        other => other.into(),
    }
}
