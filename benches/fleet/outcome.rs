//! What a run came to.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::balancer::{Kind, Route, Routes};
use crate::events::{Event, Mark};
use crate::instance::Named;
use crate::load::{KEPT, Record};
use crate::support::report::counted;

pub(crate) const HEAD: [&str; 8] = [
    "event",
    "of",
    "requests",
    "failed",
    "slowest in s",
    "at the victim",
    "tried again",
    "why",
];

/// How many failures are told in full.
const TOLD_MAX: usize = 20;

pub(crate) struct Outcome {
    pub(crate) kind: Kind,
    /// In the order of their ends.
    pub(crate) records: Vec<Record>,
    pub(crate) routes: Routes,
    pub(crate) marks: Vec<Mark>,
    pub(crate) named: Named,
}

/// All rounds of one kind of event, until the next kind begins.
pub(crate) struct Segment<'a> {
    pub(crate) event: Event,
    pub(crate) marks: &'a [Mark],
    records: &'a [Record],
}

impl Outcome {
    pub(crate) fn segments(&self) -> Vec<Segment<'_>> {
        let groups: Vec<_> = self.marks.chunk_by(|a, b| a.event == b.event).collect();
        let starts: Vec<_> = groups.iter().map(|marks| marks[0].begun).collect();
        let at = |time: Duration| self.records.partition_point(|record| record.done < time);
        let segment = |(index, marks): (usize, &&'_ [Mark])| {
            let end = starts
                .get(index + 1)
                .map_or(self.records.len(), |&it| at(it));
            // What comes before the first event belongs to it.
            let start = if index == 0 { 0 } else { at(starts[index]) };
            (marks[0].event, start..end)
        };
        let ranges: Vec<_> = groups.iter().enumerate().map(segment).collect();
        let segments = groups.into_iter().zip(ranges);
        segments
            .map(|(marks, (event, range))| Segment {
                event,
                marks,
                records: &self.records[range],
            })
            .collect()
    }

    pub(crate) fn rows(&self) -> Vec<(&'static str, Vec<String>)> {
        let row = |segment: &Segment<'_>| (segment.event.name(), segment.cells(&self.routes));
        self.segments().iter().map(row).collect()
    }

    /// Requests that failed, and that should not have.
    fn avoidable(&self) -> Vec<&Record> {
        let segments = self.segments().into_iter();
        let failed = segments.flat_map(|segment| {
            let failed: Vec<_> = segment.failed().collect();
            let avoidable = failed.into_iter();
            avoidable.filter(move |record| !self.is_excused(&segment, record))
        });
        failed.collect()
    }

    fn is_excused(&self, segment: &Segment<'_>, record: &Record) -> bool {
        match self.routes.get(&record.number) {
            _ if segment.event.is_fault() => segment.had(record, &self.routes),
            Some(_) => false,
            // It never came to an instance: nginx closes kept connections in a reload.
            None => {
                let why = record.failure.as_deref().unwrap_or_default();
                self.kind == Kind::Nginx && why.ends_with(KEPT)
            }
        }
    }

    pub(crate) fn is_failure(&self) -> bool {
        !self.avoidable().is_empty() || !self.named.wrongly.is_empty()
    }

    pub(crate) fn print_failures(&self) {
        for record in self.avoidable().into_iter().take(TOLD_MAX) {
            println!("  {record:?} {:?}", self.routes.get(&record.number));
        }
        for line in self.named.wrongly.iter().take(TOLD_MAX) {
            println!("  another client: {line}");
        }
    }
}

impl<'a> Segment<'a> {
    fn failed(&self) -> impl Iterator<Item = &'a Record> + use<'a> {
        let records = self.records;
        records.iter().filter(|record| record.failure.is_some())
    }

    /// Whether a victim had the request: the balancer gave it to the victim before that was well
    /// again, or tried, and then gave it to another. HAProxy closes the client's connection without
    /// a line in its log if a POST fails on a connection that was used before, and leaves the next
    /// try to the client.
    fn had(&self, record: &Record, routes: &Routes) -> bool {
        self.marks.iter().any(|mark| {
            let was_open = record.sent <= mark.ended && record.done >= mark.begun;
            was_open
                && match routes.get(&record.number) {
                    Some(route) => route.is_retried || route.instances.contains(&mark.instance),
                    None => record.failure.is_some(),
                }
        })
    }

    fn cells(&self, routes: &Routes) -> Vec<String> {
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for record in self.failed() {
            let why = reason(record, routes.get(&record.number));
            *reasons.entry(why).or_default() += 1;
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        let why = reasons.iter().map(|(why, count)| format!("{count}: {why}"));
        let records = self.records.iter();
        let at_the_victim = records.clone().filter(|it| self.had(it, routes));
        let retried = records.filter(|record| {
            let route = routes.get(&record.number);
            record.failure.is_none() && route.is_some_and(|route| route.is_retried)
        });
        let right = self.records.iter().filter(|it| it.failure.is_none());
        let slowest = right.map(|record| record.done - record.sent).max();
        let slowest = slowest.unwrap_or_default();
        let at_the_victim = match self.event.is_fault() {
            true => counted(at_the_victim.count()),
            false => "-".into(),
        };
        vec![
            self.of(),
            counted(self.records.len()),
            counted(self.failed().count()),
            format!("{:.1}", slowest.as_secs_f64()),
            at_the_victim,
            counted(retried.count()),
            why.collect::<Vec<_>>().join("; "),
        ]
    }

    /// What it happened to.
    pub(crate) fn of(&self) -> String {
        match self.marks {
            [mark] => format!("instance {}", mark.instance),
            marks => format!("{} in turn", marks.len()),
        }
    }
}

/// How the client sees it, and what the balancer's log says.
fn reason(record: &Record, route: Option<&Route>) -> String {
    let failure = record.failure.as_deref().unwrap_or_default();
    match route {
        Some(route) if route.end.starts_with(failure) => route.end.clone(),
        Some(route) => format!("{failure}, {}", route.end),
        None => format!("{failure}, not in the log"),
    }
}
