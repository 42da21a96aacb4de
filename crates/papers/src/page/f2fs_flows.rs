//! Paper f2fs-oprw: figures 2.1 and 5.1 to 5.4, from recorded runs.

use wp_report::flow::{Flow, Sent, Step};
use wp_report::page::{Block, Cell, Lane, Lanes, Span, Table, number, words};

use super::Source;
use crate::f2fs_oprw::{AfterCut, Picture, Pictures};

/// Pictures of the fsyncs, and the drive's pointers during the first.
pub fn blocks(s: &Source<'_>, all: &Pictures) -> Vec<Block> {
    let flows = all.flows.iter().enumerate();
    let mut out: Vec<Block> = flows.map(|(n, p)| Block::Lanes(picture(s, p, n))).collect();
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

/// Steps of the host.
fn host(s: &Source<'_>, step: &Step) -> Span {
    let (verb, of) = step.what.split_once(": ").unwrap_or(("", &step.what));
    let (verb_text, label) = (s.name(verb), s.name(of));
    let name = if verb.is_empty() { label.clone() } else { format!("{verb_text}: {label}") };
    Span {
        name,
        label,
        ns: [step.from_ns, step.from_ns.saturating_add(step.ns)],
        style: style(of),
        is_wait: verb == "wait",
    }
}

/// A command at the device.
fn device(s: &Source<'_>, sent: &Sent) -> Span {
    Span {
        name: s.name(&sent.name),
        label: s.name(&sent.name),
        ns: [sent.sent_ns, sent.done_ns.max(sent.sent_ns)],
        style: style(&sent.name),
        is_wait: false,
    }
}

/// The same on the flash, if it was programmed.
fn flash(s: &Source<'_>, sent: &Sent) -> Option<Span> {
    let (from, to) = sent.programmed_ns?;
    let dies: Vec<String> = sent.dies.iter().map(u32::to_string).collect();
    let name = s.tw(words::F2FS_ON_DIES, &[&s.name(&sent.name), &dies.join(", ")]);
    Some(Span {
        label: name.clone(),
        name,
        ns: [from, to.max(from)],
        style: style(&sent.name),
        is_wait: false,
    })
}

fn picture(s: &Source<'_>, p: &Picture, n: usize) -> Lanes {
    let Flow { steps, sent, total_ns, .. } = &p.flow;
    let lane = |name, spans| Lane { name: s.t(name), spans };
    let plp = if p.plp { words::F2FS_WITH_PLP } else { words::F2FS_WITHOUT_PLP };
    let total = number(*total_ns as f64 / 1e3);
    Lanes {
        id: format!("f2fs-flow-{n}"),
        number: s.tw(words::FIGURE, &[&p.figure]),
        title: s.tw(words::F2FS_FLOW, &[&p.mode, &s.t(plp)]),
        caption: match n {
            0 => s.tw(words::F2FS_FLOW_CAPTION, &[&total]),
            _ => s.tw(words::F2FS_FLOW_TOOK, &[&total]),
        },
        lanes: vec![
            lane(words::F2FS_HOST, steps.iter().map(|step| host(s, step)).collect()),
            lane(words::F2FS_DEVICE, sent.iter().map(|sent| device(s, sent)).collect()),
            lane(words::F2FS_FLASH, sent.iter().filter_map(|sent| flash(s, sent)).collect()),
        ],
        moment: None,
    }
}

/// What a reader of the file finds.
fn read(s: &Source<'_>, after: &AfterCut) -> String {
    match after.broken_at {
        Some(at) => s.tw(words::F2FS_BROKEN, &[&at.to_string()]),
        None => s.t(words::F2FS_WHOLE),
    }
}

fn pointers(s: &Source<'_>, all: &Pictures) -> Table {
    let texts = [s.t(words::F2FS_AT), s.t(words::F2FS_ZONE), s.t(words::F2FS_BEHIND)];
    let heads = ["", texts[0].as_str(), texts[1].as_str(), "wp-zns", "wp-nand", texts[2].as_str()];
    let number_text = s.t(words::F2FS_FIGURES_5);
    let mut t = Table::new("f2fs-pointers", number_text, s.t(words::F2FS_POINTERS), &heads);
    let Pictures { stock, checked, .. } = all;
    let mut caption = s.tw(
        words::F2FS_POINTERS_CAPTION,
        &[
            &number(f64::from(stock.nodes)),
            &read(s, stock),
            &number(checked.zones_reported as f64),
            &number(checked.addresses as f64),
            &read(s, checked),
        ],
    );
    if !checked.left_out.is_empty() {
        let left = checked.left_out.join("; ");
        caption.push_str(&format!(" {}: {left}.", s.t(words::F2FS_LEFT_OUT_LIST)));
    }
    t.caption = caption;
    let moments = all.flows.first().map_or(&[][..], |first| &first.pointers);
    for (n, moment) in moments.iter().enumerate() {
        let sign = if all.cut_at_look == n { "⚡" } else { "" };
        let at = number(moment.at_ns as f64 / 1e3);
        let zones = moment.zone_wp_zns_wp_nand.iter().copied();
        let behind: Vec<[u64; 3]> = zones.filter(|[_, host, nand]| nand < host).collect();
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
