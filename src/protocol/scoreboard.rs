//! The scoreboard: one file in memory with a row for each worker, which the worker writes and the
//! master reads.
//!
//! | page | what it is | who writes it |
//! |---|---|---|
//! | 0 | the header: what layout this is, and how many of the pages below were ever used | master |
//! | 1 + slot | the slot's sum: what its workers that are gone have counted | master |
//! | after the slots' | the row of a living worker | that worker; master: whose it is |
//!
//! In a reload two workers of one slot live at once, and more may drain, so a row belongs to a
//! worker and not to a slot: the master hands it out at the spawn, and when the process has been
//! reaped it adds the row to the slot's sum and has it free again. The totals are all sums and all
//! rows, so they never fall, whatever becomes of the workers.
//!
//! It is as large as it can ever get from the start. Pages that were never touched cost no memory,
//! while a file that grew would have to be mapped anew by every process in it.
//!
//! All that the master has to know of it is in it: a master that execs passes on the descriptor.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::id::{Generation, MAX_WORKERS, Slot};
use crate::record::record;
use crate::row::{Gauge, Mark, Row, RowView, State, Sum, Totals, WORDS, Words};
use crate::sys::memory::{self, Mapping};

/// Rows for living workers: eight for each slot of the largest server. In a slot there may be a
/// worker that serves, its successor, four that drain, and some that were killed and that the
/// kernel does not let go; should all rows be taken, a spawn fails.
const ROWS: usize = 8 * MAX_WORKERS;

/// Where in the file the rows begin.
const FIRST_ROW: usize = (1 + MAX_WORKERS) * WORDS;

/// The whole file: 36 MiB, of which a page for each worker and slot is touched.
const ALL_WORDS: usize = FIRST_ROW + ROWS * WORDS;

/// The first words of the file. A change of what any word means is a new version.
const LAYOUT: [u64; 5] = [
    u64::from_le_bytes(*b"prefork\0"),
    1,
    WORDS as u64,
    MAX_WORKERS as u64,
    ROWS as u64,
];

/// The words of the header after [`LAYOUT`]: how many sums and rows, from the first, were ever
/// used. Only to read a page that was never touched makes it cost memory.
const SUMS_USED: usize = LAYOUT.len();
const ROWS_USED: usize = LAYOUT.len() + 1;

/// Which row. Given by the master, told to the worker in its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowNumber(pub(crate) u16);

record!(RowNumber { 0 });

/// The master's side.
#[derive(Debug)]
pub(crate) struct Scoreboard {
    fd: OwnedFd,
    map: Mapping,
}

/// How a worker is doing, as far as a hang is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vitals {
    /// When its event loop last went round, on the monotonic clock; zero if it never did.
    pub(crate) heartbeat: Duration,
    /// Requests it has begun and not finished.
    pub(crate) requests: u64,
}

/// What a worker has to do, and can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// As [`Vitals::heartbeat`].
    pub(crate) heartbeat: Duration,
    /// Connections that it has open, and as many as it may have.
    pub(crate) connections: u64,
    pub(crate) connections_max: u64,
    /// Those of them that are served, being not at rest.
    pub(crate) served: u64,
}

impl Scoreboard {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = memory::create(c"prefork-scoreboard", ALL_WORDS)?;
        let map = Mapping::new(&fd, 0, ALL_WORDS)?;
        for (word, value) in map.iter().zip(LAYOUT) {
            word.store(value, Relaxed);
        }
        Ok(Self { fd, map })
    }

    /// Takes over the scoreboard of the image that ran in this process before, with all rows that
    /// are handed out. Fails if that image had another layout.
    pub(crate) fn inherit(fd: OwnedFd) -> io::Result<Self> {
        check(&fd)?;
        let map = Mapping::new(&fd, 0, ALL_WORDS)?;
        Ok(Self { fd, map })
    }

    /// The descriptor once more, for the next image.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// The descriptor that workers inherit; close-on-exec here.
    pub(crate) fn number(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Hands out a free row; `None` if all are taken.
    pub(crate) fn take(&mut self, slot: Slot, generation: Generation) -> Option<RowNumber> {
        let number = (0..ROWS)
            .map(RowNumber::new)
            .find(|&number| self.is_free(number))?;
        self.raise(ROWS_USED, u64::from(number.0) + 1);
        self.raise(SUMS_USED, u64::from(slot.0) + 1);
        let row = self.row(number);
        row.clear();
        row.set_mark(Mark::Slot, slot.0.into());
        row.set_mark(Mark::Generation, generation.0.into());
        Some(number)
    }

    /// Takes a row back whose worker has been reaped, or never came to be.
    pub(crate) fn give_back(&mut self, number: RowNumber) {
        let row = self.row(number);
        let slot = row.mark(Mark::Slot);
        let slot = usize::try_from(slot).expect("the master has put a slot there");
        self.sum(slot).absorb(row);
    }

    pub(crate) fn vitals(&self, number: RowNumber) -> Vitals {
        let row = self.row(number);
        Vitals {
            heartbeat: Duration::from_millis(row.gauge(Gauge::HeartbeatMillis)),
            // Without a connection there is no heartbeat either.
            requests: match row.gauge(Gauge::Connections) {
                0 => 0,
                _ => row.gauge(Gauge::Requests),
            },
        }
    }

    /// `None` if the row's worker does not serve.
    pub(crate) fn standing(&self, number: RowNumber) -> Option<Standing> {
        let row = self.row(number);
        let serves = row.gauge(Gauge::State) == State::Serving as u64;
        serves.then(|| Standing {
            heartbeat: Duration::from_millis(row.gauge(Gauge::HeartbeatMillis)),
            connections: row.gauge(Gauge::Connections),
            connections_max: row.gauge(Gauge::ConnectionsMax),
            served: row.gauge(Gauge::Served),
        })
    }

    /// How many connections the row's worker has open; of one that was killed, had.
    pub(crate) fn connections(&self, number: RowNumber) -> u32 {
        let open = self.row(number).gauge(Gauge::Connections);
        u32::try_from(open).unwrap_or(u32::MAX)
    }

    /// All that was ever counted.
    pub(crate) fn totals(&self) -> Totals {
        let mut sum = Sum::new();
        (0..self.used(SUMS_USED)).for_each(|slot| sum.add(self.sum(slot)));
        self.rows().for_each(|row| sum.add(row));
        sum.totals()
    }

    /// The rows of living workers.
    pub(crate) fn rows(&self) -> impl Iterator<Item = RowView<'_>> {
        (0..self.used(ROWS_USED))
            .map(|number| self.row(RowNumber::new(number)))
            .filter(|row| row.mark(Mark::Generation) != 0)
    }

    fn is_free(&self, number: RowNumber) -> bool {
        let used = self.used(ROWS_USED);
        usize::from(number.0) >= used || self.row(number).mark(Mark::Generation) == 0
    }

    fn row(&self, number: RowNumber) -> RowView<'_> {
        self.page(number.first_word())
    }

    fn sum(&self, slot: usize) -> RowView<'_> {
        self.page((1 + slot) * WORDS)
    }

    fn page(&self, from: usize) -> RowView<'_> {
        RowView(as_row(&self.map[from..from + WORDS]))
    }

    fn used(&self, mark: usize) -> usize {
        usize::try_from(self.map[mark].load(Relaxed)).expect("at most as many as there are pages")
    }

    fn raise(&self, mark: usize, used: u64) {
        let before = self.map[mark].load(Relaxed);
        self.map[mark].store(before.max(used), Relaxed);
    }
}

/// The worker's side: its own row and no other. The descriptor is closed.
pub(crate) fn join(fd: OwnedFd, number: RowNumber) -> io::Result<Row> {
    check(&fd)?;
    let row = Mapping::new(&fd, number.first_word(), WORDS)?;
    Ok(Row::shared(as_row(row.leak())))
}

/// Whether both sides mean the same by each word.
fn check(fd: &OwnedFd) -> io::Result<()> {
    let same = memory::words(fd)? == ALL_WORDS && {
        let header = Mapping::new(fd, 0, LAYOUT.len())?;
        header.iter().map(|word| word.load(Relaxed)).eq(LAYOUT)
    };
    match same {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the scoreboard has another layout",
        )),
    }
}

fn as_row(words: &[AtomicU64]) -> &Words {
    words.try_into().expect("a row has WORDS words")
}

impl RowNumber {
    fn new(number: usize) -> Self {
        Self(u16::try_from(number).expect("there are fewer than 2^16 rows"))
    }

    fn first_word(self) -> usize {
        FIRST_ROW + usize::from(self.0) * WORDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Count;

    fn scoreboard() -> Scoreboard {
        Scoreboard::new().expect("memory")
    }

    fn joined(scoreboard: &Scoreboard, number: RowNumber) -> Row {
        join(scoreboard.fd.try_clone().expect("a descriptor"), number).expect("the same layout")
    }

    fn take(scoreboard: &mut Scoreboard, slot: u16, generation: u32) -> (RowNumber, Row) {
        let number = scoreboard.take(Slot(slot), Generation(generation));
        let number = number.expect("a free row");
        (number, joined(scoreboard, number))
    }

    #[test]
    fn the_master_reads_what_a_worker_writes() {
        let mut scoreboard = scoreboard();
        let (number, row) = take(&mut scoreboard, 3, 7);
        row.connection_begins(Count::Connections);
        row.request_begins();
        row.add(Count::BytesOut, 100);
        row.set(Gauge::HeartbeatMillis, 1500);
        row.note_latency(Duration::from_millis(1), 16);
        let vitals = Vitals {
            heartbeat: Duration::from_millis(1500),
            requests: 1,
        };
        assert_eq!(scoreboard.vitals(number), vitals);
        assert_eq!(scoreboard.connections(number), 1);
        assert_eq!(scoreboard.standing(number), None, "it has not begun");
        row.set_state(State::Serving);
        row.set(Gauge::ConnectionsMax, 9);
        row.set(Gauge::Served, 1);
        let standing = Standing {
            heartbeat: vitals.heartbeat,
            connections: 1,
            connections_max: 9,
            served: 1,
        };
        assert_eq!(scoreboard.standing(number), Some(standing));
        let totals = scoreboard.totals();
        assert_eq!((totals.requests, totals.bytes_out), (1, 100));
        assert!(totals.latency_p99.abs_diff(Duration::from_millis(1)) < Duration::from_micros(63));
        let marks = scoreboard
            .rows()
            .map(|row| (row.mark(Mark::Slot), row.mark(Mark::Generation)));
        assert_eq!(marks.collect::<Vec<_>>(), [(3, 7)]);
    }

    /// Two generations of a slot at once, a crash, a row that is used again: the sum never falls.
    #[test]
    fn totals_outlive_workers() {
        let mut scoreboard = scoreboard();
        let (old, old_row) = take(&mut scoreboard, 0, 1);
        let (new, new_row) = take(&mut scoreboard, 0, 2);
        assert_ne!(old, new);
        let mut before = 0;
        for round in 0..10 {
            old_row.add(Count::Requests, 2);
            new_row.add(Count::Requests, 3);
            let now = scoreboard.totals().requests;
            assert_eq!(now, before + 5, "round {round}");
            before = now;
        }
        old_row.set(Gauge::LongestStallMillis, 70);
        scoreboard.give_back(old);
        assert_eq!(scoreboard.totals().requests, before);
        let (again, row) = take(&mut scoreboard, 1, 2);
        assert_eq!(again, old, "a row that is free is used again");
        assert_eq!(row.count(Count::Requests), 0, "and nothing is left in it");
        row.add(Count::Requests, 1);
        scoreboard.give_back(again);
        scoreboard.give_back(new);
        let totals = scoreboard.totals();
        assert_eq!(totals.requests, before + 1);
        assert_eq!(totals.longest_stall, Duration::from_millis(70));
        assert_eq!(scoreboard.rows().count(), 0);
    }

    #[test]
    fn the_next_image_goes_on_where_this_one_was() {
        let mut scoreboard = scoreboard();
        let (gone, row) = take(&mut scoreboard, 900, 1);
        row.add(Count::Requests, 5);
        scoreboard.give_back(gone);
        let (_, row) = take(&mut scoreboard, 1, 1);
        row.add(Count::Requests, 2);
        let fd = scoreboard.fd.try_clone().expect("a descriptor");
        drop(scoreboard);
        let mut scoreboard = Scoreboard::inherit(fd).expect("the same layout");
        assert_eq!(scoreboard.totals().requests, 7);
        assert_eq!(scoreboard.rows().count(), 1);
        let (number, _) = take(&mut scoreboard, 2, 2);
        assert_eq!(number, RowNumber(1), "row 0 is still handed out");
    }

    #[test]
    fn another_layout_is_refused_by_both_sides() {
        let scoreboard = scoreboard();
        scoreboard.map[1].store(LAYOUT[1] + 1, Relaxed);
        let fd = || scoreboard.fd.try_clone().expect("a descriptor");
        join(fd(), RowNumber(0)).expect_err("another version");
        Scoreboard::inherit(fd()).expect_err("another version");
        let short = memory::create(c"short", ALL_WORDS - WORDS).expect("memory");
        join(short, RowNumber(0)).expect_err("another length");
    }

    #[test]
    fn there_is_an_end_to_rows_and_the_last_one_works() {
        let mut scoreboard = scoreboard();
        scoreboard.raise(ROWS_USED, ROWS as u64);
        for number in 0..ROWS - 1 {
            let row = scoreboard.row(RowNumber::new(number));
            row.set_mark(Mark::Generation, 1);
        }
        let (number, row) = take(&mut scoreboard, 1023, 1);
        row.add(Count::Requests, 1);
        assert_eq!(usize::from(number.0), ROWS - 1);
        assert_eq!(scoreboard.take(Slot(0), Generation(1)), None);
    }
}
