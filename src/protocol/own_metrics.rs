//! The metrics of the app, in the second part of a page of the scoreboard.
//!
//! The part is a list of entries. The page's worker adds entries at the end and never changes or
//! removes one; only the values in them change. An entry is the length of its key in bytes, the
//! key, and as many values as the key says, each from a new word on. The word `used` says how many
//! words the entries have. The worker stores it after the entry, so that a reader that sees it sees
//! the entry too.
//!
//! A hostile worker can write anything. So a reader loads each word of a key once, and checks what
//! it has loaded. The first invalid entry ends the list. A reader keeps no more than [`Sum`]
//! allows.

#[cfg(test)]
mod fuzz;
mod sum;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

pub(crate) use self::sum::{Sum, Turn};
use crate::codec::{self, record};

/// The words that a worker has for its entries: 256 KiB. Words that no process has touched use no
/// memory.
pub(crate) const WORKER_WORDS: usize = 32 << 10;

/// The words that the entries of all workers have together. Workers that count the same series
/// share an entry here.
pub(crate) const ALL_WORDS: usize = 4 * WORKER_WORDS;

/// The longest key in bytes.
pub(crate) const KEY_MAX: usize = 2048;

/// The most buckets of a histogram, without the last, which has no limit.
pub(crate) const BUCKETS_MAX: usize = 64;

/// Names that begin like this are those of the server.
const RESERVED: [&str; 2] = ["prefork_", "http_server_"];

/// The entries in a part of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory<'a> {
    used: &'a AtomicU64,
    words: &'a [AtomicU64],
}

/// What an entry is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Series(Series),
    Description(Description),
}

record!(enum Key { 0 = Series(series), 1 = Description(description) });

/// A metric with its labels. The order is that of the page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Series {
    /// That of a counter is without the suffix `_total`.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// In the order of their names.
    pub(crate) labels: Vec<(String, String)>,
    /// The upper limits of the buckets of a histogram, in order; as bits, so that they have an
    /// order and an equality.
    pub(crate) limits: Vec<u64>,
}

record!(Series { name, kind, labels, limits } if is_sound);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Its value is the count.
    Counter,
    /// Its value is the bits of an `f64`. The values of all workers are added up.
    Gauge,
    /// As a gauge, but each slot has a value of its own.
    SlotGauge,
    /// Its values are the count of each bucket, and the sum as the bits of an `f64`.
    Histogram,
}

record!(enum Kind { 0 = Counter, 1 = Gauge, 2 = SlotGauge, 3 = Histogram });

/// The text that explains the metrics of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) name: String,
    /// As `metrics::Unit` writes it. Empty if the app has given no unit.
    pub(crate) unit: String,
    pub(crate) text: String,
}

record!(Description { name, unit, text } if is_of_the_app);

/// An entry as a reader has it.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) key: Key,
    pub(crate) values: &'a [AtomicU64],
    /// All words of the entry.
    pub(crate) words: usize,
}

impl<'a> Directory<'a> {
    pub(crate) fn new(used: &'a AtomicU64, words: &'a [AtomicU64]) -> Self {
        Self { used, words }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.used.load(Relaxed) == 0
    }

    /// The entries before the first invalid one.
    pub(crate) fn entries(self) -> impl Iterator<Item = Entry<'a>> {
        let mut left = self.used_words();
        std::iter::from_fn(move || {
            let (entry, rest) = split(left)?;
            left = rest;
            Some(entry)
        })
    }

    fn used_words(self) -> &'a [AtomicU64] {
        // Pairs with the store of `append`. A load from read-only memory has to be relaxed, so the
        // order comes from the fence.
        let used = usize::try_from(self.used.load(Relaxed)).unwrap_or(usize::MAX);
        fence(Acquire);
        &self.words[..used.min(self.words.len())]
    }

    /// Adds an entry, and returns its values, which are zero. `None` if the key is too long, or if
    /// there is no room. Only one thread of one process may call it at a time.
    pub(crate) fn append(self, key: &Key) -> Option<&'a [AtomicU64]> {
        let bytes = codec::to_bytes(key);
        let used = self.used_words().len();
        let key_words = bytes.len().div_ceil(size_of::<u64>());
        let (head, rest) = self.words[used..].split_first()?;
        let (place, rest) = rest.split_at_checked(key_words)?;
        let values = rest.get(..key.values())?;
        if bytes.len() > KEY_MAX {
            return None;
        }
        head.store(bytes.len() as u64, Relaxed);
        for (word, part) in place.iter().zip(bytes.chunks(size_of::<u64>())) {
            let mut whole = [0; size_of::<u64>()];
            whole[..part.len()].copy_from_slice(part);
            word.store(u64::from_le_bytes(whole), Relaxed);
        }
        values.iter().for_each(|value| value.store(0, Relaxed));
        self.used
            .store((used + 1 + key_words + values.len()) as u64, Release);
        Some(values)
    }

    /// Replaces all entries. The process must be the only one that reads them.
    pub(crate) fn replace(self, sum: &Sum) {
        self.used.store(0, Relaxed);
        for (series, values) in sum.series() {
            // There is room, because a sum counts words as an entry does.
            let entry = self.append(&Key::Series(series.clone()));
            for (word, &value) in entry.into_iter().flatten().zip(values) {
                word.store(value, Relaxed);
            }
        }
    }

    /// Makes `to`, which is as large and empty, the same.
    pub(crate) fn copy(self, to: Self) {
        let used = self.used_words();
        for (word, value) in to.words.iter().zip(used) {
            word.store(value.load(Relaxed), Relaxed);
        }
        to.used.store(used.len() as u64, Release);
    }
}

/// The first entry of these words, and the words after it.
fn split(words: &[AtomicU64]) -> Option<(Entry<'_>, &[AtomicU64])> {
    let (head, rest) = words.split_first()?;
    let length = usize::try_from(head.load(Relaxed)).ok()?;
    if length > KEY_MAX {
        return None;
    }
    let (key, rest) = rest.split_at_checked(length.div_ceil(size_of::<u64>()))?;
    let bytes = key.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
    let bytes: Vec<u8> = bytes.take(length).collect();
    let key: Key = codec::from_bytes(&bytes).ok()?;
    let (values, rest) = rest.split_at_checked(key.values())?;
    let words = words.len() - rest.len();
    Some((Entry { key, values, words }, rest))
}

impl Key {
    /// How many values an entry with this key has.
    fn values(&self) -> usize {
        match self {
            Self::Series(series) => match series.kind {
                Kind::Counter | Kind::Gauge | Kind::SlotGauge => 1,
                // A bucket without a limit, and the sum.
                Kind::Histogram => series.limits.len() + 2,
            },
            Self::Description(_) => 0,
        }
    }
}

impl Kind {
    /// The names that a metric of this kind has in the text.
    pub(crate) fn names(self, name: &str) -> Vec<String> {
        let suffixes: &[&str] = match self {
            Self::Counter => &["", "_total"],
            Self::Gauge | Self::SlotGauge => &[""],
            Self::Histogram => &["", "_bucket", "_sum", "_count"],
        };
        let names = suffixes.iter().map(|suffix| format!("{name}{suffix}"));
        names.collect()
    }

    /// A label that the server sets itself.
    pub(crate) fn reserved_label(self) -> Option<&'static str> {
        match self {
            Self::Counter | Self::Gauge => None,
            Self::SlotGauge => Some("slot"),
            Self::Histogram => Some("le"),
        }
    }
}

/// Whether the app may have a metric of this name.
pub(crate) fn is_name(name: &str) -> bool {
    let is_reserved = RESERVED.iter().any(|prefix| name.starts_with(prefix));
    !is_reserved && is_word(name)
}

/// Whether a label may have this name. Prometheus has reserved those with two underscores.
pub(crate) fn is_label(name: &str) -> bool {
    is_word(name) && !name.starts_with("__")
}

/// Prometheus also allows colons in the name of a metric, for its own rules.
fn is_word(name: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    name.chars().all(is_part) && name.starts_with(|first: char| !first.is_ascii_digit())
}

/// Whether a reader can write the series as text.
pub(crate) fn is_sound(series: &Series) -> bool {
    let Series {
        name,
        kind,
        labels,
        limits,
    } = series;
    let limits: Vec<f64> = limits.iter().copied().map(f64::from_bits).collect();
    let has_limits = match kind {
        Kind::Histogram => (1..=BUCKETS_MAX).contains(&limits.len()),
        Kind::Counter | Kind::Gauge | Kind::SlotGauge => limits.is_empty(),
    };
    let is_allowed = |name: &str| is_label(name) && kind.reserved_label() != Some(name);
    is_name(name)
        && labels.iter().all(|(name, _)| is_allowed(name))
        && labels.is_sorted_by(|(one, _), (next, _)| one < next)
        && has_limits
        && limits.iter().all(|limit| limit.is_finite())
        && limits.is_sorted_by(|one, next| one < next)
}

fn is_of_the_app(description: &Description) -> bool {
    is_name(&description.name)
}
