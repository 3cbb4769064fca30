//! The access log: a line for each request. A thread of its own writes it, so that no event loop
//! waits.

use std::{
    fs::{self, File},
    io::{self, Write},
    mem,
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use prefork_server::WorkerInfo;

use crate::cli::{LogFormat, LogTarget};

mod line;
mod record;

pub(crate) use self::record::{LoggedBody, Record};

/// How long a line waits for others before it is written.
const BATCH_TIME: Duration = Duration::from_secs(1);

/// Lines are written sooner if they have this many bytes together.
const BATCH_BYTES: usize = 64 * 1024;

/// While this many bytes wait, further lines are dropped and counted: a slow reader costs lines,
/// not memory and not requests. The lines of a busy worker of one second fit.
const PENDING_BYTES: usize = 1024 * 1024;

/// At the end, a target that accepts no byte for this long is given up, so that a pipe whose reader
/// does not read does not delay the end of the server. A busy disk accepts some bytes in this time.
const STALL_TIME: Duration = Duration::from_millis(250);

/// `PIPE_BUF` of `pipe(7)`: a write of up to this much is never mixed with that of another worker,
/// whether the log is a file or a pipe.
const WRITE_BYTES: usize = 4096;

/// The access log of one worker. Several workers append to the same file, whole lines at a time.
///
/// Lines wait in memory until a thread writes them. When the log is dropped, it writes the rest.
/// Each [`Record`] holds the log, because the requests that are open at the end of a worker are
/// dropped in any order. If the target accepts nothing for [`STALL_TIME`], the rest is lost. The
/// lines of the last second before a crash are lost too, except those of failed requests.
#[derive(Debug)]
pub(crate) struct AccessLog {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    format: LogFormat,
    /// The worker that responds.
    worker: WorkerInfo,
    pending: Mutex<Pending>,
    changed: Condvar,
    /// How many lines were written, or failed, since the log was opened.
    done: AtomicU64,
}

/// What the writing thread has not taken yet.
#[derive(Debug, Default)]
struct Pending {
    lines: Vec<u8>,
    /// The path is to be opened again: the lines after this many bytes go to the new file.
    reopen_after: Option<usize>,
    /// A line is of a failed request: it is written at once, because the worker may crash next.
    has_failure: bool,
    /// How many lines were put into `lines` since the log was opened.
    recorded: u64,
    /// How many lines were dropped since the thread took lines.
    lost: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// The thread writes the rest and then ends.
    Closing,
    /// The thread has ended.
    Closed,
}

impl AccessLog {
    /// Opens the file to append to it, and creates it (0640) if it is missing; or takes standard
    /// output. A FIFO without a reader and later failures are logged, and cost lines only.
    pub(crate) fn open(
        target: LogTarget,
        format: LogFormat,
        worker: WorkerInfo,
    ) -> io::Result<Arc<Self>> {
        Self::start(Sink::open(target)?, format, worker)
    }

    /// Opens the path again, for a file that was renamed: later lines go to a new file of the old
    /// name. If it cannot be opened, the log keeps the renamed file.
    pub(crate) fn reopen(&self) {
        let mut pending = self.shared.lock();
        pending.reopen_after = Some(pending.lines.len());
        self.shared.changed.notify_one();
    }

    fn start(sink: Sink, format: LogFormat, worker: WorkerInfo) -> io::Result<Arc<Self>> {
        let shared = Arc::new(Shared {
            format,
            worker,
            pending: Mutex::default(),
            changed: Condvar::new(),
            done: AtomicU64::new(0),
        });
        let writer = {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name("access-log".into())
                .spawn(move || write(&shared, sink))
                .map_err(|error| {
                    let reason = format!("cannot start the thread of the access log: {error}");
                    io::Error::new(error.kind(), reason)
                })?
        };
        Ok(Arc::new(Self {
            shared,
            writer: Some(writer),
        }))
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.shared.lock().phase = Phase::Closing;
        self.shared.changed.notify_all();
        if self.shared.wait_closed() == Phase::Closed {
            // The panic hook has reported a panic of the thread.
            let _ = self.writer.take().map(JoinHandle::join);
        } else {
            let lost = self.shared.unwritten();
            tracing::warn!(
                lost,
                "the access log accepts no data: its last lines are lost"
            );
        }
    }
}

impl Shared {
    fn record(&self, record: &Record) {
        let mut pending = self.lock();
        let before = pending.lines.len();
        if before > PENDING_BYTES {
            pending.lost += 1;
            let is_first = pending.lost == 1;
            drop(pending);
            if is_first {
                // Now, because the write that delays the thread may never end.
                let bound = PENDING_BYTES;
                tracing::warn!(
                    bound,
                    "the access log is written too slowly: lines are lost"
                );
            }
            return;
        }
        let was_due = pending.is_due();
        line::append(&mut pending.lines, self.format, self.worker, record);
        pending.has_failure |= record.has_failed();
        pending.recorded += 1;
        // The thread sleeps until the first line, and then until they are due.
        if before == 0 || (!was_due && pending.is_due()) {
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // After a panic with the lock held, at worst one line is incomplete.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the lines should be written, and takes them all. `spare` becomes the buffer of
    /// the next lines, so that two buffers are enough.
    fn take(&self, spare: Vec<u8>) -> Pending {
        let idle = |pending: &mut Pending| pending.lines.is_empty() && !pending.is_urgent();
        let gathering = |pending: &mut Pending| !pending.is_due() && !pending.is_urgent();
        let waited = self.changed.wait_while(self.lock(), idle);
        let pending = waited.unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(pending, BATCH_TIME, gathering);
        let (mut pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let next = Pending {
            lines: spare,
            reopen_after: None,
            has_failure: false,
            lost: 0,
            ..*pending
        };
        std::mem::replace(&mut pending, next)
    }
}

impl Shared {
    /// How many lines are lost if the thread writes no more.
    fn unwritten(&self) -> u64 {
        let pending = self.lock();
        pending.lost + pending.recorded - self.done.load(Relaxed)
    }

    /// Waits until the thread has ended, or makes no progress.
    fn wait_closed(&self) -> Phase {
        let mut pending = self.lock();
        loop {
            let done = self.done.load(Relaxed);
            let open = |pending: &mut Pending| pending.phase != Phase::Closed;
            let waited = self.changed.wait_timeout_while(pending, STALL_TIME, open);
            let (now, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if now.phase == Phase::Closed || self.done.load(Relaxed) == done {
                return now.phase;
            }
            pending = now;
        }
    }
}

/// Marks the log as closed when the thread ends, also by a panic.
struct Closed<'a>(&'a Shared);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.lock().phase = Phase::Closed;
        self.0.changed.notify_all();
    }
}

impl Pending {
    fn is_due(&self) -> bool {
        self.lines.len() >= BATCH_BYTES || self.has_failure
    }

    fn is_urgent(&self) -> bool {
        self.reopen_after.is_some() || self.phase == Phase::Closing
    }
}

/// What the writing thread does.
fn write(shared: &Shared, mut sink: Sink) {
    let _closed = Closed(shared);
    let mut spare = Vec::new();
    loop {
        let batch = shared.take(spare);
        tell_lost(batch.lost);
        let (old, new) = batch.lines.split_at(batch.reopen_after.unwrap_or_default());
        if batch.reopen_after.is_some() {
            sink.write(old, &shared.done);
            sink.reopen();
        }
        sink.write(new, &shared.done);
        if batch.phase == Phase::Closing {
            return tell_lost(sink.lost);
        }
        spare = batch.lines;
        spare.clear();
    }
}

/// Where the lines go.
#[derive(Debug)]
struct Sink {
    target: LogTarget,
    /// `None`: a FIFO that has no reader. It is opened again before each write.
    file: Option<File>,
    trouble: Option<io::ErrorKind>,
    /// How many lines could not be written since the last success.
    lost: u64,
    /// The file may end with half a line. The next write begins with a line break.
    is_torn: bool,
}

impl Sink {
    fn open(target: LogTarget) -> io::Result<Self> {
        let mut sink = Self::of(target, None);
        match open(&sink.target) {
            Ok(file) => sink.file = Some(file),
            Err(error) if is_without_reader(&error) => sink.note(Some(error)),
            Err(error) => return Err(error),
        }
        Ok(sink)
    }

    fn of(target: LogTarget, file: Option<File>) -> Self {
        Self {
            target,
            file,
            trouble: None,
            lost: 0,
            is_torn: false,
        }
    }

    fn write(&mut self, lines: &[u8], done: &AtomicU64) {
        let mut trouble = None;
        let count = |lines: &[u8]| lines.iter().filter(|&&byte| byte == b'\n').count() as u64;
        for piece in pieces(lines) {
            let mut rest = piece;
            if trouble.is_none() {
                trouble = self.write_piece(&mut rest).err();
            }
            self.lost += count(rest);
            done.fetch_add(count(piece), Relaxed);
        }
        if !lines.is_empty() {
            self.note(trouble);
        }
    }

    /// Logs the trouble of a write once, not each second while the disk is full.
    fn note(&mut self, trouble: Option<io::Error>) {
        match &trouble {
            Some(error) if self.trouble != Some(error.kind()) => {
                tracing::error!(%error, "cannot write the access log: lines are lost");
            }
            Some(_) => {}
            None => tell_lost(mem::take(&mut self.lost)),
        }
        self.trouble = trouble.map(|error| error.kind());
    }

    /// Writes the piece. After an error `piece` is what was not written.
    fn write_piece(&mut self, piece: &mut &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(open(&self.target)?),
        };
        if self.is_torn {
            write_all(file, &mut &b"\n"[..])?;
            self.is_torn = false;
        }
        let whole = *piece;
        let written = write_all(file, piece);
        if let Err(error) = &written {
            let sent = &whole[..whole.len() - piece.len()];
            self.is_torn = sent.last().is_some_and(|&byte| byte != b'\n') || is_full(error);
        }
        // The reader of the FIFO has left. Its next reader may have made the path anew.
        if let (Err(error), LogTarget::File(path)) = (&written, &self.target)
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            self.file = None;
            return Err(without_reader(path));
        }
        written
    }

    fn reopen(&mut self) {
        match open(&self.target) {
            Ok(file) => {
                self.file = Some(file);
                self.is_torn = false;
            }
            Err(error) if is_without_reader(&error) => {
                self.file = None;
                self.note(Some(error));
            }
            Err(error) => tracing::error!(%error, "the access log keeps its old file"),
        }
    }
}

fn tell_lost(lost: u64) {
    if lost > 0 {
        tracing::warn!(lost, "lines of the access log were lost");
    }
}

fn write_all(file: &mut File, piece: &mut &[u8]) -> io::Result<()> {
    while !piece.is_empty() {
        match file.write(piece) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => *piece = &piece[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A FIFO is full. Or another process that shares standard output has made it
            // non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let writable = PollFd::new(file.as_fd(), PollFlags::POLLOUT);
                match poll(&mut [writable], PollTimeout::NONE) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn open(target: &LogTarget) -> io::Result<File> {
    let path = match target {
        LogTarget::Stdout => return Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
        LogTarget::File(path) => path,
    };
    // `append`: each write goes to the end of the file, also after writes of other workers.
    // `O_NONBLOCK`: else a FIFO is opened only when it has a reader (fifo(7)).
    let opened = File::options()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path);
    opened.map_err(|error| {
        let is_fifo = || fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
        if error.raw_os_error() == Some(Errno::ENXIO as i32) && is_fifo() {
            return without_reader(path);
        }
        let reason = format!("cannot open the access log {}: {error}", path.display());
        io::Error::new(error.kind(), reason)
    })
}

/// Then another worker may have written half a line to the file.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

fn without_reader(fifo: &Path) -> io::Error {
    let reason = format!("the FIFO {} has no reader", fifo.display());
    io::Error::new(io::ErrorKind::NotConnected, reason)
}

fn is_without_reader(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotConnected
}

/// The lines in pieces of at most one write each, and of whole lines.
fn pieces(mut lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let whole = lines.len().min(WRITE_BYTES);
        let end = match lines.len() {
            0 => return None,
            len if len <= WRITE_BYTES => len,
            _ => lines[..whole]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(whole, |at| at + 1),
        };
        let (piece, rest) = lines.split_at(end);
        lines = rest;
        Some(piece)
    })
}

#[cfg(test)]
mod tests;
