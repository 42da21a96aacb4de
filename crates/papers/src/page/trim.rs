//! Paper inode-trim: figures 2 and 3, perturbations, other layouts, wear.

use std::collections::BTreeSet;

use wp_report::page::{
    Axis, Block, Cell, Figure, Point, Series, Shape, Table, Text, number, words,
};

use super::{Source, count, each};
use crate::inode_trim::{Pages, Results, Row, RunOutcome, Runs, Trim, Wear};

/// All of it.
pub fn blocks(s: &Source<'_>, found: &Results) -> Vec<Block> {
    vec![
        Block::Figure(pages(s, &found.runs)),
        Block::Figure(wear(s, &found.wear)),
        Block::Table(runs(s, found)),
        Block::Table(others(s, &found.others)),
        Block::Table(varied(s, &found.varied)),
        Block::Table(wear_table(s, &found.wear)),
    ]
}

fn pages(s: &Source<'_>, runs: &Runs) -> Figure {
    let shown = [Trim::Discard, Trim::Naive, Trim::Safe];
    let runs: Vec<&Pages> = shown.map(|trim| &runs.of(trim).unmounted).into();
    let classes = runs.iter().flat_map(|pages| pages.0.keys().map(String::as_str));
    let classes: BTreeSet<&str> = classes.filter(|class| *class != "journal").collect();
    // What there is most of is at the bottom.
    let sum = |class: &str| runs.iter().map(|pages| u128::from(pages.of(class))).sum::<u128>();
    let mut classes: Vec<&str> = classes.into_iter().collect();
    classes.sort_by_key(|class| std::cmp::Reverse(sum(class)));
    let series = classes.iter().enumerate().map(|(style, class)| {
        let points = runs.iter().enumerate();
        let points = points.map(|(n, pages)| Point::new(n as f64, pages.of(class) as f64));
        Series::new(s.name(class), style, points.collect())
    });
    let mut f = Figure {
        id: "trim-pages".to_owned(),
        number: s.tw(words::FIGURES, &["2, 3"]),
        title: s.t(words::TRIM_FIGURE),
        caption: s.t(words::TRIM_FIGURE_CAPTION),
        shape: Shape::Stack,
        x: Axis::named("", shown.map(|trim| s.name(trim.name())).into()),
        y: Axis::linear(s.t(words::TRIM_PAGES), ""),
        series: series.collect(),
        said_by: words::PAPER,
        marks: Vec::new(),
        claims: vec!["fig2.".to_owned(), "fig3.".to_owned()],
    };
    for (id, trim) in [("fig2.plain", Trim::Discard), ("fig3.trim", Trim::Safe)] {
        let at = shown.iter().position(|t| *t == trim).map(|n| n as f64);
        f.marks.extend(s.mark(id, at, Some(0), |v| v));
    }
    f
}

fn heads(s: &Source<'_>, texts: &[Text]) -> Vec<String> {
    texts.iter().map(|t| s.t(*t)).collect()
}

fn table(id: &str, number: String, title: String, heads: &[String]) -> Table {
    Table::new(id, number, title, &heads.iter().map(String::as_str).collect::<Vec<_>>())
}

fn runs(s: &Source<'_>, found: &Results) -> Table {
    let heads = heads(
        s,
        &[
            words::RUN,
            words::TRIM_DELETED,
            words::TRIM_LATER,
            words::TRIM_UNMOUNTED,
            words::TRIM_JOURNAL,
            words::TRIM_TABLES,
            words::TRIM_DISCARDS,
            words::TRIM_EMPTY,
        ],
    );
    let number_text = s.tw(words::FIGURES, &["2, 3"]);
    let mut t = table("trim-runs", number_text, s.t(words::TRIM_TABLE), &heads);
    t.caption = s.t(words::TRIM_TABLE_CAPTION);
    t.claims = vec!["perturb.".to_owned()];
    let mut all: Vec<(String, &RunOutcome)> =
        Trim::ALL.map(|trim| (s.name(trim.name()), found.runs.of(trim))).into();
    all.push((s.t(words::TRIM_HALF), &found.half));
    all.push((s.t(words::TRIM_MOST), &found.most));
    for (name, r) in all {
        let counts = [
            r.deleted.counted(),
            r.written_back.counted(),
            r.unmounted.counted(),
            r.unmounted.with_journal(),
            r.tables_trimmed,
            r.table_discards,
            r.blocks_without_valid,
        ];
        t.rows.push([vec![Cell::text(name)], counts.map(count).into()].concat());
    }
    t
}

fn others(s: &Source<'_>, rows: &[Row]) -> Table {
    let heads =
        vec![String::new(), s.name("discard"), s.name("inode trim, safe"), s.t(words::TRIM_TABLES)];
    let mut t = table("trim-others", s.t(words::BESIDE), s.t(words::TRIM_OTHERS), &heads);
    t.caption = s.t(words::TRIM_OTHERS_CAPTION);
    for r in rows {
        let counts =
            [r.discard.unmounted.counted(), r.safe.unmounted.counted(), r.safe.tables_trimmed];
        t.rows.push([vec![Cell::text(&r.name)], counts.map(count).into()].concat());
    }
    t
}

fn varied(s: &Source<'_>, rows: &[(String, u64, u64)]) -> Table {
    let heads = vec![String::new(), s.name("discard"), s.name("inode trim, safe")];
    let mut t = table("trim-varied", s.t(words::BESIDE), s.t(words::TRIM_VARIED), &heads);
    t.caption = s.t(words::TRIM_OTHERS_CAPTION);
    for (name, discard, safe) in rows {
        t.rows.push(vec![Cell::text(name), count(*discard), count(*safe)]);
    }
    t
}

/// A way to discard, as a row of the wear table has it.
fn mode(s: &Source<'_>, r: &Wear) -> String {
    if r.only_deleted { s.t(words::TRIM_ONLY_DELETED) } else { s.name(r.trim.name()) }
}

fn wear(s: &Source<'_>, rows: &[Wear]) -> Figure {
    let works = each(rows.iter().map(|r| r.work.key()));
    let modes = each(rows.iter().map(|r| mode(s, r)));
    let series = modes.iter().enumerate().map(|(style, name)| {
        let points = rows.iter().filter(|r| mode(s, r) == *name).filter_map(|r| {
            let n = works.iter().position(|w| *w == r.work.key())?;
            Some(Point::new(n as f64, r.amplification))
        });
        Series::new(name.clone(), style, points.collect())
    });
    Figure {
        id: "trim-wear".to_owned(),
        number: s.t(words::NEW),
        title: s.t(words::TRIM_WEAR),
        caption: s.t(words::TRIM_WEAR_CAPTION),
        shape: Shape::Bars,
        x: Axis::named("", works.iter().map(|w| (*w).to_owned()).collect()),
        y: Axis::linear(s.t(words::TRIM_WAF), ""),
        series: series.collect(),
        said_by: words::PAPER,
        marks: Vec::new(),
        claims: Vec::new(),
    }
}

fn wear_table(s: &Source<'_>, rows: &[Wear]) -> Table {
    let mut heads = heads(
        s,
        &[
            words::TRIM_WORK,
            words::TRIM_MODE,
            words::TRIM_WAF,
            words::TRIM_WRITTEN,
            words::TRIM_COPIED,
            words::TRIM_ERASES,
            words::TRIM_DISCARDS,
            words::TRIM_RATE,
        ],
    );
    heads.extend(["p50 µs", "p99 µs", "p99.9 µs"].map(str::to_owned));
    let mut t = table("trim-wear-table", s.t(words::NEW), s.t(words::TRIM_WEAR_TABLE), &heads);
    t.caption = s.t(words::TRIM_WEAR_TABLE_CAPTION);
    for r in rows {
        let mut row = vec![Cell::text(r.work.key()), Cell::text(mode(s, r))];
        row.push(Cell::number(number(r.amplification)));
        row.extend([r.host_slots, r.copied_slots, r.erased_blocks, r.discards].map(count));
        row.push(Cell::number(number(r.rate)));
        row.extend(r.latency_ns.map(|ns| Cell::number(number(ns as f64 / 1e3))));
        t.rows.push(row);
    }
    t
}
