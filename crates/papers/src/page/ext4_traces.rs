//! Paper ext4-fsync: the traces of §4.2 and 4.3, and figure 9.
//!
//! The document's `traces` are runs of ten files: each request with its dispatch and completion,
//! nanoseconds from the fsync's call.

use std::collections::BTreeMap;

use wp_report::page::{Block, Cell, Lane, Lanes, Span, Table, number, words};

use super::{Source, each};
use crate::ext4_fsync::{Logged, Trace};

/// Tables and pictures.
pub fn blocks(s: &Source<'_>, traces: &[Trace]) -> Vec<Block> {
    let mut out = Vec::new();
    for case in ["alloc", "extend"] {
        out.push(Block::Table(matrix(s, traces, case)));
    }
    let extend = traces.iter().filter(|t| t.case == "extend");
    for (n, t) in extend.enumerate() {
        out.push(Block::Lanes(picture(s, t, n == 0)));
    }
    out.push(Block::Folded(matrix(s, traces, "over")));
    out.push(Block::Table(figure_9(s, traces)));
    out
}

/// The class of a request without counts and places: `journal*5` is `journal`.
fn kind(class: &str) -> &str {
    let end = class.find([':', '*', '+']).unwrap_or(class.len());
    &class[..end]
}

fn style(kind: &str) -> usize {
    match kind {
        "data" => 0,
        "journal" => 1,
        "journal_commit" => 3,
        "flush" => 4,
        _ => 2,
    }
}

/// Sectors by (phase, blocks, task), eras across.
fn matrix(s: &Source<'_>, traces: &[Trace], case: &str) -> Table {
    let eras = each(traces.iter().map(|t| t.era.as_str()));
    let texts = [words::EXT4_PHASE, words::EXT4_BLOCKS, words::EXT4_TASK].map(|h| s.t(h));
    let mut heads: Vec<&str> = texts.iter().map(String::as_str).collect();
    heads.extend(&eras);
    let title = format!("{}: {}", s.t(words::EXT4_MATRIX_TITLE), s.name(case));
    let number_text = s.t(words::EXT4_TRACE_NUMBER);
    let mut t = Table::new(&format!("ext4-trace-{case}"), number_text, title, &heads);
    t.caption = s.t(words::EXT4_MATRIX_CAPTION);
    // Phases by time, so that rows are in the order of what happens: 0 is the fsync, others are
    // seconds.
    let mut rows: BTreeMap<(u64, usize, String, String), BTreeMap<&str, u64>> = BTreeMap::new();
    for trace in traces.iter().filter(|t| t.case == case) {
        let end = trace.fsync_ns as f64;
        for r in trace.requests.iter().filter(|r| r.sectors > 0) {
            let (from, kind) = (r.from_ns as f64, kind(&r.class));
            let phase = if from <= end { 0 } else { (from / 1e9).round().max(1.0) as u64 };
            let key = (phase, style(kind), kind.to_owned(), r.by.clone());
            let cell = rows.entry(key).or_default().entry(&trace.era).or_default();
            *cell += u64::from(r.sectors);
        }
    }
    for ((phase, _, kind, by), cells) in rows {
        let phase = match phase {
            0 => s.t(words::EXT4_IN_FSYNC),
            n => s.tw(words::EXT4_LATER, &[&n.to_string()]),
        };
        let mut row = vec![Cell::text(phase), Cell::text(s.name(&kind)), Cell::text(by)];
        row.extend(
            eras.iter()
                .map(|e| Cell::number(cells.get(e).map_or("·".to_owned(), |n| number(*n as f64)))),
        );
        t.rows.push(row);
    }
    t.claims = eras.iter().map(|e| format!("trace.{e}.{case}.")).collect();
    if case == "extend" {
        t.claims.extend(["trace.commit_issuer", "trace.layout"].map(str::to_owned));
    }
    t
}

/// The fsync itself, request by request.
fn picture(s: &Source<'_>, trace: &Trace, is_first: bool) -> Lanes {
    let Trace { era, case, fsync_ns, .. } = trace;
    let end = *fsync_ns as i64;
    let mut lanes: Vec<Lane> = Vec::new();
    for r in trace.requests.iter().filter(|r| r.from_ns <= end) {
        let kind = kind(&r.class);
        let ns = [r.from_ns, r.to_ns].map(|ns| ns.max(0) as u64);
        let sectors = match r.sectors {
            0 => String::new(),
            n => format!(" +{n}"),
        };
        let label = format!("{}{sectors}", s.name(kind));
        let span = Span {
            name: format!("{label} {}", r.rwbs),
            label,
            ns: [ns[0], ns[1].max(ns[0])],
            style: style(kind),
            is_wait: false,
        };
        match lanes.iter_mut().find(|l| l.name == r.by) {
            Some(lane) => lane.spans.push(span),
            None => lanes.push(Lane { name: r.by.clone(), spans: vec![span] }),
        }
    }
    Lanes {
        id: format!("ext4-trace-{era}-{case}"),
        number: s.t(words::EXT4_TRACE_NUMBER),
        title: s.tw(words::EXT4_TRACE_TITLE, &[era, &s.name(case)]),
        caption: if is_first { s.t(words::EXT4_TRACE_CAPTION) } else { String::new() },
        lanes,
        moment: None,
    }
}

/// Which of ten files have what on disk.
fn figure_9(s: &Source<'_>, traces: &[Trace]) -> Table {
    let files: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let texts = [s.t(words::EXT4_CASE), s.t(words::EXT4_ERA), String::new()];
    let mut heads: Vec<&str> = texts.iter().map(String::as_str).collect();
    heads.extend(files.iter().map(String::as_str));
    let number_text = s.tw(words::FIGURE, &["9"]);
    let mut t = Table::new("ext4-fig9", number_text, s.t(words::EXT4_FIG9_TITLE), &heads);
    t.caption = s.t(words::EXT4_FIG9_CAPTION);
    t.claims = vec!["fig9.".to_owned()];
    for case in ["alloc", "extend", "over"] {
        for trace in traces.iter().filter(|t| t.case == case) {
            let Logged { data, table, size } = &trace.on_disk;
            let first = [s.name(case), trace.era.clone()];
            for (head, what, files) in [
                (first, words::EXT4_D, data),
                (Default::default(), words::EXT4_M_TABLE, table),
                (Default::default(), words::EXT4_M_SIZE, size),
            ] {
                let mut row: Vec<Cell> = head.map(Cell::text).into();
                row.push(Cell::text(s.t(what)));
                row.extend(files.iter().map(|is_there| match is_there {
                    true => Cell::text("●").class("dot"),
                    false => Cell::text("·").class("dot off"),
                }));
                t.rows.push(row);
            }
        }
    }
    t
}
