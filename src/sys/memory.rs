//! Memory that several processes map: memfd_create(2), mmap(2).

use std::ffi::CStr;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{SysconfVar, ftruncate, sysconf};

use crate::sys::file_status;

const WORD: usize = size_of::<AtomicU64>();

/// Makes a file in memory of `words` zeroes, close-on-exec, whose size can never change. Pages that
/// were never accessed use no memory.
pub(crate) fn create(name: &CStr, words: usize) -> io::Result<OwnedFd> {
    let fd = sealable(name)?;
    let bytes = libc::off_t::try_from(words * WORD).map_err(|_| Errno::EFBIG)?;
    ftruncate(&fd, bytes)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(fd)
}

/// The seals after which no process can change a file, not even the process that made it.
pub(crate) const SEALS: SealFlag = SealFlag::F_SEAL_SEAL
    .union(SealFlag::F_SEAL_SHRINK)
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_WRITE);

/// The largest file that [`contents`] reads, in bytes. The state of the largest possible server is
/// smaller: it has some kilobytes for each slot.
const CONTENTS_MAX: usize = 64 << 20;

/// Makes a file in memory with these bytes, close-on-exec, that no process can change.
pub(crate) fn sealed(name: &CStr, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(sealable(name)?);
    file.write_all(bytes)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SEALS))?;
    Ok(file.into())
}

/// Reads the bytes of a file that this process or another made by [`sealed`]. Fails for every file
/// that could change, and for all that are not in memory.
pub(crate) fn contents(file: &File) -> io::Result<Vec<u8>> {
    contents_up_to(file, CONTENTS_MAX)
}

/// As [`contents`]. Fails for a file that has more bytes than `most`, and reads nothing of it.
pub(crate) fn contents_up_to(file: &File, most: usize) -> io::Result<Vec<u8>> {
    let seals = SealFlag::from_bits_truncate(fcntl(file, FcntlArg::F_GET_SEALS)?);
    if !seals.contains(SEALS) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    if length > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Makes an empty file in memory, close-on-exec, that can be sealed.
fn sealable(name: &CStr) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // The sysctl vm.memfd_noexec may require the flag; Linux before 6.3 does not know it.
    let no_exec = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    let fd = match memfd_create(name, flags | no_exec) {
        Err(Errno::EINVAL) => memfd_create(name, flags),
        result => result,
    };
    Ok(fd?)
}

/// Number of words in a file that this process or another made by [`create`]. Fails for every file
/// that could shrink.
pub(crate) fn words(fd: impl AsFd) -> io::Result<usize> {
    let seals = SealFlag::from_bits_truncate(fcntl(fd.as_fd(), FcntlArg::F_GET_SEALS)?);
    if !seals.contains(SealFlag::F_SEAL_SHRINK) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let bytes = file_status::of(fd, c"")?.length;
    let bytes = usize::try_from(bytes).map_err(|_| Errno::EFBIG)?;
    Ok(bytes / WORD)
}

/// Opens the same file again, for reading only. From now on only root and the user that made the
/// file can open it for writing. That user can also change its mode, and take a lease of it, in a
/// sandbox too. Never waits.
pub(crate) fn read_only(fd: &OwnedFd) -> io::Result<OwnedFd> {
    fchmod(fd, Mode::S_IRUSR)?;
    let mut options = OpenOptions::new();
    // A worker of the same user may have a lease (fcntl(2)), for which open(2) would wait.
    options.read(true).custom_flags(libc::O_NONBLOCK);
    // A duplicate of the descriptor could still write.
    Ok(options
        .open(format!("/proc/self/fd/{}", fd.as_raw_fd()))?
        .into())
}

/// A mapped part of a file from [`create`], until it is dropped. The descriptor may be closed
/// before.
pub(crate) struct Mapping {
    pages: NonNull<libc::c_void>,
    bytes: usize,
    first: NonNull<AtomicU64>,
    words: usize,
}

/// A whole file from [`create`], mapped for reading only. A descriptor from [`read_only`] suffices.
#[derive(Debug)]
pub(crate) struct View(Mapping);

impl View {
    pub(crate) fn new(fd: impl AsFd) -> io::Result<Self> {
        let words = self::words(&fd)?;
        Mapping::map(fd, 0, words, libc::PROT_READ).map(Self)
    }

    /// All words, for loads only: a store raises SIGSEGV.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    /// Loads a word. Panics beyond the end. The order is `Relaxed`, because for read-only memory
    /// Rust guarantees only relaxed atomic loads. Use fences for a stronger order.
    ///
    /// On machines of 32 bits Rust guarantees that only for words of 32 bits. There x86 and ARMv7
    /// load 64 bits by an instruction that does not write. ARMv6 would write, which raises SIGSEGV.
    pub(crate) fn load(&self, word: usize) -> u64 {
        self.0[word].load(Relaxed)
    }

    /// As [`Mapping::exclude_from_core_dumps`].
    pub(crate) fn exclude_from_core_dumps(&self) -> io::Result<()> {
        self.0.exclude_from_core_dumps()
    }
}

impl Mapping {
    /// Maps `words` words from the word `from` on.
    pub(crate) fn new(fd: impl AsFd, from: usize, words: usize) -> io::Result<Self> {
        Self::map(fd, from, words, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Excludes this memory from core dumps (madvise(2), `MADV_DONTDUMP`).
    pub(crate) fn exclude_from_core_dumps(&self) -> io::Result<()> {
        // SAFETY: mmap(2) returned this range for `self`. The advice does not change its contents.
        let result = unsafe { libc::madvise(self.pages.as_ptr(), self.bytes, libc::MADV_DONTDUMP) };
        Ok(Errno::result(result).map(drop)?)
    }

    fn map(fd: impl AsFd, from: usize, words: usize, protection: libc::c_int) -> io::Result<Self> {
        let fd = fd.as_fd();
        let end = from.checked_add(words).ok_or(Errno::EINVAL)?;
        // An access beyond the end of the file raises SIGBUS, also after the file has shrunk.
        if words == 0 || end > self::words(fd)? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // A mapping must begin at a multiple of the page size.
        let page = sysconf(SysconfVar::PAGE_SIZE)?.unwrap_or(4096);
        let page = usize::try_from(page).map_err(|_| Errno::EINVAL)?;
        let skipped = from * WORD % page;
        let bytes = skipped + words * WORD;
        let offset = libc::off_t::try_from(from * WORD - skipped).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the kernel chooses the address, so the call replaces no memory that is in use.
        // `fd` is open during the call.
        let pages = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                offset,
            )
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let pages = NonNull::new(pages).expect("the kernel maps nothing at address 0 by itself");
        // SAFETY: `skipped` is within the mapping, since at least one word comes after it.
        let first = unsafe { pages.byte_add(skipped) }.cast();
        Ok(Self {
            pages,
            bytes,
            first,
            words,
        })
    }

    /// Keeps the mapping until the process ends.
    pub(crate) fn leak(self) -> &'static [AtomicU64] {
        let (first, words) = (self.first, self.words);
        std::mem::forget(self);
        // SAFETY: as for `deref`; after `forget` nothing unmaps the memory.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), words) }
    }
}

impl Deref for Mapping {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `words` words from `first` on are mapped as long as `self` exists. They are
        // readable and writable; in a `View`, which only loads, they are readable. They are
        // aligned, because pages and offsets are multiples of a word. The file cannot shrink. Any
        // bytes are a valid AtomicU64, and other processes use atomic access too.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mmap(2) returned this range for `self`, and no borrow outlives `self`.
        let result = unsafe { libc::munmap(self.pages.as_ptr(), self.bytes) };
        debug_assert_eq!(result, 0, "munmap(2) fails only for an invalid range");
    }
}

// SAFETY: a mapping belongs to the process, not to a thread, and all access to it is atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("words", &self.words)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::locks::Lease;

    #[test]
    fn a_write_in_one_mapping_is_read_in_the_other() {
        let fd = create(c"test", 2000).expect("memory");
        assert_eq!(words(&fd).expect("sealed"), 2000);
        let all = Mapping::new(&fd, 0, 2000).expect("mapped");
        // This mapping does not begin at a page.
        let part = Mapping::new(&fd, 1111, 3).expect("mapped");
        drop(fd);
        part[1].store(7, Relaxed);
        assert_eq!((part.len(), all[1112].load(Relaxed)), (3, 7));
        let part = part.leak();
        part[2].store(8, Relaxed);
        assert_eq!(all[1113].load(Relaxed), 8);
    }

    #[test]
    fn a_read_only_descriptor_shows_writes_and_cannot_write() {
        let fd = create(c"test", 600).expect("memory");
        let all = Mapping::new(&fd, 0, 600).expect("mapped");
        let reader = read_only(&fd).expect("/proc is there");
        let view = View::new(&reader).expect("mapped");
        view.exclude_from_core_dumps().expect("it is a mapping");
        all[599].store(7, Relaxed);
        assert_eq!(view.load(599), 7);
        let error = Mapping::new(&reader, 0, 600).expect_err("it may not write");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        nix::unistd::write(&reader, b"x").expect_err("it may not write");
    }

    /// A worker of the same user that reads the page can take a lease.
    #[test]
    fn a_lease_on_a_page_does_not_stop_who_opens_it_again() {
        let fd = create(c"test", 600).expect("memory");
        let reader = File::from(read_only(&fd).expect("/proc is there"));
        let lease = Lease::take(&reader).expect("nobody else reads it");
        let error = read_only(&fd).expect_err("it does not wait");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        lease.give_back().expect("it has one");
        read_only(&fd).expect("the lease is over");
    }

    #[test]
    fn a_range_that_is_empty_or_beyond_the_end_is_not_mapped() {
        let fd = create(c"test", 10).expect("memory");
        for (from, words) in [(0, 11), (10, 1), (usize::MAX, 1), (3, 0)] {
            Mapping::new(&fd, from, words).expect_err("beyond the end, or nothing");
        }
        File::from(fd).set_len(8).expect_err("sealed");
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let file = File::from(sealed(c"test", b"whole").expect("memory"));
        let whole = contents_up_to(&file, 5).expect("as long as it may be");
        assert_eq!(whole, b"whole");
        let error = contents_up_to(&file, 4).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_file_that_could_shrink_is_refused() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(80).expect("room");
        words(&file).expect_err("not a memfd");
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let open = memfd_create(c"open", flags).expect("memory");
        words(&open).expect_err("not sealed");
    }
}
