//! The access log: a line for each request, written where no event loop waits for it.

use std::{
    fs::File,
    io::{self, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cli::{LogFormat, LogTarget};

mod line;
mod record;

pub(crate) use self::record::{LoggedBody, Record};

/// A line is written at the latest this long after it was recorded.
const BATCH_TIME: Duration = Duration::from_secs(1);

/// Sooner, if this much has gathered.
const BATCH_BYTES: usize = 64 * 1024;

/// Beyond this, lines are counted instead of kept: a reader that stalls costs lines, not memory and
/// not requests. A second of a busy worker fits.
const PENDING_BYTES: usize = 1024 * 1024;

/// At the end, a target that takes nothing for so long is given up: a pipe whose reader stands
/// still must not hold up the end of the server. A busy disk takes something within it.
const STALL_TIME: Duration = Duration::from_millis(250);

/// `PIPE_BUF` of `pipe(7)`: a write of up to this much is never mixed with that of another worker,
/// whether the log is a file or a pipe.
const WRITE_BYTES: usize = 4096;

/// The access log of one worker. Several workers append to the same file, whole lines at a time.
///
/// Lines gather in memory and a thread of their own writes them. Dropping the log writes what is
/// left, so drop it after the last [`Record`]; if the target takes nothing for [`STALL_TIME`], the
/// rest is lost. What a worker recorded in the last second before it crashed is lost too.
#[derive(Debug)]
pub(crate) struct AccessLog {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    format: LogFormat,
    pending: Mutex<Pending>,
    changed: Condvar,
    /// Pieces that were written, or could not be, since the log was opened.
    done: AtomicU64,
}

/// What the writer has not taken yet.
#[derive(Debug, Default)]
struct Pending {
    lines: Vec<u8>,
    /// Asked to open the path anew; the lines after this many bytes belong to the new file.
    reopen_after: Option<usize>,
    /// Lines for which there was no room, since the log was opened.
    lost: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// What is left is written, then the writer ends.
    Closing,
    /// The writer has ended.
    Closed,
}

impl AccessLog {
    /// Opens the file, which is created (0640) or appended to, or takes standard output. Fails if
    /// it cannot; after this, trouble is told by `tracing` and costs lines only.
    pub(crate) fn open(target: LogTarget, format: LogFormat) -> io::Result<Self> {
        let file = open(&target)?;
        Self::start(
            Sink {
                target,
                file,
                trouble: None,
            },
            format,
        )
    }

    /// After the file was renamed: what is recorded from now on goes to a new one of the old name.
    /// If that cannot be opened, the log stays with the renamed one.
    pub(crate) fn reopen(&self) {
        let mut pending = self.shared.lock();
        pending.reopen_after = Some(pending.lines.len());
        self.shared.changed.notify_one();
    }

    fn start(sink: Sink, format: LogFormat) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            format,
            pending: Mutex::default(),
            changed: Condvar::new(),
            done: AtomicU64::new(0),
        });
        let writer = {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name("access-log".into())
                .spawn(move || write(&shared, sink))?
        };
        Ok(Self {
            shared,
            writer: Some(writer),
        })
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.shared.lock().phase = Phase::Closing;
        self.shared.changed.notify_all();
        if self.shared.wait_closed() == Phase::Closed {
            // A panic there has been told by its own hook.
            let _ = self.writer.take().map(JoinHandle::join);
        } else {
            tracing::warn!("the access log is not taken: its last lines are lost");
        }
    }
}

impl Shared {
    fn record(&self, record: &Record) {
        let mut pending = self.lock();
        let before = pending.lines.len();
        if before > PENDING_BYTES {
            pending.lost += 1;
            return;
        }
        line::append(&mut pending.lines, self.format, record);
        // The writer sleeps until the first line, then gathers until the batch is full.
        if before == 0 || (before < BATCH_BYTES && pending.lines.len() >= BATCH_BYTES) {
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // Whoever panicked while holding it left at worst a torn line.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is reason to write, and takes everything. `spare` is filled meanwhile: two
    /// buffers serve for ever.
    fn take(&self, spare: Vec<u8>) -> Pending {
        let idle = |pending: &mut Pending| pending.lines.is_empty() && !pending.is_urgent();
        let gathering =
            |pending: &mut Pending| pending.lines.len() < BATCH_BYTES && !pending.is_urgent();
        let waited = self.changed.wait_while(self.lock(), idle);
        let pending = waited.unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(pending, BATCH_TIME, gathering);
        let (mut pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let next = Pending {
            lines: spare,
            reopen_after: None,
            ..*pending
        };
        std::mem::replace(&mut pending, next)
    }
}

impl Shared {
    /// Waits until the writer has ended, or stands still.
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

/// Says that the writer has ended, however it does.
struct Closed<'a>(&'a Shared);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.lock().phase = Phase::Closed;
        self.0.changed.notify_all();
    }
}

impl Pending {
    fn is_urgent(&self) -> bool {
        self.reopen_after.is_some() || self.phase == Phase::Closing
    }
}

/// The life of the writing thread.
fn write(shared: &Shared, mut sink: Sink) {
    let _closed = Closed(shared);
    let (mut spare, mut told_lost) = (Vec::new(), 0);
    loop {
        let batch = shared.take(spare);
        let (old, new) = batch.lines.split_at(batch.reopen_after.unwrap_or_default());
        if batch.reopen_after.is_some() {
            sink.write(old, shared);
            sink.reopen();
        }
        sink.write(new, shared);
        if batch.lost > told_lost {
            let lost = batch.lost - told_lost;
            tracing::warn!(lost, "the access log is taken too slowly: lines are lost");
            told_lost = batch.lost;
        }
        if batch.phase == Phase::Closing {
            return;
        }
        spare = batch.lines;
        spare.clear();
    }
}

/// Where the lines go.
#[derive(Debug)]
struct Sink {
    target: LogTarget,
    file: File,
    trouble: Option<io::ErrorKind>,
}

impl Sink {
    fn write(&mut self, lines: &[u8], shared: &Shared) {
        let trouble = pieces(lines).find_map(|piece| {
            let written = self.write_piece(piece);
            shared.done.fetch_add(1, Relaxed);
            written.err()
        });
        if let Some(error) = &trouble
            && self.trouble != Some(error.kind())
        {
            // Told once, not each second while the disk is full.
            tracing::error!(%error, "cannot write the access log: lines are lost");
        }
        self.trouble = trouble.map(|error| error.kind());
    }

    fn write_piece(&mut self, mut piece: &[u8]) -> io::Result<()> {
        while !piece.is_empty() {
            match self.file.write(piece) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => piece = &piece[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Standard output may have been made non-blocking by who shares it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let writable = PollFd::new(self.file.as_fd(), PollFlags::POLLOUT);
                    poll(&mut [writable], PollTimeout::NONE)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn reopen(&mut self) {
        match open(&self.target) {
            Ok(file) => self.file = file,
            Err(error) => tracing::error!(%error, "the access log stays with its old file"),
        }
    }
}

fn open(target: &LogTarget) -> io::Result<File> {
    match target {
        LogTarget::Stdout => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
        // `append`: each write goes to the end, wherever other workers have moved it.
        LogTarget::File(path) => File::options()
            .append(true)
            .create(true)
            .mode(0o640)
            .open(path)
            .map_err(|error| {
                let reason = format!("cannot open the access log {}: {error}", path.display());
                io::Error::new(error.kind(), reason)
            }),
    }
}

/// The lines in as few pieces as one write may have, none of them torn.
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
