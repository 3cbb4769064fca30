//! The two formats that Prometheus reads: its own text format, version 0.0.4, and OpenMetrics 1.0.
//! They differ in the name that a counter is introduced by, and in the last line.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

use http::HeaderValue;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Prometheus,
    OpenMetrics,
}

/// A label with a value from outside.
pub(super) fn label(name: &str, value: &str) -> String {
    let value = value
        .replace('\\', r"\\")
        .replace('"', r#"\""#)
        .replace('\n', r"\n");
    format!("{name}=\"{value}\"")
}

/// A page that is being written.
pub(super) struct Text {
    format: Format,
    page: String,
}

impl Format {
    /// The format for a request with this `Accept`.
    pub(crate) fn accepted(accept: Option<&HeaderValue>) -> Self {
        let accept = accept.and_then(|accept| accept.to_str().ok());
        match accept.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Text {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            page: String::with_capacity(16 << 10),
        }
    }

    /// A number that only grows. `name` is without the suffix `_total`; labels are as they are
    /// written between the braces.
    pub(super) fn counter<L: Display>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, f64)>,
    ) {
        let total = format!("{name}_total");
        let introduced = match self.format {
            Format::Prometheus => &total,
            Format::OpenMetrics => name,
        };
        self.introduce(introduced, "counter", help);
        for (labels, value) in samples {
            self.sample(&total, labels, value);
        }
    }

    /// A number that rises and falls.
    pub(super) fn gauge<L: Display>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, f64)>,
    ) {
        self.introduce(name, "gauge", help);
        for (labels, value) in samples {
            self.sample(name, labels, value);
        }
    }

    /// `buckets` are upper limits, each with the number of values up to it.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        buckets: impl IntoIterator<Item = (f64, u64)>,
        all: u64,
        sum: f64,
    ) {
        self.introduce(name, "histogram", help);
        self.histogram_samples(name, "", buckets, all, sum);
    }

    /// The samples of one series of a histogram.
    pub(super) fn histogram_samples(
        &mut self,
        name: &str,
        labels: &str,
        buckets: impl IntoIterator<Item = (f64, u64)>,
        all: u64,
        sum: f64,
    ) {
        let bucket = format!("{name}_bucket");
        let comma = if labels.is_empty() { "" } else { "," };
        for (limit, values) in buckets {
            self.sample(
                &bucket,
                format_args!("{labels}{comma}le=\"{limit}\""),
                values as f64,
            );
        }
        self.sample(
            &bucket,
            format_args!("{labels}{comma}le=\"+Inf\""),
            all as f64,
        );
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, all as f64);
    }

    /// The unit of a metric, which is the end of its name. Only OpenMetrics has a line for it.
    pub(super) fn unit(&mut self, name: &str, unit: &str) {
        if self.format == Format::OpenMetrics {
            writeln!(self.page, "# UNIT {name} {unit}").expect("a String takes everything");
        }
    }

    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.page.push_str("# EOF\n");
        }
        self.page
    }

    /// `help` is without the full stop at its end; the app may have given none.
    pub(super) fn introduce(&mut self, name: &str, kind: &str, help: &str) {
        if !help.is_empty() {
            let help = self.escaped(help);
            writeln!(self.page, "# HELP {name} {help}.").expect("a String takes everything");
        }
        writeln!(self.page, "# TYPE {name} {kind}").expect("a String takes everything");
    }

    /// The text of an explanation. Only OpenMetrics has an escape for quotes there.
    fn escaped<'a>(&self, help: &'a str) -> Cow<'a, str> {
        if !help.contains(['\\', '\n', '"']) {
            return help.into();
        }
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        match self.format {
            Format::Prometheus => help.into(),
            Format::OpenMetrics => help.replace('"', "\\\"").into(),
        }
    }

    fn sample(&mut self, name: &str, labels: impl Display, value: f64) {
        let labels = labels.to_string();
        match labels.is_empty() {
            true => writeln!(self.page, "{name} {value}"),
            false => writeln!(self.page, "{name}{{{labels}}} {value}"),
        }
        .expect("a String takes everything");
    }
}
