//! The directory as files see it: opened beneath its own descriptor, read on the blocking pool.

use std::{
    future::{self, Future},
    io::{self, Cursor, Read, SeekFrom},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2},
    sys::stat::Mode,
};
use tokio::{
    io::{AsyncRead, AsyncSeek, ReadBuf},
    task::spawn_blocking,
};
use tower_http::services::fs;

/// A file up to this size is read whole while it is opened, which saves a trip to the blocking
/// pool; beyond it a request holds one chunk of this size at a time.
pub(super) const CHUNK: usize = 64 * 1024;

/// How often a lookup is tried again that a rename elsewhere disturbed (`EAGAIN` of `openat2(2)`).
const LOOKUP_ATTEMPTS: u32 = 8;

/// Everything under one directory, and nothing outside it: the kernel refuses `..`, absolute
/// symbolic links and links that leave the directory while it resolves the path, so no race
/// between a check and its use remains. Links that stay inside work.
///
/// The directory is held by a descriptor. If it is renamed or replaced, this one keeps serving.
#[derive(Clone, Debug)]
pub(super) struct Beneath {
    root: Arc<OwnedFd>,
}

impl Beneath {
    /// Fails at once where serving would fail later: no such directory, no right to search it, or
    /// a kernel (or seccomp filter) without `openat2(2)`.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(directory, flags, Mode::empty())?;
        resolve(&root, Path::new("."), OFlag::O_PATH)?;
        Ok(Self {
            root: Arc::new(root),
        })
    }

    /// Runs `lookup` where it may wait for a disk: no event loop stands still for it.
    async fn blocking<T: Send + 'static>(
        self,
        lookup: impl FnOnce(&OwnedFd) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        spawn_blocking(move || lookup(&self.root)).await?
    }
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

impl fs::Backend for Beneath {
    type File = Opened;
    type Metadata = Found;
    type OpenFuture = BoxFuture<Opened>;
    type MetadataFuture = BoxFuture<Found>;

    fn open(&self, path: PathBuf) -> Self::OpenFuture {
        Box::pin(self.clone().blocking(move |root| open_regular(root, &path)))
    }

    fn metadata(&self, path: PathBuf) -> Self::MetadataFuture {
        Box::pin(self.clone().blocking(move |root| look_up(root, &path)))
    }
}

/// What is known of a file or directory without reading it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    kind: Kind,
    len: u64,
    modified: SystemTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    Regular,
}

impl fs::Metadata for Found {
    fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    fn modified(&self) -> io::Result<SystemTime> {
        Ok(self.modified)
    }

    fn len(&self) -> u64 {
        self.len
    }
}

/// A regular file, open for reading.
#[derive(Debug)]
pub(super) struct Opened {
    found: Found,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Whole(Cursor<Vec<u8>>),
    Streamed(tokio::fs::File),
}

impl fs::File for Opened {
    type Metadata = Found;
    type MetadataFuture<'a> = future::Ready<io::Result<Found>>;

    fn metadata(&self) -> Self::MetadataFuture<'_> {
        future::ready(Ok(self.found))
    }
}

impl AsyncRead for Opened {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.content {
            Content::Whole(bytes) => Pin::new(bytes).poll_read(cx, buf),
            Content::Streamed(file) => Pin::new(file).poll_read(cx, buf),
        }
    }
}

impl AsyncSeek for Opened {
    fn start_seek(mut self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        match &mut self.content {
            Content::Whole(bytes) => Pin::new(bytes).start_seek(position),
            Content::Streamed(file) => Pin::new(file).start_seek(position),
        }
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        match &mut self.content {
            Content::Whole(bytes) => Pin::new(bytes).poll_complete(cx),
            Content::Streamed(file) => Pin::new(file).poll_complete(cx),
        }
    }
}

/// `O_PATH` opens nothing: a FIFO or a device is looked at, never touched.
fn look_up(root: &OwnedFd, path: &Path) -> io::Result<Found> {
    let file = std::fs::File::from(resolve(root, path, OFlag::O_PATH)?);
    // Not "not found": that would have the path opened after all, as a file that may appear.
    let special = || io::Error::from(io::ErrorKind::PermissionDenied);
    classify(&file.metadata()?)?.ok_or_else(special)
}

/// `O_NONBLOCK`, because a FIFO that took the file's place since the lookup would otherwise hold
/// this thread until somebody writes to it.
fn open_regular(root: &OwnedFd, path: &Path) -> io::Result<Opened> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = std::fs::File::from(resolve(root, path, flags)?);
    let found = classify(&file.metadata()?)?.filter(|found| found.kind == Kind::Regular);
    let mut found = found.ok_or(io::ErrorKind::NotFound)?;
    if found.len > CHUNK as u64 {
        let content = Content::Streamed(tokio::fs::File::from_std(file));
        return Ok(Opened { found, content });
    }
    let mut bytes = Vec::with_capacity(CHUNK.min(found.len as usize));
    file.take(found.len).read_to_end(&mut bytes)?;
    // A file cut short meanwhile is answered as it was read: length and body agree.
    found.len = bytes.len() as u64;
    Ok(Opened {
        found,
        content: Content::Whole(Cursor::new(bytes)),
    })
}

fn classify(metadata: &std::fs::Metadata) -> io::Result<Option<Found>> {
    let kind = match metadata.file_type() {
        file_type if file_type.is_dir() => Kind::Directory,
        file_type if file_type.is_file() => Kind::Regular,
        _ => return Ok(None),
    };
    Ok(Some(Found {
        kind,
        len: metadata.len(),
        modified: metadata.modified()?,
    }))
}

/// Whatever may not be served does not exist; only what is wrong with the *server* (no descriptor
/// left, a failing disk) keeps its own error.
fn resolve(root: &OwnedFd, path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    for _ in 1..LOOKUP_ATTEMPTS {
        match openat2(root, path, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            done => return done.map_err(hide),
        }
    }
    openat2(root, path, how).map_err(hide)
}

fn hide(errno: Errno) -> io::Error {
    match errno {
        Errno::EACCES
        | Errno::ELOOP
        | Errno::ENAMETOOLONG
        | Errno::ENODEV
        | Errno::ENOTDIR
        | Errno::ENXIO
        | Errno::EXDEV => io::Error::new(io::ErrorKind::NotFound, errno.desc()),
        other => other.into(),
    }
}
