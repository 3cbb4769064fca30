//! Bars and lines, drawn by hand: a picture that brings its own paper, light or dark as the reader
//! has it.

use std::fmt::Write as _;

use crate::series::{FLOOR, OURS, written};

pub(super) struct Bars<'a> {
    pub(super) title: &'a str,
    pub(super) unit: &'a str,
    pub(super) bars: Vec<Bar>,
}

pub(super) struct Bar {
    pub(super) name: &'static str,
    pub(super) figure: f64,
}

/// Lines over places that stand side by side; upwards the scale is logarithmic.
pub(super) struct Lines<'a> {
    pub(super) title: &'a str,
    pub(super) across: &'a str,
    pub(super) up: &'a str,
    pub(super) places: Vec<String>,
    pub(super) lines: Vec<Line>,
}

pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) figures: Vec<Option<f64>>,
}

/// A point in the picture, in its own units.
#[derive(Clone, Copy)]
struct Point {
    x: f64,
    y: f64,
}

const WIDTH: f64 = 760.0;
const TOP: f64 = 44.0;
/// Room for the names of bars, and for the figures behind them.
const NAMES: f64 = 190.0;
const FIGURES: f64 = 70.0;
const ROW: f64 = 26.0;
/// Room below for the scale and its unit.
const BELOW: f64 = 44.0;
/// Of what lines are drawn in.
const HEIGHT: f64 = 360.0;
const SCALE: f64 = 70.0;
/// Names beside lines are this far apart at least.
const NAME_GAP: f64 = 15.0;

/// Light paper, then dark. The hues of lines are readable on both.
const STYLE: &str = "<style>\
    text{font:12px system-ui,sans-serif;fill:#1f2328}\
    .title{font-size:15px;font-weight:600}.strong{font-weight:600}\
    .paper{fill:#fff}.grid{stroke:#d1d9e0}.bar{fill:#9aa4af}.floor{fill:#c99a2e}.ours{fill:#0969da}\
    polyline{fill:none;stroke-width:1.6}.thick{stroke-width:3.2}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117}\
    .grid{stroke:#3d444d}.bar{fill:#656d76}.floor{fill:#d4a72c}.ours{fill:#4493f8}}\
    </style>";

pub(super) fn bars(picture: &Bars<'_>) -> String {
    let most = picture
        .bars
        .iter()
        .map(|bar| bar.figure)
        .fold(0.0, f64::max);
    let step = step(most);
    let bottom = TOP + ROW * picture.bars.len() as f64;
    let width = WIDTH - NAMES - FIGURES;
    let x = |figure: f64| NAMES + figure / most.max(f64::MIN_POSITIVE) * width;

    let mut svg = Svg::new(bottom + BELOW, picture.title);
    let mut tick = 0.0;
    while tick <= most {
        let foot = Point {
            x: x(tick),
            y: bottom,
        };
        svg.grid(Point { y: TOP, ..foot }, foot);
        svg.text(
            Point {
                y: bottom + 16.0,
                ..foot
            },
            "middle",
            "",
            &written(tick),
        );
        tick += step;
    }
    for (index, bar) in picture.bars.iter().enumerate() {
        let top = TOP + ROW * index as f64;
        let (class, name) = match bar.name {
            OURS => ("ours", "strong"),
            FLOOR => ("floor", ""),
            _ => ("bar", ""),
        };
        let base = Point { x: NAMES, y: top };
        svg.bar(base, x(bar.figure) - NAMES, class);
        let line = top + ROW * 0.68;
        svg.text(
            Point {
                x: NAMES - 8.0,
                y: line,
            },
            "end",
            name,
            bar.name,
        );
        let end = Point {
            x: x(bar.figure.max(0.0)) + 6.0,
            y: line,
        };
        svg.text(end, "start", name, &written(bar.figure));
    }
    let middle = Point {
        x: NAMES + width / 2.0,
        y: bottom + 36.0,
    };
    svg.text(middle, "middle", "", picture.unit);
    svg.finish()
}

pub(super) fn lines(picture: &Lines<'_>) -> String {
    let figures = picture
        .lines
        .iter()
        .flat_map(|line| line.figures.iter().flatten());
    let figures: Vec<f64> = figures.copied().filter(|it| *it > 0.0).collect();
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = figures.iter().copied().fold(0.0, f64::max);
    let mut svg = Svg::new(TOP + HEIGHT + BELOW, picture.title);
    if figures.is_empty() {
        return svg.finish();
    }
    let (low, high) = (least.log10().floor(), most.log10().ceil());
    let plot = Plot {
        low,
        span: (high - low).max(1.0),
        places: picture.places.len(),
    };

    let mut decade = low;
    while decade <= low + plot.span {
        let y = plot.y(10_f64.powf(decade));
        svg.grid(
            Point { x: SCALE, y },
            Point {
                x: plot.x(plot.places - 1),
                y,
            },
        );
        let label = written(10_f64.powf(decade))
            .replace(".00", "")
            .replace(".0", "");
        svg.text(
            Point {
                x: SCALE - 8.0,
                y: y + 4.0,
            },
            "end",
            "",
            &label,
        );
        decade += 1.0;
    }
    let bottom = TOP + HEIGHT;
    for (at, place) in picture.places.iter().enumerate() {
        let foot = Point {
            x: plot.x(at),
            y: bottom,
        };
        svg.grid(Point { y: TOP, ..foot }, foot);
        svg.text(
            Point {
                y: bottom + 16.0,
                ..foot
            },
            "middle",
            "",
            place,
        );
    }
    draw(&mut svg, &plot, &picture.lines);
    let middle = Point {
        x: f64::midpoint(SCALE, plot.x(plot.places - 1)),
        y: bottom + 36.0,
    };
    svg.text(middle, "middle", "", picture.across);
    svg.text(
        Point {
            x: 8.0,
            y: TOP - 8.0,
        },
        "start",
        "",
        picture.up,
    );
    svg.finish()
}

/// The lines, and their names at their ends, none over another.
fn draw(svg: &mut Svg, plot: &Plot, lines: &[Line]) {
    let mut names = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let points = line.figures.iter().enumerate();
        let points: Vec<_> = points
            .filter_map(|(at, figure)| {
                let y = plot.y((*figure)?.max(f64::MIN_POSITIVE));
                Some(Point { x: plot.x(at), y })
            })
            .collect();
        let Some(last) = points.last() else { continue };
        // Spread around the circle so that neighbours in the list differ.
        let hue = index * 137 % 360;
        svg.polyline(&points, line.name == OURS, hue);
        names.push((last.y, hue, line.name));
    }
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Pushed apart downwards, and then up again as far as they left the picture.
    let bottom = TOP + HEIGHT;
    let mut lowest = f64::NEG_INFINITY;
    for name in &mut names {
        name.0 = name.0.max(lowest + NAME_GAP);
        lowest = name.0;
    }
    let mut highest = bottom + NAME_GAP;
    for name in names.iter_mut().rev() {
        name.0 = name.0.min(highest - NAME_GAP);
        highest = name.0;
    }
    for (y, hue, name) in names {
        let at = Point {
            x: plot.x(plot.places - 1) + 10.0,
            y,
        };
        svg.swatch(at, hue);
        let class = if name == OURS { "strong" } else { "" };
        svg.text(
            Point {
                x: at.x + 14.0,
                y: y + 4.0,
            },
            "start",
            class,
            name,
        );
    }
}

/// Where figures lie.
struct Plot {
    /// The lowest power of ten, and how many there are.
    low: f64,
    span: f64,
    places: usize,
}

impl Plot {
    fn x(&self, place: usize) -> f64 {
        let gaps = self.places.saturating_sub(1).max(1);
        SCALE + (WIDTH - SCALE - NAMES) * place as f64 / gaps as f64
    }

    fn y(&self, figure: f64) -> f64 {
        let share = (figure.log10() - self.low) / self.span;
        TOP + HEIGHT * (1.0 - share.clamp(0.0, 1.0))
    }
}

/// A round number of which four to nine make `most`.
fn step(most: f64) -> f64 {
    let power = 10_f64.powf(most.max(f64::MIN_POSITIVE).log10().floor());
    match most / power {
        it if it >= 5.0 => power,
        it if it >= 2.0 => power / 2.0,
        _ => power / 5.0,
    }
}

/// The text of a picture. Writing to a string cannot fail, so nothing here does.
struct Svg(String);

impl Svg {
    fn new(height: f64, title: &str) -> Self {
        let mut svg = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" role=\"img\">\n<title>{title}</title>\n{STYLE}\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n"
        ));
        svg.text(Point { x: 16.0, y: 22.0 }, "start", "title", title);
        svg
    }

    fn text(&mut self, at: Point, anchor: &str, class: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let Point { x, y } = at;
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        );
    }

    fn grid(&mut self, from: Point, to: Point) {
        let _ = writeln!(
            self.0,
            "<line class=\"grid\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.x, from.y, to.x, to.y
        );
    }

    fn bar(&mut self, base: Point, length: f64, class: &str) {
        let _ = writeln!(
            self.0,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
             rx=\"2\"/>",
            base.x,
            base.y + 4.0,
            length.max(0.0),
            ROW - 8.0
        );
    }

    fn polyline(&mut self, points: &[Point], ours: bool, hue: usize) {
        let points: Vec<_> = points
            .iter()
            .map(|it| format!("{:.1},{:.1}", it.x, it.y))
            .collect();
        let class = if ours { "thick" } else { "" };
        let _ = writeln!(
            self.0,
            "<polyline class=\"{class}\" stroke=\"hsl({hue},65%,48%)\" points=\"{}\"/>",
            points.join(" ")
        );
    }

    fn swatch(&mut self, at: Point, hue: usize) {
        let _ = writeln!(
            self.0,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"hsl({hue},65%,48%)\"/>",
            at.x + 4.0,
            at.y
        );
    }

    fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}
