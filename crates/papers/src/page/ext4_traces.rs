//! Paper ext4-fsync: the traces of §4.2 and 4.3, and figure 9.
//!
//! The document's `traces` are runs of ten files: each request with its dispatch and completion,
//! nanoseconds from the fsync's call.

use std::collections::BTreeMap;

use serde_json::Value;
use wp_report::page::{Block, Cell, Lane, Lanes, Span, Table, number, words};

use super::{Source, each, list, num, word};

/// Tables and pictures.
pub fn blocks(s: &Source<'_>) -> Vec<Block> {
    let traces = list(&s.doc["traces"]);
    let mut out = Vec::new();
    for case in ["alloc", "extend"] {
        out.push(Block::Table(matrix(s, traces, case)));
    }
    let extend = traces.iter().filter(|t| word(&t["case"]) == "extend");
    for (n, t) in extend.enumerate() {
        out.push(Block::Lanes(picture(s, t, n == 0)));
    }
    out.push(Block::Folded(matrix(s, traces, "over")));
    out.push(Block::Table(figure_9(s)));
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

/// Requests of a trace.
fn requests(trace: &Value) -> impl Iterator<Item = &Value> {
    list(&trace["requests"]).iter()
}

/// Sectors by (phase, blocks, task), eras across.
fn matrix(s: &Source<'_>, traces: &[Value], case: &str) -> Table {
    let eras = each(traces, "era");
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
    for trace in traces.iter().filter(|t| word(&t["case"]) == case) {
        let end = num(&trace["fsync_ns"]);
        for r in requests(trace).filter(|r| r["sectors"].as_u64() > Some(0)) {
            let (from, kind) = (num(&r["from_ns"]), kind(word(&r["class"])));
            let phase = if from <= end { 0 } else { (from / 1e9).round().max(1.0) as u64 };
            let key = (phase, style(kind), kind.to_owned(), word(&r["by"]).to_owned());
            let cell = rows.entry(key).or_default().entry(word(&trace["era"])).or_default();
            *cell += r["sectors"].as_u64().unwrap_or(0);
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
fn picture(s: &Source<'_>, trace: &Value, is_first: bool) -> Lanes {
    let (era, case) = (word(&trace["era"]), word(&trace["case"]));
    let end = num(&trace["fsync_ns"]);
    let mut lanes: Vec<Lane> = Vec::new();
    for r in requests(trace).filter(|r| num(&r["from_ns"]) <= end) {
        let by = word(&r["by"]);
        let kind = kind(word(&r["class"]));
        let ns = ["from_ns", "to_ns"].map(|k| num(&r[k]).max(0.0) as u64);
        let sectors = match r["sectors"].as_u64() {
            Some(n) if n > 0 => format!(" +{n}"),
            _ => String::new(),
        };
        let label = format!("{}{sectors}", s.name(kind));
        let span = Span {
            name: format!("{label} {}", word(&r["rwbs"])),
            label,
            ns: [ns[0], ns[1].max(ns[0])],
            style: style(kind),
            is_wait: false,
        };
        match lanes.iter_mut().find(|l| l.name == by) {
            Some(lane) => lane.spans.push(span),
            None => lanes.push(Lane { name: by.to_owned(), spans: vec![span] }),
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
fn figure_9(s: &Source<'_>) -> Table {
    let files: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let texts = [s.t(words::EXT4_CASE), s.t(words::EXT4_ERA), String::new()];
    let mut heads: Vec<&str> = texts.iter().map(String::as_str).collect();
    heads.extend(files.iter().map(String::as_str));
    let number_text = s.tw(words::FIGURE, &["9"]);
    let mut t = Table::new("ext4-fig9", number_text, s.t(words::EXT4_FIG9_TITLE), &heads);
    t.caption = s.t(words::EXT4_FIG9_CAPTION);
    t.claims = vec!["fig9.".to_owned()];
    let traces = list(&s.doc["traces"]);
    for case in ["alloc", "extend", "over"] {
        for trace in traces.iter().filter(|t| word(&t["case"]) == case) {
            for (key, what) in [
                ("data", words::EXT4_D),
                ("table", words::EXT4_M_TABLE),
                ("size", words::EXT4_M_SIZE),
            ] {
                let is_first = key == "data";
                let once = |text: String| if is_first { text } else { String::new() };
                let mut row = vec![
                    Cell::text(once(s.name(case))),
                    Cell::text(once(word(&trace["era"]).to_owned())),
                    Cell::text(s.t(what)),
                ];
                row.extend(list(&trace["on_disk"][key]).iter().map(|v| match v.as_bool() {
                    Some(true) => Cell::text("●").class("dot"),
                    _ => Cell::text("·").class("dot off"),
                }));
                t.rows.push(row);
            }
        }
    }
    t
}
