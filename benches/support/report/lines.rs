//! One line for each server, over places that stand side by side. Upwards the scale is logarithmic.

use super::svg::{END, Look, Point, START, Svg, TOP, WIDTH, tick};

pub(crate) struct Lines<'a> {
    pub(crate) title: &'a str,
    pub(crate) across: &'a str,
    pub(crate) up: &'a str,
    pub(crate) places: Vec<String>,
    pub(crate) lines: Vec<Line<'a>>,
}

pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) look: Look,
    /// One for each place.
    pub(crate) figures: Vec<Option<f64>>,
}

const HEIGHT: f64 = 360.0;
const BOTTOM: f64 = TOP + HEIGHT;
/// Room for the scale, and for the names at the ends of lines.
const LEFT: f64 = 86.0;
const RIGHT: f64 = WIDTH - 190.0;
/// Names are this far apart at least.
const NAME_GAP: f64 = 15.0;

/// The bars' colours for ours and the floor. The others keep away from those.
const OURS_HUE: u16 = 212;
const FLOOR_HUE: u16 = 44;
const HUES: [u16; 10] = [0, 130, 285, 175, 20, 325, 90, 255, 155, 345];

/// Powers of ten: the lowest, and the one above all figures.
#[derive(Clone, Copy)]
struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    fn y(self, figure: f64) -> f64 {
        let share = (figure.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        BOTTOM - HEIGHT * share.clamp(0.0, 1.0)
    }
}

impl<'a> Lines<'a> {
    pub(crate) fn draw(&self) -> String {
        let middle = f64::midpoint(LEFT, RIGHT);
        let mut svg = Svg::new(self.title, BOTTOM, middle, self.across);
        let figures = self
            .lines
            .iter()
            .flat_map(|line| line.figures.iter().flatten());
        let logarithms = figures.filter(|it| **it > 0.0).map(|it| it.log10());
        let logarithms: Vec<_> = logarithms.collect();
        let least = logarithms.iter().copied().fold(f64::INFINITY, f64::min);
        let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if least.is_finite() {
            let low = least.floor() as i32;
            let high = (most.ceil() as i32).max(low + 1);
            self.draw_on(&mut svg, Scale { low, high });
        }
        svg.finish()
    }

    fn draw_on(&self, svg: &mut Svg, scale: Scale) {
        for decade in scale.low..=scale.high {
            let figure = 10_f64.powi(decade);
            let y = scale.y(figure);
            svg.grid((LEFT, y), (RIGHT, y));
            svg.text((LEFT - 8.0, y + 4.0), END, Look::Plain, &tick(figure));
        }
        for (at, place) in self.places.iter().enumerate() {
            svg.down(self.x(at), BOTTOM, place);
        }
        svg.text((16.0, TOP - 12.0), START, Look::Plain, self.up);
        // Ours last, over the others.
        let (ours, others): (Vec<_>, _) = self.lines.iter().partition(|it| it.look == Look::Ours);
        let mut hues = HUES.into_iter().cycle();
        let mut names = Vec::new();
        for line in others.into_iter().chain(ours) {
            let hue = match line.look {
                Look::Ours => OURS_HUE,
                Look::Floor => FLOOR_HUE,
                _ => hues.next().expect("it never ends"),
            };
            let figures = line.figures.iter().enumerate();
            let point =
                |(at, figure): (usize, &Option<f64>)| Some((self.x(at), scale.y((*figure)?)));
            let points: Vec<Point> = figures.filter_map(point).collect();
            if let Some((_, y)) = points.last() {
                svg.line(&points, line.look, hue);
                names.push((*y, hue, line));
            }
        }
        draw_names(svg, names);
    }

    fn x(&self, place: usize) -> f64 {
        let gaps = self.places.len().saturating_sub(1).max(1);
        LEFT + (RIGHT - LEFT) * place as f64 / gaps as f64
    }
}

/// None over another: pushed apart downwards, and then up again as far as they left the picture.
fn draw_names(svg: &mut Svg, mut names: Vec<(f64, u16, &Line<'_>)>) {
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut lowest = f64::NEG_INFINITY;
    for (y, ..) in &mut names {
        *y = y.max(lowest + NAME_GAP);
        lowest = *y;
    }
    let mut highest = BOTTOM + NAME_GAP;
    for (y, ..) in names.iter_mut().rev() {
        *y = y.min(highest - NAME_GAP);
        highest = *y;
    }
    for (y, hue, line) in names {
        svg.dot((RIGHT + 14.0, y), hue);
        svg.text((RIGHT + 24.0, y + 4.0), START, line.look, line.name);
    }
}
