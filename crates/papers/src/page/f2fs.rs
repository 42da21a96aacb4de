//! Paper f2fs-oprw: table 3.1, figures 6.1 to 6.3, tables 6.2 and 6.3, the region of table 6.2.

use wp_report::page::{
    Axis, Block, Cell, Figure, Point, Series, Shape, Table, Text, number, words,
};

use super::{Source, count, f2fs_flows};
use crate::f2fs_oprw::{Point as Measured, Rates, Region, Results, RollForward, Scaling, Stages};

/// All of it.
pub fn blocks(s: &Source<'_>, found: &Results) -> Vec<Block> {
    let (sizes, threads) = (&found.figure_6_1_ns, &found.figure_6_3);
    let mut out = f2fs_flows::blocks(s, &found.figures_2_1_and_5);
    out.push(Block::Figure(stages(s, &found.table_3_1_us)));
    out.push(Block::Figure(figure_61a(s, sizes)));
    out.push(Block::Figure(ratios_61a(s, sizes)));
    out.push(Block::Figure(figure_61b(s, sizes)));
    out.push(Block::Figure(gain_61b(s, sizes)));
    out.push(Block::Figure(figure_62(s, found)));
    out.push(Block::Table(rates_62(s, found)));
    out.push(Block::Figure(figure_63(s, threads)));
    out.push(Block::Figure(gain_63(s, threads)));
    out.push(Block::Table(table_62(s, found)));
    out.extend(surface(s, &found.surface));
    out.push(Block::Figure(figure_t63(s, &found.table_6_3_ms)));
    out.push(Block::Table(table_63(s, &found.table_6_3_ms)));
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
fn stages(s: &Source<'_>, ours: &Stages) -> Figure {
    let all = [
        (ours.prepare_data, "prepare_data", words::F2FS_PREPARE_DATA),
        (ours.wait_data, "wait_dma_data", words::F2FS_WAIT_DATA),
        (ours.prepare_node, "prepare_node", words::F2FS_PREPARE_NODE),
        (ours.wait_node, "wait_dma_node", words::F2FS_WAIT_NODE),
        (ours.flush, "flush", words::F2FS_FLUSH),
        (ours.other, "other", words::F2FS_OTHER),
    ];
    let names = all.iter().map(|(_, _, text)| s.t(*text)).collect();
    let points = all.iter().enumerate().map(|(n, (us, _, _))| Point::new(n as f64, *us));
    let series = vec![Series::new(s.t(words::OURS), 0, points.collect())];
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
fn sizes(s: &Source<'_>, all: &[Measured]) -> Axis {
    let places = all.iter().map(|p| (p.kib as f64, format!("{} KiB", p.kib))).collect();
    Axis::log(s.t(words::F2FS_SIZE), "").at(places)
}

/// Something of each size.
fn by_size(all: &[Measured], of: fn(&Measured) -> f64) -> Vec<Point> {
    all.iter().map(|p| Point::new(p.kib as f64, of(p))).collect()
}

fn figure_61a(s: &Source<'_>, all: &[Measured]) -> Figure {
    let series = vec![
        Series::new("posix", 0, by_size(all, |p| 1e9 / p.posix)),
        Series::new("strict_fixed", 1, by_size(all, |p| 1e9 / p.strict)),
        Series::new("OPRW posix", 2, by_size(all, |p| 1e9 / p.oprw)),
    ];
    let axes = (sizes(s, all), Axis::linear(s.t(words::F2FS_RATE), "").switched());
    let number = s.tw(words::FIGURE, &["6.1a"]);
    figure(s, ("fig6.1a", number), (words::F2FS_61A, words::F2FS_61A_CAPTION), axes, series)
}

fn ratios_61a(s: &Source<'_>, all: &[Measured]) -> Figure {
    let series = vec![
        Series::new("strict_fixed", 1, by_size(all, |p| p.posix / p.strict)),
        Series::new("OPRW posix", 2, by_size(all, |p| p.posix / p.oprw)),
    ];
    let axes = (sizes(s, all), Axis::linear(s.t(words::F2FS_OVER_POSIX), ""));
    let number = s.tw(words::FIGURE, &["6.1a"]);
    let texts = (words::F2FS_61A_RATIO, words::F2FS_61A_RATIO_CAPTION);
    let mut f = figure(s, ("fig6.1a-ratio", number), texts, axes, series);
    f.marks.extend(s.mark("fig6.1a.strict_over_posix", None, Some(0), |v| v));
    f.marks.extend(s.mark("fig6.1a.oprw_over_posix", None, Some(1), |v| v));
    f.claims = vec!["fig6.1a.".to_owned()];
    f
}

fn figure_61b(s: &Source<'_>, all: &[Measured]) -> Figure {
    let series = vec![
        Series::new("nobarrier", 0, by_size(all, |p| 1e9 / p.nobarrier)),
        Series::new("OPRW nobarrier", 2, by_size(all, |p| 1e9 / p.oprw_nobarrier)),
    ];
    let axes = (sizes(s, all), Axis::linear(s.t(words::F2FS_RATE), "").switched());
    let number = s.tw(words::FIGURE, &["6.1b"]);
    figure(s, ("fig6.1b", number), (words::F2FS_61B, words::F2FS_61B_CAPTION), axes, series)
}

fn gain_61b(s: &Source<'_>, all: &[Measured]) -> Figure {
    let series = vec![Series::new("OPRW nobarrier", 2, by_size(all, Measured::gain))];
    let axes = (sizes(s, all), Axis::linear(s.t(words::F2FS_OVER_F2FS), ""));
    let number = s.tw(words::FIGURE, &["6.1b"]);
    let texts = (words::F2FS_61B_GAIN, words::F2FS_61B_GAIN_CAPTION);
    let mut f = figure(s, ("fig6.1b-gain", number), texts, axes, series);
    f.marks.extend(s.mark("fig6.1b.min", None, None, |v| v));
    f.marks.extend(s.mark("fig6.1b.max", None, None, |v| v));
    f.claims = vec!["fig6.1b.".to_owned()];
    f
}

/// What figure 6.2 is made of: name, rates, claim.
fn macros(found: &Results) -> Vec<(&'static str, Rates, &'static str)> {
    let two = &found.figure_6_2;
    let mut all = vec![
        ("varmail, PLP", two.varmail, "fig6.2b.varmail"),
        ("OLTP, PLP", two.oltp, "fig6.2b.oltp"),
    ];
    if let Some(more) = &found.figure_6_2_others {
        all.extend([
            ("OLTP binlog, PLP", more.oltp_binlog, ""),
            ("varmail, no PLP", more.varmail_no_plp, ""),
            ("OLTP, no PLP", more.oltp_no_plp, ""),
        ]);
    }
    all
}

fn figure_62(s: &Source<'_>, found: &Results) -> Figure {
    let all = macros(found);
    let names = all.iter().map(|(name, _, _)| (*name).to_owned()).collect();
    let point = |(n, (_, rates, id)): (usize, &(&str, Rates, &str))| Point {
        range: s.claim(id).and_then(|c| c.interval),
        ..Point::new(n as f64, rates.gain())
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

fn rates_62(s: &Source<'_>, found: &Results) -> Table {
    let texts = [s.t(words::F2FS_WORKLOAD), s.t(words::F2FS_GAIN)];
    let number_text = s.tw(words::FIGURE, &["6.2"]);
    let heads = [texts[0].as_str(), "F2FS", "OPRW", &texts[1]];
    let mut t = Table::new("f2fs-fig6.2-rates", number_text, s.t(words::F2FS_62_RATES), &heads);
    for (name, rates, _) in macros(found) {
        let cells = [rates.f2fs, rates.oprw, rates.gain()];
        let cells = cells.map(|v| Cell::number(number(v)));
        t.rows.push([vec![Cell::text(name)], cells.into()].concat());
    }
    t
}

fn by_threads(all: &[Scaling], of: fn(&Rates) -> f64) -> Vec<Point> {
    all.iter().map(|p| Point::new(f64::from(p.threads), of(&p.rates))).collect()
}

fn threads(s: &Source<'_>, all: &[Scaling]) -> Axis {
    let all = all.iter().map(|p| f64::from(p.threads));
    Axis::log(s.t(words::F2FS_THREADS), "").at(all.map(|n| (n, number(n))).collect())
}

fn figure_63(s: &Source<'_>, all: &[Scaling]) -> Figure {
    let series = vec![
        Series::new("F2FS", 0, by_threads(all, |r| r.f2fs)),
        Series::new("OPRW", 2, by_threads(all, |r| r.oprw)),
    ];
    let axes = (threads(s, all), Axis::linear(s.t(words::F2FS_OPS), "").switched());
    let number = s.tw(words::FIGURE, &["6.3"]);
    figure(s, ("fig6.3", number), (words::F2FS_63, words::F2FS_63_CAPTION), axes, series)
}

fn gain_63(s: &Source<'_>, all: &[Scaling]) -> Figure {
    let series = vec![Series::new("OPRW / F2FS", 2, by_threads(all, Rates::gain))];
    let axes = (threads(s, all), Axis::linear(s.t(words::F2FS_OVER_F2FS), ""));
    let number = s.tw(words::FIGURE, &["6.3"]);
    let texts = (words::F2FS_63_GAIN, words::F2FS_63_CAPTION);
    let mut f = figure(s, ("fig6.3-gain", number), texts, axes, series);
    f.claims = vec!["fig6.3.".to_owned()];
    f
}

fn table_62(s: &Source<'_>, found: &Results) -> Table {
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
    for (r, share) in found.table_6_2.iter().zip(&found.table_6_2_shares) {
        let c = &r.counts;
        let mut row = vec![Cell::text(&r.name).class("mono")];
        row.extend([c.runs, c.cuts, c.states, c.recovered, c.failed].map(count));
        let percent = |v: f64| number(v * 100.0);
        let [low, high] = share.interval.map(percent);
        row.push(Cell::number(format!("{} [{low}, {high}]", percent(share.share))));
        row.extend([c.lost_sync, c.mixed, c.refused, c.left_out].map(count));
        row.push(Cell::text(c.example.clone().unwrap_or_default()).class("long"));
        t.rows.push(row);
    }
    t
}

/// One map a buffer size: dies down, periods across.
fn surface(s: &Source<'_>, points: &[Region]) -> Vec<Block> {
    let values = |of: fn(&Region) -> u64| {
        let mut all: Vec<u64> = points.iter().map(of).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let (buffers, periods) = (values(|p| p.buffer_mib), values(|p| p.period_us));
    let dies = values(|p| p.dies);
    let most = points.iter().map(|p| p.rate).fold(1e-9, f64::max);
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
        for die in &dies {
            let of = |period: &u64| {
                let place = (*buffer, *period, *die);
                points.iter().find(|p| (p.buffer_mib, p.period_us, p.dies) == place)
            };
            let any = periods.iter().find_map(of);
            let channels = any.map_or(f64::NAN, |p| p.channels as f64);
            let mut row = vec![Cell::text(format!("{die} ({})", number(channels)))];
            row.extend(periods.iter().map(|p| of(p).map_or_else(Cell::default, |p| heat(p, most))));
            t.rows.push(row);
        }
        Block::Table(t)
    };
    buffers.iter().map(one).collect()
}

fn heat(p: &Region, most: f64) -> Cell {
    let star = if p.as_paper { "★ " } else { "" };
    let percent = |v: f64| number(v * 100.0);
    let [low, high] = p.interval.map(percent);
    Cell {
        heat: Some(p.rate / most),
        tip: format!("[{low}, {high}] %"),
        ..Cell::number(format!("{star}{}", percent(p.rate)))
    }
}

fn figure_t63(s: &Source<'_>, rows: &[RollForward]) -> Figure {
    let at = |r: &RollForward| r.nodes as f64;
    // The claim whose number of nodes this run came nearest to.
    let id = |r: &RollForward| -> String {
        let of = |id: &str| id.strip_prefix("table6.3.n")?.parse::<f64>().ok();
        let all = s.claims.iter().filter_map(|c| Some((of(&c.id)?, c)));
        let near = |n: f64| (n - at(r)).abs();
        let found = all.min_by(|a, b| near(a.0).total_cmp(&near(b.0)));
        found.map(|(_, c)| c.id.clone()).unwrap_or_default()
    };
    let points = rows.iter().map(|r| Point {
        range: s.claim(&id(r)).and_then(|c| c.interval),
        ..Point::new(at(r), r.extra)
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

fn table_63(s: &Source<'_>, rows: &[RollForward]) -> Table {
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
    for r in rows {
        let times = [r.ms, r.check_ms, r.extra].map(|v| Cell::number(number(v)));
        t.rows.push([vec![count(r.nodes)], times.into(), vec![count(r.extra_blocks)]].concat());
    }
    t
}
