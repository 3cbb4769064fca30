//! Reads of files that do not wait for a disk.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::libc;
// By its name without the 64, glibc takes a position of 32 bits in a program of 32 bits.
#[cfg(not(target_env = "gnu"))]
use nix::libc::preadv2 as preadv64v2;
#[cfg(target_env = "gnu")]
use nix::libc::preadv64v2;

/// Reads the bytes at this position that the kernel has in memory (preadv2(2), `RWF_NOWAIT`).
/// Returns how many it has read; zero is the end of the file. The error is
/// [`io::ErrorKind::WouldBlock`] if the first byte is not in memory, or if the file system cannot
/// tell.
pub(crate) fn read(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let Ok(at) = libc::off64_t::try_from(at) else {
        return Ok(0);
    };
    let part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel writes at most `iov_len` bytes to `iov_base`, which is memory that `bytes`
    // borrows exclusively. The descriptor is open while `file` is borrowed.
    let read = unsafe { preadv64v2(file.as_raw_fd(), &raw const part, 1, at, libc::RWF_NOWAIT) };
    match Errno::result(read) {
        Ok(read) => Ok(read.unsigned_abs()),
        // The last two are of a filter that does not know the call.
        Err(Errno::EAGAIN | Errno::EINTR | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EPERM) => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_was_just_written_is_in_memory() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"0123456789").expect("space");
        let mut bytes = [0; 6];
        assert_eq!(read(&file, &mut bytes, 2).expect("in memory"), 6);
        assert_eq!(&bytes, b"234567");
        assert_eq!(read(&file, &mut bytes, 7).expect("in memory"), 3);
        assert_eq!(read(&file, &mut bytes, 10).expect("the end"), 0);
        assert_eq!(read(&file, &mut bytes, u64::MAX).expect("the end"), 0);
    }

    #[test]
    fn a_position_may_have_more_than_32_bits() {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(b"0123", 5 << 30).expect("space");
        let mut bytes = [0; 6];
        let read = read(&file, &mut bytes, (5 << 30) + 1);
        assert_eq!(read.expect("in memory"), 3);
        assert_eq!(&bytes[..3], b"123");
    }
}
