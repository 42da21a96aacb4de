//! What a figure is, before it is drawn: series over two axes, and what the paper says of them.
//!
//! ```text
//! Figure = axes + series (points with intervals) + marks (the paper's values and bands)
//!          + the claims that are about it
//! ```

use serde_json::{Value, json};

use super::scale::{Scale, number};
use super::words::Text;

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A line through them.
    Lines,
    /// Bars beside each other at each place of the x axis.
    Bars,
    /// Bars on top of each other.
    Stack,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows.
    pub label: String,
    /// In what; empty if it is a bare number.
    pub unit: String,
    /// How it is drawn at first.
    pub scale: Scale,
    /// Places with a name, instead of round numbers. Of bars they are 0, 1, 2, …
    pub places: Vec<(f64, String)>,
    /// May the reader switch between the scales?
    pub has_switch: bool,
    /// Numbers that it has room for besides those of its figure: of the figures beside it, which
    /// then have the same axis.
    pub shared: Vec<f64>,
}

impl Axis {
    /// An axis of numbers from 0.
    pub fn linear(label: impl Into<String>, unit: &str) -> Axis {
        Axis {
            label: label.into(),
            unit: unit.to_owned(),
            scale: Scale::Linear,
            places: Vec::new(),
            has_switch: false,
            shared: Vec::new(),
        }
    }

    /// An axis of numbers above 0, logarithmic at first.
    pub fn log(label: impl Into<String>, unit: &str) -> Axis {
        Axis { scale: Scale::Log, ..Axis::linear(label, unit) }
    }

    /// An axis of named places, for bars.
    pub fn named(label: impl Into<String>, names: Vec<String>) -> Axis {
        let places = names.into_iter().enumerate().map(|(i, n)| (i as f64, n)).collect();
        Axis { places, ..Axis::linear(label, "") }
    }

    /// The same with these places named.
    pub fn at(self, places: Vec<(f64, String)>) -> Axis {
        Axis { places, ..self }
    }

    /// The same with both scales to choose from.
    pub fn switched(self) -> Axis {
        Axis { has_switch: true, ..self }
    }

    /// A number on it, with the unit.
    pub fn value(&self, v: f64) -> String {
        match self.places.iter().find(|(at, _)| *at == v) {
            Some((_, name)) => name.clone(),
            None if self.unit.is_empty() => number(v),
            None => format!("{} {}", number(v), self.unit),
        }
    }

    /// What stands beside it.
    pub fn title(&self) -> String {
        match (self.label.is_empty(), self.unit.is_empty()) {
            (_, true) => self.label.clone(),
            (true, false) => self.unit.clone(),
            (false, false) => format!("{} ({})", self.label, self.unit),
        }
    }
}

/// A point.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// Along the x axis.
    pub x: f64,
    /// Along the y axis.
    pub y: f64,
    /// From where to where it may be.
    pub range: Option<[f64; 2]>,
    /// More to tell of it.
    pub note: String,
}

impl Point {
    /// A point without an interval.
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, ..Point::default() }
    }
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// Their name, unique in the figure.
    pub name: String,
    /// The points, `x` rising.
    pub points: Vec<Point>,
    /// Colour, and with it marker and hatching: [`super::STYLES`] of them.
    pub style: usize,
    /// Dashes of the line: 0 is none.
    pub dash: usize,
}

impl Series {
    /// A series whose dashes go with its colour.
    pub fn new(name: impl Into<String>, style: usize, points: Vec<Point>) -> Series {
        Series { name: name.into(), points, style, dash: style }
    }
}

/// What the paper says, drawn with the series.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Where along the x axis; everywhere if left out.
    pub x: Option<f64>,
    /// The paper's value, if it has one.
    pub value: Option<f64>,
    /// Lowest and highest value that matches.
    pub band: Option<[f64; 2]>,
    /// What is said, with the claim's id.
    pub label: String,
    /// The series that it is about, by its place among them.
    pub series: Option<usize>,
}

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name in addresses, unique on the page.
    pub id: String,
    /// What the paper calls it, with the place.
    pub number: String,
    /// What it shows.
    pub title: String,
    /// What one should know to read it.
    pub caption: String,
    /// How points are drawn.
    pub shape: Shape,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Whose values the marks are.
    pub said_by: Text,
    /// What the paper says, or whoever else.
    pub marks: Vec<Mark>,
    /// Beginnings of ids of claims that are about it.
    pub claims: Vec<String>,
}

impl Figure {
    /// Is there a point at all?
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|s| s.points.is_empty())
    }

    /// Every place along the x axis that has a point, rising.
    pub fn places(&self) -> Vec<f64> {
        let mut all: Vec<f64> =
            self.series.iter().flat_map(|s| s.points.iter().map(|p| p.x)).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    }

    /// Numbers of the y axis: points, their intervals, and marks.
    pub fn heights(&self) -> Vec<f64> {
        let mut all = self.heights_if(|_| true);
        all.extend(self.y.shared.iter().filter(|v| v.is_finite()));
        all
    }

    /// The same with one series shown, and what is said of it or of none.
    pub fn heights_of(&self, series: usize) -> Vec<f64> {
        self.heights_if(|n| n == series)
    }

    fn heights_if(&self, is_shown: impl Fn(usize) -> bool) -> Vec<f64> {
        let mut all = Vec::new();
        let shown = self.series.iter().enumerate().filter(|(n, _)| is_shown(*n));
        for p in shown.flat_map(|(_, s)| &s.points) {
            all.push(p.y);
            all.extend(p.range.iter().flatten());
        }
        for m in self.marks.iter().filter(|m| m.series.is_none_or(&is_shown)) {
            all.extend(m.value);
            all.extend(m.band.iter().flatten());
        }
        all.retain(|v| v.is_finite());
        all
    }

    /// All points, one a line: `series,x,y,low,high,note`.
    pub fn csv(&self) -> String {
        let mut out =
            format!("series,{},{},low,high,note\n", field(&self.x.title()), field(&self.y.title()));
        for s in &self.series {
            for p in &s.points {
                let [low, high] = match p.range {
                    Some(range) => range.map(|v| v.to_string()),
                    None => [String::new(), String::new()],
                };
                let x =
                    if self.shape == Shape::Lines { p.x.to_string() } else { self.x.value(p.x) };
                out.push_str(&format!(
                    "{},{},{},{low},{high},{}\n",
                    field(&s.name),
                    field(&x),
                    p.y,
                    field(&p.note)
                ));
            }
        }
        out
    }

    /// For programs that read the page.
    pub fn json(&self) -> Value {
        let point = |p: &Point| json!({ "x": p.x, "y": p.y, "range": p.range });
        let series: Vec<Value> = self
            .series
            .iter()
            .map(|s| {
                let points: Vec<Value> = s.points.iter().map(point).collect();
                json!({ "name": s.name, "points": points })
            })
            .collect();
        let marks: Vec<Value> = self
            .marks
            .iter()
            .map(|m| json!({ "x": m.x, "paper": m.value, "band": m.band, "label": m.label }))
            .collect();
        let axis = |a: &Axis| {
            let places: Vec<Value> = a.places.iter().map(|(at, name)| json!([at, name])).collect();
            json!({ "label": a.label, "unit": a.unit, "places": places })
        };
        json!({
            "id": self.id, "number": self.number, "title": self.title,
            "x": axis(&self.x), "y": axis(&self.y), "series": series, "marks": marks,
        })
    }
}

/// A field of a CSV file.
pub fn field(text: &str) -> String {
    wp_base::csv::field(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_each_point_once_and_quotes_what_needs_it() {
        let f = Figure {
            id: "f".into(),
            number: "Figure 1".into(),
            title: String::new(),
            caption: String::new(),
            shape: Shape::Bars,
            x: Axis::named("", vec!["a, b".into(), "c".into()]),
            y: Axis::linear("pages", ""),
            series: vec![Series::new(
                "say \"x\"",
                0,
                vec![
                    Point { range: Some([1.0, 2.5]), ..Point::new(0.0, 2.0) },
                    Point::new(1.0, 4.0),
                ],
            )],
            said_by: super::super::words::PAPER,
            marks: Vec::new(),
            claims: Vec::new(),
        };
        let csv = f.csv();
        assert_eq!(
            csv.lines().skip(1).collect::<Vec<_>>(),
            ["\"say \"\"x\"\"\",\"a, b\",2,1,2.5,", "\"say \"\"x\"\"\",c,4,,,"]
        );
        assert_eq!(f.places(), [0.0, 1.0]);
        assert_eq!(f.heights(), [2.0, 1.0, 2.5, 4.0]);
    }
}
