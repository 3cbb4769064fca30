//! Memory that several processes map: memfd_create(2), mmap(2).

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::{SysconfVar, ftruncate, sysconf};

const WORD: usize = size_of::<AtomicU64>();

/// A file in memory of `words` zeroes, close-on-exec, whose size can never change again. Pages that
/// nobody has touched cost nothing.
pub(crate) fn create(name: &CStr, words: usize) -> io::Result<OwnedFd> {
    let fd = sealable(name)?;
    let bytes = i64::try_from(words * WORD).map_err(|_| Errno::EFBIG)?;
    ftruncate(&fd, bytes)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(fd)
}

/// Nobody changes it any more, not even who made it.
pub(crate) const SEALS: SealFlag = SealFlag::F_SEAL_SEAL
    .union(SealFlag::F_SEAL_SHRINK)
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_WRITE);

/// More than the state of the largest server there may be: some kilobytes for each slot.
const CONTENTS_MAX: u64 = 64 << 20;

/// A file in memory with these bytes, close-on-exec, that nobody can change.
pub(crate) fn sealed(name: &CStr, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(sealable(name)?);
    file.write_all(bytes)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SEALS))?;
    Ok(file.into())
}

/// The bytes of a file made by [`sealed`], in this process or in another.
pub(crate) fn contents(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    if length > CONTENTS_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let length = usize::try_from(length).expect("it is at most CONTENTS_MAX");
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// An empty file in memory, close-on-exec, that can be sealed.
fn sealable(name: &CStr) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // The sysctl vm.memfd_noexec may demand it; Linux before 6.3 does not know it.
    let never_run = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    let fd = match memfd_create(name, flags | never_run) {
        Err(Errno::EINVAL) => memfd_create(name, flags),
        result => result,
    };
    Ok(fd?)
}

/// How many words a file made by [`create`] has, in this process or in another. Fails for every
/// file that could shrink.
pub(crate) fn words(fd: impl AsFd) -> io::Result<usize> {
    let seals = SealFlag::from_bits_truncate(fcntl(fd.as_fd(), FcntlArg::F_GET_SEALS)?);
    if !seals.contains(SealFlag::F_SEAL_SHRINK) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let bytes = usize::try_from(fstat(fd.as_fd())?.st_size).map_err(|_| Errno::EFBIG)?;
    Ok(bytes / WORD)
}

/// The same file by a descriptor that can only read it. From now on nobody opens it for more but
/// root and the user who made it, whose processes could do worse to each other (ptrace(2)).
pub(crate) fn read_only(fd: &OwnedFd) -> io::Result<OwnedFd> {
    fchmod(fd, Mode::S_IRUSR)?;
    // A descriptor that is only duplicated has the rights of the first.
    Ok(File::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))?.into())
}

/// A part of such a file, mapped until it is dropped. The descriptor is not needed for that.
pub(crate) struct Mapping {
    pages: NonNull<libc::c_void>,
    bytes: usize,
    first: NonNull<AtomicU64>,
    words: usize,
}

/// The whole of such a file, to be read alone, also by a descriptor of [`read_only`].
#[derive(Debug)]
pub(crate) struct View(Mapping);

impl View {
    pub(crate) fn new(fd: impl AsFd) -> io::Result<Self> {
        let words = self::words(&fd)?;
        Mapping::map(fd, 0, words, libc::PROT_READ).map(Self)
    }

    /// Relaxed, as the only kind of atomic access that the language promises for memory that cannot
    /// be written; for any other order there are fences. Panics beyond the end.
    pub(crate) fn load(&self, word: usize) -> u64 {
        self.0[word].load(Relaxed)
    }

    /// As [`Mapping::keep_from_cores`].
    pub(crate) fn keep_from_cores(&self) -> io::Result<()> {
        self.0.keep_from_cores()
    }
}

impl Mapping {
    /// Maps `words` words from the word `from` on.
    pub(crate) fn new(fd: impl AsFd, from: usize, words: usize) -> io::Result<Self> {
        Self::map(fd, from, words, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Leaves this memory out of the core that the process may leave (madvise(2), `MADV_DONTDUMP`).
    pub(crate) fn keep_from_cores(&self) -> io::Result<()> {
        // SAFETY: the range is the one that mmap(2) gave to `self`; the advice changes nothing of
        // what is in it.
        let result = unsafe { libc::madvise(self.pages.as_ptr(), self.bytes, libc::MADV_DONTDUMP) };
        Ok(Errno::result(result).map(drop)?)
    }

    fn map(fd: impl AsFd, from: usize, words: usize, protection: libc::c_int) -> io::Result<Self> {
        let fd = fd.as_fd();
        let end = from.checked_add(words).ok_or(Errno::EINVAL)?;
        // Beyond the end, and in a file that shrinks, memory is not there: SIGBUS.
        if words == 0 || end > self::words(fd)? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // A mapping begins at a page, whatever the size of pages is.
        let page = sysconf(SysconfVar::PAGE_SIZE)?.unwrap_or(4096);
        let page = usize::try_from(page).map_err(|_| Errno::EINVAL)?;
        let skipped = from * WORD % page;
        let bytes = skipped + words * WORD;
        let offset = libc::off_t::try_from(from * WORD - skipped).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the kernel chooses the place, so no memory that is in use is replaced; `fd` is
        // open for the length of the call.
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
        // SAFETY: as for `deref`; nobody is left to unmap it.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), words) }
    }
}

impl Deref for Mapping {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `words` words from `first` on are mapped for as long as `self` is, readable and
        // writable (in a `View`, which gives only loads away, readable), aligned since pages and
        // offsets are multiples of a word; the file cannot shrink beneath them. Any bytes are an
        // AtomicU64, and other processes that map them make atomics of them too.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the one that mmap(2) gave to `self`, and no borrow outlives `self`.
        let result = unsafe { libc::munmap(self.pages.as_ptr(), self.bytes) };
        debug_assert_eq!(result, 0, "munmap(2) refuses only ranges that are none");
    }
}

// SAFETY: a mapping belongs to the process, not to a thread, and all that is in it is atomic.
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

    #[test]
    fn what_is_written_in_one_mapping_is_read_in_the_other() {
        let fd = create(c"test", 2000).expect("memory");
        assert_eq!(words(&fd).expect("sealed"), 2000);
        let all = Mapping::new(&fd, 0, 2000).expect("mapped");
        // Not at a page's border.
        let part = Mapping::new(&fd, 1111, 3).expect("mapped");
        drop(fd);
        part[1].store(7, Relaxed);
        assert_eq!((part.len(), all[1112].load(Relaxed)), (3, 7));
        let part = part.leak();
        part[2].store(8, Relaxed);
        assert_eq!(all[1113].load(Relaxed), 8);
    }

    #[test]
    fn who_may_only_read_sees_what_is_written_and_writes_nothing() {
        let fd = create(c"test", 600).expect("memory");
        let all = Mapping::new(&fd, 0, 600).expect("mapped");
        let theirs = read_only(&fd).expect("/proc is there");
        let view = View::new(&theirs).expect("mapped");
        view.keep_from_cores().expect("it is a mapping");
        all[599].store(7, Relaxed);
        assert_eq!(view.load(599), 7);
        let error = Mapping::new(&theirs, 0, 600).expect_err("it may not write");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        nix::unistd::write(&theirs, b"x").expect_err("nor this way");
    }

    #[test]
    fn what_is_not_there_is_not_mapped() {
        let fd = create(c"test", 10).expect("memory");
        for (from, words) in [(0, 11), (10, 1), (usize::MAX, 1), (3, 0)] {
            Mapping::new(&fd, from, words).expect_err("beyond the end, or nothing");
        }
        File::from(fd).set_len(8).expect_err("sealed");
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
