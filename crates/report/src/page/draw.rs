//! The picture of a figure, as SVG that needs no program.
//!
//! Sizes are in units of the picture, which is [`WIDTH`] wide whatever the screen is. Colours are
//! classes of the style sheet, so that light, dark and print each have their own.
//!
//! What lies along the y axis has its numbers with it (`data-v`), and what is said of one place
//! along the x axis that place (`data-x`): when a reader hides a series, `axis.js` makes the axis
//! anew for what is left, by the laws of [`super::scale`].

use super::figure::{Figure, Mark, Point, Series, Shape};
use super::html::Html;
use super::scale::{Map, Scale, nice, number, tick_text, ticks};

/// Width of a picture.
pub const WIDTH: f64 = 480.0;
/// Height of a picture.
const HEIGHT: f64 = 286.0;
/// Colours, markers and hatchings that the style sheet and the page have.
pub const STYLES: usize = 8;

/// Dashes of lines.
pub(super) const DASHES: [&str; STYLES] =
    ["", "7 3", "2 3", "9 3 2 3", "5 2", "1 2", "12 4", "4 2 1 2 1 2"];

/// Edges of the area that points lie in.
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// A number of the picture.
pub(super) fn px(v: f64) -> String {
    let text = format!("{v:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Lowest and highest of these numbers that an axis of a figure has to show.
fn ends(shape: Shape, scale: Scale, heights: impl Iterator<Item = f64> + Clone) -> [f64; 2] {
    let shown = heights.filter(|v| *v > 0.0 || scale == Scale::Linear);
    let least = if shape == Shape::Lines { f64::INFINITY } else { 0.0 };
    [shown.clone().fold(least, f64::min), shown.fold(f64::NEG_INFINITY, f64::max)]
}

/// The range of an axis from its ends.
fn range(shape: Shape, scale: Scale, [low, high]: [f64; 2]) -> [f64; 2] {
    // Bars begin at 0. Lines that stay far above it are told apart better without it.
    let has_zero = shape != Shape::Lines || low < 0.6 * high || low == high;
    nice(scale, [low, high], has_zero)
}

/// Characters of the longest number at the axis, whichever series are hidden: what is left
/// has its lowest number from one series and its highest from one.
fn longest(f: &Figure, scale: Scale, all: [f64; 2]) -> usize {
    let alone = (0..f.series.len()).map(|n| ends(f.shape, scale, f.heights_of(n).into_iter()));
    let each: Vec<[f64; 2]> = alone.chain([all]).collect();
    let pairs = each.iter().flat_map(|a| each.iter().map(|b| [a[0].min(b[0]), a[1].max(b[1])]));
    let marks = pairs.flat_map(|ends| ticks(scale, range(f.shape, scale, ends)));
    marks.map(|t| tick_text(t).chars().count()).max().unwrap_or(1)
}

/// Draws a figure with its y axis at this scale.
pub fn draw(f: &Figure, scale: Scale, h: &mut Html) {
    let heights = f.heights();
    let sums = if f.shape == Shape::Stack { sums(f) } else { Vec::new() };
    let all = ends(f.shape, scale, heights.iter().chain(&sums).copied());
    let range = range(f.shape, scale, all);
    let marks = ticks(scale, range);
    let area = Area {
        left: 24.0 + 7.0 * longest(f, scale, all) as f64,
        right: WIDTH - 12.0,
        top: 10.0,
        bottom: HEIGHT - 40.0,
    };
    let y = Map::new(scale, range, [area.bottom, area.top]);
    let label = format!("{}: {}", f.number, f.title);
    let view = format!("0 0 {} {}", px(WIDTH), px(HEIGHT));
    let shape = match f.shape {
        Shape::Lines => "lines",
        Shape::Bars => "bars",
        Shape::Stack => "stack",
    };
    let place = [area.left, area.right, area.top, area.bottom].map(px).join(" ");
    let attrs = [
        ("viewBox", view.as_str()),
        ("role", "img"),
        ("aria-label", &label),
        ("data-shape", shape),
        ("data-area", &place),
    ];
    h.el("svg", &attrs, |h| {
        y_axis(f, &marks, &y, &area, h);
        let x = x_map(f, &area);
        x_axis(f, &x, &area, h);
        // A band is behind points, and over bars, which would hide it.
        if f.shape == Shape::Lines {
            bands(f, (&x, &y), &area, h);
            lines(f, (&x, &y), h);
        } else {
            if f.shape == Shape::Bars {
                bars(f, &y, &area, h);
            } else {
                stack(f, &y, &area, h);
            }
            bands(f, (&x, &y), &area, h);
        }
        for mark in f.marks.iter().filter(|m| m.value.is_some()) {
            value(f, mark, (&x, &y), &area, h);
        }
    });
}

/// What stacked bars come to.
fn sums(f: &Figure) -> Vec<f64> {
    let at = |x: f64| {
        let of = |s: &Series| s.points.iter().filter(|p| p.x == x).map(|p| p.y).sum::<f64>();
        f.series.iter().map(of).sum::<f64>()
    };
    f.places().into_iter().map(at).collect()
}

fn y_axis(f: &Figure, marks: &[f64], y: &Map, area: &Area, h: &mut Html) {
    h.el("g", &[("class", "ax y")], |h| {
        for t in marks {
            let at = px(y.at(*t));
            let class = if *t == 0.0 { "zero" } else { "grid" };
            let (l, r) = (px(area.left), px(area.right));
            h.shape("line", &[("class", class), ("x1", &l), ("x2", &r), ("y1", &at), ("y2", &at)]);
            let (tx, ty) = (px(area.left - 6.0), px(y.at(*t) + 4.0));
            h.leaf("text", &[("x", &tx), ("y", &ty), ("text-anchor", "end")], &tick_text(*t));
        }
        let (tx, ty) = (px(11.0), px((area.top + area.bottom) / 2.0));
        let turn = format!("rotate(-90 {tx} {ty})");
        let attrs = [
            ("class", "name"),
            ("x", tx.as_str()),
            ("y", ty.as_str()),
            ("text-anchor", "middle"),
            ("transform", &turn),
        ];
        h.leaf("text", &attrs, &f.y.title());
    });
}

/// First and last place along the x axis; of a figure without points any.
fn x_ends(f: &Figure) -> [f64; 2] {
    match f.places()[..] {
        [] => [0.0, 1.0],
        [first, .., last] => [first, last],
        [only] => [only, only],
    }
}

fn x_map(f: &Figure, area: &Area) -> Map {
    let ends = x_ends(f);
    let inset = 16.0;
    match f.shape {
        Shape::Lines => Map::new(f.x.scale, ends, [area.left + inset, area.right - inset]),
        _ => {
            let last = f.x.places.len().max(1) as f64;
            Map::new(Scale::Linear, [-0.5, last - 0.5], [area.left, area.right])
        }
    }
}

fn x_axis(f: &Figure, x: &Map, area: &Area, h: &mut Html) {
    let names: Vec<(f64, String)> = if f.x.places.is_empty() {
        ticks(f.x.scale, x_ends(f)).into_iter().map(|t| (t, tick_text(t))).collect()
    } else {
        f.x.places.clone()
    };
    h.el("g", &[("class", "ax")], |h| {
        let (l, r, b) = (px(area.left), px(area.right), px(area.bottom));
        h.shape("line", &[("class", "base"), ("x1", &l), ("x2", &r), ("y1", &b), ("y2", &b)]);
        let room = (area.right - area.left) / names.len().max(1) as f64;
        for (at, name) in &names {
            let (tx, under) = (px(x.at(*at)), px(area.bottom + 4.0));
            if f.shape == Shape::Lines {
                h.shape(
                    "line",
                    &[("class", "base"), ("x1", &tx), ("x2", &tx), ("y1", &b), ("y2", &under)],
                );
            }
            for (row, part) in wrapped(name, room).into_iter().enumerate() {
                let ty = px(area.bottom + 16.0 + 12.0 * row as f64);
                h.leaf("text", &[("x", &tx), ("y", &ty), ("text-anchor", "middle")], &part);
            }
        }
        let (tx, ty) = (px((area.left + area.right) / 2.0), px(HEIGHT - 4.0));
        let title = f.x.title();
        if !title.is_empty() {
            let attrs =
                [("class", "name"), ("x", tx.as_str()), ("y", &ty), ("text-anchor", "middle")];
            h.leaf("text", &attrs, &title);
        }
    });
}

/// A name in at most two lines, broken at a space if it has no room.
fn wrapped(name: &str, room: f64) -> Vec<String> {
    let width =
        |s: &str| -> f64 { s.chars().map(|c| if c.is_ascii() { 6.2 } else { 11.0 }).sum::<f64>() };
    let spaces: Vec<usize> = name.match_indices(' ').map(|(i, _)| i).collect();
    if width(name) <= room || spaces.is_empty() {
        return vec![name.to_owned()];
    }
    let best = spaces.into_iter().min_by_key(|i| i.abs_diff(name.len() / 2)).unwrap_or(0);
    vec![name[..best].to_owned(), name[best + 1..].to_owned()]
}

/// What is told of a point.
fn tip(f: &Figure, s: &Series, p: &Point) -> String {
    let mut text = format!("{}\n{}: {}", s.name, short(&f.x.label, "x"), f.x.value(p.x));
    text.push_str(&format!("\n{}: {}", short(&f.y.label, "y"), f.y.value(p.y)));
    if let Some([a, b]) = p.range {
        text.push_str(&format!(" [{}, {}]", number(a), number(b)));
    }
    if !p.note.is_empty() {
        text.push('\n');
        text.push_str(&p.note);
    }
    text
}

fn short<'a>(label: &'a str, other: &'a str) -> &'a str {
    if label.is_empty() { other } else { label }
}

fn group<'a>(s: usize, style: &str) -> [(&'a str, String); 2] {
    [("class", format!("ser s{style}")), ("data-s", s.to_string())]
}

fn lines(f: &Figure, (x, y): (&Map, &Map), h: &mut Html) {
    for (n, s) in f.series.iter().enumerate() {
        let attrs = group(n, &(s.style % STYLES).to_string());
        h.el("g", &attrs.each_ref().map(|(k, v)| (*k, v.as_str())), |h| {
            let path: Vec<String> =
                s.points.iter().map(|p| format!("{},{}", px(x.at(p.x)), px(y.at(p.y)))).collect();
            let path = path.join(" ");
            // What lies below others of the same numbers is wider, and shows.
            let width = px((3.0 - 0.4 * n as f64).max(1.6));
            let dash = DASHES[s.dash % STYLES];
            let numbers = values(s.points.iter().map(|p| p.y));
            let attrs = [
                ("points", path.as_str()),
                ("stroke-width", &width),
                ("stroke-dasharray", dash),
                ("data-v", &numbers),
            ];
            h.shape("polyline", &attrs);
            for p in &s.points {
                if let Some(range) = p.range {
                    whisker(x.at(p.x), range, y, h);
                }
                h.el("g", &[("class", "pt"), ("data-v", &p.y.to_string())], |h| {
                    h.leaf("title", &[], &tip(f, s, p));
                    marker(s.style, x.at(p.x), y.at(p.y), h);
                });
            }
        });
    }
}

/// Numbers of the y axis, as an attribute.
fn values(all: impl IntoIterator<Item = f64>) -> String {
    all.into_iter().map(|v| v.to_string()).collect::<Vec<_>>().join(" ")
}

fn whisker(x: f64, range: [f64; 2], y: &Map, h: &mut Html) {
    let (l, r, x) = (px(x - 3.0), px(x + 3.0), px(x));
    let [a, b] = range.map(|v| px(y.at(v)));
    let d = format!("M{x} {a}V{b}M{l} {a}H{r}M{l} {b}H{r}");
    h.shape("path", &[("class", "whisker"), ("d", &d), ("data-v", &values(range))]);
}

/// The marker of a style, around a place.
pub fn marker(style: usize, x: f64, y: f64, h: &mut Html) {
    let at = |dx: f64, dy: f64| format!("{} {}", px(x + dx), px(y + dy));
    let d = match style % STYLES {
        0 => {
            let (cx, cy) = (px(x), px(y));
            h.shape("circle", &[("class", "mk"), ("cx", &cx), ("cy", &cy), ("r", "3.6")]);
            return;
        }
        1 => format!("M{}h6.6v6.6h-6.6z", at(-3.3, -3.3)),
        2 => format!("M{}l4.2 7.4h-8.4z", at(0.0, -4.6)),
        3 => format!("M{}l4.4 4.4l-4.4 4.4l-4.4 -4.4z", at(0.0, -4.4)),
        4 => format!("M{}l4.2 -7.4h-8.4z", at(0.0, 4.6)),
        5 => format!("M{}h2.6v2.6h2.6v2.6h-2.6v2.6h-2.6v-2.6h-2.6v-2.6h2.6z", at(-1.3, -3.9)),
        6 => format!("M{}l3.8 2.8l-1.5 4.5h-4.6l-1.5 -4.5z", at(0.0, -4.0)),
        _ => format!("M{}h8.4v3.2h-8.4z", at(-4.2, -1.6)),
    };
    h.shape("path", &[("class", "mk"), ("d", &d)]);
}

/// Where the bar of series `n` is at a place, and how wide.
fn bar_at(f: &Figure, n: usize, x: f64, area: &Area) -> (f64, f64) {
    let slot = (area.right - area.left) / f.x.places.len().max(1) as f64;
    let all = if f.shape == Shape::Stack { 1 } else { f.series.len().max(1) };
    let width = (slot * 0.76 / all as f64).min(46.0);
    let left = area.left + slot * (x + 0.5) - width * all as f64 / 2.0;
    let n = if f.shape == Shape::Stack { 0 } else { n };
    (left + width * n as f64, width)
}

fn bar(class: &str, [left, top, width, height]: [f64; 4], p: &Point, text: &str, h: &mut Html) {
    let rect = [px(left), px(top), px(width), px(height.max(0.8))];
    let [x, y, w, t] = rect.each_ref().map(String::as_str);
    let place = [("x", x), ("y", y), ("width", w), ("height", t)];
    let at = [p.x, p.y].map(|v| v.to_string());
    h.el("g", &[("class", "pt"), ("data-x", &at[0]), ("data-v", &at[1])], |h| {
        h.leaf("title", &[], text);
        let with = |class| [&[("class", class)][..], &place[..]].concat();
        h.shape("rect", &with("bar"));
        h.shape("rect", &with(class));
    });
}

fn bars(f: &Figure, y: &Map, area: &Area, h: &mut Html) {
    for (n, s) in f.series.iter().enumerate() {
        let style = s.style % STYLES;
        let attrs = group(n, &style.to_string());
        h.el("g", &attrs.each_ref().map(|(k, v)| (*k, v.as_str())), |h| {
            for p in &s.points {
                let (left, width) = bar_at(f, n, p.x, area);
                let (top, zero) = (y.at(p.y.max(0.0)), y.at(p.y.min(0.0)));
                let rect = [left + 0.5, top, width - 1.0, zero - top];
                bar(&format!("hatch h{style}"), rect, p, &tip(f, s, p), h);
                if let Some(range) = p.range {
                    whisker(left + width / 2.0, range, y, h);
                }
                if f.series.len() * f.x.places.len() <= 14 {
                    let over = above(f, n, p);
                    over_text(left + width / 2.0, y.at(over) - 4.0, [p.x, over], p.y, h);
                }
            }
        });
    }
}

/// A number over a bar at the place `x`; it stands above `over`.
fn over_text(at: f64, top: f64, [x, over]: [f64; 2], value: f64, h: &mut Html) {
    let [tx, ty] = [at, top].map(px);
    let [x, over] = [x, over].map(|v| v.to_string());
    let attrs = [
        ("class", "over"),
        ("x", tx.as_str()),
        ("y", &ty),
        ("text-anchor", "middle"),
        ("data-x", &x),
        ("data-v", &over),
    ];
    h.leaf("text", &attrs, &tick_text(value));
}

/// The highest of a bar and what stands over it: its interval, and what the paper says of it.
fn above(f: &Figure, n: usize, p: &Point) -> f64 {
    let is_of_it = |m: &&Mark| m.x == Some(p.x) && m.series.is_none_or(|s| s == n);
    let marks = f.marks.iter().filter(is_of_it);
    let said = marks.flat_map(|m| m.value.into_iter().chain(m.band.map(|b| b[1])));
    said.chain(p.range.map(|r| r[1])).fold(p.y.max(0.0), f64::max)
}

fn stack(f: &Figure, y: &Map, area: &Area, h: &mut Html) {
    let below = |n: usize, x: f64| -> f64 {
        let of = |s: &Series| s.points.iter().filter(|p| p.x == x).map(|p| p.y).sum::<f64>();
        f.series[..n].iter().map(of).sum()
    };
    for (n, s) in f.series.iter().enumerate() {
        let style = s.style % STYLES;
        let attrs = group(n, &style.to_string());
        h.el("g", &attrs.each_ref().map(|(k, v)| (*k, v.as_str())), |h| {
            for p in s.points.iter().filter(|p| p.y != 0.0) {
                let (left, width) = bar_at(f, n, p.x, area);
                let from = below(n, p.x);
                let (top, bottom) = (y.at(from + p.y), y.at(from));
                let rect = [left, top, width, bottom - top];
                bar(&format!("hatch h{style}"), rect, p, &tip(f, s, p), h);
            }
        });
    }
    let over = |x: f64, sum: f64| {
        let marks = f.marks.iter().filter(|m| m.x == Some(x));
        let said = marks.flat_map(|m| m.value.into_iter().chain(m.band.map(|b| b[1])));
        said.fold(sum, f64::max)
    };
    h.el("g", &[("class", "sums")], |h| {
        for (x, sum) in f.places().into_iter().zip(sums(f)) {
            let (left, width) = bar_at(f, 0, x, area);
            let over = over(x, sum);
            over_text(left + width / 2.0, y.at(over) - 4.0, [x, over], sum, h);
        }
    });
}

/// From where to where a mark is, along the x axis.
fn extent(f: &Figure, mark: &Mark, x: &Map, area: &Area) -> [f64; 2] {
    match (mark.x, f.shape) {
        (None, _) => [area.left, area.right],
        (Some(at), Shape::Lines) => [x.at(at) - 11.0, x.at(at) + 11.0],
        (Some(at), _) => match mark.series {
            Some(n) => {
                let (left, width) = bar_at(f, n, at, area);
                [left - 3.0, left + width + 3.0]
            }
            None => {
                let all = f.series.len().max(1);
                let (left, _) = bar_at(f, 0, at, area);
                let (last, width) = bar_at(f, all - 1, at, area);
                [left - 4.0, last + width + 4.0]
            }
        },
    }
}

/// Class of a mark: of its series, where it has one.
fn mark_class(f: &Figure, mark: &Mark, class: &str) -> String {
    match mark.series.and_then(|n| f.series.get(n)) {
        Some(s) if f.shape == Shape::Lines => format!("{class} of s{}", s.style % STYLES),
        _ => class.to_owned(),
    }
}

fn series_of(mark: &Mark) -> String {
    mark.series.map_or_else(|| "all".to_owned(), |n| n.to_string())
}

/// What the paper says, with its words.
fn mark_of(mark: &Mark, h: &mut Html, shape: impl FnOnce(&mut Html)) {
    let (series, x) = (series_of(mark), mark.x.map(|x| x.to_string()));
    let mut attrs = vec![("class", "mark"), ("data-s", series.as_str())];
    attrs.extend(x.as_deref().map(|x| ("data-x", x)));
    h.el("g", &attrs, |h| {
        h.el("g", &[("class", "pt")], |h| {
            h.leaf("title", &[], &mark.label);
            shape(h);
        });
    });
}

fn bands(f: &Figure, maps: (&Map, &Map), area: &Area, h: &mut Html) {
    for mark in &f.marks {
        band(f, mark, maps, area, h);
    }
}

fn band(f: &Figure, mark: &Mark, (x, y): (&Map, &Map), area: &Area, h: &mut Html) {
    let Some([low, high]) = mark.band else { return };
    let [left, right] = extent(f, mark, x, area);
    let (top, bottom) = (y.at(high).max(area.top), y.at(low).min(area.bottom));
    let rect = [left, top, right - left, (bottom - top).max(1.5)].map(px);
    let [rx, ry, rw, rh] = rect.each_ref().map(String::as_str);
    let class = mark_class(f, mark, "band");
    let numbers = values([low, high]);
    mark_of(mark, h, |h| {
        let attrs = [("class", class.as_str()), ("x", rx), ("y", ry), ("width", rw)];
        h.shape("rect", &[&attrs[..], &[("height", rh), ("data-v", &numbers)]].concat());
    });
}

fn value(f: &Figure, mark: &Mark, (x, y): (&Map, &Map), area: &Area, h: &mut Html) {
    let Some(v) = mark.value else { return };
    let [left, right] = extent(f, mark, x, area);
    let class = mark_class(f, mark, "said");
    mark_of(mark, h, |h| {
        let (l, r, at) = (px(left), px(right), px(y.at(v)));
        let line = [("class", class.as_str()), ("x1", &l), ("x2", &r), ("y1", &at), ("y2", &at)];
        h.shape("line", &[&line[..], &[("data-v", &v.to_string())]].concat());
    });
}
