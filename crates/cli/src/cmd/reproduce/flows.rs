//! Figures 2.1 and 5.1 to 5.4 of paper f2fs-oprw as text.

use std::fmt::Write;

use wp_papers::f2fs_oprw::{AfterCut, Moment, Pictures};

/// A string takes what is written to it.
const LINE: &str = "a string takes it";

/// Blocks of zones whose pointers on the flash are behind.
fn behind(moment: &Moment) -> String {
    let zones = moment.zone_wp_zns_wp_nand.iter();
    let late = zones.filter(|[_, host, nand]| nand < host);
    let all: Vec<String> = late
        .map(|[zone, host, nand]| format!("zone {zone} wp-zns {host} wp-nand {nand}"))
        .collect();
    if all.is_empty() { "wp-nand equals wp-zns in every zone".to_owned() } else { all.join(", ") }
}

fn us(ns: u64) -> String {
    format!("{}.{:03} us", ns / 1000, ns % 1000)
}

/// All of them.
pub(super) fn text(pictures: &Pictures) -> String {
    let mut t = String::new();
    writeln!(
        t,
        "Figures 2.1 and 5.2: one fsync in each mode, recorded (write {} over the file). \
         The\ntime axis is not to scale.\n",
        pictures.writes
    )
    .expect(LINE);
    for p in &pictures.flows {
        let plp = if p.plp { "with" } else { "without" };
        let (figure, mode, took) = (&p.figure, &p.mode, us(p.flow.total_ns));
        writeln!(t, "Figure {figure}: {mode}, {plp} power-loss protection, {took}").expect(LINE);
        writeln!(t, "{}", p.flow.text()).expect(LINE);
    }
    buffer(&mut t, pictures);
    recovery(&mut t, pictures);
    t
}

/// Figures 5.3 and 5.4.
fn buffer(t: &mut String, pictures: &Pictures) {
    let (first, cut) = (&pictures.flows[0], pictures.cut_at_look);
    writeln!(
        t,
        "Figures 5.3 and 5.4: the drive of figure 2.1a's run, at each of its events. \
         Blocks\nfrom a zone's start; power fails at the event marked *.\n"
    )
    .expect(LINE);
    let mut events: Vec<(u64, u8, String)> = vec![(0, 0, "fsync is called".to_owned())];
    for s in &first.flow.sent {
        events.push((s.sent_ns, 1, format!("{} sent", s.name)));
        events.push((s.done_ns, 1, format!("{} complete", s.name)));
    }
    events.push((first.flow.total_ns, 2, "fsync returns".to_owned()));
    for (n, moment) in first.pointers.iter().enumerate() {
        let mark = if n == cut { "*" } else { " " };
        events.push((moment.at_ns, 3, format!("{mark} {}", behind(moment))));
    }
    events.sort();
    for (at, _, what) in events {
        writeln!(t, "{:>12}  {what}", us(at)).expect(LINE);
    }
    let restored: Vec<String> = first.pointers[cut]
        .zone_wp_zns_wp_nand
        .iter()
        .filter(|[_, host, nand]| nand < host)
        .map(|[zone, host, nand]| format!("zone {zone}: {host} -> {nand}"))
        .collect();
    writeln!(
        t,
        "\nPower fails at *. Each wp-zns returns to wp-nand ({}), and the\nblocks between \
         them are lost. Mount rolls {} nodes forward. The file then: {}.\n",
        restored.join(", "),
        pictures.stock.nodes,
        read(&pictures.stock)
    )
    .expect(LINE);
}

/// Figure 5.1.
fn recovery(t: &mut String, pictures: &Pictures) {
    let Pictures { stock, checked, .. } = pictures;
    writeln!(
        t,
        "Figure 5.1: recovery of that image with the check. One report of {} zones; {} nodes \
         of\nthe chain, {} addresses compared with write pointers.\n",
        checked.zones_reported, checked.nodes, checked.addresses
    )
    .expect(LINE);
    for node in &checked.left_out {
        writeln!(t, "left out: {node}").expect(LINE);
    }
    writeln!(t, "\nThe file without the check: {}; with it: {}.\n", read(stock), read(checked))
        .expect(LINE);
}

/// What a reader of the file finds.
fn read(after: &AfterCut) -> String {
    match after.broken_at {
        Some(at) => format!("byte {at} holds data that was never written there"),
        None => "every byte is as written".to_owned(),
    }
}
