//! What the app's handles do. Any thread of the worker may use them, so each update is atomic.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use metrics::{CounterFn, GaugeFn, HistogramFn};

use super::Values;
use crate::stats::{self, WorkerStats};

pub(super) struct Count(pub(super) &'static AtomicU64);

/// The bits of an `f64`.
pub(super) struct Level(pub(super) &'static AtomicU64);

pub(super) struct Buckets {
    limits: Box<[f64]>,
    counts: Values,
    sum: Level,
    refused: Refused,
}

/// Counts the updates of metrics that have no entry.
pub(super) struct Refused(pub(super) WorkerStats);

impl CounterFn for Count {
    #[inline]
    fn increment(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Relaxed);
    }
}

impl Level {
    fn add(&self, more: f64) {
        let sum = |bits| Some((f64::from_bits(bits) + more).to_bits());
        // It fails only without a sum.
        let _ = self.0.fetch_update(Relaxed, Relaxed, sum);
    }
}

impl GaugeFn for Level {
    fn increment(&self, more: f64) {
        self.add(more);
    }

    fn decrement(&self, less: f64) {
        self.add(-less);
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }
}

impl Buckets {
    /// `values` are those of an entry with these limits.
    pub(super) fn new(limits: &[u64], values: Values, refused: Refused) -> Self {
        let (sum, counts) = values.split_last().expect("a histogram has a sum");
        let limits = limits.iter().copied().map(f64::from_bits);
        Self {
            limits: limits.collect(),
            counts,
            sum: Level(sum),
            refused,
        }
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        // The sum would be no number for ever.
        if !value.is_finite() {
            return self.refused.note();
        }
        let bucket = self.limits.partition_point(|&limit| limit < value);
        self.counts[bucket].fetch_add(count as u64, Relaxed);
        self.sum.add(value * count as f64);
    }
}

impl Refused {
    pub(super) fn note(&self) {
        self.0.add_shared(stats::Count::OwnMetricsRefused, 1);
    }
}

impl CounterFn for Refused {
    fn increment(&self, _more: u64) {
        self.note();
    }

    fn absolute(&self, _value: u64) {
        self.note();
    }
}

impl GaugeFn for Refused {
    fn increment(&self, _more: f64) {
        self.note();
    }

    fn decrement(&self, _less: f64) {
        self.note();
    }

    fn set(&self, _value: f64) {
        self.note();
    }
}

impl HistogramFn for Refused {
    fn record(&self, _value: f64) {
        self.note();
    }
}
