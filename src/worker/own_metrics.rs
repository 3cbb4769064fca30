//! The app's own metrics: a recorder for the facade `metrics` that counts in the worker's page.
//!
//! A metric gets an entry in the page when the app first names it with these labels. After that a
//! look into a map finds it, and the app can keep the handle. What gets no entry is counted as
//! refused, with each update.

mod handles;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Once, PoisonError, RwLock};

use metrics::{Counter, Gauge, Histogram, KeyName, Metadata, SharedString, Unit};

use self::handles::{Buckets, Count, Level, Refused};
use crate::config::{Config, Metrics};
use crate::protocol::own_metrics::{
    BUCKETS_MAX, Description, Directory, Key, Kind, Series, is_label, is_name,
};
use crate::stats::WorkerStats;

const _: () = assert!(Metrics::BUCKETS_MAX == BUCKETS_MAX);

/// The longest text that explains a metric, in bytes.
const TEXT_MAX: usize = 1024;

/// How many handles of each kind are kept to be found again. The page limits the entries, but there
/// is no limit on the names that are written in the same way.
const KEPT_MAX: usize = 16 << 10;

/// The values of an entry.
type Values = &'static [AtomicU64];

/// The handles that were given out.
type Kept<T> = RwLock<HashMap<metrics::Key, T, BuildHasherDefault<KeyHash>>>;

struct Recorder {
    part: Directory<'static>,
    stats: WorkerStats,
    /// With names as they are in the page.
    options: Metrics,
    counters: Kept<Counter>,
    gauges: Kept<Gauge>,
    histograms: Kept<Histogram>,
    entries: Mutex<Entries>,
    refused: Arc<Refused>,
    warning: Once,
}

/// What is in the page.
#[derive(Default)]
struct Entries {
    values: HashMap<Series, Values>,
    described: HashSet<String>,
    /// The names in the text, each with the metric that has it.
    names: HashMap<String, (String, Kind)>,
}

/// The hash that a key of `metrics` has made of itself.
#[derive(Default)]
struct KeyHash(u64);

/// Installs the recorder if the program has asked for it. Only the first call in a process can
/// install one, so that any number of servers may run in the process of a test.
pub(super) fn install(
    config: &Config,
    stats: &WorkerStats,
    part: impl FnOnce() -> io::Result<Directory<'static>>,
) {
    static ONCE: Once = Once::new();
    let Some(options) = &config.metrics else {
        return;
    };
    ONCE.call_once(|| {
        let part = match part() {
            Ok(part) => part,
            Err(error) => return tracing::warn!(%error, "the app's metrics are not counted"),
        };
        let recorder = Recorder::new(options, part, stats.clone());
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("the program has set another recorder, which counts the app's metrics");
        }
    });
}

impl Recorder {
    fn new(options: &Metrics, part: Directory<'static>, stats: WorkerStats) -> Self {
        Self {
            part,
            refused: Arc::new(Refused(stats.clone())),
            stats,
            options: options.clone().rename(written),
            counters: Kept::default(),
            gauges: Kept::default(),
            histograms: Kept::default(),
            entries: Mutex::default(),
            warning: Once::new(),
        }
    }

    /// The handle that was given out before; or a new one, if there is an entry for it.
    fn find<T: Clone>(
        &self,
        kept: &Kept<T>,
        key: &metrics::Key,
        kind: Kind,
        make: impl Fn(Values, Series) -> T,
    ) -> Option<T> {
        let known = kept.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = known.get(key) {
            return Some(handle.clone());
        }
        drop(known);
        let made = self.series(key, kind).and_then(|series| {
            let values = self.place(&series)?;
            Ok(make(values, series))
        });
        let handle = made.inspect_err(|why| self.warn(key.name(), why)).ok()?;
        let mut known = kept.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < KEPT_MAX {
            known.insert(key.to_retained(), handle.clone());
        }
        Some(handle)
    }

    /// The series as it is in the page, or why it cannot be there.
    fn series(&self, key: &metrics::Key, kind: Kind) -> Result<Series, &'static str> {
        let name = family(key.name(), kind);
        if !is_name(&name) {
            return Err("the name is empty or one of the server's");
        }
        let kind = match kind {
            Kind::Gauge if self.options.is_per_slot(&name) => Kind::SlotGauge,
            kind => kind,
        };
        let labels = key.labels();
        let labels = labels.map(|label| (written(label.key()), label.value().to_owned()));
        let mut labels: Vec<_> = labels.collect();
        labels.sort();
        if labels.iter().any(|(label, _)| !is_label(label)) {
            return Err("the name of a label is empty or begins with two underscores");
        }
        if labels
            .iter()
            .any(|(label, _)| Some(&**label) == kind.reserved_label())
        {
            return Err("the server sets one of the labels itself");
        }
        if labels.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err("two labels have the same name");
        }
        let limits = match kind {
            Kind::Histogram => self.options.limits_of(&name),
            Kind::Counter | Kind::Gauge | Kind::SlotGauge => Vec::new(),
        };
        let limits = limits.into_iter().map(f64::to_bits).collect();
        Ok(Series {
            name,
            kind,
            labels,
            limits,
        })
    }

    /// The values of the series, which gets an entry if it has none.
    fn place(&self, series: &Series) -> Result<Values, &'static str> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(values) = entries.values.get(series) {
            return Ok(values);
        }
        let owner = (series.name.clone(), series.kind);
        let names = series.kind.names(&series.name);
        let is_taken = |name| entries.names.get(name).is_some_and(|other| *other != owner);
        if names.iter().any(is_taken) {
            return Err("a metric of another kind has this name");
        }
        let values = self.append(&Key::Series(series.clone()))?;
        let names = names.into_iter().map(|name| (name, owner.clone()));
        entries.names.extend(names);
        entries.values.insert(series.clone(), values);
        Ok(values)
    }

    fn append(&self, key: &Key) -> Result<Values, &'static str> {
        let too_much = "its name and labels are too long, or there are too many metrics";
        self.part.append(key).ok_or(too_much)
    }

    fn describe(&self, name: &KeyName, kind: Kind, unit: Option<Unit>, text: &str) {
        let end = (0..=text.len().min(TEXT_MAX)).rfind(|&end| text.is_char_boundary(end));
        let description = Description {
            name: family(name.as_str(), kind),
            unit: unit.map_or("", |unit| unit.as_str()).to_owned(),
            text: text[..end.unwrap_or(0)].to_owned(),
        };
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_name(&description.name) || entries.described.contains(&description.name) {
            return;
        }
        let described = description.name.clone();
        match self.append(&Key::Description(description)) {
            Ok(_) => drop(entries.described.insert(described)),
            Err(why) => {
                drop(entries);
                self.refused.note();
                self.warn(name.as_str(), why);
            }
        }
    }

    /// Only the first time: the count of refused updates says that there are more.
    fn warn(&self, metric: &str, why: &str) {
        self.warning.call_once(|| {
            tracing::warn!(metric, why, "a metric of the app is not counted");
        });
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, Kind::Counter, unit, &text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, Kind::Gauge, unit, &text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, Kind::Histogram, unit, &text);
    }

    fn register_counter(&self, key: &metrics::Key, _: &Metadata<'_>) -> Counter {
        let make = |values: Values, _| Counter::from_arc(Arc::new(Count(&values[0])));
        self.find(&self.counters, key, Kind::Counter, make)
            .unwrap_or_else(|| Counter::from_arc(Arc::clone(&self.refused)))
    }

    fn register_gauge(&self, key: &metrics::Key, _: &Metadata<'_>) -> Gauge {
        let make = |values: Values, _| Gauge::from_arc(Arc::new(Level(&values[0])));
        self.find(&self.gauges, key, Kind::Gauge, make)
            .unwrap_or_else(|| Gauge::from_arc(Arc::clone(&self.refused)))
    }

    fn register_histogram(&self, key: &metrics::Key, _: &Metadata<'_>) -> Histogram {
        let make = |values: Values, series: Series| {
            let refused = Refused(self.stats.clone());
            Histogram::from_arc(Arc::new(Buckets::new(&series.limits, values, refused)))
        };
        self.find(&self.histograms, key, Kind::Histogram, make)
            .unwrap_or_else(|| Histogram::from_arc(Arc::clone(&self.refused)))
    }
}

/// The name of a metric in the page. That of a counter gets the suffix again when it is written as
/// text.
fn family(name: &str, kind: Kind) -> String {
    let name = written(name);
    match kind {
        Kind::Counter => name.strip_suffix("_total").unwrap_or(&name).to_owned(),
        Kind::Gauge | Kind::SlotGauge | Kind::Histogram => name,
    }
}

/// The name with an underscore for each letter that Prometheus does not allow, such as the dots in
/// `db.queries`.
fn written(name: &str) -> String {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let letters = name.chars().enumerate().map(|(at, letter)| {
        let begins = at == 0 && letter.is_ascii_digit();
        if is_allowed(letter) && !begins {
            letter
        } else {
            '_'
        }
    });
    letters.collect()
}

impl Hasher for KeyHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("a key writes its own hash")
    }
}
