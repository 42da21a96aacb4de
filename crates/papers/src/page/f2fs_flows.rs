//! Paper f2fs-oprw: figures 2.1 and 5.1 to 5.4, from recorded runs.

use serde_json::Value;
use wp_report::page::{Block, Cell, Lane, Lanes, Span, Table, number, words};

use super::{Source, list, num, word};

/// Pictures of the fsyncs, and the drive's pointers during the first.
pub fn blocks(s: &Source<'_>) -> Vec<Block> {
    let all = &s.doc["figures_2_1_and_5"];
    let flows = list(&all["flows"]).iter();
    let mut out: Vec<Block> =
        flows.enumerate().map(|(n, f)| Block::Lanes(picture(s, f, n))).collect();
    out.push(Block::Table(pointers(s, all)));
    out
}

fn style(name: &str) -> usize {
    match name {
        "data" => 0,
        "node" => 1,
        "flush" => 4,
        _ => 2,
    }
}

fn ns(v: &Value) -> u64 {
    v.as_u64().unwrap_or(0)
}

fn picture(s: &Source<'_>, f: &Value, n: usize) -> Lanes {
    let flow = &f["flow"];
    let host = list(&flow["steps"]).iter().map(|step| {
        let what = word(&step["what"]);
        let (verb, of) = what.split_once(": ").unwrap_or(("", what));
        let from = ns(&step["from_ns"]);
        let (verb_text, label) = (s.name(verb), s.name(of));
        let name = if verb.is_empty() { label.clone() } else { format!("{verb_text}: {label}") };
        Span {
            name,
            label,
            ns: [from, from.saturating_add(ns(&step["ns"]))],
            style: style(of),
            is_wait: verb == "wait",
        }
    });
    let device = list(&flow["sent"]).iter().map(|r| Span {
        name: s.name(word(&r["name"])),
        label: s.name(word(&r["name"])),
        ns: [ns(&r["sent_ns"]), ns(&r["done_ns"]).max(ns(&r["sent_ns"]))],
        style: style(word(&r["name"])),
        is_wait: false,
    });
    let flash = list(&flow["sent"]).iter().filter_map(|r| {
        let [from, to] = [r["programmed_ns"][0].as_u64()?, r["programmed_ns"][1].as_u64()?];
        let dies: Vec<String> = list(&r["dies"]).iter().map(Value::to_string).collect();
        let name = s.name(word(&r["name"]));
        let name = s.tw(words::F2FS_ON_DIES, &[&name, &dies.join(", ")]);
        Some(Span {
            label: name.clone(),
            name,
            ns: [from, to.max(from)],
            style: style(word(&r["name"])),
            is_wait: false,
        })
    });
    let lane = |name, spans| Lane { name: s.t(name), spans };
    let has_plp = f["plp"] == true;
    let plp = if has_plp { words::F2FS_WITH_PLP } else { words::F2FS_WITHOUT_PLP };
    let total = number(num(&flow["total_ns"]) / 1e3);
    Lanes {
        id: format!("f2fs-flow-{n}"),
        number: s.tw(words::FIGURE, &[word(&f["figure"])]),
        title: s.tw(words::F2FS_FLOW, &[word(&f["mode"]), &s.t(plp)]),
        caption: match n {
            0 => s.tw(words::F2FS_FLOW_CAPTION, &[&total]),
            _ => s.tw(words::F2FS_FLOW_TOOK, &[&total]),
        },
        lanes: vec![
            lane(words::F2FS_HOST, host.collect()),
            lane(words::F2FS_DEVICE, device.collect()),
            lane(words::F2FS_FLASH, flash.collect()),
        ],
        moment: None,
    }
}

/// What a reader of the file finds.
fn read(s: &Source<'_>, recovered: &Value) -> String {
    match recovered["broken_at"].as_u64() {
        Some(at) => s.tw(words::F2FS_BROKEN, &[&at.to_string()]),
        None => s.t(words::F2FS_WHOLE),
    }
}

fn pointers(s: &Source<'_>, all: &Value) -> Table {
    let texts = [s.t(words::F2FS_AT), s.t(words::F2FS_ZONE), s.t(words::F2FS_BEHIND)];
    let heads = ["", texts[0].as_str(), texts[1].as_str(), "wp-zns", "wp-nand", texts[2].as_str()];
    let number_text = s.t(words::F2FS_FIGURES_5);
    let mut t = Table::new("f2fs-pointers", number_text, s.t(words::F2FS_POINTERS), &heads);
    let (stock, checked) = (&all["stock"], &all["checked"]);
    let count = |v: &Value| number(num(v));
    let mut caption = s.tw(
        words::F2FS_POINTERS_CAPTION,
        &[
            &count(&stock["nodes"]),
            &read(s, stock),
            &count(&checked["zones_reported"]),
            &count(&checked["addresses"]),
            &read(s, checked),
        ],
    );
    let left: Vec<&str> = list(&checked["left_out"]).iter().map(word).collect();
    if !left.is_empty() {
        caption.push_str(&format!(" {}: {}.", s.t(words::F2FS_LEFT_OUT_LIST), left.join("; ")));
    }
    t.caption = caption;
    let cut = all["cut_at_look"].as_u64();
    for (n, look) in list(&all["flows"][0]["pointers"]).iter().enumerate() {
        let sign = if cut == Some(n as u64) { "⚡" } else { "" };
        let at = number(num(&look["at_ns"]) / 1e3);
        let zones = list(&look["zone_wp_zns_wp_nand"]).iter();
        let behind: Vec<[u64; 3]> = zones
            .map(|z| [ns(&z[0]), ns(&z[1]), ns(&z[2])])
            .filter(|[_, host, nand]| nand < host)
            .collect();
        if behind.is_empty() {
            let cells = ["—", "—", "—", "0"].map(Cell::number);
            t.rows.push([vec![Cell::text(sign), Cell::number(at)], cells.into()].concat());
            continue;
        }
        for [zone, host, nand] in behind {
            let cells = [zone, host, nand, host - nand].map(|v| Cell::number(v.to_string()));
            let head = vec![Cell::text(sign), Cell::number(at.clone())];
            t.rows.push([head, cells.into()].concat());
        }
    }
    t
}
