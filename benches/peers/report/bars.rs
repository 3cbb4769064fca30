//! One bar for each server.

use super::svg::{Anchor, BELOW, Look, Point, Svg, TOP, WIDTH, tick};
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

/// Room for the names of bars, and for the figures behind them.
const NAMES: f64 = 190.0;
const FIGURES: f64 = 70.0;
const ROW: f64 = 26.0;
/// Between a row's edge and its bar.
const MARGIN: f64 = 4.0;
/// From a row's edge to the line that its text stands on.
const BASELINE: f64 = 17.5;

/// The scale begins at nothing, so that lengths may be compared.
struct Scale {
    most: f64,
}

impl Scale {
    fn x(&self, figure: f64) -> f64 {
        let share = figure / self.most.max(f64::MIN_POSITIVE);
        NAMES + share.max(0.0) * (WIDTH - NAMES - FIGURES)
    }

    /// Round figures, five to ten of them.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let most = self.most;
        let power = 10_f64.powf(most.max(f64::MIN_POSITIVE).log10().floor());
        let step = match most / power {
            it if it >= 5.0 => power,
            it if it >= 2.0 => power / 2.0,
            _ => power / 5.0,
        };
        (0_u8..)
            .map(move |at| step * f64::from(at))
            .take_while(move |tick| *tick <= most)
    }
}

impl Bars<'_> {
    pub(super) fn draw(&self) -> String {
        let most = self.bars.iter().map(|bar| bar.figure).fold(0.0, f64::max);
        let scale = Scale { most };
        let bottom = TOP + ROW * self.bars.len() as f64;
        let mut svg = Svg::new(bottom + BELOW, self.title);
        for figure in scale.ticks() {
            let x = scale.x(figure);
            svg.grid(Point { x, y: TOP }, Point { x, y: bottom });
            let foot = Point {
                x,
                y: bottom + 16.0,
            };
            svg.text(foot, Anchor::Middle, Look::Plain, &tick(figure));
        }
        for (index, bar) in self.bars.iter().enumerate() {
            bar.draw(&mut svg, &scale, TOP + ROW * index as f64);
        }
        let middle = Point {
            x: scale.x(most / 2.0),
            y: bottom + 36.0,
        };
        svg.text(middle, Anchor::Middle, Look::Plain, self.unit);
        svg.finish()
    }
}

impl Bar {
    fn draw(&self, svg: &mut Svg, scale: &Scale, top: f64) {
        let look = match self.name {
            OURS => Look::Ours,
            FLOOR => Look::Floor,
            _ => Look::Plain,
        };
        let end = scale.x(self.figure);
        let from = Point {
            x: NAMES,
            y: top + MARGIN,
        };
        let to = Point {
            x: end,
            y: top + ROW - MARGIN,
        };
        svg.bar(from, to, look);
        let y = top + BASELINE;
        svg.text(Point { x: NAMES - 8.0, y }, Anchor::End, look, self.name);
        svg.text(
            Point { x: end + 6.0, y },
            Anchor::Start,
            look,
            &written(self.figure),
        );
    }
}
