//! Pictures drawn by hand: each brings its own paper, light or dark as the reader has it.

use std::fmt::Write as _;

use super::written;

/// How a text or a bar looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Plain,
    Title,
    /// Our own.
    Ours,
    /// What the others are compared with.
    Floor,
}

const WIDTH: f64 = 760.0;
/// Room for the title and the unit beneath it.
const TOP: f64 = 56.0;
/// Room below for the scale and its unit.
const BELOW: f64 = 44.0;
/// Room for the names of bars, and for the figures behind them.
const NAMES: f64 = 190.0;
const FIGURES: f64 = 70.0;
const ROW: f64 = 26.0;

/// Light paper, then dark.
const STYLE: &str = "<style>\
    text{font:12px system-ui,sans-serif;fill:#1f2328}\
    .title{font-size:15px;font-weight:600}text.ours{font-weight:600;fill:#1f2328}\
    text.floor{fill:#1f2328}.paper{fill:#fff}.grid{stroke:#d1d9e0}\
    rect.plain{fill:#9aa4af}rect.floor{fill:#c99a2e}rect.ours{fill:#0969da}\
    @media(prefers-color-scheme:dark){\
    text,text.ours,text.floor{fill:#e6edf3}.paper{fill:#0d1117}.grid{stroke:#3d444d}\
    rect.plain{fill:#656d76}rect.floor{fill:#d4a72c}rect.ours{fill:#4493f8}}\
    </style>";

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

/// One server's figure.
pub(crate) struct Bar<'a> {
    pub(crate) name: &'a str,
    pub(crate) look: Look,
    pub(crate) figure: f64,
}

/// One bar for each server. The scale begins at nothing, so that lengths may be compared.
pub(crate) fn bars(title: &str, unit: &str, bars: &[Bar<'_>]) -> String {
    let figures = bars.iter().map(|bar| bar.figure);
    let most = figures.fold(f64::MIN_POSITIVE, f64::max);
    let x = |figure: f64| NAMES + (figure / most).max(0.0) * (WIDTH - NAMES - FIGURES);
    let bottom = TOP + ROW * bars.len() as f64;
    let height = bottom + BELOW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" role=\"img\">\n<title>{}</title>\n{STYLE}\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n",
        escaped(title),
    );
    svg += &text((16.0, 24.0), "start", Look::Title, title);
    let middle = x(most / 2.0);
    svg += &text((middle, bottom + 36.0), "middle", Look::Plain, unit);
    // Round figures, five to ten of them.
    let power = 10_f64.powf(most.log10().floor());
    let step = match most / power {
        it if it >= 5.0 => power,
        it if it >= 2.0 => power / 2.0,
        _ => power / 5.0,
    };
    let ticks = (0_u8..).map(|at| step * f64::from(at));
    for figure in ticks.take_while(|tick| *tick <= most) {
        let x = x(figure);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>",
        );
        svg += &text((x, bottom + 16.0), "middle", Look::Plain, &tick(figure));
    }
    for (at, bar) in bars.iter().enumerate() {
        let (top, end) = (TOP + ROW * at as f64, x(bar.figure));
        let (class, from, width) = (bar.look.class(), top + 4.0, (end - NAMES).max(0.0));
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{NAMES:.1}\" y=\"{from:.1}\" width=\"{width:.1}\" \
             height=\"{:.1}\" rx=\"2\"/>",
            ROW - 8.0,
        );
        let y = top + 17.5;
        svg += &text((NAMES - 8.0, y), "end", bar.look, bar.name);
        svg += &text((end + 6.0, y), "start", bar.look, &written(bar.figure));
    }
    svg + "</svg>\n"
}

/// `anchor` says in SVG's own words which end of the text is at the point.
fn text((x, y): (f64, f64), anchor: &str, look: Look, text: &str) -> String {
    let (class, text) = (look.class(), escaped(text));
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>\n"
    )
}

/// A figure on the scale: `0.5`, `12`, `1,000`.
fn tick(figure: f64) -> String {
    let text = written(figure);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
