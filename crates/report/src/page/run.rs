//! A run or an experiment: its `summary.json` as tables, its `points.csv` as tables and figures,
//! its claims.

use std::collections::BTreeSet;

use serde_json::Value;

use super::block::Block;
use super::claim::{Claim, Remark};
use super::figure::{Axis, Figure, Point, Series, Shape};
use super::jobs;
use super::scale::number;
use super::table::{Cell, Table};
use super::words::{self, Lang};
use super::{Run, RunClaim};

/// Most rows of a table; the rest is in the file.
const ROWS_MAX: usize = 500;
/// Most figures of one `points.csv`.
const FIGURES_MAX: usize = 12;
/// Most series of a figure.
const SERIES_MAX: usize = 8;
/// Most figures beside each other that show one metric.
const PANELS_MAX: usize = 36;

/// Its tables and figures; `n` is its place on the page.
pub fn blocks(run: &Run, n: usize, phrases: &[[String; 2]], lang: Lang) -> Vec<Block> {
    let mut out = Vec::new();
    if let Some((heads, rows)) = &run.points {
        out.extend(figures(heads, rows, n, lang).into_iter().map(Block::Figure));
        let mut t = Table::new(
            &format!("run-{n}-points"),
            "points.csv".to_owned(),
            words::POINTS.of(lang).to_owned(),
            &heads.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        for row in rows.iter().take(ROWS_MAX) {
            t.rows.push(row.iter().map(|c| cell(c)).collect());
        }
        t.caption = more(rows.len(), lang);
        out.push(Block::Table(t));
    }
    if let Some(doc) = &run.fio {
        out.extend(jobs::blocks(doc, &run.rated, n, lang));
    }
    out.extend(claims(run, n, phrases, lang).map(Block::Table));
    let heads = [words::KEY.of(lang), words::VALUE.of(lang)];
    let mut t = Table::new(
        &format!("run-{n}-summary"),
        "summary.json".to_owned(),
        words::SUMMARY_JSON.of(lang).to_owned(),
        &heads,
    );
    let mut flat = Vec::new();
    flatten("", &run.summary, &mut flat);
    t.caption = more(flat.len(), lang);
    for (key, value) in flat.into_iter().take(ROWS_MAX) {
        t.rows.push(vec![Cell::text(key).class("mono"), cell(&value)]);
    }
    out.push(Block::Table(t));
    out
}

/// What the experiment's file claims, and what came of it. `None`: nothing is claimed.
fn claims(run: &Run, n: usize, phrases: &[[String; 2]], lang: Lang) -> Option<Table> {
    if run.claims.is_empty() {
        return None;
    }
    let heads = [words::VERDICT, words::CLAIM, words::EXPRESSION, words::OURS, words::BAND];
    let mut t = Table::new(
        &format!("run-{n}-claims"),
        "claims.json".to_owned(),
        words::RUN_CLAIMS.of(lang).to_owned(),
        &heads.map(|w| w.of(lang)).into_iter().chain([words::WHY.of(lang)]).collect::<Vec<_>>(),
    );
    for RunClaim { judged, expr } in &run.claims {
        let c = Claim::of(judged);
        let of_paper = if c.said.is_empty() { String::new() } else { format!("{}/", c.paper) };
        let verdict = format!("{} {}", c.verdict.sign(), c.verdict.word().of(lang));
        t.rows.push(vec![
            Cell::text(verdict),
            Cell { tip: c.what.clone(), ..Cell::text(format!("{of_paper}{}", c.id)).class("mono") },
            Cell::text(expr).class("mono"),
            c.ours.map_or_else(|| Cell::text("—"), |x| cell(&x.to_string())),
            Cell::text(band(&c)),
            Cell::remark(&Remark::said(&c.why.text, phrases, lang), lang),
        ]);
    }
    Some(t)
}

/// The band in short, also where one edge is none.
fn band(c: &Claim) -> String {
    match c.band {
        [low, f64::MAX] => format!("≥ {}", number(low)),
        [f64::MIN, high] => format!("≤ {}", number(high)),
        _ => c.band_text(),
    }
}

fn more(rows: usize, lang: Lang) -> String {
    match rows.checked_sub(ROWS_MAX) {
        Some(rest) if rest > 0 => words::MORE_ROWS.with(lang, &[&rest.to_string()]),
        _ => String::new(),
    }
}

fn cell(text: &str) -> Cell {
    match text.parse::<f64>() {
        Ok(v) if v.is_finite() => Cell { tip: text.to_owned(), ..Cell::number(number(v)) },
        _ => Cell::text(text),
    }
}

/// Every value that is not made of others, by its path.
fn flatten(path: &str, v: &Value, out: &mut Vec<(String, String)>) {
    let under = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match v {
        Value::Object(map) => map.iter().for_each(|(k, v)| flatten(&under(k), v, out)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(n, v)| flatten(&under(&n.to_string()), v, out));
        }
        Value::String(s) => out.push((path.to_owned(), s.clone())),
        other => out.push((path.to_owned(), other.to_string())),
    }
}

/// What columns of points are: those that say what was run, and those that were measured.
struct Columns {
    /// The one along the x axis.
    x: usize,
    /// Others that say what was run and are not the same everywhere, without the seed and the
    /// number of the point.
    by: Vec<usize>,
    /// Measured.
    y: Vec<usize>,
}

/// Columns stand as they are swept, then what came of it: the first column of numbers is the x
/// axis if it has several values, a column of words tells series apart, and so do those whose few
/// values come again and again in the same combinations.
fn columns(heads: &[String], rows: &[Vec<String>]) -> Option<Columns> {
    let values = |c: usize| {
        let mut all: Vec<&str> = rows.iter().map(|r| r[c].as_str()).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let is_number = |c: usize| values(c).iter().all(|v| v.parse::<f64>().is_ok());
    // The first column of an experiment counts its points: nothing depends on it.
    let is_number_of = |c: usize| {
        heads[c] == "seed" || heads[c].ends_with(".seed") || (c == 0 && heads[c] == "point")
    };
    let all: Vec<usize> = (0..heads.len()).filter(|c| !is_number_of(*c)).collect();
    let words: Vec<usize> = all.iter().copied().filter(|c| !is_number(*c)).collect();
    let numbers: Vec<usize> =
        all.iter().copied().filter(|c| is_number(*c) && values(*c).len() > 1).collect();
    let x = *numbers.first()?;
    // A parameter that is swept has each of its values in rows with the same x.
    let repeats = |c: usize| values(c).len() * values(x).len() <= rows.len();
    let is_swept = |c: &usize| *c > x && repeats(*c) && values(*c).len() <= SERIES_MAX;
    let swept: Vec<usize> = numbers.iter().copied().skip(1).take_while(is_swept).collect();
    let mut y: Vec<usize> =
        numbers.iter().copied().filter(|c| *c != x && !swept.contains(c)).collect();
    // What the workload measured, before counts of the device and the file system.
    y.sort_by_key(|c| heads[*c].contains('.'));
    let by = words.into_iter().filter(|c| values(*c).len() > 1).chain(swept).collect();
    Some(Columns { x, by, y })
}

/// What a row says in some columns.
fn said(row: &[String], columns: &[usize]) -> String {
    let parts: Vec<&str> = columns.iter().map(|c| row[*c].as_str()).collect();
    parts.join(", ")
}

/// Different values of rows, in the order in which they come.
fn different(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    values.filter(|v| seen.insert(v.clone())).collect()
}

/// One of the small figures beside each other that show a metric: the rows that it has, by what
/// they say in the columns `by`, and its series.
struct Panel {
    by: Vec<usize>,
    value: String,
    series: Vec<String>,
}

/// How a sweep is divided: columns whose values are series, and panels. A few combinations are one
/// panel. Of more, the last column with few values tells series apart, and the others panels; if
/// no column has few values, each panel has the next of them.
fn panels(columns: &Columns, rows: &[Vec<String>]) -> (Vec<usize>, Vec<Panel>) {
    let names = |by: &[usize]| different(rows.iter().map(|row| said(row, by)));
    let all = names(&columns.by);
    if all.len() <= SERIES_MAX {
        let one = Panel { by: Vec::new(), value: String::new(), series: all };
        return (columns.by.clone(), vec![one]);
    }
    let is_few = |c: &&usize| names(&[**c]).len() <= SERIES_MAX;
    let Some(series) = columns.by.iter().rev().find(is_few).copied() else {
        let parts = all.chunks(SERIES_MAX);
        let panel =
            |part: &[String]| Panel { by: Vec::new(), value: String::new(), series: part.to_vec() };
        return (columns.by.clone(), parts.map(panel).collect());
    };
    let by: Vec<usize> = columns.by.iter().copied().filter(|c| *c != series).collect();
    let series_names = names(&[series]);
    let panel = |value| Panel { by: by.clone(), value, series: series_names.clone() };
    (vec![series], names(&by).into_iter().map(panel).collect())
}

fn figures(heads: &[String], rows: &[Vec<String>], n: usize, lang: Lang) -> Vec<Figure> {
    let Some(columns) = columns(heads, rows) else { return Vec::new() };
    let (by, panels) = panels(&columns, rows);
    let metrics = (FIGURES_MAX / panels.len()).max(1);
    let shown = columns.y.iter().take(metrics);
    let mut all: Vec<Figure> = Vec::new();
    for y in shown {
        let shared = panels.len() > 1;
        let heights = || rows.iter().filter_map(|row| row[*y].parse::<f64>().ok());
        let axis = Axis::linear(&heads[*y], "").switched();
        let axis = match shared {
            true => Axis { shared: ends(heights()), ..axis },
            false => axis,
        };
        for (place, panel) in panels.iter().take(PANELS_MAX).enumerate() {
            let mut figure = one(heads, rows, (&columns, &by, panel), (*y, axis.clone(), lang));
            let number = if shared { format!("-{place}") } else { String::new() };
            figure.id = format!("run-{n}-{}{number}", plain(&heads[*y]));
            all.push(figure);
        }
    }
    if let (Some(last), Some(rest)) = (all.last_mut(), panels.len().checked_sub(PANELS_MAX))
        && rest > 0
    {
        last.caption = words::MORE_FIGURES.with(lang, &[&rest.to_string()]);
    }
    all
}

/// A name, as a part of an address.
fn plain(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// The lowest and the highest of some numbers.
fn ends(all: impl Iterator<Item = f64>) -> Vec<f64> {
    let finite = all.filter(|v| v.is_finite());
    let both = finite.fold(None, |ends: Option<[f64; 2]>, v| {
        let [low, high] = ends.unwrap_or([v, v]);
        Some([low.min(v), high.max(v)])
    });
    both.map_or(Vec::new(), |ends| ends.to_vec())
}

/// A figure of a panel.
fn one(
    heads: &[String],
    rows: &[Vec<String>],
    (columns, by, panel): (&Columns, &[usize], &Panel),
    (y, axis, lang): (usize, Axis, Lang),
) -> Figure {
    let value = |row: &[String], c: usize| row[c].parse::<f64>().unwrap_or(f64::NAN);
    let own: Vec<&Vec<String>> =
        rows.iter().filter(|row| said(row, &panel.by) == panel.value).collect();
    let series = panel.series.iter().enumerate().map(|(style, wanted)| {
        let of = own.iter().filter(|row| said(row, by) == *wanted);
        let points = means(of.map(|row| [value(row, columns.x), value(row, y)]));
        let shown = if wanted.is_empty() { heads[y].clone() } else { wanted.clone() };
        Series::new(shown, style, points)
    });
    let title = words::CHART_OF.with(lang, &[&heads[y], &heads[columns.x]]);
    let names: Vec<String> =
        panel.by.iter().map(|c| own.first().map_or("", |row| &row[*c]).to_owned()).collect();
    let pairs = panel.by.iter().zip(names).map(|(c, v)| format!("{} = {v}", heads[*c]));
    let place: Vec<String> = pairs.collect();
    Figure {
        id: String::new(),
        number: "points.csv".to_owned(),
        title: if place.is_empty() { title } else { format!("{title}: {}", place.join(", ")) },
        caption: String::new(),
        shape: Shape::Lines,
        x: Axis::linear(&heads[columns.x], ""),
        y: axis,
        // What a panel has no point of is not in its legend.
        series: series.filter(|s| !s.points.is_empty()).collect(),
        said_by: words::PAPER,
        marks: Vec::new(),
        claims: Vec::new(),
    }
}

/// Points of the same x (other seeds) as one: mean, lowest and highest.
fn means(points: impl Iterator<Item = [f64; 2]>) -> Vec<Point> {
    let mut all: Vec<[f64; 2]> = points.filter(|p| p.iter().all(|v| v.is_finite())).collect();
    all.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let of = |group: &[[f64; 2]]| {
        let ys = || group.iter().map(|p| p[1]);
        let (low, high) =
            (ys().fold(f64::INFINITY, f64::min), ys().fold(f64::NEG_INFINITY, f64::max));
        let range = (low < high).then_some([low, high]);
        Point { range, ..Point::new(group[0][0], ys().sum::<f64>() / group.len() as f64) }
    };
    all.chunk_by(|a, b| a[0] == b[0]).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Judged, Kind, PaperValue, Verdict};

    fn table(text: &str) -> (Vec<String>, Vec<Vec<String>>) {
        let mut lines = text.lines().map(|l| l.split(',').map(str::to_owned).collect::<Vec<_>>());
        (lines.next().expect("heads"), lines.collect())
    }

    #[test]
    fn the_first_column_of_numbers_is_the_axis_and_words_and_sweeps_are_series() {
        let (heads, rows) = table(
            "fs,depth,threads,seed,iops\n\
             ext4,1,1,1,100\next4,1,1,2,120\next4,2,1,1,180\next4,1,4,1,300\next4,2,4,1,400\n\
             f2fs,1,1,1,90\nf2fs,2,1,1,150\nf2fs,1,4,1,280\nf2fs,2,4,1,390",
        );
        let all = figures(&heads, &rows, 0, Lang::En);
        assert_eq!(all.len(), 1);
        let names: Vec<&str> = all[0].series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["ext4, 1", "ext4, 4", "f2fs, 1", "f2fs, 4"]);
        let first = &all[0].series[0].points;
        assert_eq!((first[0].x, first[0].y, first[0].range), (1.0, 110.0, Some([100.0, 120.0])));
        assert_eq!((first[1].y, first[1].range), (180.0, None));
    }

    #[test]
    fn the_number_of_a_point_is_no_axis_and_no_figure() {
        let (heads, rows) = table(
            "point,fs,workload.n,seed,iops\n\
             0,ext4,1,1,100\n0,ext4,1,2,120\n1,ext4,2,1,180\n2,f2fs,1,1,90\n3,f2fs,2,1,150",
        );
        let all = figures(&heads, &rows, 0, Lang::En);
        assert_eq!(all.len(), 1);
        let names: Vec<&str> = all[0].series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["ext4", "f2fs"]);
        let xs: Vec<f64> = all[0].series[0].points.iter().map(|p| p.x).collect();
        assert_eq!(xs, [1.0, 2.0]);
    }

    #[test]
    fn a_sweep_of_many_keys_is_small_multiples_with_one_axis() {
        let (mut text, mut row) = ("fs,device,n,seed,iops\n".to_owned(), 0);
        for fs in ["ext4", "f2fs", "btrfs"] {
            for device in ["ssd", "nvme", "emmc", "zns"] {
                for n in [1, 2, 4] {
                    text += &format!("{fs},{device},{n},1,{}\n", n * 100 + row);
                    row += 1;
                }
            }
        }
        let (heads, rows) = table(&text);
        let all = figures(&heads, &rows, 0, Lang::En);
        // Four drives are series; each file system is a figure.
        assert_eq!(all.len(), 3);
        assert_eq!(all[1].title, "iops over n: fs = f2fs");
        assert!(all.iter().all(|f| f.series.len() == 4 && f.series[0].points.len() == 3));
        assert!(all.iter().all(|f| f.y.shared == [100.0, 435.0]));
        let mut ids: Vec<&str> = all.iter().map(|f| f.id.as_str()).collect();
        ids.dedup();
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn no_series_is_left_out_where_one_key_has_many_values() {
        let mut text = "name,n,iops\n".to_owned();
        for name in 0..20 {
            text += &format!("d{name},1,{name}\nd{name},2,{}\n", name + 1);
        }
        let (heads, rows) = table(&text);
        let all = figures(&heads, &rows, 0, Lang::En);
        assert_eq!(all.iter().map(|f| f.series.len()).collect::<Vec<_>>(), [8, 8, 4]);
    }

    #[test]
    fn claims_of_an_experiment_are_a_table() {
        let claim = |id: &str, band: [f64; 2], verdict: Verdict| RunClaim {
            judged: Judged {
                paper: "t".to_owned(),
                id: id.to_owned(),
                what: "a".to_owned(),
                paper_value: PaperValue::Word(String::new()),
                ours: Some(5.0),
                unit: None,
                band,
                kind: Kind::Prediction,
                null: None,
                interval: None,
                verdict,
                why: String::new(),
            },
            expr: "iops[1]".to_owned(),
        };
        let all = vec![
            claim("a", [1.0, 9.0], Verdict::Match),
            claim("b", [6.0, f64::MAX], Verdict::Differs),
            claim("c", [f64::MIN, 6.0], Verdict::Match),
        ];
        let run = Run {
            name: "t".to_owned(),
            hash: String::new(),
            resolved: String::new(),
            summary: Value::Null,
            points: None,
            claims: all,
            fio: None,
            rated: Vec::new(),
        };
        let csv = claims(&run, 0, &[], Lang::En).expect("some claims").csv();
        assert!(
            csv.contains("iops[1],5,1 – 9") && csv.contains("≥ 6") && csv.contains("≤ 6"),
            "{csv}"
        );
        assert_eq!(csv.lines().count(), 1 + 3, "{csv}");
        assert!(claims(&Run { claims: Vec::new(), ..run }, 0, &[], Lang::En).is_none());
    }

    #[test]
    fn values_of_a_summary_are_named_by_their_path() {
        let mut flat = Vec::new();
        flatten("", &serde_json::json!({ "a": [1, { "b": "x" }], "c": null }), &mut flat);
        let flat: Vec<(&str, &str)> = flat.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(flat, [("a.0", "1"), ("a.1.b", "x"), ("c", "null")]);
    }
}
