//! Paper direct-io: figures 1 and 2, ratios, who moves blocks, what a crash leaves.

use wp_report::page::{
    Axis, Block, Cell, Figure, Point, Series, Shape, Table, Text, number, words,
};

use super::{Source, bytes, count, each};
use crate::direct_io::{
    Case, Figure as Which, Graph, Left, Mechanism, Point as Measured, Reading, Results, Sent,
    System,
};

/// All of it.
pub fn blocks(s: &Source<'_>, found: &Results) -> Vec<Block> {
    let mut out = Vec::new();
    for (n, g) in found.graphs.iter().enumerate() {
        out.push(Block::Figure(graph(s, g, n)));
        out.push(Block::Figure(ratios(s, g, n)));
    }
    out.push(Block::Table(mechanisms(s, &found.mechanisms)));
    out.push(Block::Figure(states(s, &found.cuts, false)));
    out.push(Block::Figure(states(s, &found.cuts, true)));
    out.push(Block::Table(cuts(s, &found.cuts)));
    if let Some(note) = found.notes.first() {
        out.push(Block::Note(s.tw(words::DIRECT_NOTED, &[&s.remark(note).text])));
    }
    out
}

/// What the paper calls a figure.
fn figure_number(s: &Source<'_>, which: Which) -> String {
    s.tw(words::FIGURE, &[if which == Which::Random { "2" } else { "1" }])
}

fn figure_title(s: &Source<'_>, which: Which) -> String {
    let of = |t: Text| format!("{}, {}", s.t(words::DIRECT_SEQUENTIAL), s.t(t));
    match which {
        Which::Sequential(Reading::Fresh) => of(words::DIRECT_FRESH),
        Which::Sequential(Reading::Filled) => of(words::DIRECT_FILLED),
        Which::Random => s.t(words::DIRECT_RANDOM),
    }
}

/// Of a point: mean, lowest, highest.
fn of_point(which: Which, p: &Measured) -> [f64; 3] {
    let all: Vec<f64> = p.runs.iter().map(|run| Measured::shown(which, run)).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    [mean, low, all.iter().copied().fold(0.0, f64::max)]
}

/// Name, colour and id in claims of a system.
fn system(s: &Source<'_>, system: System) -> (String, usize, &'static str) {
    match system {
        System::F2fs => ("F2FS".to_owned(), 0, "f2fs"),
        System::Ext4 => ("EXT4".to_owned(), 1, "ext4"),
        System::Btrfs => ("BTRFS".to_owned(), 2, "btrfs"),
        System::Nilfs2 => ("NILFS2".to_owned(), 3, "nilfs2"),
        System::F2fsLog => (s.t(words::DIRECT_TO_LOGS), 4, ""),
        other => (other.name().to_owned(), 5, ""),
    }
}

fn sizes(s: &Source<'_>, g: &Graph) -> Axis {
    let mut all: Vec<u64> = g.points.iter().map(|p| p.record_bytes).collect();
    all.sort_unstable();
    all.dedup();
    let short = |n: u64| bytes(n).replace(" KiB", "K").replace(" MiB", "M");
    let places = all.into_iter().map(|n| (n as f64, short(n))).collect();
    Axis::log(s.t(words::DIRECT_RECORD), "").at(places)
}

fn graph(s: &Source<'_>, g: &Graph, n: usize) -> Figure {
    let (points, which) = (&g.points, g.figure);
    let series = each(points.iter().map(|p| p.system)).into_iter().map(|of| {
        let (name, style, _) = system(s, of);
        let of = points.iter().filter(|p| p.system == of).map(|p| {
            let [mean, low, high] = of_point(which, p);
            let range = (low < high).then_some([low, high]);
            Point { range, ..Point::new(p.record_bytes as f64, mean) }
        });
        Series::new(name, style, of.collect())
    });
    let runs = points.first().map_or(0, |p| p.runs.len());
    let (y, unit) = match which {
        Which::Random => (words::DIRECT_IOPS, ""),
        _ => (words::DIRECT_THROUGHPUT, "MiB/s"),
    };
    let claims = if which == Which::Random { "fig2.f2fs_best" } else { "fig1.f2fs_best_small" };
    let more = if which == Which::Random { "" } else { "fig1.ext4_best_large" };
    let mut f = Figure {
        id: format!("direct-graph-{n}"),
        number: figure_number(s, which),
        title: figure_title(s, which),
        caption: s.tw(words::DIRECT_CAPTION, &[&runs.to_string()]),
        shape: Shape::Lines,
        x: sizes(s, g),
        y: Axis { label: s.t(y), ..Axis::log("", unit) }.switched(),
        series: series.collect(),
        said_by: words::PAPER,
        marks: Vec::new(),
        claims: Vec::new(),
    };
    if which == Which::Sequential(Reading::Fresh) {
        let at = f.series.iter().position(|s| s.name == "BTRFS");
        f.marks.extend(s.mark("fig1.btrfs_1m", Some(f64::from(1 << 20)), at, |v| v));
        f.claims.push("fig1.btrfs_1m".to_owned());
    }
    if which != Which::Sequential(Reading::Filled) {
        f.claims.extend([claims, more].into_iter().filter(|c| !c.is_empty()).map(str::to_owned));
    }
    f
}

fn ratios(s: &Source<'_>, g: &Graph, n: usize) -> Figure {
    let (points, which) = (&g.points, g.figure);
    let of = |system, bytes| g.of(system, bytes).unwrap_or(f64::NAN);
    let prefix = if which == Which::Random { "fig2" } else { "fig1" };
    let (mut series, mut marks, mut claims) = (Vec::new(), Vec::new(), Vec::new());
    let others = each(points.iter().map(|p| p.system)).into_iter();
    for raw in others.filter(|system| *system != System::F2fs) {
        let (name, style, key) = system(s, raw);
        let over = points.iter().filter(|p| p.system == raw).map(|p| {
            let at = p.record_bytes;
            Point::new(at as f64, of(raw, at) / of(System::F2fs, at))
        });
        let over: Vec<Point> = over.collect();
        let mean = over.iter().map(|p| p.y).sum::<f64>() / over.len().max(1) as f64;
        let note = s.tw(words::DIRECT_MEAN_IS, &[&number(mean)]);
        let over = over.into_iter().map(|p| Point { note: note.clone(), ..p }).collect();
        let id = format!("{prefix}.{key}");
        if which != Which::Sequential(Reading::Filled) {
            marks.extend(s.mark(&id, None, Some(series.len()), |v| v));
            if s.claim(&id).is_some() {
                claims.push(id);
            }
        }
        series.push(Series::new(format!("{name} ({})", number(mean)), style, over));
    }
    Figure {
        id: format!("direct-ratio-{n}"),
        number: figure_number(s, which),
        title: s.tw(words::DIRECT_RATIO, &[&figure_title(s, which)]),
        caption: s.t(words::DIRECT_RATIO_CAPTION),
        shape: Shape::Lines,
        x: sizes(s, g),
        y: Axis::linear(s.t(words::DIRECT_OVER_F2FS), ""),
        series,
        said_by: words::PAPER,
        marks,
        claims,
    }
}

/// What was sent, in words.
fn sent(s: &Source<'_>, sent: &Sent, with_data: bool) -> String {
    let mut parts: Vec<String> = sent
        .by_class
        .iter()
        .filter(|(class, _)| with_data || *class != "data")
        .map(|(class, n)| format!("{n} {}", s.name(class)))
        .collect();
    if sent.flushes > 0 {
        parts.push(format!("{} {}", sent.flushes, s.name("flush")));
    }
    if parts.is_empty() { "—".to_owned() } else { parts.join(", ") }
}

fn case_name(s: &Source<'_>, case: Case) -> String {
    let text = match (case.extends, case.at_random) {
        (true, _) => words::DIRECT_EXTENSION,
        (false, true) => words::DIRECT_OVERWRITE_RANDOM,
        (false, false) => words::DIRECT_OVERWRITE,
    };
    s.tw(text, &[&bytes(case.bytes)])
}

fn mechanisms(s: &Source<'_>, all: &[Mechanism]) -> Table {
    let texts = [
        words::EXT4_CASE,
        words::DIRECT_SYSTEM,
        words::DIRECT_MOVED,
        words::DIRECT_BIOS,
        words::DIRECT_IN_ORDER,
        words::DIRECT_BESIDE,
        words::DIRECT_SYNC,
        words::DIRECT_FSYNC,
    ]
    .map(|h| s.t(h));
    let heads: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut t =
        Table::new("direct-mechanisms", s.t(words::DIRECT_NUMBER), s.t(words::DIRECT_MECH), &heads);
    t.caption = s.t(words::DIRECT_MECH_CAPTION);
    t.claims = vec!["mechanism.".to_owned()];
    let percent = |v: f64| format!("{} %", number(v * 100.0));
    for case in each(all.iter().map(|m| m.case)) {
        let mut name = case_name(s, case);
        for m in all.iter().filter(|m| m.case == case) {
            let bios = m.writes.bios as f64;
            t.rows.push(vec![
                Cell::text(std::mem::take(&mut name)),
                Cell::text(&m.system),
                Cell::number(m.moved.map_or("—".to_owned(), percent)),
                Cell::number(number(bios / case.writes as f64)),
                Cell::number(percent(m.writes.next as f64 / bios.max(1.0))),
                Cell::text(sent(s, &m.writes, false)),
                Cell::text(sent(s, &m.fdatasync, true)),
                Cell::text(sent(s, &m.fsync, true)),
            ]);
        }
    }
    t
}

fn states(s: &Source<'_>, cuts: &[Left], is_synced: bool) -> Figure {
    let rows: Vec<&Left> = cuts.iter().filter(|r| r.synced == is_synced).collect();
    let names = rows.iter().map(|r| r.system.clone()).collect();
    let kind = |text, style, of: fn(&Left) -> u64| {
        let points = rows.iter().enumerate().map(|(n, r)| Point {
            note: number(of(r) as f64),
            ..Point::new(n as f64, of(r) as f64 / r.states as f64)
        });
        Series::new(s.t(text), style, points.collect())
    };
    let series = vec![
        kind(words::DIRECT_ALL, 0, |r| r.all),
        kind(words::DIRECT_SOME, 4, |r| r.some),
        kind(words::DIRECT_NONE, 7, |r| r.none),
    ];
    let title = s.t(words::DIRECT_CUTS);
    Figure {
        id: format!("direct-cuts-{}", if is_synced { "fsync" } else { "plain" }),
        number: s.t(words::NEW),
        title: if is_synced { s.tw(words::DIRECT_WITH_FSYNC, &[&title]) } else { title },
        caption: s.t(words::DIRECT_CUTS_CAPTION),
        shape: Shape::Stack,
        x: Axis::named("", names),
        y: Axis::linear(s.t(words::DIRECT_SHARE_OF_STATES), ""),
        series,
        said_by: words::PAPER,
        marks: Vec::new(),
        claims: Vec::new(),
    }
}

fn cuts(s: &Source<'_>, rows: &[Left]) -> Table {
    let texts = [
        words::DIRECT_SYSTEM,
        words::DIRECT_STATES,
        words::DIRECT_ALL,
        words::DIRECT_SOME,
        words::DIRECT_NONE,
        words::DIRECT_TORN,
        words::DIRECT_ORDER,
        words::DIRECT_SYNCED,
        words::DIRECT_FOREIGN,
        words::DIRECT_REFUSED,
        words::DIRECT_MOST,
    ]
    .map(|h| s.t(h));
    let heads: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut t = Table::new("direct-cuts", s.t(words::NEW), s.t(words::DIRECT_CUTS), &heads);
    t.caption = s.t(words::DIRECT_CUTS_TABLE_CAPTION);
    for r in rows {
        let name = match r.synced {
            true => s.tw(words::DIRECT_WITH_FSYNC, &[&r.system]),
            false => r.system.clone(),
        };
        let counts = [
            r.states,
            r.all,
            r.some,
            r.none,
            r.torn,
            r.out_of_order,
            r.lost_synced,
            r.foreign,
            r.refused,
            r.most_lost,
        ];
        t.rows.push([vec![Cell::text(name)], counts.map(count).into()].concat());
    }
    t
}
