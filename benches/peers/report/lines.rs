//! One line for each server, over places that stand side by side. Upwards the scale is logarithmic.

use super::svg::{Anchor, BELOW, Hue, Look, Point, Svg, TOP, WIDTH, tick};
use crate::series::{FLOOR, OURS};

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

/// Of what lines are drawn in.
const HEIGHT: f64 = 360.0;
const BOTTOM: f64 = TOP + HEIGHT;
/// Room for the scale, and for the names at the ends of lines.
const SCALE: f64 = 86.0;
const NAMES: f64 = 190.0;
/// Names are this far apart at least.
const NAME_GAP: f64 = 15.0;

/// The bars' colours for ours and the floor; the others keep away from those.
const OURS_HUE: Hue = Hue(212);
const FLOOR_HUE: Hue = Hue(44);
const HUES: [u16; 10] = [0, 130, 285, 175, 20, 325, 90, 255, 155, 345];

/// Where figures lie.
struct Plot {
    /// The lowest power of ten, and how many there are above it.
    low: i32,
    decades: i32,
    places: usize,
}

/// A line's name at its end.
struct Name {
    y: f64,
    hue: Hue,
    text: &'static str,
}

impl Lines<'_> {
    pub(super) fn draw(&self) -> String {
        let mut svg = Svg::new(BOTTOM + BELOW, self.title);
        if let Some(plot) = self.plot() {
            self.draw_axes(&mut svg, &plot);
            let names = self.draw_lines(&mut svg, &plot);
            draw_names(&mut svg, plot.right(), names);
        }
        svg.finish()
    }

    /// `None` if there is nothing to draw.
    fn plot(&self) -> Option<Plot> {
        let figures = self
            .lines
            .iter()
            .flat_map(|line| line.figures.iter().flatten());
        let logarithms = figures.filter(|it| **it > 0.0).map(|it| it.log10());
        let (least, most) = logarithms.fold((f64::INFINITY, f64::NEG_INFINITY), |range, it| {
            (range.0.min(it), range.1.max(it))
        });
        let low = least.is_finite().then_some(least.floor() as i32)?;
        Some(Plot {
            low,
            decades: (most.ceil() as i32 - low).max(1),
            places: self.places.len(),
        })
    }

    fn draw_axes(&self, svg: &mut Svg, plot: &Plot) {
        for decade in plot.low..=plot.low + plot.decades {
            let figure = 10_f64.powi(decade);
            let y = plot.y(figure);
            svg.grid(Point { x: SCALE, y }, Point { x: plot.right(), y });
            let left = Point {
                x: SCALE - 8.0,
                y: y + 4.0,
            };
            svg.text(left, Anchor::End, Look::Plain, &tick(figure));
        }
        for (at, place) in self.places.iter().enumerate() {
            let x = plot.x(at);
            svg.grid(Point { x, y: TOP }, Point { x, y: BOTTOM });
            let foot = Point {
                x,
                y: BOTTOM + 16.0,
            };
            svg.text(foot, Anchor::Middle, Look::Plain, place);
        }
        let middle = Point {
            x: f64::midpoint(SCALE, plot.right()),
            y: BOTTOM + 36.0,
        };
        svg.text(middle, Anchor::Middle, Look::Plain, self.across);
        let above = Point {
            x: 16.0,
            y: TOP - 12.0,
        };
        svg.text(above, Anchor::Start, Look::Plain, self.up);
    }

    /// Ours last, over the others.
    fn draw_lines(&self, svg: &mut Svg, plot: &Plot) -> Vec<Name> {
        let (ours, others): (Vec<_>, _) = self.lines.iter().partition(|it| it.name == OURS);
        let mut hues = HUES.into_iter().cycle().map(Hue);
        let mut names = Vec::new();
        for line in others.into_iter().chain(ours) {
            let hue = match line.name {
                OURS => OURS_HUE,
                FLOOR => FLOOR_HUE,
                _ => hues.next().expect("it never ends"),
            };
            let figures = line.figures.iter().enumerate();
            let points: Vec<_> = figures
                .filter_map(|(at, figure)| {
                    let y = plot.y((*figure)?);
                    Some(Point { x: plot.x(at), y })
                })
                .collect();
            let Some(last) = points.last() else { continue };
            svg.line(&points, look(line.name), hue);
            names.push(Name {
                y: last.y,
                hue,
                text: line.name,
            });
        }
        names
    }
}

/// None over another: pushed apart downwards, and then up again as far as they left the picture.
fn draw_names(svg: &mut Svg, right: f64, mut names: Vec<Name>) {
    names.sort_by(|a, b| a.y.total_cmp(&b.y));
    let mut lowest = f64::NEG_INFINITY;
    for name in &mut names {
        name.y = name.y.max(lowest + NAME_GAP);
        lowest = name.y;
    }
    let mut highest = BOTTOM + NAME_GAP;
    for name in names.iter_mut().rev() {
        name.y = name.y.min(highest - NAME_GAP);
        highest = name.y;
    }
    for Name { y, hue, text } in names {
        svg.dot(Point { x: right + 14.0, y }, hue);
        let at = Point {
            x: right + 24.0,
            y: y + 4.0,
        };
        svg.text(at, Anchor::Start, look(text), text);
    }
}

fn look(name: &str) -> Look {
    match name {
        OURS => Look::Ours,
        _ => Look::Plain,
    }
}

impl Plot {
    fn x(&self, place: usize) -> f64 {
        let gaps = self.places.saturating_sub(1).max(1);
        SCALE + (WIDTH - SCALE - NAMES) * place as f64 / gaps as f64
    }

    fn right(&self) -> f64 {
        self.x(self.places.saturating_sub(1))
    }

    fn y(&self, figure: f64) -> f64 {
        let share = (figure.log10() - f64::from(self.low)) / f64::from(self.decades);
        BOTTOM - HEIGHT * share.clamp(0.0, 1.0)
    }
}
