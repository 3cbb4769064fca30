//! The metrics of the app, added up over all workers.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{Text, label};
use crate::admin::view::{Page, View};
use crate::id::Slot;
use crate::protocol::own_metrics::{Description, Kind, Series, Sum, Turn};

/// A series with its values, as an entry has them.
type Valued<'a> = (&'a Series, &'a [u64]);

/// What all workers have counted, those that have ended first.
pub(super) fn sum(view: &View, newest: &BTreeMap<Slot, &Page>) -> Sum {
    let mut sum = view.own_of_ended().clone();
    for page in view.pages() {
        let slot = page.worker.slot;
        let is_newest = newest.get(&slot).is_some_and(|it| it.worker == page.worker);
        let turn = if is_newest {
            Turn::Newest
        } else {
            Turn::Before
        };
        sum.add_running(page.counts.own(), slot, turn);
    }
    sum
}

/// Writes one family for each name, in the order of the names. Of two families that would have a
/// name in common only the first is written.
pub(super) fn write(text: &mut Text, sum: &Sum) {
    let series: Vec<Valued<'_>> = sum.series().collect();
    let mut taken = BTreeSet::new();
    for family in series.chunk_by(|(one, _), (next, _)| one.name == next.name) {
        let Series { name, kind, .. } = family[0].0;
        let names = kind.names(name);
        if names.iter().any(|name| taken.contains(name)) {
            continue;
        }
        taken.extend(names);
        let same_kind = family.partition_point(|(series, _)| series.kind == *kind);
        let description = sum.description(name);
        if let Some(Description { unit, .. }) = description
            && ends_with(name, unit)
        {
            text.unit(name, unit);
        }
        let help = description.map(help).unwrap_or_default();
        let family = &family[..same_kind];
        match kind {
            Kind::Counter => {
                let samples = family.iter();
                let samples = samples.map(|(series, values)| (labels(series), values[0] as f64));
                text.counter(name, &help, samples);
            }
            Kind::Gauge | Kind::SlotGauge => {
                let samples = family.iter();
                let samples =
                    samples.map(|(series, values)| (labels(series), f64::from_bits(values[0])));
                text.gauge(name, &help, samples);
            }
            Kind::Histogram => {
                text.introduce(name, "histogram", &help);
                for series in family.chunk_by(|(one, _), (next, _)| one.labels == next.labels) {
                    histogram(text, series);
                }
            }
        }
    }
}

/// Writes a histogram. If its workers have counted in different buckets, as after an upgrade that
/// changes them, it has all limits. At a limit that a worker does not have, the values up to its
/// next lower limit are counted, so that no count falls.
fn histogram(text: &mut Text, parts: &[Valued<'_>]) {
    let (mut all, mut sum, mut buckets) = (0_u64, 0.0, Vec::new());
    for (series, values) in parts {
        let (sum_of_part, counts) = values.split_last().expect("it has a sum");
        all = counts.iter().copied().fold(all, u64::saturating_add);
        sum += f64::from_bits(*sum_of_part);
        let limits = series.limits.iter().copied().map(f64::from_bits);
        buckets.extend(limits.zip(counts.iter().copied()));
    }
    buckets.sort_by(|(one, _), (next, _)| one.total_cmp(next));
    buckets.dedup_by(|(limit, count), (before, sum)| {
        let is_same = limit == before;
        *sum = sum.saturating_add(if is_same { *count } else { 0 });
        is_same
    });
    // A hostile worker may have many series with many limits, so each is looked at once.
    let up_to = buckets.into_iter().scan(0_u64, |sum, (limit, count)| {
        *sum = sum.saturating_add(count);
        Some((limit, *sum))
    });
    let series = parts[0].0;
    text.histogram_samples(&series.name, &labels(series), up_to, all, sum);
}

/// The labels as they are written between the braces.
fn labels(series: &Series) -> String {
    let labels = series.labels.iter();
    let labels = labels.map(|(name, value)| label(name, value));
    labels.collect::<Vec<_>>().join(",")
}

/// What explains a metric, without a full stop. It names the unit if the name does not.
fn help(description: &Description) -> String {
    let Description { name, unit, text } = description;
    let text = text.trim_end_matches('.');
    match unit.is_empty() || unit == "count" || ends_with(name, unit) {
        true => text.to_owned(),
        false => format!("{text}, in {}", unit.replace('_', " ")),
    }
}

fn ends_with(name: &str, unit: &str) -> bool {
    let before = name.strip_suffix(unit).filter(|_| !unit.is_empty());
    before.is_some_and(|before| before.ends_with('_'))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::admin::metrics::Format;
    use crate::protocol::own_metrics::{Directory, Key};

    fn series(name: &str, kind: Kind, labels: &[(&str, &str)], limits: &[f64]) -> Series {
        let labels = labels
            .iter()
            .map(|&(name, value)| (name.into(), value.into()));
        Series {
            name: name.into(),
            kind,
            labels: labels.collect(),
            limits: limits.iter().map(|limit| limit.to_bits()).collect(),
        }
    }

    /// The page of a worker of slot 3 with these entries.
    fn page(format: Format, entries: &[(Key, &[u64])]) -> String {
        let (used, words) = (AtomicU64::new(0), [const { AtomicU64::new(0) }; 500]);
        let part = Directory::new(&used, &words);
        for (key, values) in entries {
            let place = part.append(key).expect("room");
            assert_eq!(place.len(), values.len());
            for (word, &value) in place.iter().zip(*values) {
                word.store(value, Relaxed);
            }
        }
        let (mut text, mut sum) = (Text::new(format), Sum::default());
        sum.add_running(part, Slot(3), Turn::Newest);
        write(&mut text, &sum);
        text.finish()
    }

    fn described(name: &str, unit: &str, text: &str) -> (Key, &'static [u64]) {
        let description = Description {
            name: name.into(),
            unit: unit.into(),
            text: text.into(),
        };
        (Key::Description(description), &[])
    }

    #[test]
    fn each_kind_is_written_as_prometheus_reads_it() {
        let labels = [("kind", "a\"b\\c\nd")];
        let pool = series("pool", Kind::SlotGauge, &labels, &[]);
        let took = series("took_seconds", Kind::Histogram, &labels, &[0.5, 1.0]);
        let (half, nine) = (0.5_f64.to_bits(), 9_f64.to_bits());
        let entries: [(Key, &[u64]); 5] = [
            (Key::Series(took), &[1, 2, 3, nine]),
            described("took_seconds", "seconds", "Time of \"an\" order."),
            (Key::Series(pool), &[half]),
            described("pool", "mebibytes", "Size\nof it"),
            (Key::Series(series("orders", Kind::Counter, &[], &[])), &[7]),
        ];
        let expected = r#"# TYPE orders_total counter
orders_total 7
# HELP pool Size\nof it, in mebibytes.
# TYPE pool gauge
pool{kind="a\"b\\c\nd",slot="3"} 0.5
# HELP took_seconds Time of "an" order.
# TYPE took_seconds histogram
took_seconds_bucket{kind="a\"b\\c\nd",le="0.5"} 1
took_seconds_bucket{kind="a\"b\\c\nd",le="1"} 3
took_seconds_bucket{kind="a\"b\\c\nd",le="+Inf"} 6
took_seconds_sum{kind="a\"b\\c\nd"} 9
took_seconds_count{kind="a\"b\\c\nd"} 6
"#;
        assert_eq!(page(Format::Prometheus, &entries), expected);
        let open = page(Format::OpenMetrics, &entries);
        let time = "# UNIT took_seconds seconds\n# HELP took_seconds Time of \\\"an\\\" order.\n";
        assert!(open.contains(time), "{open}");
        assert!(
            open.contains("# TYPE orders counter\norders_total 7\n"),
            "{open}"
        );
    }

    #[test]
    fn no_name_is_there_twice() {
        let named = |name, kind, limits: &[f64]| Key::Series(series(name, kind, &[], limits));
        let entries: [(Key, &[u64]); 6] = [
            (named("a_total", Kind::Gauge, &[]), &[0]),
            (named("a", Kind::Counter, &[]), &[1]),
            (named("h", Kind::Histogram, &[1.0]), &[1, 0, 0]),
            (named("h_count", Kind::Gauge, &[]), &[0]),
            (named("x", Kind::Gauge, &[]), &[0]),
            (named("x", Kind::Counter, &[]), &[5]),
        ];
        let text = page(Format::Prometheus, &entries);
        let types: Vec<_> = text.lines().filter(|line| line.starts_with('#')).collect();
        let expected = ["a_total counter", "h histogram", "x_total counter"];
        assert_eq!(types, expected.map(|it| format!("# TYPE {it}")));
        assert!(text.contains("\nx_total 5\n"), "{text}");
    }

    #[test]
    fn histograms_with_other_limits_are_added_up() {
        let took = |limits: &[f64]| Key::Series(series("took", Kind::Histogram, &[], limits));
        let entries: [(Key, &[u64]); 2] = [
            (took(&[1.0, 4.0]), &[1, 2, 4, 0]),
            (took(&[2.0, 4.0]), &[8, 16, 32, 0]),
        ];
        let text = page(Format::Prometheus, &entries);
        let counts = text.lines().filter(|line| line.starts_with("took_bucket"));
        let counts: Vec<_> = counts.filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(counts, ["1", "9", "27", "63"]);
    }
}
