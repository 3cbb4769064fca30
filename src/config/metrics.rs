//! How the app's own metrics are counted.

use std::collections::{BTreeMap, BTreeSet};

/// How the app's own metrics are counted, for [`Prefork::metrics`](crate::Prefork::metrics). Names
/// are as in the macros of the crate `metrics`.
///
/// ```
/// use prefork_server::{Metrics, Prefork};
///
/// let metrics = Metrics::new()
///     .buckets("query_seconds", [0.001, 0.01, 0.1, 1.0])
///     .per_slot("pool_connections");
/// let server = Prefork::bind("127.0.0.1:8080").admin("127.0.0.1:9180").metrics(metrics);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    per_slot: BTreeSet<String>,
    buckets: BTreeMap<String, Vec<f64>>,
    /// Why the first wrong setting is wrong.
    refused: Option<String>,
}

impl Metrics {
    /// The most limits of a histogram.
    pub(crate) const BUCKETS_MAX: usize = 64;

    /// Gauges are added up over all workers, and histograms have a bucket for each power of two.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The gauges of this name are not added up: each slot has a value of its own, with the label
    /// `slot`. Of a slot with several workers it is that of the worker that was started last.
    ///
    /// Default: the sum over all workers.
    #[must_use]
    pub fn per_slot(mut self, gauge: impl Into<String>) -> Self {
        self.per_slot.insert(gauge.into());
        self
    }

    /// The upper limits of the buckets of the histograms of this name, up to 64 finite numbers. A
    /// value that is equal to a limit is in its bucket. There is one more bucket, without a limit.
    ///
    /// Default: the powers of two from 2<sup>-14</sup> to 2<sup>17</sup>. Those are 61 µs to a day
    /// and a half, if the values are seconds.
    #[must_use]
    pub fn buckets(
        mut self,
        histogram: impl Into<String>,
        limits: impl IntoIterator<Item = f64>,
    ) -> Self {
        let name = histogram.into();
        // Zero and negative zero are one limit.
        let mut limits: Vec<f64> = limits.into_iter().map(|limit| limit + 0.0).collect();
        limits.sort_by(f64::total_cmp);
        limits.dedup();
        let is_finite = limits.iter().all(|limit| limit.is_finite());
        if !is_finite || !(1..=Self::BUCKETS_MAX).contains(&limits.len()) {
            let max = Self::BUCKETS_MAX;
            let why = format!("the buckets of `{name}` need 1 to {max} finite limits");
            self.refused.get_or_insert(why);
        }
        self.buckets.insert(name, limits);
        self
    }

    /// Why the server cannot start with these settings.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The settings, with the names as `written` writes them.
    pub(crate) fn rename(self, written: impl Fn(&str) -> String) -> Self {
        let per_slot = self.per_slot.iter().map(|name| written(name));
        let buckets = self.buckets.into_iter();
        Self {
            per_slot: per_slot.collect(),
            buckets: buckets
                .map(|(name, limits)| (written(&name), limits))
                .collect(),
            refused: self.refused,
        }
    }

    pub(crate) fn is_per_slot(&self, gauge: &str) -> bool {
        self.per_slot.contains(gauge)
    }

    pub(crate) fn limits_of(&self, histogram: &str) -> Vec<f64> {
        let usual = || (-14..=17).map(|power| 2_f64.powi(power)).collect();
        self.buckets.get(histogram).cloned().unwrap_or_else(usual)
    }
}
