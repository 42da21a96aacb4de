//! Paper journal-conflict: tables 2 and 3, graphs 1 and 2, and the cure.

use wp_report::page::{
    Axis, Block, Cell, Figure, Point, Series, Shape, Table, Text, number, words,
};

use super::{Source, count, each};
use crate::journal_conflict::{Graph, Outcome, Results, TYPES};

/// What is done about a conflict.
const CASES: [&str; 5] = ["joined", "frozen", "shadow", "copy", "logged"];
/// Threads of the tables.
const THREADS: u32 = 8;

/// All of it.
pub fn blocks(s: &Source<'_>, found: &Results) -> Vec<Block> {
    let mut out = Vec::new();
    for (n, o) in (2..).zip(&found.tables) {
        out.push(Block::Table(table(s, n, o)));
    }
    for (n, o) in (2..).zip(&found.tables) {
        out.push(Block::Figure(shares(s, n, o)));
    }
    out.push(Block::Table(cases(s, &found.tables)));
    for (n, g) in (1..).zip(&found.graphs) {
        let number = s.tw(words::GRAPH, &[&n.to_string()]);
        let mut f = graph(s, g, (format!("conflict-graph{n}"), number), words::CONFLICT_GRAPH);
        f.caption = s.t(words::CONFLICT_GRAPH_CAPTION);
        f.claims = vec![format!("graph{n}.")];
        if n == 2 {
            f.claims.push("ops_ratio".to_owned());
        }
        out.push(Block::Figure(f));
    }
    for (n, g) in (1..).zip(&found.graphs) {
        out.push(Block::Figure(per_op(s, g, n)));
    }
    for (n, g) in (1..).zip(&found.cure) {
        let place = (format!("conflict-cure{n}"), s.t(words::NEW));
        let mut f = graph(s, g, place, words::CONFLICT_CURE);
        f.caption = s.t(words::CONFLICT_CURE_CAPTION);
        out.push(Block::Figure(f));
    }
    for (n, g) in (1..).zip(&found.cure) {
        out.push(Block::Table(cure(s, g, n)));
    }
    out
}

fn table(s: &Source<'_>, n: u32, o: &Outcome) -> Table {
    let thread = s.t(words::CONFLICT_THREAD);
    let all = s.t(words::TOTAL);
    let mut heads = vec![thread.as_str()];
    heads.extend(TYPES);
    heads.push(&all);
    let number_text = s.tw(words::TABLE, &[&n.to_string()]);
    let threads = o.threads.to_string();
    let title = s.tw(words::CONFLICT_TABLE, &[&o.system, &s.name(&o.load), &threads]);
    let mut t = Table::new(&format!("conflict-table{n}"), number_text, title, &heads);
    let (all_of, operations) = (o.conflicts.total() as f64, o.operations as f64);
    let numbers = [all_of, operations, 100.0 * o.per_op(), o.ops_per_second].map(number);
    t.caption = s.tw(words::CONFLICT_TABLE_CAPTION, &numbers.each_ref().map(String::as_str));
    for (n, thread) in (1..).zip(&o.by_thread) {
        let mut row = vec![Cell::text(format!("T{n}"))];
        row.extend(thread.each().into_iter().chain([thread.total()]).map(count));
        t.rows.push(row);
    }
    let mut row = vec![Cell::text(all.clone()).class("sum")];
    let sums = TYPES.map(|k| o.conflicts.of_type(k)).into_iter();
    row.extend(sums.chain([o.conflicts.total()]).map(|n| count(n).class("sum")));
    t.rows.push(row);
    t.claims = ["per_op", "spread"].map(|k| format!("table{n}.{k}")).into();
    if n == 3 {
        t.claims.extend(["per_op_ratio", "G_ratio", "DB_ratio", "IT_ratio"].map(str::to_owned));
    }
    t
}

fn shares(s: &Source<'_>, n: u32, o: &Outcome) -> Figure {
    let all = o.conflicts.total() as f64;
    let points = TYPES.iter().enumerate().map(|(at, kind)| Point {
        range: s.claim(&format!("table{n}.{kind}")).and_then(|c| c.interval),
        note: number(o.conflicts.of_type(kind) as f64),
        ..Point::new(at as f64, o.conflicts.of_type(kind) as f64 / all)
    });
    let names = TYPES.map(str::to_owned).into();
    let mut f = Figure {
        id: format!("conflict-shares{n}"),
        number: s.tw(words::TABLE, &[&n.to_string()]),
        title: s.tw(words::CONFLICT_SHARES, &[&s.name(&o.load)]),
        caption: s.t(words::CONFLICT_SHARES_CAPTION),
        shape: Shape::Bars,
        x: Axis::named(s.t(words::CONFLICT_TYPE), names),
        y: Axis::linear(s.t(words::CONFLICT_SHARE), ""),
        series: vec![Series::new(s.t(words::OURS), 0, points.collect())],
        said_by: words::PAPER,
        marks: Vec::new(),
        claims: TYPES.map(|k| format!("table{n}.{k}")).into(),
    };
    for (at, kind) in TYPES.iter().enumerate() {
        f.marks.extend(s.mark(&format!("table{n}.{kind}"), Some(at as f64), Some(0), |v| v));
    }
    f
}

fn cases(s: &Source<'_>, tables: &[Outcome]) -> Table {
    let case = s.t(words::CONFLICT_CASE);
    let names: Vec<String> =
        (2..).zip(tables).map(|(n, _): (u32, _)| s.tw(words::TABLE, &[&n.to_string()])).collect();
    let mut heads = vec![case.as_str()];
    heads.extend(names.iter().map(String::as_str));
    let mut t = Table::new("conflict-cases", "§3".to_owned(), s.t(words::CONFLICT_CASES), &heads);
    t.caption = s.t(words::CONFLICT_CASES_CAPTION);
    for case in CASES {
        let mut row = vec![Cell::text(case).class("mono")];
        row.extend(tables.iter().map(|o| count(o.conflicts.of_case(case))));
        t.rows.push(row);
    }
    t
}

/// Something of each system over threads.
fn by_system(g: &Graph, keep: fn(&Outcome) -> bool, of: fn(&Outcome) -> f64) -> Vec<Series> {
    let points = &g.points;
    let systems = each(points.iter().map(|p| p.system.as_str())).into_iter().enumerate();
    systems
        .map(|(style, system)| {
            let of_it = points.iter().filter(|p| p.system == system && keep(p));
            let of_it = of_it.map(|p| Point::new(f64::from(p.threads), of(p)));
            Series::new(system, style, of_it.collect())
        })
        .filter(|s| !s.points.is_empty())
        .collect()
}

fn threads(s: &Source<'_>, g: &Graph) -> Axis {
    let mut all: Vec<f64> = g.points.iter().map(|p| f64::from(p.threads)).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    let places = all.into_iter().map(|n| (n, number(n))).collect();
    Axis::log(s.t(words::CONFLICT_THREADS), "").at(places)
}

fn graph(s: &Source<'_>, g: &Graph, (id, number): (String, String), title: Text) -> Figure {
    Figure {
        id,
        number,
        title: s.tw(title, &[&s.name(g.load.name())]),
        caption: String::new(),
        shape: Shape::Lines,
        x: threads(s, g),
        y: Axis::linear(s.t(words::CONFLICT_OPS), "").switched(),
        series: by_system(g, |_| true, |p| p.ops_per_second),
        said_by: words::PAPER,
        marks: Vec::new(),
        claims: Vec::new(),
    }
}

fn per_op(s: &Source<'_>, g: &Graph, n: u32) -> Figure {
    let number = s.t(words::BESIDE);
    let place = (format!("conflict-per-op{n}"), number);
    let mut f = graph(s, g, place, words::CONFLICT_PER_OP_GRAPH);
    f.caption = s.t(words::CONFLICT_PER_OP_CAPTION);
    f.y = Axis::linear(s.t(words::CONFLICT_PER_OP), "");
    f.series = by_system(g, |p| p.conflicts.total() > 0, Outcome::per_op);
    f
}

/// What each part of the cure does.
fn cure(s: &Source<'_>, g: &Graph, n: u32) -> Table {
    let texts = [
        words::CONFLICT_SYSTEM,
        words::CONFLICT_OPS,
        words::CONFLICT_PER_OP,
        words::CONFLICT_SLOT,
        words::CONFLICT_SHADOW,
        words::CONFLICT_DELAYED,
        words::CONFLICT_FSYNCS,
        words::CONFLICT_COALESCED,
        words::CONFLICT_FLUSHES,
    ]
    .map(|h| s.t(h));
    let heads: Vec<&str> = texts.iter().map(String::as_str).collect();
    let title = s.tw(words::CONFLICT_CURE_TABLE, &[&s.name(g.load.name())]);
    let mut t = Table::new(&format!("conflict-cure-table{n}"), s.t(words::NEW), title, &heads);
    for o in g.points.iter().filter(|o| o.threads == THREADS) {
        let counter = |key: &str| o.counter(key) as f64;
        let (commits, fsyncs) = (counter("commits").max(1.0), o.fsyncs as f64);
        let cells = [
            o.ops_per_second,
            o.per_op(),
            o.conflicts.of_case("slot") as f64,
            o.conflicts.of_case("shadow") as f64,
            100.0 * counter("delayed_commits") / commits,
            fsyncs / commits,
            counter("coalesced"),
            counter("journal_flushes") / fsyncs.max(1.0),
        ];
        let cells = cells.map(|v| Cell::number(number(v)));
        t.rows.push([vec![Cell::text(&o.system)], cells.into()].concat());
    }
    t
}
