//! Paper inode-trim: figures 2 and 3, perturbations, other layouts, wear.

use std::collections::BTreeSet;

use serde_json::Value;
use wp_report::page::{
    Axis, Block, Cell, Figure, Point, Series, Shape, Table, Text, number, words,
};

use super::{Source, list, num, word};

/// All of it.
pub fn blocks(s: &Source<'_>) -> Vec<Block> {
    vec![
        Block::Figure(pages(s)),
        Block::Figure(wear(s)),
        Block::Table(runs(s)),
        Block::Table(others(s)),
        Block::Table(varied(s)),
        Block::Table(wear_table(s)),
    ]
}

/// Pages by class, without the journal's.
fn counted(v: &Value) -> f64 {
    let all = v.as_object().into_iter().flatten();
    all.filter(|(class, _)| *class != "journal").map(|(_, n)| num(n)).sum()
}

fn pages(s: &Source<'_>) -> Figure {
    let runs: Vec<(&str, &Value)> = ["discard", "inode trim, naive", "inode trim, safe"]
        .iter()
        .map(|name| (*name, &s.doc["runs"][*name]["unmounted"]))
        .filter(|(_, v)| v.is_object())
        .collect();
    let classes: BTreeSet<&str> = runs
        .iter()
        .filter_map(|(_, v)| v.as_object())
        .flat_map(|v| v.keys().map(String::as_str))
        .filter(|class| *class != "journal")
        .collect();
    // What there is most of is at the bottom.
    let sum = |class: &str| runs.iter().map(|(_, v)| v[class].as_f64().unwrap_or(0.0)).sum::<f64>();
    let mut classes: Vec<&str> = classes.into_iter().collect();
    classes.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
    let series = classes.iter().enumerate().map(|(style, class)| {
        let value = |v: &Value| v[*class].as_f64().unwrap_or(0.0);
        let points = runs.iter().enumerate().map(|(n, (_, v))| Point::new(n as f64, value(v)));
        Series::new(s.name(class), style, points.collect())
    });
    let mut f = Figure {
        id: "trim-pages".to_owned(),
        number: s.tw(words::FIGURES, &["2, 3"]),
        title: s.t(words::TRIM_FIGURE),
        caption: s.t(words::TRIM_FIGURE_CAPTION),
        shape: Shape::Stack,
        x: Axis::named("", runs.iter().map(|(name, _)| s.name(name)).collect()),
        y: Axis::linear(s.t(words::TRIM_PAGES), ""),
        series: series.collect(),
        said_by: words::PAPER,
        marks: Vec::new(),
        claims: vec!["fig2.".to_owned(), "fig3.".to_owned()],
    };
    let at = |name: &str| runs.iter().position(|(n, _)| *n == name).map(|n| n as f64);
    for (id, run) in [("fig2.plain", "discard"), ("fig3.trim", "inode trim, safe")] {
        if let Some(x) = at(run) {
            f.marks.extend(s.mark(id, Some(x), Some(0), |v| v));
        }
    }
    f
}

fn heads(s: &Source<'_>, texts: &[Text]) -> Vec<String> {
    texts.iter().map(|t| s.t(*t)).collect()
}

fn table(id: &str, number: String, title: String, heads: &[String]) -> Table {
    Table::new(id, number, title, &heads.iter().map(String::as_str).collect::<Vec<_>>())
}

fn runs(s: &Source<'_>) -> Table {
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
    let mut all: Vec<(String, &Value)> =
        ["no discard", "discard", "inode trim, naive", "inode trim, safe"]
            .iter()
            .map(|name| (s.name(name), &s.doc["runs"][*name]))
            .collect();
    all.push((s.t(words::TRIM_HALF), &s.doc["every_second_deleted"]));
    all.push((s.t(words::TRIM_MOST), &s.doc["15_of_16_deleted"]));
    for (name, r) in all.into_iter().filter(|(_, r)| r.is_object()) {
        let unmounted = counted(&r["unmounted"]);
        let journal = r["unmounted"]["journal"].as_f64().unwrap_or(0.0);
        let cells = [
            counted(&r["deleted"]),
            counted(&r["written_back"]),
            unmounted,
            unmounted + journal,
            num(&r["tables_trimmed"]),
            num(&r["table_discards"]),
            num(&r["blocks_without_valid"]),
        ];
        let cells = cells.map(|v| Cell::number(number(v)));
        t.rows.push([vec![Cell::text(name)], cells.into()].concat());
    }
    t
}

fn others(s: &Source<'_>) -> Table {
    let heads =
        vec![String::new(), s.name("discard"), s.name("inode trim, safe"), s.t(words::TRIM_TABLES)];
    let mut t = table("trim-others", s.t(words::BESIDE), s.t(words::TRIM_OTHERS), &heads);
    t.caption = s.t(words::TRIM_OTHERS_CAPTION);
    for r in list(&s.doc["others"]) {
        let cells = [
            counted(&r["discard"]["unmounted"]),
            counted(&r["safe"]["unmounted"]),
            num(&r["safe"]["tables_trimmed"]),
        ];
        let cells = cells.map(|v| Cell::number(number(v)));
        t.rows.push([vec![Cell::text(word(&r["name"]))], cells.into()].concat());
    }
    t
}

fn varied(s: &Source<'_>) -> Table {
    let heads = vec![String::new(), s.name("discard"), s.name("inode trim, safe")];
    let mut t = table("trim-varied", s.t(words::BESIDE), s.t(words::TRIM_VARIED), &heads);
    t.caption = s.t(words::TRIM_OTHERS_CAPTION);
    for r in list(&s.doc["varied"]) {
        let cells = [num(&r[1]), num(&r[2])].map(|v| Cell::number(number(v)));
        t.rows.push([vec![Cell::text(word(&r[0]))], cells.into()].concat());
    }
    t
}

/// A way to discard, as a row of the wear table has it.
fn mode(s: &Source<'_>, r: &Value) -> String {
    if r["only_deleted"] == true {
        return s.t(words::TRIM_ONLY_DELETED);
    }
    match word(&r["trim"]) {
        "None" | "none" => s.name("no discard"),
        "Discard" | "discard" => s.name("discard"),
        "Naive" | "naive" => s.name("inode trim, naive"),
        "Safe" | "safe" => s.name("inode trim, safe"),
        other => other.to_owned(),
    }
}

fn wear(s: &Source<'_>) -> Figure {
    let rows = list(&s.doc["wear"]);
    let works = super::each(rows, "work");
    let mut modes: Vec<String> = Vec::new();
    for r in rows {
        let mode = mode(s, r);
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    let series = modes.iter().enumerate().map(|(style, name)| {
        let points = rows.iter().filter(|r| mode(s, r) == *name).filter_map(|r| {
            let n = works.iter().position(|w| *w == word(&r["work"]))?;
            Some(Point::new(n as f64, num(&r["amplification"])))
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

fn wear_table(s: &Source<'_>) -> Table {
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
    for r in list(&s.doc["wear"]) {
        let keys =
            ["amplification", "host_slots", "copied_slots", "erased_blocks", "discards", "rate"];
        let mut row = vec![Cell::text(word(&r["work"])), Cell::text(mode(s, r))];
        row.extend(keys.map(|k| Cell::number(number(num(&r[k])))));
        row.extend((0..3).map(|n| Cell::number(number(num(&r["latency_ns"][n]) / 1e3))));
        t.rows.push(row);
    }
    t
}
