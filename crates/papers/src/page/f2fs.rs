//! Paper f2fs-oprw: table 3.1, figures 6.1 to 6.3, tables 6.2 and 6.3, the region of table 6.2.

use serde_json::Value;
use wp_report::page::{
    Axis, Block, Cell, Figure, Point, Series, Shape, Table, Text, number, words,
};

use super::{Source, f2fs_flows, list, num, pair, word};

/// All of it.
pub fn blocks(s: &Source<'_>) -> Vec<Block> {
    let mut out = f2fs_flows::blocks(s);
    out.push(Block::Figure(stages(s)));
    out.push(Block::Figure(figure_61a(s)));
    out.push(Block::Figure(ratios_61a(s)));
    out.push(Block::Figure(figure_61b(s)));
    out.push(Block::Figure(gain_61b(s)));
    out.push(Block::Figure(figure_62(s)));
    out.push(Block::Table(rates_62(s)));
    out.push(Block::Figure(figure_63(s)));
    out.push(Block::Figure(gain_63(s)));
    out.push(Block::Table(table_62(s)));
    out.extend(surface(s));
    out.push(Block::Figure(figure_t63(s)));
    out.push(Block::Table(table_63(s)));
    out
}

fn figure(
    s: &Source<'_>,
    (id, number): (&str, String),
    (title, caption): (Text, Text),
    (x, y): (Axis, Axis),
    series: Vec<Series>,
) -> Figure {
    Figure {
        id: format!("f2fs-{id}"),
        number,
        title: s.t(title),
        caption: s.t(caption),
        shape: Shape::Lines,
        x,
        y,
        series,
        said_by: words::PAPER,
        marks: Vec::new(),
        claims: Vec::new(),
    }
}

/// Table 3.1, as bars: ours beside the paper's.
fn stages(s: &Source<'_>) -> Figure {
    let all = [
        ("prepare_data", "prepare_data", words::F2FS_PREPARE_DATA),
        ("wait_data", "wait_dma_data", words::F2FS_WAIT_DATA),
        ("prepare_node", "prepare_node", words::F2FS_PREPARE_NODE),
        ("wait_node", "wait_dma_node", words::F2FS_WAIT_NODE),
        ("flush", "flush", words::F2FS_FLUSH),
        ("other", "other", words::F2FS_OTHER),
    ];
    let names = all.iter().map(|(_, _, text)| s.t(*text)).collect();
    let table = &s.doc["table_3_1_us"];
    let points = |table: &Value| -> Vec<Point> {
        let at =
            |(n, (key, _, _)): (usize, &(&str, &str, Text))| Point::new(n as f64, num(&table[key]));
        all.iter().enumerate().map(at).collect()
    };
    let series = if table.is_object() {
        vec![Series::new(s.t(words::OURS), 0, points(table))]
    } else {
        Vec::new()
    };
    let axes = (Axis::named("", names), Axis::linear(s.t(words::F2FS_TIME), "µs"));
    let number = s.tw(words::TABLE, &["3.1"]);
    let texts = (words::F2FS_STAGES, words::F2FS_STAGES_CAPTION);
    let mut f = figure(s, ("table3.1", number), texts, axes, series);
    f.shape = Shape::Bars;
    for (n, (_, id, _)) in all.iter().enumerate() {
        f.marks.extend(s.mark(&format!("table3.1.{id}"), Some(n as f64), Some(0), |v| v));
    }
    f.claims = vec!["table3.1.".to_owned()];
    f
}

/// Sizes of requests, each with its name.
fn sizes(s: &Source<'_>) -> Axis {
    let all = list(&s.doc["figure_6_1_ns"]).iter().map(|p| num(&p["kib"]));
    let places = all.map(|kib| (kib, format!("{kib} KiB"))).collect();
    Axis::log(s.t(words::F2FS_SIZE), "").at(places)
}

/// Something of each size.
fn by_size(s: &Source<'_>, of: impl Fn(&Value) -> f64) -> Vec<Point> {
    list(&s.doc["figure_6_1_ns"]).iter().map(|p| Point::new(num(&p["kib"]), of(p))).collect()
}

fn rate(key: &'static str) -> impl Fn(&Value) -> f64 {
    move |p| 1e9 / num(&p[key])
}

fn figure_61a(s: &Source<'_>) -> Figure {
    let series = vec![
        Series::new("posix", 0, by_size(s, rate("posix"))),
        Series::new("strict_fixed", 1, by_size(s, rate("strict"))),
        Series::new("OPRW posix", 2, by_size(s, rate("oprw"))),
    ];
    let axes = (sizes(s), Axis::linear(s.t(words::F2FS_RATE), "").switched());
    let number = s.tw(words::FIGURE, &["6.1a"]);
    figure(s, ("fig6.1a", number), (words::F2FS_61A, words::F2FS_61A_CAPTION), axes, series)
}

fn ratios_61a(s: &Source<'_>) -> Figure {
    let over = |key: &'static str| move |p: &Value| num(&p["posix"]) / num(&p[key]);
    let series = vec![
        Series::new("strict_fixed", 1, by_size(s, over("strict"))),
        Series::new("OPRW posix", 2, by_size(s, over("oprw"))),
    ];
    let axes = (sizes(s), Axis::linear(s.t(words::F2FS_OVER_POSIX), ""));
    let number = s.tw(words::FIGURE, &["6.1a"]);
    let texts = (words::F2FS_61A_RATIO, words::F2FS_61A_RATIO_CAPTION);
    let mut f = figure(s, ("fig6.1a-ratio", number), texts, axes, series);
    f.marks.extend(s.mark("fig6.1a.strict_over_posix", None, Some(0), |v| v));
    f.marks.extend(s.mark("fig6.1a.oprw_over_posix", None, Some(1), |v| v));
    f.claims = vec!["fig6.1a.".to_owned()];
    f
}

fn figure_61b(s: &Source<'_>) -> Figure {
    let series = vec![
        Series::new("nobarrier", 0, by_size(s, rate("nobarrier"))),
        Series::new("OPRW nobarrier", 2, by_size(s, rate("oprw_nobarrier"))),
    ];
    let axes = (sizes(s), Axis::linear(s.t(words::F2FS_RATE), "").switched());
    let number = s.tw(words::FIGURE, &["6.1b"]);
    figure(s, ("fig6.1b", number), (words::F2FS_61B, words::F2FS_61B_CAPTION), axes, series)
}

fn gain_61b(s: &Source<'_>) -> Figure {
    let gain = |p: &Value| num(&p["nobarrier"]) / num(&p["oprw_nobarrier"]);
    let series = vec![Series::new("OPRW nobarrier", 2, by_size(s, gain))];
    let axes = (sizes(s), Axis::linear(s.t(words::F2FS_OVER_F2FS), ""));
    let number = s.tw(words::FIGURE, &["6.1b"]);
    let texts = (words::F2FS_61B_GAIN, words::F2FS_61B_GAIN_CAPTION);
    let mut f = figure(s, ("fig6.1b-gain", number), texts, axes, series);
    f.marks.extend(s.mark("fig6.1b.min", None, None, |v| v));
    f.marks.extend(s.mark("fig6.1b.max", None, None, |v| v));
    f.claims = vec!["fig6.1b.".to_owned()];
    f
}

/// What figure 6.2 is made of: name, rates, claim.
fn macros<'a>(s: &Source<'a>) -> Vec<(&'static str, &'a Value, &'static str)> {
    let (two, more) = (&s.doc["figure_6_2"], &s.doc["figure_6_2_others"]);
    let all = [
        ("varmail, PLP", &two["varmail"], "fig6.2b.varmail"),
        ("OLTP, PLP", &two["oltp"], "fig6.2b.oltp"),
        ("OLTP binlog, PLP", &more["oltp_binlog"], ""),
        ("varmail, no PLP", &more["varmail_no_plp"], ""),
        ("OLTP, no PLP", &more["oltp_no_plp"], ""),
    ];
    all.into_iter().filter(|(_, v, _)| v["f2fs"].is_number()).collect()
}

fn gain(rates: &Value) -> f64 {
    num(&rates["oprw"]) / num(&rates["f2fs"])
}

fn figure_62(s: &Source<'_>) -> Figure {
    let all = macros(s);
    let names = all.iter().map(|(name, _, _)| (*name).to_owned()).collect();
    let point = |(n, (_, rates, id)): (usize, &(&str, &Value, &str))| Point {
        range: s.claim(id).and_then(|c| c.interval),
        ..Point::new(n as f64, gain(rates))
    };
    let series = vec![Series::new("OPRW / F2FS", 2, all.iter().enumerate().map(point).collect())];
    let axes = (Axis::named("", names), Axis::linear(s.t(words::F2FS_OVER_F2FS), ""));
    let number = s.tw(words::FIGURE, &["6.2"]);
    let mut f =
        figure(s, ("fig6.2", number), (words::F2FS_62, words::F2FS_62_CAPTION), axes, series);
    f.shape = Shape::Bars;
    for (n, (_, _, id)) in all.iter().enumerate() {
        f.marks.extend(s.mark(id, Some(n as f64), Some(0), |v| v));
    }
    f.claims = vec!["fig6.2b.".to_owned()];
    f
}

fn rates_62(s: &Source<'_>) -> Table {
    let texts = [s.t(words::F2FS_WORKLOAD), s.t(words::F2FS_GAIN)];
    let number_text = s.tw(words::FIGURE, &["6.2"]);
    let heads = [texts[0].as_str(), "F2FS", "OPRW", &texts[1]];
    let mut t = Table::new("f2fs-fig6.2-rates", number_text, s.t(words::F2FS_62_RATES), &heads);
    for (name, rates, _) in macros(s) {
        let cells = [num(&rates["f2fs"]), num(&rates["oprw"]), gain(rates)];
        let cells = cells.map(|v| Cell::number(number(v)));
        t.rows.push([vec![Cell::text(name)], cells.into()].concat());
    }
    t
}

fn by_threads(s: &Source<'_>, of: impl Fn(&Value) -> f64) -> Vec<Point> {
    let all = list(&s.doc["figure_6_3"]).iter();
    all.map(|p| Point::new(num(&p["threads"]), of(&p["rates"]))).collect()
}

fn threads(s: &Source<'_>) -> Axis {
    let all = list(&s.doc["figure_6_3"]).iter().map(|p| num(&p["threads"]));
    Axis::log(s.t(words::F2FS_THREADS), "").at(all.map(|n| (n, number(n))).collect())
}

fn figure_63(s: &Source<'_>) -> Figure {
    let series = vec![
        Series::new("F2FS", 0, by_threads(s, |r| num(&r["f2fs"]))),
        Series::new("OPRW", 2, by_threads(s, |r| num(&r["oprw"]))),
    ];
    let axes = (threads(s), Axis::linear(s.t(words::F2FS_OPS), "").switched());
    let number = s.tw(words::FIGURE, &["6.3"]);
    figure(s, ("fig6.3", number), (words::F2FS_63, words::F2FS_63_CAPTION), axes, series)
}

fn gain_63(s: &Source<'_>) -> Figure {
    let series = vec![Series::new("OPRW / F2FS", 2, by_threads(s, gain))];
    let axes = (threads(s), Axis::linear(s.t(words::F2FS_OVER_F2FS), ""));
    let number = s.tw(words::FIGURE, &["6.3"]);
    let texts = (words::F2FS_63_GAIN, words::F2FS_63_CAPTION);
    let mut f = figure(s, ("fig6.3-gain", number), texts, axes, series);
    f.claims = vec!["fig6.3.".to_owned()];
    f
}

fn table_62(s: &Source<'_>) -> Table {
    let texts = [
        words::F2FS_MODE,
        words::F2FS_SEEDS,
        words::F2FS_CUTS,
        words::EXT4_STATES,
        words::F2FS_RECOVERIES,
        words::F2FS_FAILED,
        words::F2FS_SHARE,
        words::F2FS_LOST,
        words::F2FS_MIXED,
        words::F2FS_REFUSED,
        words::F2FS_LEFT_OUT,
        words::F2FS_EXAMPLE,
    ]
    .map(|h| s.t(h));
    let heads: Vec<&str> = texts.iter().map(String::as_str).collect();
    let number_text = s.tw(words::TABLE, &["6.2"]);
    let mut t = Table::new("f2fs-table6.2", number_text, s.t(words::F2FS_T62), &heads);
    t.caption = s.t(words::F2FS_T62_CAPTION);
    t.claims = vec!["table6.2.".to_owned()];
    let shares = list(&s.doc["table_6_2_shares"]);
    for (n, r) in list(&s.doc["table_6_2"]).iter().enumerate() {
        let c = &r["counts"];
        let count = |key: &str| Cell::number(number(num(&c[key])));
        let mut row = vec![Cell::text(word(&r["name"])).class("mono")];
        row.extend(["runs", "cuts", "states", "recovered", "failed"].map(count));
        let share = shares.get(n).and_then(|v| Some((v["share"].as_f64()?, pair(&v["interval"])?)));
        let percent = |v: f64| number(v * 100.0);
        row.push(Cell::number(share.map_or(String::new(), |(v, [a, b])| {
            format!("{} [{}, {}]", percent(v), percent(a), percent(b))
        })));
        row.extend(["lost_sync", "mixed", "refused", "left_out"].map(count));
        row.push(Cell::text(word(&c["example"])).class("long"));
        t.rows.push(row);
    }
    t
}

/// One map a buffer size: dies down, periods across.
fn surface(s: &Source<'_>) -> Vec<Block> {
    let points = list(&s.doc["surface"]);
    let mut values: [Vec<u64>; 3] = Default::default();
    for (key, all) in ["buffer_mib", "period_us", "dies"].iter().zip(&mut values) {
        all.extend(points.iter().filter_map(|p| p[*key].as_u64()));
        all.sort_unstable();
        all.dedup();
    }
    let [buffers, periods, dies] = &values;
    let most = points.iter().map(|p| num(&p["rate"])).fold(1e-9, f64::max);
    let period = |p: &u64| match p {
        0 => s.t(words::F2FS_NO_PERIOD),
        n => s.tw(words::F2FS_PERIOD, &[&n.to_string()]),
    };
    let one = |buffer: &u64| {
        let mut heads = vec![s.t(words::F2FS_DIES)];
        heads.extend(periods.iter().map(period));
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let title = s.tw(words::F2FS_SURFACE, &[&buffer.to_string()]);
        let id = format!("f2fs-surface-{buffer}");
        let mut t = Table::new(&id, s.t(words::F2FS_SURFACE_NUMBER), title, &heads);
        t.caption = s.t(words::F2FS_SURFACE_CAPTION);
        t.claims = vec!["table6.2.region".to_owned()];
        for die in dies {
            let of = |period: &u64| {
                points.iter().find(|p| {
                    [&p["buffer_mib"], &p["period_us"], &p["dies"]].map(Value::as_u64)
                        == [Some(*buffer), Some(*period), Some(*die)]
                })
            };
            let any = periods.iter().find_map(of);
            let channels = any.map_or(f64::NAN, |p| num(&p["channels"]));
            let mut row = vec![Cell::text(format!("{die} ({})", number(channels)))];
            row.extend(periods.iter().map(|p| of(p).map_or_else(Cell::default, |p| heat(p, most))));
            t.rows.push(row);
        }
        Block::Table(t)
    };
    buffers.iter().map(one).collect()
}

fn heat(p: &Value, most: f64) -> Cell {
    let rate = num(&p["rate"]);
    let star = if p["as_paper"] == true { "★ " } else { "" };
    let percent = |v: f64| number(v * 100.0);
    let tip = pair(&p["interval"])
        .map_or(String::new(), |[a, b]| format!("[{}, {}] %", percent(a), percent(b)));
    Cell { heat: Some(rate / most), tip, ..Cell::number(format!("{star}{}", percent(rate))) }
}

fn figure_t63(s: &Source<'_>) -> Figure {
    let rows = list(&s.doc["table_6_3_ms"]);
    let at = |r: &Value| num(&r["nodes"]);
    // The claim whose number of nodes this run came nearest to.
    let id = |r: &Value| -> String {
        let of = |id: &str| id.strip_prefix("table6.3.n")?.parse::<f64>().ok();
        let all = s.claims.iter().filter_map(|c| Some((of(&c.id)?, c)));
        let near = |n: f64| (n - at(r)).abs();
        let found = all.min_by(|a, b| near(a.0).total_cmp(&near(b.0)));
        found.map(|(_, c)| c.id.clone()).unwrap_or_default()
    };
    let points = rows.iter().map(|r| Point {
        range: s.claim(&id(r)).and_then(|c| c.interval),
        ..Point::new(at(r), num(&r["extra"]))
    });
    let series = vec![Series::new("OPRW", 2, points.collect())];
    let x = Axis::linear(s.t(words::F2FS_NODES), "");
    let x = x.at(rows.iter().map(|r| (at(r), number(at(r)))).collect());
    let axes = (x, Axis::linear(s.t(words::F2FS_EXTRA_AXIS), ""));
    let number = s.tw(words::TABLE, &["6.3"]);
    let texts = (words::F2FS_T63_FIGURE, words::F2FS_T63_CAPTION);
    let mut f = figure(s, ("table6.3-extra", number), texts, axes, series);
    for r in rows {
        f.marks.extend(s.mark(&id(r), Some(at(r)), Some(0), |v| v));
    }
    f.claims = vec!["table6.3.".to_owned()];
    f
}

fn table_63(s: &Source<'_>) -> Table {
    let texts = [
        words::F2FS_NODES,
        words::F2FS_MS,
        words::F2FS_CHECK_MS,
        words::F2FS_EXTRA,
        words::F2FS_READS,
    ]
    .map(|h| s.t(h));
    let heads: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut t =
        Table::new("f2fs-table6.3", s.tw(words::TABLE, &["6.3"]), s.t(words::F2FS_T63), &heads);
    t.caption = s.t(words::F2FS_T63_CAPTION);
    for r in list(&s.doc["table_6_3_ms"]) {
        let keys = ["nodes", "ms", "check_ms", "extra", "extra_blocks"];
        t.rows.push(keys.map(|k| Cell::number(number(num(&r[k])))).into());
    }
    t
}
