//! The picture: responses in each second, what failed, and what happened when. It brings its own
//! paper, light or dark as the reader has it.

use std::fmt::Write as _;
use std::time::Duration;

use crate::outcome::{Outcome, Segment};
use crate::support::report::counted;

const WIDTH: f64 = 960.0;
/// Room for the scale, and behind the plot.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 20.0;
/// Room for the picture's title, and for the legend at its end.
const TOP: f64 = 40.0;
const BELOW: f64 = 36.0;
/// Of one panel: its name, one row of labels, the plot, the scale of time.
const NAME: f64 = 24.0;
const LABEL: f64 = 15.0;
const PLOT: f64 = 90.0;
const SCALE: f64 = 44.0;
/// A letter's width, generously.
const LETTER: f64 = 6.4;

/// Room for a number of failures.
const NUMBER: f64 = 75.0;

/// Light paper, then dark. Labels have a rim in the color of the paper, because lines cross them.
const STYLE: &str = "<style>\
    text{font:12px system-ui,sans-serif;fill:#1f2328}.title{font-size:15px;font-weight:600}\
    .name{font-weight:600}.paper{fill:#fff}.grid{stroke:#d1d9e0}.lead{stroke:#9aa4af}\
    .band{fill:#eef1f4}.load{fill:#9ec5f4;stroke:#0969da}.failed{fill:#cf222e}\
    text.failed{font-weight:600}.label{paint-order:stroke;stroke:#fff;stroke-width:4px}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117}\
    .grid{stroke:#3d444d}.lead{stroke:#656d76}.band{fill:#1c2128}\
    .load{fill:#1f4a80;stroke:#4493f8}.failed{fill:#ff7b72}.label{stroke:#0d1117}}\
    </style>";

/// A panel for each run, all with the same scales.
pub(crate) fn timeline(title: &str, outcomes: &[&Outcome]) -> String {
    let ends = outcomes.iter().filter_map(|it| it.records.last());
    let seconds = ends.map(|record| record.done.as_secs_f64());
    let seconds = seconds.fold(1.0, f64::max).ceil();
    let panels: Vec<_> = outcomes.iter().map(|it| Panel::of(it, seconds)).collect();
    let most = panels.iter().flat_map(|panel| &panel.answered).max();
    let most = *most.unwrap_or(&1) as f64 * 1.1;
    let (mut body, mut top) = (String::new(), TOP);
    for panel in &panels {
        panel.draw(&mut body, top, most);
        top += panel.height();
    }
    legend(&mut body, top + 14.0);
    let height = top + BELOW;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" role=\"img\">\n<title>{title}</title>\n{STYLE}\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n{}{body}</svg>\n",
        text((16.0, 24.0), "start", "title", title),
    )
}

struct Panel<'a> {
    outcome: &'a Outcome,
    /// The whole picture's.
    seconds: f64,
    /// Right responses and failures in each second.
    answered: Vec<usize>,
    failed: Vec<usize>,
    labels: Vec<Label>,
    rows: usize,
}

/// What a segment is called, and where that stands.
struct Label {
    text: String,
    x: f64,
    from: f64,
    to: f64,
    row: usize,
}

impl<'a> Panel<'a> {
    fn of(outcome: &'a Outcome, seconds: f64) -> Self {
        let mut panel = Self {
            outcome,
            seconds,
            answered: Vec::new(),
            failed: Vec::new(),
            labels: Vec::new(),
            rows: 1,
        };
        for record in &outcome.records {
            let second = record.done.as_secs() as usize;
            let count = match record.failure {
                None => &mut panel.answered,
                Some(_) => &mut panel.failed,
            };
            if count.len() <= second {
                count.resize(second + 1, 0);
            }
            count[second] += 1;
        }
        // The last second is not whole.
        panel.answered.pop();
        for segment in outcome.segments() {
            panel.label(&segment);
        }
        panel
    }

    /// In the first row that has room for it.
    fn label(&mut self, segment: &Segment<'_>) {
        let text = format!("{}: {}", segment.event.name(), segment.of());
        let begun = segment.marks[0].begun;
        let ended = segment.marks[segment.marks.len() - 1].ended;
        let (from, to) = (self.x(begun), self.x(ended));
        let width = text.chars().count() as f64 * LETTER;
        let x = from.min(WIDTH - RIGHT - width);
        let is_free = |row: &usize| {
            let mut others = self.labels.iter().filter(|other| other.row == *row);
            others.all(|other| other.x + other.text.chars().count() as f64 * LETTER + 8.0 < x)
        };
        let row = (0..).find(is_free).expect("a row below all others is free");
        self.rows = self.rows.max(row + 1);
        self.labels.push(Label {
            text,
            x,
            from,
            to,
            row,
        });
    }

    fn height(&self) -> f64 {
        NAME + LABEL * self.rows as f64 + PLOT + SCALE
    }

    fn x(&self, at: Duration) -> f64 {
        LEFT + at.as_secs_f64() / self.seconds * (WIDTH - LEFT - RIGHT)
    }

    // Writing to a string cannot fail, here and below.
    fn draw(&self, svg: &mut String, top: f64, most: f64) {
        let requests = counted(self.outcome.records.len());
        let failed: usize = self.failed.iter().sum();
        let name = format!(
            "{}: {failed} of {requests} requests failed",
            self.outcome.kind.name()
        );
        *svg += &text((16.0, top + 14.0), "start", "name", &name);
        let first = top + NAME + LABEL;
        let plot = first + LABEL * (self.rows - 1) as f64 + 2.0;
        let bottom = plot + PLOT;
        for label in &self.labels {
            let (from, width) = (label.from, (label.to - label.from).max(1.5));
            let y = first + LABEL * label.row as f64;
            let _ = writeln!(
                svg,
                "<rect class=\"band\" x=\"{from:.1}\" y=\"{plot:.1}\" width=\"{width:.1}\" \
                 height=\"{PLOT}\"/>\n<line class=\"lead\" x1=\"{from:.1}\" y1=\"{y:.1}\" \
                 x2=\"{from:.1}\" y2=\"{bottom:.1}\"/>",
            );
        }
        self.draw_scales(svg, (plot, bottom), most);
        self.draw_load(svg, bottom, most);
        self.draw_failures(svg, bottom, most);
        for label in &self.labels {
            let y = first + LABEL * label.row as f64 - 3.0;
            *svg += &text((label.x + 3.0, y), "start", "label", &label.text);
        }
    }

    fn draw_scales(&self, svg: &mut String, (plot, bottom): (f64, f64), most: f64) {
        let step = match most {
            it if it > 1000.0 => 500,
            it if it > 250.0 => 200,
            _ => 50,
        };
        for figure in (0..=most as usize).step_by(step) {
            let y = bottom - figure as f64 / most * (bottom - plot);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\"/>",
                WIDTH - RIGHT,
            );
            let figure = figure.to_string();
            *svg += &text((LEFT - 6.0, y + 4.0), "end", "tick", &figure);
        }
        let step = if self.seconds > 60.0 { 20 } else { 5 };
        for second in (0..=self.seconds as u64).step_by(step) {
            let x = self.x(Duration::from_secs(second));
            let second = format!("{second} s");
            *svg += &text((x, bottom + 15.0), "middle", "tick", &second);
        }
    }

    fn draw_load(&self, svg: &mut String, bottom: f64, most: f64) {
        let mut points = format!("{LEFT:.1},{bottom:.1}");
        let mut last = LEFT;
        for (second, count) in self.answered.iter().enumerate() {
            let y = bottom - *count as f64 / most * PLOT;
            let next = self.x(Duration::from_secs(second as u64 + 1));
            let _ = write!(points, " {last:.1},{y:.1} {next:.1},{y:.1}");
            last = next;
        }
        let _ = writeln!(
            svg,
            "<polygon class=\"load\" fill-opacity=\".6\" \
             points=\"{points} {last:.1},{bottom:.1}\"/>",
        );
    }

    /// Failures that are close to each other have one number.
    fn draw_failures(&self, svg: &mut String, bottom: f64, most: f64) {
        let mut groups: Vec<(f64, usize)> = Vec::new();
        for (second, &count) in self.failed.iter().enumerate() {
            if count == 0 {
                continue;
            }
            let x = self.x(Duration::from_secs(second as u64));
            let width = (self.x(Duration::from_secs(1)) - LEFT).max(3.0);
            let height = (count as f64 / most * PLOT).clamp(4.0, PLOT);
            let _ = writeln!(
                svg,
                "<rect class=\"failed\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
                 height=\"{height:.1}\"/>",
                bottom - height,
            );
            match groups.last_mut() {
                Some((first, sum)) if x - *first < NUMBER => *sum += count,
                _ => groups.push((x, count)),
            }
        }
        for (x, sum) in groups {
            let told = format!("{sum} failed");
            let x = x.min(WIDTH - NUMBER);
            *svg += &text((x, bottom + 28.0), "start", "failed", &told);
        }
    }
}

fn legend(svg: &mut String, y: f64) {
    for (x, class, told) in [
        (LEFT, "load", "right responses in each second"),
        (LEFT + 230.0, "failed", "failed requests in each second"),
        (LEFT + 460.0, "band", "the event, until all is as before"),
    ] {
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{:.1}\" width=\"12\" height=\"12\"/>",
            y - 10.0,
        );
        *svg += &text((x + 18.0, y), "start", "tick", told);
    }
}

/// `anchor` says in SVG's own words which end of the text is at the point.
fn text((x, y): (f64, f64), anchor: &str, class: &str, text: &str) -> String {
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>\n"
    )
}
