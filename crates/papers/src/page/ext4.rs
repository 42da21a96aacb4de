//! Paper ext4-fsync: figures 9 to 11, null predictors, power cuts, real kernels.

use wp_parity::reference::ListedDifference;
use wp_report::page::{
    Axis, Block, Cell, Figure, Mark, Point, Series, Shape, Table, Text, number, words,
};

use super::{Source, count, each, ext4_traces};
use crate::ext4_fsync::{CutRow, Nulls, Point as Measured, Results};
use crate::today::Today;

/// All of it.
pub fn blocks(s: &Source<'_>, found: &Results) -> Vec<Block> {
    let mut out = ext4_traces::blocks(s, &found.traces);
    for (case, ten, eleven) in [
        ("extend", words::EXT4_FIG10_LEFT, words::EXT4_FIG11_RIGHT),
        ("alloc", words::EXT4_FIG10_RIGHT, words::EXT4_FIG11_LEFT),
    ] {
        out.push(Block::Figure(latency(s, found, case, s.t(ten))));
        out.push(Block::Figure(growth(s, found, case, s.t(ten))));
        out.push(Block::Figure(data_blocks(s, found, case, s.t(eleven))));
        if case == "extend" {
            out.push(Block::Figure(latency(s, found, "over", s.t(words::BESIDE))));
        } else {
            out.push(Block::Figure(metadata(s, found, case)));
        }
    }
    out.push(Block::Table(nulls(s, &found.null_predictors)));
    if found.cuts.is_empty() {
        out.push(Block::Note(s.t(words::EXT4_NO_CUTS)));
    }
    out.push(Block::Table(cuts(s, &found.cuts)));
    out.push(Block::Table(real(s, found)));
    out.push(Block::Folded(listed(s, &found.real_kernels.listed_differences)));
    out
}

/// A number of the points as series by era; the phone's era 3.4 with them, which the paper draws
/// too.
fn series(s: &Source<'_>, found: &Results, case: &str, of: fn(&Measured) -> f64) -> Vec<Series> {
    let mut out = Vec::new();
    let phone = (&found.figures_10_11_phone, Some("3.4"));
    for (rows, only) in [(&found.figures_10_11, None), phone] {
        let eras = each(rows.iter().map(|r| r.era.as_str())).into_iter();
        for era in eras.filter(|era| only.is_none_or(|o| o == *era)) {
            let of_it = rows.iter().filter(|r| r.era == era && r.case == case);
            let points = of_it.map(|r| Point::new(f64::from(r.files), of(r))).collect();
            let name = match only {
                Some(_) => s.tw(words::EXT4_PHONE, &[era]),
                None => era.to_owned(),
            };
            out.push(Series::new(name, out.len(), points));
        }
    }
    out
}

fn figure(
    s: &Source<'_>,
    (id, paper_number): (String, String),
    (title, caption): (Text, Text),
    (y, case): (Axis, &str),
    series: Vec<Series>,
) -> Figure {
    let x = Axis::log(s.t(words::EXT4_FILES), "");
    let all: Vec<f64> = series.iter().flat_map(|s| s.points.iter().map(|p| p.x)).collect();
    let mut places: Vec<(f64, String)> = all.iter().map(|n| (*n, number(*n))).collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places.dedup_by(|a, b| a.0 == b.0);
    Figure {
        id,
        number: paper_number,
        title: s.tw(title, &[&s.name(case)]),
        caption: s.t(caption),
        shape: Shape::Lines,
        x: x.at(places),
        y,
        series,
        said_by: words::PAPER,
        marks: Vec::new(),
        claims: Vec::new(),
    }
}

fn latency(s: &Source<'_>, found: &Results, case: &str, of: String) -> Figure {
    let y = Axis::log(s.t(words::EXT4_LATENCY), "µs").switched();
    let all = series(s, found, case, |r| r.fsync_ns as f64 / 1e3);
    let texts = (words::EXT4_LATENCY_OF, words::EXT4_LATENCY_CAPTION);
    let mut f = figure(s, (format!("ext4-fig10-{case}"), of), texts, (y, case), all);
    if case == "alloc" {
        f.claims = ["3.4", "3.8", "4.6"].map(|e| format!("fig10.{e}.alloc.grows")).into();
    }
    f
}

fn growth(s: &Source<'_>, found: &Results, case: &str, of: String) -> Figure {
    let mut all = series(s, found, case, |r| r.fsync_ns as f64);
    for series in &mut all {
        let one = series.points.iter().find(|p| p.x == 1.0).map_or(f64::NAN, |p| p.y);
        series.points.iter_mut().for_each(|p| p.y /= one);
    }
    let y = Axis::log(s.t(words::EXT4_TIMES_ONE), "").switched();
    let texts = (words::EXT4_GROWTH, words::EXT4_GROWTH_CAPTION);
    let mut f = figure(s, (format!("ext4-fig10-{case}-growth"), of), texts, (y, case), all);
    if case == "extend" {
        for (id, n) in [("min_growth", 10.0), ("max_growth", 1000.0)] {
            let id = format!("fig10.3.4.extend.{id}");
            f.marks.extend(s.mark(&id, Some(n), Some(0), |v| v + 1.0));
            let interval = s.claim(&id).and_then(|c| c.interval);
            let points = f.series.first_mut().map(|s| &mut s.points);
            if let Some(p) = points.and_then(|p| p.iter_mut().find(|p| p.x == n)) {
                p.range = interval.map(|i| i.map(|v| v + 1.0));
            }
        }
        f.claims = vec!["fig10.3.4.extend.".to_owned(), "fig10.n10.".to_owned()];
    } else {
        f.claims = vec!["fig10.alloc.step".to_owned()];
    }
    f
}

fn data_blocks(s: &Source<'_>, found: &Results, case: &str, of: String) -> Figure {
    let all = series(s, found, case, |r| f64::from(r.data_blocks));
    let y = Axis::log(s.t(words::EXT4_DATA_AXIS), "").switched();
    let texts = (words::EXT4_DATA_BLOCKS, words::EXT4_DATA_CAPTION);
    let mut f = figure(s, (format!("ext4-fig11-{case}"), of), texts, (y, case), all);
    let marks: Vec<Mark> = f
        .series
        .iter()
        .enumerate()
        .flat_map(|(n, series)| series.points.iter().map(move |p| (n, series, p)))
        .filter_map(|(n, series, p)| {
            let id = format!("fig11.{}.{case}.n{}", series.name, p.x);
            s.mark(&id, Some(p.x), Some(n), |v| v)
        })
        .collect();
    f.claims = f.series.iter().map(|series| format!("fig11.{}.{case}.", series.name)).collect();
    f.marks = marks;
    f
}

fn metadata(s: &Source<'_>, found: &Results, case: &str) -> Figure {
    let all = series(s, found, case, |r| f64::from(r.metadata_blocks));
    let y = Axis::log(s.t(words::EXT4_META_AXIS), "").switched();
    let texts = (words::EXT4_METADATA, words::EXT4_METADATA_CAPTION);
    let place = ("ext4-metadata".to_owned(), "§5.3".to_owned());
    let mut f = figure(s, place, texts, (y, case), all);
    f.claims = ["3.4", "3.8", "4.6"].map(|e| format!("fig10.{e}.alloc.metadata_")).into();
    f
}

fn nulls(s: &Source<'_>, all: &Nulls) -> Table {
    let heads = [s.t(words::CLAIM), s.t(words::PAPER), s.t(words::OURS)];
    let mut t = Table::new(
        "ext4-nulls",
        s.tw(words::FIGURE, &["10"]),
        s.t(words::EXT4_NULL_TITLE),
        &[&heads[0], &heads[1], &heads[2], "counts", "log N", "no era"],
    );
    t.caption = s.t(words::EXT4_NULL_CAPTION);
    for r in &all.ratios {
        let ratios = [r.paper, r.ours, r.counts, r.log_linear, r.no_era];
        let mut row = vec![Cell::text(&r.id).class("mono")];
        row.extend(ratios.map(|v| Cell::number(number(v))));
        t.rows.push(row);
    }
    if !all.distance.is_empty() {
        let mut row = vec![Cell::text(s.t(words::EXT4_MEAN_DISTANCE)), Cell::number("")];
        row.extend(all.distance.iter().map(|v| Cell::number(number(*v))));
        t.rows.push(row);
    }
    t
}

fn cuts(s: &Source<'_>, rows: &[CutRow]) -> Table {
    let heads = [
        words::EXT4_ERA,
        words::EXT4_PROGRAMS,
        words::EXT4_CUT,
        words::EXT4_STATES,
        words::EXT4_DISTINCT,
        words::EXT4_EXPOSURE,
        words::EXT4_SIZE_AHEAD,
        words::EXT4_TAIL_AHEAD,
        words::EXT4_LOST,
        words::F2FS_EXAMPLE,
    ]
    .map(|h| s.t(h));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut t = Table::new("ext4-cuts", "§3.2, §6".to_owned(), s.t(words::EXT4_CUTS_TITLE), &heads);
    t.caption = s.t(words::EXT4_CUTS_CAPTION);
    for r in rows {
        let counts =
            [r.count, r.raw, r.distinct, r.exposure, r.size_ahead, r.tail_ahead, r.lost_sync];
        let mut row = vec![Cell::text(&r.era), Cell::text(&r.programs)];
        row.extend(counts.map(count));
        row.push(Cell::text(r.example.clone().unwrap_or_default()).class("mono"));
        t.rows.push(row);
    }
    t.claims = ["ordered.", "sqlite.", "size_ahead."].map(str::to_owned).into();
    t
}

/// Kernels: how many runs, how many of them equal in everything.
fn real(s: &Source<'_>, found: &Results) -> Table {
    let heads = [words::EXT4_KERNEL, words::EXT4_RUNS, words::EXT4_EQUAL, words::EXT4_NOT_EQUAL];
    let heads = heads.map(|h| s.t(h));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut t = Table::new("ext4-kernels", s.t(words::BESIDE), s.t(words::EXT4_REAL_TITLE), &heads);
    t.caption = s.t(words::EXT4_REAL_CAPTION);
    // Name, runs, equal ones.
    let mut kernels: Vec<(String, u32, u32)> = Vec::new();
    let old = found.real_kernels.runs.iter().map(|r| {
        let kernel = r.run.split('/').next().unwrap_or_default();
        (kernel.replace("linux-", "Linux "), r.differences == 0)
    });
    let Today { kernel, runs, .. } = &found.linux_6_18;
    let today = runs.iter().map(|r| (format!("Linux {kernel}"), r.differences.is_empty()));
    for (kernel, is_equal) in old.chain(today) {
        if kernels.last().is_none_or(|k| k.0 != kernel) {
            kernels.push((kernel, 0, 0));
        }
        if let Some(last) = kernels.last_mut() {
            last.1 += 1;
            last.2 += u32::from(is_equal);
        }
    }
    for (kernel, all, equal) in kernels {
        let cells = [all, equal, all - equal].map(|n| Cell::number(n.to_string()));
        t.rows.push([vec![Cell::text(kernel)], cells.into()].concat());
    }
    t
}

fn listed(s: &Source<'_>, differences: &[ListedDifference]) -> Table {
    let texts = [
        words::RUN,
        words::EXT4_PHASE,
        words::EXT4_BLOCKS,
        words::EXT4_WHAT,
        words::OURS,
        words::EXT4_THEIRS,
        words::EXT4_FUNCTION,
        words::WHY,
    ]
    .map(|h| s.t(h));
    let heads: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut t =
        Table::new("ext4-differences", s.t(words::BESIDE), s.t(words::EXT4_LISTED_TITLE), &heads);
    t.caption = s.t(words::EXT4_LISTED_CAPTION);
    for d in differences {
        let cells = [
            d.run.as_str(),
            d.phase.name(),
            &d.class,
            d.what.name(),
            &d.ours,
            &d.theirs,
            &d.kernel_function,
        ];
        let mut row: Vec<Cell> = cells.map(Cell::text).into();
        row.push(Cell::remark(&s.remark(&d.why), s.lang).class("long"));
        t.rows.push(row);
    }
    t
}
