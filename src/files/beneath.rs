//! Opens files under one directory, and none outside it.

use std::ffi::{CStr, OsStr};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::libc;
use nix::sys::stat::Mode;
use nix::sys::statfs::fstatfs;

use super::listing::{ENTRIES_MAX, Kind, Listed, Listing};
use super::path::is_refused;
use crate::named::named;
use crate::sys::file_status::{self, FileStatus};

/// How often a lookup is tried that may wait: a rename at the same time can make it fail (`EAGAIN`
/// of openat2(2)).
const LOOKUP_ATTEMPTS: u32 = 8;

/// The file systems whose files another machine or program has, by their numbers in statfs(2): NFS,
/// FUSE and so virtiofs, SMB of three kinds, 9P, Ceph, AFS of two kinds, Lustre.
const REMOTE: [u32; 10] = [
    0x6969,
    0x6573_5546,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x6b41_4653,
    0x0bd0_0bd3,
];

/// What a call may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// For nothing: the kernel has it in memory, or the error is [`io::ErrorKind::WouldBlock`]. The
    /// event loop calls with this.
    Memory,
    /// For a disk. Only threads that may wait call with this.
    Disk,
}

/// Which symbolic links below the directory are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Symlinks {
    /// Those that lead to a place inside the directory, by a relative path. The default.
    #[default]
    Inside,
    /// None: a path with a symbolic link in it is not found.
    Never,
    /// All, also those that lead out of the directory.
    Anywhere,
}

named!(Symlinks {
    "inside" = Inside,
    "never" = Never,
    "anywhere" = Anywhere,
});

/// The files under one directory. While the kernel resolves a path, it refuses `..`, absolute
/// symbolic links and links that leave the directory, so there is no race between a check and the
/// use.
///
/// A descriptor holds the directory. If the directory is renamed or replaced, the old one is
/// served.
#[derive(Debug)]
pub(super) struct Beneath {
    root: OwnedFd,
    resolve: ResolveFlag,
    /// Whether another machine or program has the files. Then the kernel asks it at each open, and
    /// for the length of an open file, also if it has the name in memory.
    is_remote: bool,
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
    pub(super) fn new(directory: &Path, symlinks: Symlinks) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(directory, flags, Mode::empty())?;
        let resolve = match symlinks {
            Symlinks::Inside => ResolveFlag::RESOLVE_BENEATH,
            Symlinks::Never => ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS,
            Symlinks::Anywhere => ResolveFlag::empty(),
        };
        let resolve = resolve | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let kind = fstatfs(&root).map(|system| system.filesystem_type().0 as u32);
        // Local file systems always say what they are.
        let is_remote = kind.map_or(true, |kind| REMOTE.contains(&kind));
        let beneath = Self {
            root,
            resolve,
            is_remote,
        };
        match beneath.resolve(Path::new("."), OFlag::O_PATH, Reach::Disk) {
            // A filter that does not know the call may refuse it with EPERM.
            Err(Errno::ENOSYS | Errno::EPERM) => Err(io::Error::other(
                "no openat2(2) in this kernel (it came with Linux 5.6), or a filter refuses it",
            )),
            Err(errno) => Err(errno.into()),
            Ok(_) => Ok(beneath),
        }
    }

    /// Opens a path, which is relative to the directory and has no `..`. Other files than regular
    /// ones and directories are [`io::ErrorKind::NotFound`]. Only a failure of the server (no
    /// descriptor left, a failing disk) is an error of another kind.
    ///
    /// With `O_NONBLOCK`: the open of a FIFO would otherwise wait until a process writes to it.
    /// Without `O_LARGEFILE` a kernel of 32 bits opens no file of 2 GiB.
    pub(super) fn open(&self, path: &Path, reach: Reach) -> io::Result<Opened> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOCTTY | OFlag::O_LARGEFILE;
        let opened = match self.resolve(path, flags | OFlag::O_NONBLOCK, reach) {
            // Another program has a lease on the file, and was asked to give it back (fcntl(2)).
            Err(Errno::EAGAIN) if reach == Reach::Disk && self.is_file(path) => {
                self.resolve(path, flags, reach)
            }
            opened => opened,
        };
        let file = match opened {
            Ok(file) => File::from(file),
            Err(Errno::EAGAIN) => return Err(io::ErrorKind::WouldBlock.into()),
            // A directory that may be searched but not read.
            Err(Errno::EACCES) if self.is_directory(path, reach) => return Ok(Opened::Directory),
            Err(errno) => return Err(hide(errno)),
        };
        let metadata = file.metadata()?;
        match metadata.file_type() {
            kind if kind.is_file() => Ok(Opened::File(file, metadata)),
            kind if kind.is_dir() => Ok(Opened::Directory),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// What is in a directory, as far as it would be served. Waits for the disk.
    pub(super) fn list(&self, path: &Path) -> io::Result<Listing> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let directory = self.resolve(path, flags, Reach::Disk).map_err(hide)?;
        let directory = Dir::from_fd(directory)?;
        let mut listing = Listing::default();
        // The fd stays open in `Dir`, which reads the names.
        let names = directory.as_fd().try_clone_to_owned()?;
        for entry in directory {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b".." || is_refused(name) {
                continue;
            }
            if listing.entries.len() == ENTRIES_MAX {
                listing.is_cut = true;
                break;
            }
            if let Ok(status) = self.status(&names, path, entry.file_name())
                && let Some(kind) = Kind::of(&status)
            {
                listing.entries.push(Listed {
                    name: name.to_vec(),
                    kind,
                    length: status.length,
                    modified: status.modified,
                });
            }
        }
        Ok(listing)
    }

    /// Of a name in a directory. A link is followed only if it would be served.
    fn status(&self, directory: &OwnedFd, path: &Path, name: &CStr) -> io::Result<FileStatus> {
        let status = file_status::of(directory, name)?;
        match status.kind {
            libc::S_IFLNK => {
                let path = path.join(OsStr::from_bytes(name.to_bytes()));
                file_status::of(self.resolve(&path, OFlag::O_PATH, Reach::Disk)?, c"")
            }
            _ => Ok(status),
        }
    }

    /// Waits for the disk.
    fn is_file(&self, path: &Path) -> bool {
        let file = self.resolve(path, OFlag::O_PATH, Reach::Disk);
        let status = file.map(|file| file_status::of(file, c""));
        matches!(status, Ok(Ok(status)) if status.kind == libc::S_IFREG)
    }

    fn is_directory(&self, path: &Path, reach: Reach) -> bool {
        self.resolve(path, OFlag::O_PATH | OFlag::O_DIRECTORY, reach)
            .is_ok()
    }

    /// Whether to open a file, or to look at an open one, may wait for another machine or program.
    pub(super) fn waits(&self, reach: Reach) -> bool {
        self.is_remote && reach == Reach::Memory
    }

    fn resolve(&self, path: &Path, flags: OFlag, reach: Reach) -> nix::Result<OwnedFd> {
        if self.waits(reach) {
            return Err(Errno::EAGAIN);
        }
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC);
        if reach == Reach::Memory {
            let cached = ResolveFlag::from_bits_retain(libc::RESOLVE_CACHED);
            return match openat2(&self.root, path, how.resolve(self.resolve | cached)) {
                // Linux 5.10 and 5.11 do not know the flag.
                Err(Errno::EINVAL | Errno::EINTR) => Err(Errno::EAGAIN),
                done => done,
            };
        }
        let how = how.resolve(self.resolve);
        for _ in 1..LOOKUP_ATTEMPTS {
            match openat2(&self.root, path, how) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                done => return done,
            }
        }
        openat2(&self.root, path, how)
    }
}

impl Kind {
    /// `None`: it is not served.
    fn of(status: &FileStatus) -> Option<Self> {
        match status.kind {
            libc::S_IFDIR => Some(Self::Directory),
            libc::S_IFREG => Some(Self::File),
            _ => None,
        }
    }
}

/// A file that may not be served is as one that does not exist. So is a name that the file system
/// cannot have, such as one that is not UTF-8: `EILSEQ` of ZFS, `EINVAL` of FAT and others.
fn hide(errno: Errno) -> io::Error {
    match errno {
        Errno::EACCES
        | Errno::EILSEQ
        | Errno::EINVAL
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::locks::Lease;

    /// The kernel knows the name, and would still ask that machine at the open.
    #[test]
    fn no_event_loop_opens_a_file_that_another_machine_has() {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("a"), "").expect("space");
        let beneath = Beneath::new(folder.path(), Symlinks::Inside).expect("a directory");
        let beneath = Beneath {
            is_remote: true,
            ..beneath
        };
        let path = Path::new("a");
        let opened = beneath.open(path, Reach::Disk);
        assert!(matches!(opened, Ok(Opened::File(..))), "{opened:?}");
        let error = beneath.open(path, Reach::Memory).expect_err("it may wait");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    /// As a server of SMB or NFS may have it.
    #[test]
    fn a_file_that_is_leased_is_opened_when_it_is_given_back() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = File::create(folder.path().join("a")).expect("space");
        let beneath = Beneath::new(folder.path(), Symlinks::Inside).expect("a directory");
        let lease = Lease::take(&file).expect("nobody else has the file open");
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| beneath.open(Path::new("a"), Reach::Disk));
            while !lease.is_wanted().expect("it is open") {
                std::thread::yield_now();
            }
            lease.give_back().expect("it is ours");
            let opened = opening.join().expect("no panic");
            assert!(matches!(opened, Ok(Opened::File(..))), "{opened:?}");
        });
    }

    #[test]
    fn a_name_that_no_file_can_have_is_one_that_does_not_exist() {
        for (errno, kind) in [
            (Errno::EILSEQ, io::ErrorKind::NotFound),
            (Errno::EINVAL, io::ErrorKind::NotFound),
            (Errno::ENAMETOOLONG, io::ErrorKind::NotFound),
            (Errno::EIO, io::Error::from(Errno::EIO).kind()),
        ] {
            assert_eq!(hide(errno).kind(), kind, "{errno}");
        }
    }
}
