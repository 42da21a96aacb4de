//! Paper direct-io: figures 1 and 2, ratios, who moves blocks, what a crash leaves.

use serde_json::Value;
use wp_report::page::{
    Axis, Block, Cell, Figure, Point, Series, Shape, Table, Text, number, words,
};

use super::{Source, bytes, each, list, num, word};

/// All of it.
pub fn blocks(s: &Source<'_>) -> Vec<Block> {
    let mut out = Vec::new();
    for (n, g) in list(&s.doc["graphs"]).iter().enumerate() {
        let Some(which) = Which::of(&g["figure"]) else { continue };
        out.push(Block::Figure(graph(s, g, which, n)));
        out.push(Block::Figure(ratios(s, g, which, n)));
    }
    out.push(Block::Table(mechanisms(s)));
    out.push(Block::Figure(states(s, false)));
    out.push(Block::Figure(states(s, true)));
    out.push(Block::Table(cuts(s)));
    if let Some(note) = s.doc["notes"][0].as_str() {
        out.push(Block::Note(s.tw(words::DIRECT_NOTED, &[&s.remark(note).text])));
    }
    out
}

/// A figure of the paper, or another reading of one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Fresh,
    Filled,
    Random,
}

impl Which {
    fn of(v: &Value) -> Option<Which> {
        match (v.as_str(), v["Sequential"].as_str()) {
            (Some("Random"), _) => Some(Which::Random),
            (_, Some("Fresh")) => Some(Which::Fresh),
            (_, Some("Filled")) => Some(Which::Filled),
            _ => None,
        }
    }

    fn number(self, s: &Source<'_>) -> String {
        s.tw(words::FIGURE, &[if self == Which::Random { "2" } else { "1" }])
    }

    fn title(self, s: &Source<'_>) -> String {
        let of = |t: Text| format!("{}, {}", s.t(words::DIRECT_SEQUENTIAL), s.t(t));
        match self {
            Which::Fresh => of(words::DIRECT_FRESH),
            Which::Filled => of(words::DIRECT_FILLED),
            Which::Random => s.t(words::DIRECT_RANDOM),
        }
    }

    /// What is shown of a run.
    fn shown(self, run: &Value) -> f64 {
        num(&run[if self == Which::Random { "iops" } else { "mib_per_s" }])
    }

    /// Of a point: mean, lowest, highest.
    fn of_point(self, p: &Value) -> [f64; 3] {
        let all: Vec<f64> = list(&p["runs"]).iter().map(|r| self.shown(r)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let low = all.iter().copied().fold(f64::INFINITY, f64::min);
        [mean, low, all.iter().copied().fold(0.0, f64::max)]
    }
}

/// Name, colour and id in claims of a system.
fn system(s: &Source<'_>, raw: &str) -> (String, usize, &'static str) {
    match raw {
        "F2fs" => ("F2FS".to_owned(), 0, "f2fs"),
        "Ext4" => ("EXT4".to_owned(), 1, "ext4"),
        "Btrfs" => ("BTRFS".to_owned(), 2, "btrfs"),
        "Nilfs2" => ("NILFS2".to_owned(), 3, "nilfs2"),
        "F2fsLog" => (s.t(words::DIRECT_TO_LOGS), 4, ""),
        other => (other.to_owned(), 5, ""),
    }
}

fn sizes(s: &Source<'_>, g: &Value) -> Axis {
    let mut all: Vec<f64> = list(&g["points"]).iter().map(|p| num(&p["record_bytes"])).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    let short = |n: f64| bytes(n).replace(" KiB", "K").replace(" MiB", "M");
    let places = all.into_iter().map(|n| (n, short(n))).collect();
    Axis::log(s.t(words::DIRECT_RECORD), "").at(places)
}

fn graph(s: &Source<'_>, g: &Value, which: Which, n: usize) -> Figure {
    let points = list(&g["points"]);
    let series = each(points, "system").into_iter().map(|raw| {
        let (name, style, _) = system(s, raw);
        let of = points.iter().filter(|p| word(&p["system"]) == raw).map(|p| {
            let [mean, low, high] = which.of_point(p);
            let range = (low < high).then_some([low, high]);
            Point { range, ..Point::new(num(&p["record_bytes"]), mean) }
        });
        Series::new(name, style, of.collect())
    });
    let runs = points.first().map_or(0, |p| list(&p["runs"]).len());
    let (y, unit) = match which {
        Which::Random => (words::DIRECT_IOPS, ""),
        _ => (words::DIRECT_THROUGHPUT, "MiB/s"),
    };
    let claims = if which == Which::Random { "fig2.f2fs_best" } else { "fig1.f2fs_best_small" };
    let more = if which == Which::Random { "" } else { "fig1.ext4_best_large" };
    let mut f = Figure {
        id: format!("direct-graph-{n}"),
        number: which.number(s),
        title: which.title(s),
        caption: s.tw(words::DIRECT_CAPTION, &[&runs.to_string()]),
        shape: Shape::Lines,
        x: sizes(s, g),
        y: Axis { label: s.t(y), ..Axis::log("", unit) }.switched(),
        series: series.collect(),
        said_by: words::PAPER,
        marks: Vec::new(),
        claims: Vec::new(),
    };
    if which == Which::Fresh {
        let at = f.series.iter().position(|s| s.name == "BTRFS");
        f.marks.extend(s.mark("fig1.btrfs_1m", Some(f64::from(1 << 20)), at, |v| v));
        f.claims.push("fig1.btrfs_1m".to_owned());
    }
    if which != Which::Filled {
        f.claims.extend([claims, more].into_iter().filter(|c| !c.is_empty()).map(str::to_owned));
    }
    f
}

fn ratios(s: &Source<'_>, g: &Value, which: Which, n: usize) -> Figure {
    let points = list(&g["points"]);
    let of = |raw: &str, bytes: &Value| {
        let is_it = |p: &&Value| word(&p["system"]) == raw && p["record_bytes"] == *bytes;
        points.iter().find(is_it).map_or(f64::NAN, |p| which.of_point(p)[0])
    };
    let prefix = if which == Which::Random { "fig2" } else { "fig1" };
    let (mut series, mut marks, mut claims) = (Vec::new(), Vec::new(), Vec::new());
    for raw in each(points, "system").into_iter().filter(|raw| *raw != "F2fs") {
        let (name, style, key) = system(s, raw);
        let over = points.iter().filter(|p| word(&p["system"]) == raw).map(|p| {
            let at = &p["record_bytes"];
            Point::new(num(at), of(raw, at) / of("F2fs", at))
        });
        let over: Vec<Point> = over.collect();
        let mean = over.iter().map(|p| p.y).sum::<f64>() / over.len().max(1) as f64;
        let note = s.tw(words::DIRECT_MEAN_IS, &[&number(mean)]);
        let over = over.into_iter().map(|p| Point { note: note.clone(), ..p }).collect();
        let id = format!("{prefix}.{key}");
        if which != Which::Filled {
            marks.extend(s.mark(&id, None, Some(series.len()), |v| v));
            if s.claim(&id).is_some() {
                claims.push(id);
            }
        }
        series.push(Series::new(format!("{name} ({})", number(mean)), style, over));
    }
    Figure {
        id: format!("direct-ratio-{n}"),
        number: which.number(s),
        title: s.tw(words::DIRECT_RATIO, &[&which.title(s)]),
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
fn sent(s: &Source<'_>, v: &Value, with_data: bool) -> String {
    let classes = v["by_class"].as_object().into_iter().flatten();
    let mut parts: Vec<String> = classes
        .filter(|(class, _)| with_data || *class != "data")
        .map(|(class, n)| format!("{} {}", n, s.name(class)))
        .collect();
    match v["flushes"].as_u64() {
        Some(n) if n > 0 => parts.push(format!("{n} {}", s.name("flush"))),
        _ => {}
    }
    if parts.is_empty() { "—".to_owned() } else { parts.join(", ") }
}

fn case_name(s: &Source<'_>, case: &Value) -> String {
    let text = match (case["extends"] == true, case["at_random"] == true) {
        (true, _) => words::DIRECT_EXTENSION,
        (false, true) => words::DIRECT_OVERWRITE_RANDOM,
        (false, false) => words::DIRECT_OVERWRITE,
    };
    s.tw(text, &[&bytes(num(&case["bytes"]))])
}

fn mechanisms(s: &Source<'_>) -> Table {
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
    let all = list(&s.doc["mechanisms"]);
    let mut cases: Vec<&Value> = Vec::new();
    for m in all {
        if !cases.contains(&&m["case"]) {
            cases.push(&m["case"]);
        }
    }
    let percent =
        |v: f64| if v.is_nan() { "—".to_owned() } else { format!("{} %", number(v * 100.0)) };
    for case in cases {
        let mut name = case_name(s, case);
        for m in all.iter().filter(|m| m["case"] == *case) {
            let w = &m["writes"];
            let bios = num(&w["bios"]);
            t.rows.push(vec![
                Cell::text(std::mem::take(&mut name)),
                Cell::text(word(&m["system"])),
                Cell::number(percent(num(&m["moved"]))),
                Cell::number(number(bios / num(&case["writes"]))),
                Cell::number(percent(num(&w["next"]) / bios.max(1.0))),
                Cell::text(sent(s, w, false)),
                Cell::text(sent(s, &m["fdatasync"], true)),
                Cell::text(sent(s, &m["fsync"], true)),
            ]);
        }
    }
    t
}

fn states(s: &Source<'_>, is_synced: bool) -> Figure {
    let rows: Vec<&Value> =
        list(&s.doc["cuts"]).iter().filter(|r| r["synced"] == is_synced).collect();
    let names = rows.iter().map(|r| word(&r["system"]).to_owned()).collect();
    let keys = [
        ("all", words::DIRECT_ALL, 0),
        ("some", words::DIRECT_SOME, 4),
        ("none", words::DIRECT_NONE, 7),
    ];
    let series = keys.map(|(key, text, style)| {
        let points = rows.iter().enumerate().map(|(n, r)| Point {
            note: number(num(&r[key])),
            ..Point::new(n as f64, num(&r[key]) / num(&r["states"]))
        });
        Series::new(s.t(text), style, points.collect())
    });
    let title = s.t(words::DIRECT_CUTS);
    Figure {
        id: format!("direct-cuts-{}", if is_synced { "fsync" } else { "plain" }),
        number: s.t(words::NEW),
        title: if is_synced { s.tw(words::DIRECT_WITH_FSYNC, &[&title]) } else { title },
        caption: s.t(words::DIRECT_CUTS_CAPTION),
        shape: Shape::Stack,
        x: Axis::named("", names),
        y: Axis::linear(s.t(words::DIRECT_SHARE_OF_STATES), ""),
        series: series.into(),
        said_by: words::PAPER,
        marks: Vec::new(),
        claims: Vec::new(),
    }
}

fn cuts(s: &Source<'_>) -> Table {
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
    for r in list(&s.doc["cuts"]) {
        let system = word(&r["system"]);
        let name = match r["synced"] == true {
            true => s.tw(words::DIRECT_WITH_FSYNC, &[system]),
            false => system.to_owned(),
        };
        let keys = [
            "states",
            "all",
            "some",
            "none",
            "torn",
            "out_of_order",
            "lost_synced",
            "foreign",
            "refused",
            "most_lost",
        ];
        let cells = keys.map(|k| Cell::number(number(num(&r[k]))));
        t.rows.push([vec![Cell::text(name)], cells.into()].concat());
    }
    t
}
