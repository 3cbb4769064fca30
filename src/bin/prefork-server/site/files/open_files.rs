//! The files that are open until their clients have read them. Responses with the same file share
//! its descriptor, so that any number of slow clients hold one descriptor.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use nix::sys::resource::{Resource, getrlimit};

/// One in so many of the descriptors of a worker is for files. That is half of what the library
/// keeps free for the app, which is an eighth.
const SHARE_OF_LIMIT: u64 = 16;

/// The open files of one worker.
#[derive(Debug)]
pub(super) struct OpenFiles {
    max: usize,
    files: Mutex<HashMap<Version, Weak<OpenFile>>>,
    warned: Once,
}

/// One version of one file.
#[derive(Debug)]
pub(super) struct OpenFile {
    file: File,
    version: Version,
    all: Arc<OpenFiles>,
}

/// Two descriptors with the same version have the same bytes: device, inode, length, and the times
/// of the last change of the contents and of the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Version(u64, u64, u64, [(i64, i64); 2]);

impl OpenFiles {
    pub(super) fn new() -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Self {
            max: usize::try_from(limit / SHARE_OF_LIMIT).map_or(usize::MAX, |max| max.max(1)),
            files: Mutex::default(),
            warned: Once::new(),
        }
    }

    /// Keeps the file open, or returns the open file of the same version. Beyond the limit the
    /// error is [`io::ErrorKind::QuotaExceeded`].
    pub(super) fn share(self: &Arc<Self>, file: File) -> io::Result<Arc<OpenFile>> {
        let version = Version::of(&file.metadata()?);
        let mut files = self.lock();
        if let Some(open) = files.get(&version).and_then(Weak::upgrade) {
            return Ok(open);
        }
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
        let open = Arc::new(OpenFile {
            file,
            version,
            all: Arc::clone(self),
        });
        files.insert(version, Arc::downgrade(&open));
        Ok(open)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Version, Weak<OpenFile>>> {
        // Nothing panics while it holds the lock.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        let written = (metadata.mtime(), metadata.mtime_nsec());
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let times = [written, changed];
        Self(metadata.dev(), metadata.ino(), metadata.len(), times)
    }
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut files = self.all.lock();
        // After the last response dropped this file, another may have opened the same version.
        if files
            .get(&self.version)
            .is_some_and(|open| open.strong_count() == 0)
        {
            files.remove(&self.version);
        }
    }
}
