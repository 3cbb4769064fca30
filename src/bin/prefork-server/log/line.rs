//! A line of the log: when, how important, which process, what.
//!
//! ```text
//! 2026-02-03T04:05:06.789012Z  WARN worker{slot=0 generation=1}: slow request took=1.2s status=200
//! {"time":"2026-02-03T04:05:06.789Z","level":"WARN","role":"worker","slot":0,"generation":1,
//!  "message":"slow request","fields":{"took":"1.2s","status":200}}
//! ```

use std::fmt::{self, Debug, Display};
use std::io::{self, IsTerminal};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use prefork_server::{Role, WorkerInfo, role, this_worker};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::cli::LogFormat;
use crate::one_line::{escape, is_harmful};

/// How this process writes its lines.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    format: LogFormat,
    role: Role,
    worker: Option<WorkerInfo>,
    stamp: Stamp,
}

/// How a line of text tells the time.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stamp {
    /// The date and the time (RFC 3339), in UTC.
    Whole,
    /// The time of the day where the reader is. A worker cannot read the zone later, in the
    /// sandbox.
    Short(TimeZone),
}

impl Lines {
    pub(crate) fn of_this_process(format: LogFormat) -> Self {
        Self {
            format,
            role: role(),
            worker: this_worker(),
            stamp: match io::stderr().is_terminal() {
                true => Stamp::Short(TimeZone::system()),
                false => Stamp::Whole,
            },
        }
    }

    /// A line that is written whatever the level of the log is. In text it is for a person, and
    /// says no more than this.
    pub(crate) fn plain(&self, level: Level, message: &str) -> String {
        match self.format {
            LogFormat::Text => escape(message, |it| it != '\n' && is_harmful(it)) + "\n",
            LogFormat::Json => self.json(level, message.trim(), Map::new()),
        }
    }

    fn json(&self, level: Level, message: &str, fields: Map<String, Value>) -> String {
        let time = Timestamp::now();
        let mut line = format!(
            r#"{{"time":"{time:.3}","level":"{level}","role":"{}""#,
            self.role()
        );
        if let Some(WorkerInfo {
            slot, generation, ..
        }) = self.worker
        {
            line.push_str(&format!(r#","slot":{slot},"generation":{generation}"#));
        }
        let (message, fields) = (Value::from(message), Value::from(fields));
        line.push_str(&format!(r#","message":{message},"fields":{fields}}}"#));
        line.push('\n');
        line
    }

    fn role(&self) -> &'static str {
        match self.role {
            Role::Worker => "worker",
            Role::Admin => "admin",
            _ => "master",
        }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        if self.format == LogFormat::Json {
            let mut found = Found::default();
            event.record(&mut found);
            return writer.write_str(&self.json(level, &found.message, found.fields));
        }
        let has_color = writer.has_ansi_escapes();
        let [dim, color, plain] = match has_color {
            true => ["\x1b[2m", color(level), "\x1b[0m"],
            false => [""; 3],
        };
        match &self.stamp {
            Stamp::Whole => write!(writer, "{dim}{:.6}{plain} ", Timestamp::now())?,
            Stamp::Short(zone) => {
                let now = Timestamp::now().to_zoned_datetime(zone.clone());
                write!(writer, "{dim}{}{plain} ", now.strftime("%H:%M:%S%.3f"))?;
            }
        }
        write!(writer, "{color}{level:>5}{plain} ")?;
        match (self.worker, self.role) {
            (
                Some(WorkerInfo {
                    slot, generation, ..
                }),
                _,
            ) => {
                write!(writer, "worker{{slot={slot} generation={generation}}}: ")?;
            }
            (None, Role::Master) => {}
            (None, _) => write!(writer, "{}: ", self.role())?,
        }
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

fn color(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        _ => "\x1b[35m",
    }
}

/// The message and the other fields of an event.
#[derive(Debug, Default)]
struct Found {
    message: String,
    fields: Map<String, Value>,
}

impl Found {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn put_text(&mut self, field: &Field, text: impl Display) {
        match field.name() {
            "message" => self.message = text.to_string(),
            _ => self.put(field, text.to_string()),
        }
    }
}

impl Visit for Found {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put_text(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put_text(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use prefork_server::{Generation, Slot};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What `tell` leaves in the log of a worker.
    fn told(format: LogFormat, stamp: Stamp, has_color: bool, tell: fn()) -> String {
        let lines = Lines {
            format,
            role: Role::Worker,
            worker: Some(WorkerInfo::new(Slot(3), Generation::FIRST, 1)),
            stamp,
        };
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(has_color)
            .with_writer(move || writer.clone())
            .event_format(lines)
            .finish();
        tracing::subscriber::with_default(subscriber, tell);
        let bytes = sink.0.lock().expect("no panic").clone();
        String::from_utf8(bytes).expect("text")
    }

    fn slow() {
        let error = io::Error::other("line 1\nline \"2\"");
        let error: &dyn std::error::Error = &error;
        tracing::warn!(error, count = 2, share = 0.5, ok = true, uri = %"/a?b", "slow \"tea\"");
    }

    #[test]
    fn a_line_of_json_is_one_object_with_the_worker_and_the_fields() {
        let line = told(LogFormat::Json, Stamp::Whole, false, slow);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let object: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(object["level"], "WARN");
        assert_eq!(object["role"], "worker");
        assert_eq!(
            (&object["slot"], &object["generation"]),
            (&3.into(), &1.into())
        );
        assert_eq!(object["message"], "slow \"tea\"");
        let fields = serde_json::json!({
            "error": "line 1\nline \"2\"", "count": 2, "share": 0.5, "ok": true, "uri": "/a?b",
        });
        assert_eq!(object["fields"], fields);
        let time = object["time"].as_str().expect("text");
        assert!(time.parse::<Timestamp>().is_ok(), "{time}");
    }

    #[test]
    fn a_line_of_text_names_the_worker_and_has_color_where_it_is_seen() {
        let tell = || tracing::info!(pid = 7, "worker ready");
        let text = told(LogFormat::Text, Stamp::Whole, false, tell);
        let (stamp, rest) = text.split_once(' ').expect("a stamp");
        assert!(stamp.parse::<Timestamp>().is_ok(), "{text}");
        let expected = " INFO worker{slot=3 generation=1}: worker ready pid=7\n";
        assert_eq!(rest, expected);
        let text = told(LogFormat::Text, Stamp::Short(TimeZone::UTC), true, tell);
        let (stamp, rest) = text.split_once(' ').expect("a stamp");
        assert_eq!(stamp.len(), "\x1b[2m12:34:56.789\x1b[0m".len(), "{text}");
        assert!(
            rest.starts_with("\x1b[32m INFO\x1b[0m worker{slot=3"),
            "{text}"
        );
    }

    #[test]
    fn an_own_line_is_as_it_is_in_text_and_an_object_in_json() {
        let mut lines = Lines::of_this_process(LogFormat::Text);
        assert_eq!(lines.plain(Level::ERROR, "no \"tea\""), "no \"tea\"\n");
        lines.format = LogFormat::Json;
        let line = lines.plain(Level::ERROR, "no \"tea\"");
        let object: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(object["message"], "no \"tea\"");
        assert_eq!(object["role"], "master");
        assert_eq!(object.get("slot"), None);
    }
}
