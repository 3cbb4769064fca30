//! The descriptors of files. Responses with the same version of a file share its descriptor, so
//! that any number of slow clients hold one. Those that were used last stay open for a while.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

#[cfg(feature = "compression")]
use bytes::Bytes;

use quick_cache::sync::Cache;

use super::beneath::Reach;
use super::seen::Seen;
#[cfg(feature = "compression")]
use super::version::read_whole;
use super::version::{Identity, read_exact, still_has};
use crate::sys::{limits, resident};

/// One in so many of the descriptors of a worker is for files. That is half of what the library
/// keeps free for the app, which is an eighth.
const SHARE_OF_LIMIT: usize = 16;

/// For so long a file stays open that nobody asks for. It may have been deleted, and takes its
/// space on the disk until it is closed.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// How far the kernel reads a file ahead, by default. So where it has one byte in memory, it likely
/// has what is before the next byte that is this far away.
const READ_AHEAD: usize = 128 * 1024;

/// So many bytes before a position tell a file that has only grown from one that was overwritten.
pub(super) const SAMPLE: usize = 1024;

/// The open files of one worker.
#[derive(Debug)]
pub(super) struct OpenFiles {
    max: usize,
    files: Mutex<HashMap<Identity, Weak<OpenFile>>>,
    /// Files that stay open although no response has them: at most half of all.
    recent: Cache<Identity, Arc<OpenFile>>,
    /// When those were last closed that nobody asks for.
    swept: Seen,
    warned: Once,
}

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    file: Arc<File>,
    identity: Identity,
    /// The first bytes, read before the identity. Empty if that had to wait for a disk.
    begin: Vec<u8>,
    used: Seen,
    all: Weak<OpenFiles>,
    /// The part that the kernel had in memory at the last look.
    resident: Mutex<(Range<u64>, Seen)>,
}

impl OpenFiles {
    pub(super) fn new() -> Self {
        let max = (limits::open_files() / SHARE_OF_LIMIT).max(2);
        Self {
            max,
            files: Mutex::default(),
            recent: Cache::new(max / 2),
            swept: Seen::now(),
            warned: Once::new(),
        }
    }

    /// The file with this identity, if it is open.
    pub(super) fn get(&self, identity: &Identity) -> Option<Arc<OpenFile>> {
        let file = self.recent.get(identity)?;
        file.used.again();
        Some(file)
    }

    /// No name has this file any more. It is closed after its last response.
    pub(super) fn forget(&self, identity: &Identity) {
        self.recent.remove(identity);
    }

    /// Closes the files that nobody has asked for lately. There is no timer: the lookups of names
    /// call this.
    pub(super) fn sweep(&self) {
        if !self.swept.is_within(KEPT_FOR) {
            self.swept.again();
            self.recent.retain(|_, file| file.used.is_within(KEPT_FOR));
        }
    }

    /// As if nobody had asked for a file for long.
    #[cfg(test)]
    pub(super) fn expire(&self) {
        self.swept.expire();
        self.recent.iter().for_each(|(_, file)| file.used.expire());
    }

    /// Keeps the file open, or returns the open file with the same identity. Beyond the limit the
    /// error is [`io::ErrorKind::QuotaExceeded`].
    pub(super) fn share(self: &Arc<Self>, file: File, reach: Reach) -> io::Result<Arc<OpenFile>> {
        let begin = begin(&file, reach)?;
        let identity = Identity::of_file(&file)?;
        let known = self.lock().get(&identity).and_then(Weak::upgrade);
        if let Some(open) = known {
            return Ok(open);
        }
        if self.lock().len() >= self.max {
            self.recent.clear();
        }
        let mut files = self.lock();
        if files.len() >= self.max {
            let open = files.len();
            self.warned.call_once(|| {
                tracing::warn!(
                    open,
                    "too many open files: requests for further files get 503; raise RLIMIT_NOFILE"
                );
            });
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let open = Arc::new(OpenFile::new(file, identity, begin, Arc::downgrade(self)));
        files.insert(identity, Arc::downgrade(&open));
        drop(files);
        self.recent.insert(identity, Arc::clone(&open));
        Ok(open)
    }

    /// Nothing that drops a file may be called while the lock is held.
    fn lock(&self) -> MutexGuard<'_, HashMap<Identity, Weak<OpenFile>>> {
        // Nothing panics while it holds the lock.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenFile {
    /// A file that is none of the worker's shared ones.
    pub(super) fn alone(file: File) -> io::Result<Self> {
        let begin = begin(&file, Reach::Memory).unwrap_or_default();
        let identity = Identity::of_file(&file)?;
        Ok(Self::new(file, identity, begin, Weak::new()))
    }

    fn new(file: File, identity: Identity, begin: Vec<u8>, all: Weak<OpenFiles>) -> Self {
        Self {
            file: Arc::new(file),
            identity,
            begin,
            used: Seen::now(),
            all,
            resident: Mutex::new((0..0, Seen::now())),
        }
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// All bytes. Waits for the disk. [`io::ErrorKind::Interrupted`]: the file was changed.
    #[cfg(feature = "compression")]
    pub(super) fn read(&self) -> io::Result<Bytes> {
        let bytes = read_whole(&self.file, &self.identity, Reach::Disk)?;
        match Identity::of_file(&self.file)? == self.identity {
            true => Ok(bytes.into()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    /// A reference for a part of the response's body.
    pub(super) fn shared(&self) -> &Arc<File> {
        &self.file
    }

    /// Whether the kernel has the part in memory, by a look at a few of its bytes. It keeps what
    /// was sent a moment ago.
    pub(super) fn is_resident(&self, part: Range<u64>) -> io::Result<bool> {
        // Nothing panics while it holds the lock.
        let mut resident = self.resident.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, seen) = &mut *resident;
        if *known == part && seen.is_fresh() {
            return Ok(true);
        }
        for at in part.clone().step_by(READ_AHEAD).chain([part.end - 1]) {
            match read_exact(&self.file, &mut [0], at, Reach::Memory) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        *known = part;
        seen.again();
        Ok(true)
    }

    /// Whether the bytes up to the length are still those of the identity. `sent` are those that
    /// were read before the position `at`. If the file has another identity now, its first bytes
    /// and those are read again: they differ if it was overwritten, and do not if it has grown, or
    /// if it was deleted or renamed.
    pub(super) fn has_same_bytes(&self, sent: &[u8], at: u64, reach: Reach) -> io::Result<bool> {
        let now = Identity::of_file(&self.file)?;
        if now == self.identity {
            return Ok(true);
        }
        let is_known = !self.begin.is_empty() || !sent.is_empty();
        Ok(is_known
            && now.may_have_grown_from(&self.identity)
            && still_has(&self.file, &self.begin, 0, reach)?
            && still_has(&self.file, sent, at - sent.len() as u64, reach)?)
    }
}

fn begin(file: &File, reach: Reach) -> io::Result<Vec<u8>> {
    let mut begin = vec![0; SAMPLE];
    let read = match reach {
        Reach::Memory => resident::read(file, &mut begin, 0)?,
        Reach::Disk => file.read_at(&mut begin, 0)?,
    };
    begin.truncate(read);
    Ok(begin)
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let Some(all) = self.all.upgrade() else {
            return;
        };
        let mut files = all.lock();
        // After the last response dropped this file, another may have opened the same version.
        if files
            .get(&self.identity)
            .is_some_and(|open| open.strong_count() == 0)
        {
            files.remove(&self.identity);
        }
    }
}

#[cfg(all(test, feature = "compression"))]
mod tests {
    use super::*;

    /// So that the lookup begins anew, and the response is no 500.
    #[test]
    fn a_file_that_was_cut_while_it_is_read_was_changed() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(100_000).expect("a hole");
        let open = OpenFile::alone(file.try_clone().expect("a descriptor")).expect("it is open");
        assert_eq!(open.read().expect("it is whole").len(), 100_000);
        for length in [99_999, 200_000] {
            file.set_len(length).expect("a hole");
            let error = open.read().expect_err("it was changed");
            assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{length}");
        }
    }
}
