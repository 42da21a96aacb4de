//! Who does what when: bars in lanes over moments.
//!
//! Columns are the moments at which something begins or ends, each as wide as the next: in one
//! fsync some are a microsecond apart and others three milliseconds. The times stand below.

use super::draw::{STYLES, px};
use super::html::Html;
use super::scale::number;

/// Something that takes time.
#[derive(Clone, Debug)]
pub struct Span {
    /// What it is.
    pub name: String,
    /// The same, short.
    pub label: String,
    /// From when to when, ns.
    pub ns: [u64; 2],
    /// Colour, and with it hatching.
    pub style: usize,
    /// Is it only waited for?
    pub is_wait: bool,
}

/// Spans of one who does them.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Who.
    pub name: String,
    /// What, by beginning.
    pub spans: Vec<Span>,
}

/// A picture of lanes.
#[derive(Clone, Debug)]
pub struct Lanes {
    /// Its name in addresses, unique on the page.
    pub id: String,
    /// What the paper calls it, with the place.
    pub number: String,
    /// What it shows.
    pub title: String,
    /// What one should know to read it.
    pub caption: String,
    /// The lanes, from above.
    pub lanes: Vec<Lane>,
    /// A moment to mark, ns, and what it is.
    pub moment: Option<(u64, String)>,
}

/// Width of the picture: wider than a graph.
const WIDTH: f64 = 980.0;
const LEFT: f64 = 96.0;
const ROW: f64 = 21.0;
const TOP: f64 = 8.0;

impl Lanes {
    /// All moments, rising.
    fn moments(&self) -> Vec<u64> {
        let spans = self.lanes.iter().flat_map(|l| &l.spans);
        let mut all: Vec<u64> = spans.flat_map(|s| s.ns).collect();
        all.extend(self.moment.iter().map(|(at, _)| *at));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The picture.
    pub fn draw(&self, h: &mut Html) {
        let moments = self.moments();
        let column = (WIDTH - LEFT - 30.0) / moments.len().saturating_sub(1).max(1) as f64;
        let at = |ns: u64| LEFT + column * moments.partition_point(|m| *m < ns) as f64;
        let rows: Vec<Vec<usize>> = self.lanes.iter().map(|l| rows(&l.spans)).collect();
        let count = |r: &Vec<usize>| r.iter().max().map_or(1, |m| m + 1);
        let all: usize = rows.iter().map(count).sum();
        let bottom = TOP + ROW * all as f64 + 8.0 * self.lanes.len() as f64;
        let view = format!("0 0 {} {}", px(WIDTH), px(bottom + 34.0));
        let label = format!("{}: {}", self.number, self.title);
        let attrs = [("viewBox", view.as_str()), ("role", "img"), ("aria-label", &label)];
        h.el("svg", &attrs, |h| {
            axis(&moments, &at, bottom, column, h);
            let mut top = TOP;
            for (lane, rows) in self.lanes.iter().zip(&rows) {
                let (tx, ty) = ("4".to_owned(), px(top + 14.0));
                h.leaf("text", &[("class", "lane"), ("x", &tx), ("y", &ty)], &lane.name);
                for (span, row) in lane.spans.iter().zip(rows) {
                    let y = top + ROW * *row as f64;
                    draw_span(span, [at(span.ns[0]), at(span.ns[1])], y, h);
                }
                top += ROW * count(rows) as f64 + 8.0;
                let (l, r, y) = (px(0.0), px(WIDTH), px(top - 4.0));
                h.shape(
                    "line",
                    &[("class", "grid"), ("x1", &l), ("x2", &r), ("y1", &y), ("y2", &y)],
                );
            }
            if let Some((ns, name)) = &self.moment {
                let (x, t, b) = (px(at(*ns)), px(0.0), px(bottom));
                h.el("g", &[("class", "pt")], |h| {
                    h.leaf("title", &[], name);
                    h.shape(
                        "line",
                        &[("class", "cut"), ("x1", &x), ("x2", &x), ("y1", &t), ("y2", &b)],
                    );
                });
            }
        });
    }
}

/// The row of each span: the first that is free when it begins.
fn rows(spans: &[Span]) -> Vec<usize> {
    let mut ends: Vec<u64> = Vec::new();
    let mut out = Vec::new();
    for s in spans {
        let free = ends.iter().position(|end| *end <= s.ns[0]);
        let row = free.unwrap_or(ends.len());
        if row == ends.len() {
            ends.push(0);
        }
        ends[row] = s.ns[1];
        out.push(row);
    }
    out
}

fn axis(moments: &[u64], at: &dyn Fn(u64) -> f64, bottom: f64, column: f64, h: &mut Html) {
    h.el("g", &[("class", "ax")], |h| {
        for (n, ns) in moments.iter().enumerate() {
            let (x, t, b) = (px(at(*ns)), px(TOP - 4.0), px(bottom));
            h.shape("line", &[("class", "grid"), ("x1", &x), ("x2", &x), ("y1", &t), ("y2", &b)]);
            // In two rows where one has no room.
            let low = column < 64.0 && n % 2 == 1;
            let ty = px(bottom + if low { 27.0 } else { 14.0 });
            let text = number((*ns as f64 / 100.0).round() / 10.0);
            h.leaf("text", &[("x", &x), ("y", &ty), ("text-anchor", "middle")], &text);
        }
        let ty = px(bottom + 14.0);
        h.leaf("text", &[("class", "name"), ("x", "4"), ("y", &ty)], "µs");
    });
}

fn draw_span(span: &Span, [left, right]: [f64; 2], y: f64, h: &mut Html) {
    let width = (right - left).max(2.0);
    let style = span.style % STYLES;
    let [from, to] = span.ns.map(|ns| number(ns as f64 / 1e3));
    let took = number(span.ns[1].saturating_sub(span.ns[0]) as f64 / 1e3);
    let tip = format!("{}\n{from} – {to} µs\n{took} µs", span.name);
    let rect = [px(left + 0.5), px(y), px(width - 1.0), px(ROW - 4.0)];
    let [rx, ry, rw, rh] = rect.each_ref().map(String::as_str);
    let place = [("x", rx), ("y", ry), ("width", rw), ("height", rh), ("rx", "2")];
    let with = |class| [&[("class", class)][..], &place[..]].concat();
    h.el("g", &[("class", &format!("ser s{style}"))], |h| {
        h.el("g", &[("class", "pt")], |h| {
            h.leaf("title", &[], &tip);
            h.shape("rect", &with(if span.is_wait { "wait" } else { "bar soft" }));
            let room = (width / 7.0) as usize;
            let name = &span.label;
            if name.chars().count() <= room {
                let (tx, ty) = (px(left + width / 2.0), px(y + 12.5));
                h.leaf(
                    "text",
                    &[("class", "in"), ("x", &tx), ("y", &ty), ("text-anchor", "middle")],
                    name,
                );
            } else if room > 3 {
                let cut: String = name.chars().take(room - 1).chain(['…']).collect();
                let (tx, ty) = (px(left + width / 2.0), px(y + 12.5));
                h.leaf(
                    "text",
                    &[("class", "in"), ("x", &tx), ("y", &ty), ("text-anchor", "middle")],
                    &cut,
                );
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_overlap_are_below_each_other_and_others_share_a_row() {
        let span = |from, to| Span {
            name: String::new(),
            label: String::new(),
            ns: [from, to],
            style: 0,
            is_wait: false,
        };
        assert_eq!(rows(&[span(0, 10), span(5, 7), span(10, 12), span(11, 12)]), [0, 1, 0, 1]);
    }
}
