//! The scoreboard: what workers count, in memory that the master reads.
//!
//! Each worker has a page of its own, in a file of its own. The worker writes the page, and the
//! master reads it. No worker has the page of another worker, or memory that the master relies on:
//! the master knows by itself which page belongs to which worker. A hostile worker can write any
//! number into its page, so the master clamps what it reads.
//!
//! In a reload two workers of a slot run at once, and more may drain. So a page belongs to a
//! worker, not to a slot. When the master has reaped a process, it adds the page to a page that no
//! worker has. The totals are that page and all pages, so they never fall.
//!
//! An upgrade passes the descriptor of every page to the next image.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::codec::{Malformed, Reader, Record, Writer};
use crate::stats::{GAUGES, Gauge, State, StatsView, Sum, Totals, WORDS, Words, WorkerStats};
use crate::sys::memory::{self, Mapping, View};

/// The first words of a page. Raise the version if the meaning of any word changes.
const LAYOUT: [u64; 3] = [u64::from_le_bytes(*b"prefork\0"), 2, WORDS as u64];

const _: () = assert!(LAYOUT.len() <= GAUGES);

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
    /// Requests that it has begun and not finished.
    pub(crate) requests: u64,
}

/// What the master needs of a page to compare loads. Each number is at most [`GAUGE_MAX`].
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

impl Page {
    /// A page with all counts at zero.
    pub(crate) fn new() -> io::Result<Self> {
        let page = Self::map(memory::create(c"prefork-stats", WORDS)?)?;
        for (word, value) in page.map.iter().zip(LAYOUT) {
            word.store(value, Relaxed);
        }
        Ok(page)
    }

    fn map(fd: OwnedFd) -> io::Result<Self> {
        let map = Mapping::new(&fd, 0, WORDS)?;
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

    pub(crate) fn vitals(&self, now: Duration) -> Vitals {
        Vitals {
            heartbeat: self.heartbeat(now),
            // Without a connection the worker writes no heartbeat.
            requests: match self.gauge(Gauge::Connections) {
                0 => 0,
                _ => self.gauge(Gauge::Requests),
            },
        }
    }

    /// `None` if the page's worker does not serve.
    pub(crate) fn standing(&self, now: Duration) -> Option<Standing> {
        let serves = self.gauge(Gauge::State) == State::Serving as u64;
        serves.then(|| Standing {
            heartbeat: self.heartbeat(now),
            connections: self.gauge(Gauge::Connections),
            connections_max: self.gauge(Gauge::ConnectionsMax),
            served: self.gauge(Gauge::Served),
        })
    }

    /// How many connections the page's worker has open, or had when it was killed.
    pub(crate) fn connections(&self) -> u32 {
        u32::try_from(self.gauge(Gauge::Connections)).expect("it is at most GAUGE_MAX")
    }

    /// How many requests the page's worker has begun and not finished.
    pub(crate) fn requests(&self) -> u32 {
        u32::try_from(self.gauge(Gauge::Requests)).expect("it is at most GAUGE_MAX")
    }

    fn heartbeat(&self, now: Duration) -> Duration {
        Duration::from_millis(self.stats().gauge(Gauge::HeartbeatMillis)).min(now)
    }

    fn gauge(&self, gauge: Gauge) -> u64 {
        self.stats().gauge(gauge).min(GAUGE_MAX)
    }

    fn stats(&self) -> StatsView<'_> {
        StatsView(as_stats(&self.map))
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
        Page::new().map(Self::of)
    }

    /// Takes over the scoreboard of the image before. Fails if that image had another layout. Then
    /// the pages of its workers have another layout too.
    pub(crate) fn inherit(fd: OwnedFd) -> io::Result<Self> {
        check(&fd)?;
        Page::map(fd).map(Self::of)
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
        let copy = Page::new()?;
        copy.stats().absorb(self.ended.stats());
        Ok(copy)
    }

    /// Adds the counts of a worker whose process was reaped.
    pub(crate) fn keep(&self, ended: &Page) {
        self.ended.stats().absorb(ended.stats());
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

    pub(crate) fn gauge(&self, gauge: Gauge) -> u32 {
        u32::try_from(self.stats().gauge(gauge)).unwrap_or(u32::MAX)
    }

    fn stats(&self) -> StatsView<'_> {
        StatsView(as_stats(self.0.words()))
    }
}

/// The worker's side: maps its page and closes the descriptor.
pub(crate) fn join(fd: OwnedFd) -> io::Result<WorkerStats> {
    check(&fd)?;
    let stats = Mapping::new(&fd, 0, WORDS)?;
    Ok(WorkerStats::shared(as_stats(stats.leak())))
}

/// Fails unless the page has the layout of this image.
fn check(fd: &OwnedFd) -> io::Result<()> {
    let same = memory::words(fd)? == WORDS && {
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
    words.try_into().expect("a page has WORDS words")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Count;

    const NOW: Duration = Duration::from_secs(100);

    fn page() -> Page {
        Page::new().expect("memory")
    }

    fn joined(page: &Page) -> WorkerStats {
        join(page.share()).expect("the same layout")
    }

    #[test]
    fn the_master_reads_what_a_worker_writes() {
        let (scoreboard, page) = (Scoreboard::new().expect("memory"), page());
        let stats = joined(&page);
        stats.connection_begins(Count::Connections);
        stats.request_begins();
        stats.add(Count::BytesOut, 100);
        stats.set(Gauge::HeartbeatMillis, 1500);
        stats.note_latency(Duration::from_millis(1), 16);
        let vitals = Vitals {
            heartbeat: Duration::from_millis(1500),
            requests: 1,
        };
        assert_eq!(page.vitals(NOW), vitals);
        assert_eq!(page.connections(), 1);
        assert_eq!(page.standing(NOW), None, "it has not begun");
        stats.set_state(State::Serving);
        stats.set(Gauge::ConnectionsMax, 9);
        stats.set(Gauge::Served, 1);
        let standing = Standing {
            heartbeat: vitals.heartbeat,
            connections: 1,
            connections_max: 9,
            served: 1,
        };
        assert_eq!(page.standing(NOW), Some(standing));
        let totals = scoreboard.totals([&page].into_iter());
        assert_eq!((totals.requests, totals.bytes_out), (1, 100));
        assert!(totals.latency_p99.abs_diff(Duration::from_millis(1)) < Duration::from_micros(63));
    }

    /// The sum does not fall when a worker ends, though two workers of a slot run at once.
    #[test]
    fn totals_outlive_workers() {
        let scoreboard = Scoreboard::new().expect("memory");
        let (old, new) = (page(), page());
        let (old_row, new_row) = (joined(&old), joined(&new));
        let mut before = 0;
        for round in 0..10 {
            old_row.add(Count::Requests, 2);
            new_row.add(Count::Requests, 3);
            let now = scoreboard.totals([&old, &new].into_iter()).requests;
            assert_eq!(now, before + 5, "round {round}");
            before = now;
        }
        old_row.set(Gauge::LongestStallMillis, 70);
        scoreboard.keep(&old);
        let living = scoreboard.totals([&new].into_iter());
        assert_eq!(living.requests, before);
        new_row.add(Count::Requests, 1);
        scoreboard.keep(&new);
        let totals = scoreboard.totals([].into_iter());
        assert_eq!(totals.requests, before + 1);
        assert_eq!(totals.longest_stall, Duration::from_millis(70));
    }

    #[test]
    fn the_next_image_goes_on_with_the_same_counts() {
        let (scoreboard, gone, living) = (Scoreboard::new().expect("memory"), page(), page());
        joined(&gone).add(Count::Requests, 5);
        scoreboard.keep(&gone);
        let stats = joined(&living);
        stats.add(Count::Requests, 2);
        let left = scoreboard.share().expect("a descriptor");
        let mut writer = Writer::default();
        living.put(&mut writer);
        // As after an exec: the descriptor stays open, and the mapping is gone.
        let (bytes, kept) = writer.finish();
        let Page { fd, map } = living;
        drop((scoreboard, map));
        assert_eq!(kept, [fd.as_raw_fd()]);
        std::mem::forget(fd);
        let scoreboard = Scoreboard::inherit(left).expect("the same layout");
        let living = Page::take(&mut Reader::new(&bytes)).expect("it is open");
        stats.add(Count::Requests, 1);
        let totals = scoreboard.totals([&living].into_iter());
        assert_eq!(totals.requests, 8);
    }

    #[test]
    fn another_layout_is_refused_by_both_sides() {
        let page = page();
        page.map[1].store(LAYOUT[1] + 1, Relaxed);
        let fd = || page.fd.try_clone().expect("a descriptor");
        join(fd()).expect_err("another version");
        Scoreboard::inherit(fd()).expect_err("another version");
        let long = memory::create(c"long", 2 * WORDS).expect("memory");
        join(long).expect_err("another length");
    }

    /// Whatever a worker writes into its page, the master goes on and adds up the counts of the
    /// others.
    #[test]
    fn a_hostile_worker_reaches_only_its_own_row_and_no_sum_overflows() {
        let scoreboard = Scoreboard::new().expect("memory");
        let (honest, hostile) = (page(), page());
        joined(&honest).add(Count::Requests, 5);
        for word in [u64::MAX, u64::MAX / 2 + 1, 1 << 32] {
            assert_eq!(hostile.map.len(), WORDS, "one page");
            hostile.map.iter().for_each(|at| at.store(word, Relaxed));
            let vitals = hostile.vitals(NOW);
            assert!(vitals.heartbeat <= NOW && vitals.requests <= GAUGE_MAX);
            assert!(hostile.connections() > 0);
            hostile.map[GAUGES + Gauge::State as usize].store(State::Serving as u64, Relaxed);
            let standing = hostile.standing(NOW).expect("it says that it serves");
            let Standing {
                heartbeat,
                connections,
                connections_max,
                served,
            } = standing;
            assert!(heartbeat <= NOW);
            assert!(
                [connections, connections_max, served]
                    .iter()
                    .all(|&it| it <= GAUGE_MAX)
            );
            let totals = scoreboard.totals([&honest, &hostile].into_iter());
            assert!(totals.requests > 5 && totals.bytes_in > 0 && totals.timeouts > 0);
        }
        assert_eq!(honest.vitals(NOW).requests, 0);
        for _ in 0..2 {
            scoreboard.keep(&hostile);
        }
        let totals = scoreboard.totals([&honest].into_iter());
        assert!(totals.requests > 5);
        let alone = Scoreboard::new().expect("memory");
        assert_eq!(alone.totals([&honest].into_iter()).requests, 5);
    }
}
