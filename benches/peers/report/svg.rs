//! Pictures drawn by hand: each brings its own paper, light or dark as the reader has it.

use std::fmt::Write as _;

use crate::series::written;

/// A point in the picture, in its own units.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// Which end of a text is at its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text or a bar looks.
#[derive(Clone, Copy)]
pub(super) enum Look {
    Plain,
    Title,
    /// Our own.
    Ours,
    /// The floor.
    Floor,
}

/// On the circle of colours, in degrees.
#[derive(Clone, Copy)]
pub(super) struct Hue(pub(super) u16);

pub(super) const WIDTH: f64 = 760.0;
/// Room for the title and the unit beneath it.
pub(super) const TOP: f64 = 56.0;
/// Room below for the scale and its unit.
pub(super) const BELOW: f64 = 44.0;

/// Light paper, then dark. The hues of lines are readable on both.
const STYLE: &str = "<style>\
    text{font:12px system-ui,sans-serif;fill:#1f2328}\
    .title{font-size:15px;font-weight:600}text.ours{font-weight:600;fill:#1f2328}\
    text.floor{fill:#1f2328}.paper{fill:#fff}.grid{stroke:#d1d9e0}\
    rect.plain{fill:#9aa4af}rect.floor{fill:#c99a2e}rect.ours{fill:#0969da}\
    polyline{fill:none;stroke-width:1.6}polyline.ours{stroke-width:3.2}\
    @media(prefers-color-scheme:dark){\
    text,text.ours,text.floor{fill:#e6edf3}.paper{fill:#0d1117}.grid{stroke:#3d444d}\
    rect.plain{fill:#656d76}rect.floor{fill:#d4a72c}rect.ours{fill:#4493f8}}\
    </style>";

/// The text of a picture. Writing to a string cannot fail, so nothing here does.
pub(super) struct Svg(String);

impl Svg {
    pub(super) fn new(height: f64, title: &str) -> Self {
        let mut svg = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" role=\"img\">\n<title>{}</title>\n{STYLE}\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n",
            escaped(title),
        ));
        svg.text(
            Point { x: 16.0, y: 24.0 },
            Anchor::Start,
            Look::Title,
            title,
        );
        svg
    }

    pub(super) fn text(&mut self, at: Point, anchor: Anchor, look: Look, text: &str) {
        let _ = writeln!(
            self.0,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{}\" class=\"{}\">{}</text>",
            at.x,
            at.y,
            anchor.name(),
            look.class(),
            escaped(text),
        );
    }

    pub(super) fn grid(&mut self, from: Point, to: Point) {
        let _ = writeln!(
            self.0,
            "<line class=\"grid\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.x, from.y, to.x, to.y
        );
    }

    /// Between two corners.
    pub(super) fn bar(&mut self, from: Point, to: Point, look: Look) {
        let _ = writeln!(
            self.0,
            "<rect class=\"{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
             rx=\"2\"/>",
            look.class(),
            from.x,
            from.y,
            (to.x - from.x).max(0.0),
            (to.y - from.y).max(0.0),
        );
    }

    pub(super) fn line(&mut self, points: &[Point], look: Look, hue: Hue) {
        let points = points.iter();
        let points: Vec<_> = points
            .map(|it| format!("{:.1},{:.1}", it.x, it.y))
            .collect();
        let _ = writeln!(
            self.0,
            "<polyline class=\"{}\" stroke=\"hsl({},65%,48%)\" points=\"{}\"/>",
            look.class(),
            hue.0,
            points.join(" ")
        );
    }

    pub(super) fn dot(&mut self, at: Point, hue: Hue) {
        let _ = writeln!(
            self.0,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"hsl({},65%,48%)\"/>",
            at.x, at.y, hue.0
        );
    }

    pub(super) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

impl Look {
    fn class(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Title => "title",
            Self::Ours => "ours",
            Self::Floor => "floor",
        }
    }
}

/// A figure on a scale: `0.5`, `12`, `1,000`.
pub(super) fn tick(figure: f64) -> String {
    let text = written(figure);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
