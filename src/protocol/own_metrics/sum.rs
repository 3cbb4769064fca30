//! The series of several workers, added up.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::sync::atomic::Ordering::Relaxed;

use super::{ALL_WORDS, Description, Directory, Entry, Key, Kind, Series};
use crate::id::Slot;

/// The series of several workers. They have at most [`ALL_WORDS`] words, as entries of a page have
/// them. What does not fit is dropped.
///
/// The master and the admin process add the workers that have ended in the same order, so that both
/// drop the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    series: BTreeMap<Series, Vec<u64>>,
    /// By the name of the metrics.
    descriptions: BTreeMap<String, Description>,
    words: usize,
    dropped: u64,
}

/// Which worker of a slot a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The worker that was started last.
    Newest,
    /// Another one, which will end.
    Before,
}

impl Sum {
    /// Adds what a worker that has ended has counted. Its gauges and descriptions ended with it.
    pub(crate) fn add_ended(&mut self, ended: Directory<'_>) {
        for Entry { key, values, words } in ended.entries() {
            if let Key::Series(series) = key
                && matches!(series.kind, Kind::Counter | Kind::Histogram)
            {
                let values = values.iter().map(|value| value.load(Relaxed));
                self.add_series(series, values.collect(), words);
            }
        }
    }

    /// Adds everything of a worker that runs.
    pub(crate) fn add_running(&mut self, running: Directory<'_>, slot: Slot, turn: Turn) {
        for Entry { key, values, words } in running.entries() {
            let mut series = match key {
                Key::Series(series) => series,
                Key::Description(description) => {
                    self.add_description(description, words);
                    continue;
                }
            };
            if series.kind == Kind::SlotGauge {
                if turn == Turn::Before {
                    continue;
                }
                series.kind = Kind::Gauge;
                series.labels.push(("slot".into(), slot.to_string()));
            }
            let values = values.iter().map(|value| value.load(Relaxed));
            self.add_series(series, values.collect(), words);
        }
    }

    /// The series in order, with their values as in an entry.
    pub(crate) fn series(&self) -> impl Iterator<Item = (&Series, &[u64])> {
        let series = self.series.iter();
        series.map(|(series, values)| (series, &**values))
    }

    /// What explains the metrics of this name.
    pub(crate) fn description(&self, name: &str) -> Option<&Description> {
        self.descriptions.get(name)
    }

    /// How many counters and histograms did not fit. Gauges end with their worker, and this number
    /// must not fall.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    fn add_series(&mut self, series: Series, values: Vec<u64>, words: usize) {
        let kind = series.kind;
        let has_room = self.words + words <= ALL_WORDS;
        match self.series.entry(series) {
            btree_map::Entry::Occupied(mut sum) => merge(kind, sum.get_mut(), &values),
            btree_map::Entry::Vacant(place) if has_room => {
                self.words += words;
                // A sum that is not finite is not taken over either.
                let sum = place.insert(vec![0; values.len()]);
                merge(kind, sum, &values);
            }
            btree_map::Entry::Vacant(_) => match kind {
                Kind::Counter | Kind::Histogram => self.dropped += 1,
                Kind::Gauge | Kind::SlotGauge => {}
            },
        }
    }

    fn add_description(&mut self, description: Description, words: usize) {
        let has_room = self.words + words <= ALL_WORDS;
        if has_room && !self.descriptions.contains_key(&description.name) {
            self.words += words;
            let name = description.name.clone();
            self.descriptions.insert(name, description);
        }
    }
}

/// Adds the values of a series. A hostile worker may write any value, and no sum may fall.
fn merge(kind: Kind, sums: &mut [u64], values: &[u64]) {
    let floats = match kind {
        Kind::Counter => 0,
        Kind::Gauge | Kind::SlotGauge => sums.len(),
        Kind::Histogram => 1,
    };
    let counts = sums.len() - floats;
    for (at, (sum, &value)) in sums.iter_mut().zip(values).enumerate() {
        if at < counts {
            *sum = sum.saturating_add(value);
            continue;
        }
        let added = f64::from_bits(*sum) + f64::from_bits(value);
        if added.is_finite() || kind != Kind::Histogram {
            *sum = added.to_bits();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn part(words: usize) -> (AtomicU64, Vec<AtomicU64>) {
        let words = std::iter::repeat_with(AtomicU64::default).take(words);
        (AtomicU64::new(0), words.collect())
    }

    fn series(name: &str, kind: Kind) -> Series {
        Series {
            name: name.into(),
            kind,
            labels: Vec::new(),
            limits: match kind {
                Kind::Histogram => vec![1_f64.to_bits(), 2_f64.to_bits()],
                _ => Vec::new(),
            },
        }
    }

    fn append(directory: Directory<'_>, name: &str, kind: Kind, values: &[u64]) {
        let words = directory.append(&Key::Series(series(name, kind)));
        let words = words.expect("room");
        assert_eq!(words.len(), values.len());
        for (word, &value) in words.iter().zip(values) {
            word.store(value, Relaxed);
        }
    }

    fn values(sum: &Sum) -> Vec<(&str, Vec<u64>)> {
        let series = sum.series();
        let values = series.map(|(series, values)| (&*series.name, values.to_vec()));
        values.collect()
    }

    #[test]
    fn counters_and_histograms_of_ended_workers_stay_and_gauges_do_not() {
        let (used, words) = part(1000);
        let worker = Directory::new(&used, &words);
        append(worker, "orders", Kind::Counter, &[5]);
        append(worker, "waiting", Kind::Gauge, &[2.5_f64.to_bits()]);
        append(worker, "pool", Kind::SlotGauge, &[7_f64.to_bits()]);
        append(worker, "took", Kind::Histogram, &[1, 2, 3, 9_f64.to_bits()]);
        let mut sum = Sum::default();
        sum.add_ended(worker);
        sum.add_ended(worker);
        let twice = vec![2, 4, 6, 18_f64.to_bits()];
        let ended = vec![("orders", vec![10]), ("took", twice)];
        assert_eq!(values(&sum), ended);

        // As the master keeps it.
        let (used, words) = part(ALL_WORDS);
        let kept = Directory::new(&used, &words);
        kept.replace(&sum);
        let mut again = Sum::default();
        again.add_ended(kept);
        assert_eq!(values(&again), ended);
        assert_eq!(again.words as u64, used.load(Relaxed), "as many words");

        for (slot, turn) in [(0, Turn::Newest), (0, Turn::Before), (1, Turn::Newest)] {
            again.add_running(worker, Slot(slot), turn);
        }
        let labels = again.series().map(|(series, _)| series.labels.clone());
        let labels: Vec<_> = labels.flatten().map(|(_, slot)| slot).collect();
        assert_eq!(labels, ["0", "1"]);
        let waiting = vec![7.5_f64.to_bits()];
        assert!(values(&again).contains(&("waiting", waiting)));
        assert!(values(&again).contains(&("orders", vec![25])));
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted_and_nothing_overflows() {
        let (mut sum, mut added) = (Sum::default(), 0);
        while sum.dropped() == 0 {
            let (used, words) = part(2000);
            let worker = Directory::new(&used, &words);
            let name = |at| format!("worker_{added}_counter_{at}");
            let room = |at| {
                let key = Key::Series(series(&name(at), Kind::Counter));
                let values = worker.append(&key)?;
                Some(values[0].swap(u64::MAX, Relaxed))
            };
            let _ = (0..).map_while(room).count();
            sum.add_ended(worker);
            sum.add_ended(worker);
            added += 1;
        }
        assert!(sum.words <= ALL_WORDS && sum.words > ALL_WORDS - 2000);
        assert!(sum.series().all(|(_, values)| values == [u64::MAX]));
    }

    #[test]
    fn a_sum_that_is_not_finite_does_not_spoil_the_histogram() {
        let (used, words) = part(100);
        let worker = Directory::new(&used, &words);
        let values = [1, 0, 0, f64::NAN.to_bits()];
        append(worker, "took", Kind::Histogram, &values);
        let mut sum = Sum::default();
        sum.add_ended(worker);
        sum.add_ended(worker);
        assert_eq!(self::values(&sum), [("took", vec![2, 0, 0, 0])]);
    }
}
