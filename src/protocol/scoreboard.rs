//! The scoreboard: what workers count, in memory that the master reads.
//!
//! Each worker has a page of its own, in a file of its own. The worker writes the page, and the
//! master reads it. A worker can read the pages of some siblings, to compare loads. It can write no
//! other page (but if it is of the master's user, see [`memory::read_only`]), and has no memory
//! that the master relies on: the master knows by itself which page belongs to which worker. A
//! hostile worker can write any number into its page, so the master and siblings clamp what they
//! read.
//!
//! In a reload two workers of a slot run at once, and more may drain. So a page belongs to a
//! worker, not to a slot. When the master has reaped a process, it adds the page to a page that no
//! worker has. The totals are that page and all pages, so they never fall.
//!
//! A page has a second part, with the metrics of the app: [`own_metrics`]. It uses no memory if the
//! app has none. The pages of an image before may be without it.
//!
//! An upgrade passes the descriptor of every page to the next image.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::codec::{Malformed, Reader, Record, Writer};
use crate::protocol::own_metrics::{self, ALL_WORDS, Directory, WORKER_WORDS};
use crate::stats::{
    Count, GAUGES, Gauge, State, StatsView, Sum, Totals, WORDS, Words, WorkerStats,
};
use crate::sys::memory::{self, Mapping, View};

/// The first words of a page. Raise the version if the meaning of any word changes.
const LAYOUT: [u64; 3] = [u64::from_le_bytes(*b"prefork\0"), 2, WORDS as u64];

/// The word that says how long the metrics of the app are. It is zero in a page of an image that
/// has no such part.
const OWN_USED: usize = LAYOUT.len();

const _: () = assert!(OWN_USED < GAUGES);

/// The most connections or requests of a worker: the kernel's limit on the descriptors of a process
/// is far lower (proc(5), `fs.nr_open`). Sums over all workers do not overflow.
const GAUGE_MAX: u64 = u32::MAX as u64;

/// A page in the master: the page of a worker, or the counts of the workers that have ended.
#[derive(Debug)]
pub(crate) struct Page {
    fd: OwnedFd,
    map: Mapping,
}

/// The counts of the workers that have ended. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Scoreboard {
    ended: Arc<Page>,
}

/// What the master needs of a page to find workers that hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vitals {
    /// When its event loop last turned, on the monotonic clock; zero if it never did. Never later
    /// than now.
    pub(crate) heartbeat: Duration,
    /// The connections that it has open.
    pub(crate) connections: u64,
}

/// What the master and siblings need of a page to compare loads. Each number is at most
/// [`GAUGE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// As [`Vitals::heartbeat`].
    pub(crate) heartbeat: Duration,
    /// The connections that it has open, and the most that it may have.
    pub(crate) connections: u64,
    pub(crate) connections_max: u64,
    /// The open connections that are not idle.
    pub(crate) served: u64,
}

impl Standing {
    fn of(stats: StatsView<'_>, now: Duration) -> Option<Self> {
        let serves = stats.gauge(Gauge::State) == State::Serving as u64;
        serves.then(|| Self {
            connections: clamped(stats, Gauge::Connections),
            connections_max: clamped(stats, Gauge::ConnectionsMax),
            served: clamped(stats, Gauge::Served),
            // The last of them: see `StatsView::heartbeat`.
            heartbeat: stats.heartbeat(now),
        })
    }

    /// Whether its heartbeat is older than `limit`: it is blocked in a request, or hangs. A
    /// connection that is given to it would wait. Without connections it has no heartbeat.
    pub(crate) fn is_late(&self, now: Duration, limit: Duration) -> bool {
        self.connections > 0 && now.saturating_sub(self.heartbeat) > limit
    }

    /// How many more connections it may hold.
    pub(crate) fn room(&self) -> u64 {
        self.connections_max.saturating_sub(self.connections)
    }
}

fn clamped(stats: StatsView<'_>, gauge: Gauge) -> u64 {
    stats.gauge(gauge).min(GAUGE_MAX)
}

impl Page {
    /// A page of a worker, with all counts at zero.
    pub(crate) fn new() -> io::Result<Self> {
        Self::with_part(WORKER_WORDS)
    }

    /// A page whose second part has so many words.
    fn with_part(words: usize) -> io::Result<Self> {
        let page = Self::map(memory::create(c"prefork-stats", WORDS + words)?)?;
        for (word, value) in page.map.iter().zip(LAYOUT) {
            word.store(value, Relaxed);
        }
        Ok(page)
    }

    fn map(fd: OwnedFd) -> io::Result<Self> {
        let words = memory::words(&fd)?;
        if words < WORDS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let map = Mapping::new(&fd, 0, words)?;
        Ok(Self { fd, map })
    }

    /// The descriptor that the page's worker inherits; close-on-exec here.
    pub(crate) fn number(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// A duplicate of the descriptor, as a worker inherits it.
    #[cfg(test)]
    pub(crate) fn share(&self) -> OwnedFd {
        self.fd.try_clone().expect("a descriptor")
    }

    /// A descriptor by which another process can read the page, and not write it.
    pub(crate) fn read_only(&self) -> io::Result<OwnedFd> {
        memory::read_only(&self.fd)
    }

    /// How many upgraded connections a drain has cut after their grace time.
    pub(crate) fn upgrades_cut(&self) -> u64 {
        self.stats().count(Count::UpgradesCut)
    }

    pub(crate) fn vitals(&self, now: Duration) -> Vitals {
        Vitals {
            connections: self.gauge(Gauge::Connections),
            // The last of them: see `StatsView::heartbeat`.
            heartbeat: self.stats().heartbeat(now),
        }
    }

    /// `None` if the page's worker does not serve.
    pub(crate) fn standing(&self, now: Duration) -> Option<Standing> {
        Standing::of(self.stats(), now)
    }

    /// How many connections the page's worker has accepted from a listener.
    pub(crate) fn accepted(&self) -> u64 {
        let stats = self.stats();
        // A sibling has accepted those that were placed here.
        let placed = stats.count(Count::Placed);
        stats.count(Count::Connections).saturating_sub(placed)
    }

    /// How many connections the page's worker has open, or had when it was killed.
    pub(crate) fn connections(&self) -> u32 {
        u32::try_from(self.gauge(Gauge::Connections)).expect("it is at most GAUGE_MAX")
    }

    /// How many requests the page's worker has begun and not finished.
    pub(crate) fn requests(&self) -> u32 {
        u32::try_from(self.gauge(Gauge::Requests)).expect("it is at most GAUGE_MAX")
    }

    fn gauge(&self, gauge: Gauge) -> u64 {
        clamped(self.stats(), gauge)
    }

    fn stats(&self) -> StatsView<'_> {
        StatsView(as_stats(&self.map))
    }

    fn own(&self) -> Directory<'_> {
        as_own(&self.map)
    }
}

impl AsFd for Page {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A page crosses by its descriptor. The size of its file cannot change.
impl Record for Page {
    fn put(&self, to: &mut Writer) {
        self.fd.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::map(OwnedFd::take(from)?).map_err(|_| Malformed)
    }
}

impl Record for Arc<Page> {
    fn put(&self, to: &mut Writer) {
        Page::put(self, to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Page::take(from).map(Arc::new)
    }
}

impl Scoreboard {
    pub(crate) fn new() -> io::Result<Self> {
        Page::with_part(ALL_WORDS).map(Self::of)
    }

    /// Takes over the scoreboard of the image before. Fails if that image had another layout. Then
    /// the pages of its workers have another layout too.
    pub(crate) fn inherit(fd: OwnedFd) -> io::Result<Self> {
        check(&fd)?;
        let page = Page::map(fd)?;
        if page.map.len() >= WORDS + ALL_WORDS {
            return Ok(Self::of(page));
        }
        // That image knew no metrics of the app, or had less room for them.
        let larger = Self::new()?;
        larger.keep(&page);
        Ok(larger)
    }

    fn of(ended: Page) -> Self {
        Self {
            ended: Arc::new(ended),
        }
    }

    /// A duplicate of the descriptor, for the next image.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.ended.fd.try_clone()
    }

    /// A page with the counts of the workers that have ended so far.
    pub(crate) fn copy(&self) -> io::Result<Page> {
        let copy = Page::with_part(ALL_WORDS)?;
        copy.stats().absorb(self.ended.stats());
        self.ended.own().copy(copy.own());
        Ok(copy)
    }

    /// Adds the counts of a worker whose process was reaped. From now on siblings that know its
    /// page give it nothing.
    pub(crate) fn keep(&self, ended: &Page) {
        ended.stats().set_state(State::Draining);
        self.ended.stats().absorb(ended.stats());
        if ended.own().is_empty() {
            return;
        }
        let mut sum = own_metrics::Sum::default();
        sum.add_ended(self.ended.own());
        sum.add_ended(ended.own());
        let refused = Count::OwnMetricsRefused;
        self.ended.stats().add(refused, sum.dropped());
        self.ended.own().replace(&sum);
    }

    /// All counts: of the workers that have ended, and of those with these pages.
    pub(crate) fn totals<'a>(&'a self, stats: impl Iterator<Item = &'a Page>) -> Totals {
        let mut sum = Sum::new();
        stats
            .chain([&*self.ended])
            .for_each(|page| sum.add(page.stats()));
        sum.totals()
    }
}

/// A page as another process than the master reads it.
#[derive(Debug)]
pub(crate) struct PageView(View);

impl PageView {
    /// Maps a page from [`Page::read_only`]. The descriptor can be closed.
    pub(crate) fn open(fd: &OwnedFd) -> io::Result<Self> {
        check(fd)?;
        View::new(fd).map(Self)
    }

    /// How many open connections of the page's worker are work.
    pub(crate) fn load(&self) -> u64 {
        clamped(self.stats(), Gauge::Load)
    }

    /// As [`Page::standing`].
    pub(crate) fn standing(&self, now: Duration) -> Option<Standing> {
        Standing::of(self.stats(), now)
    }

    /// How many connections the page's worker has taken from inboxes, modulo 2^64.
    pub(crate) fn taken(&self) -> u64 {
        let [placed, taken_over] =
            [Count::Placed, Count::TakenOver].map(|count| self.stats().count(count));
        placed.wrapping_add(taken_over)
    }

    pub(crate) fn add_to(&self, sum: &mut Sum) {
        sum.add(self.stats());
    }

    /// As [`Page::connections`].
    pub(crate) fn connections(&self) -> u32 {
        self.gauge(Gauge::Connections)
    }

    /// As [`Page::requests`].
    pub(crate) fn requests(&self) -> u32 {
        self.gauge(Gauge::Requests)
    }

    /// How many requests the page's worker has begun so far.
    pub(crate) fn requests_so_far(&self) -> u64 {
        self.stats().count(Count::Requests)
    }

    pub(crate) fn gauge(&self, gauge: Gauge) -> u32 {
        u32::try_from(self.stats().gauge(gauge)).unwrap_or(u32::MAX)
    }

    /// The metrics of the app.
    pub(crate) fn own(&self) -> Directory<'_> {
        as_own(self.0.words())
    }

    fn stats(&self) -> StatsView<'_> {
        StatsView(as_stats(self.0.words()))
    }
}

/// The worker's side: maps its page and closes the descriptor.
pub(crate) fn join(fd: impl AsFd) -> io::Result<WorkerStats> {
    check(&fd)?;
    let stats = Mapping::new(&fd, 0, WORDS)?;
    Ok(WorkerStats::shared(as_stats(stats.leak())))
}

/// The part of a page for the metrics of the app, for the worker to write to. It stays mapped until
/// the process ends.
#[cfg(any(test, feature = "metrics"))]
pub(crate) fn join_own(fd: impl AsFd) -> io::Result<Directory<'static>> {
    check(&fd)?;
    let words = memory::words(&fd)?;
    Mapping::new(fd, 0, words).map(|map| as_own(map.leak()))
}

/// Fails unless the page has the layout of this image. Only the second part may have another size.
fn check(fd: &impl AsFd) -> io::Result<()> {
    let same = memory::words(fd)? >= WORDS && {
        let view = View::new(fd)?;
        (0..LAYOUT.len()).map(|word| view.load(word)).eq(LAYOUT)
    };
    match same {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the scoreboard has another layout",
        )),
    }
}

fn as_stats(words: &[AtomicU64]) -> &Words {
    let (stats, _own) = words.split_at(WORDS);
    stats.try_into().expect("it was split there")
}

fn as_own(words: &[AtomicU64]) -> Directory<'_> {
    let (stats, own) = words.split_at(WORDS);
    Directory::new(&stats[OWN_USED], own)
}
