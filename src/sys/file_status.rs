//! What the kernel knows of a file: statx(2). Its numbers have 64 bits on every machine. Those of
//! stat(2) have 32 bits in a program of 32 bits, where the call fails for a file of 2 GiB.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStatus {
    /// Where the file is.
    pub(crate) device: libc::dev_t,
    pub(crate) inode: u64,
    /// What it is (inode(7), `S_IFMT`).
    #[cfg(feature = "files")]
    pub(crate) kind: libc::mode_t,
    /// In bytes.
    pub(crate) length: u64,
    /// When its contents were last changed, in seconds since 1970.
    #[cfg(feature = "files")]
    pub(crate) modified: i64,
}

/// Of the file with this name in a directory, or of the open file itself if the name is empty. A
/// symbolic link is not followed.
pub(crate) fn of(file: impl AsFd, name: &CStr) -> io::Result<FileStatus> {
    // SAFETY: a `statx` has only integers, for which zero is a valid value.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the descriptor is open and the name ends with NUL during the call. The kernel writes
    // to `status`, which is valid for writes.
    let result = unsafe {
        libc::statx(
            file.as_fd().as_raw_fd(),
            name.as_ptr(),
            flags,
            libc::STATX_BASIC_STATS,
            &raw mut status,
        )
    };
    Errno::result(result)?;
    Ok(FileStatus {
        device: libc::makedev(status.stx_dev_major, status.stx_dev_minor),
        inode: status.stx_ino,
        #[cfg(feature = "files")]
        kind: libc::mode_t::from(status.stx_mode) & libc::S_IFMT,
        length: status.stx_size,
        #[cfg(feature = "files")]
        modified: status.stx_mtime.tv_sec,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// The file is one hole, which uses no disk.
    #[test]
    fn a_large_file_has_its_length_by_name_and_by_descriptor() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("large");
        let file = std::fs::File::create(&path).expect("space");
        file.set_len(5 << 30).expect("a hole");
        let known = file.metadata().expect("it is open");
        let directory = std::fs::File::open(folder.path()).expect("it is there");
        for status in [of(&file, c""), of(&directory, c"large")] {
            let status = status.expect("it is there");
            assert_eq!(status.length, 5 << 30);
            assert_eq!((status.device, status.inode), (known.dev(), known.ino()));
        }
        let missing = of(&directory, c"missing").expect_err("it is not there");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
