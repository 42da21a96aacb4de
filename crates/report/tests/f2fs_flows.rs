//! Figures 2.1 and 5.1 to 5.4 of paper f2fs-oprw: the order of an fsync's steps in each mode, and
//! what of it may persist out of order, from recorded runs.

use wp_machine::registry;
use wp_papers::f2fs_oprw::{Drawn, FLOWS, Mode, Recorded, record, shortest};
use wp_report::flow::{Flow, flow};
use wp_report::run::{Run, SYNCS, Seen};

const SEED: u64 = 1;

fn recorded(mode: Mode, writes: usize) -> (Recorded, Flow) {
    let drawn: Drawn = *FLOWS.iter().find(|d| d.mode == mode).expect("it is drawn");
    let run = record(drawn, SEED, writes).expect("it runs");
    let seen = Seen::new(Run {
        records: &run.records,
        classes: &run.classes,
        stages: registry::FILE_SYSTEMS[1].stages,
        survives: drawn.plp,
        zone_sectors: None,
    });
    let found = flow(&seen, seen.call(SYNCS, 1).expect("one fsync"));
    assert_eq!(run.took_ns, found.total_ns, "{mode:?}");
    // Steps are whole: one ends where the next begins, the last with the call.
    let mut at = 0;
    for s in &found.steps {
        assert_eq!(s.from_ns, at, "{mode:?}\n{}", found.text());
        at += s.ns;
    }
    assert_eq!(at, found.total_ns, "{mode:?}\n{}", found.text());
    let document = serde_json::to_string(&found).expect("JSON");
    let read: Flow = wp_report::document::read(&document).expect("the same type reads it");
    assert_eq!(serde_json::to_string(&read).expect("JSON"), document);
    (run, found)
}

/// Steps as the paper names them: `data` is prepared, `~data` is waited for. Of data that are more
/// than a request takes, the second one goes when the first has left its zone: that is one step.
fn order(found: &Flow) -> Vec<String> {
    let short = |what: &str| {
        let prepared = what.strip_prefix("prepare and dispatch: ").map(str::to_owned);
        prepared.or_else(|| what.strip_prefix("wait: ").map(|w| format!("~{w}")))
    };
    let mut out: Vec<String> = Vec::new();
    for step in found.steps.iter().filter_map(|s| short(&s.what)) {
        let step = step.replace("requests ahead in the device", "data");
        if !out.iter().rev().take(2).any(|s| *s == step) {
            out.push(step);
        }
    }
    out
}

/// When something may be so, and when it was.
type MayAndWas = ((u64, Option<u64>), Option<(u64, u64)>);

/// The node may be there without the data: when, and when it was so.
fn ahead(found: &Flow) -> Vec<MayAndWas> {
    let is = |i: usize, name: &str| found.sent[i].name == name;
    let pairs = found.out_of_order.iter().filter(|o| is(o.missing, "data") && is(o.kept, "node"));
    pairs.map(|o| (o.may, o.seen)).collect()
}

#[test]
fn steps_come_in_the_order_that_the_paper_draws_for_each_mode() {
    let (writes, look) = shortest(SEED).expect("some write can be cut apart");
    let one = |mode| recorded(mode, writes);
    let text = |f: &Flow| f.text();

    // Figure 2.1a.
    let (run, posix) = one(Mode::Posix);
    let all = ["data", "~data", "node", "~node", "flush", "~flush"];
    assert_eq!(order(&posix), all, "{}", text(&posix));
    let (_, nobarrier) = one(Mode::NoBarrier);
    assert_eq!(order(&nobarrier), all[..4], "{}", text(&nobarrier));
    assert!(nobarrier.survives && ahead(&nobarrier).is_empty(), "{}", text(&nobarrier));

    // What the figure is about: the node's die was free before the data's.
    let pairs = ahead(&posix);
    let flush = posix.sent.last().expect("a flush");
    assert!(!pairs.is_empty(), "{}", text(&posix));
    for (may, _) in &pairs {
        assert_eq!(may.1, Some(flush.done_ns), "until the flush has ended\n{}", text(&posix));
    }
    let seen: Vec<(u64, u64)> = pairs.iter().filter_map(|p| p.1).collect();
    let cut = run.looks[look].at_ns;
    assert!(seen.iter().any(|(a, b)| (*a..=*b).contains(&cut)), "{seen:?} {cut}");

    // Figure 2.1b: with the flush that the paper adds, and as the kernel has it on zones.
    let (_, fixed) = one(Mode::StrictFixed);
    // An fsync that writes the inode is not atomic, and waits for its node (`f2fs_do_sync_file`).
    let wanted = ["data", "~data", "flush", "~flush", "node", "~node", "flush", "~flush"];
    assert_eq!(order(&fixed), wanted, "{}", text(&fixed));
    assert!(ahead(&fixed).is_empty(), "{}", text(&fixed));
    let (_, strict) = one(Mode::Strict);
    assert_eq!(order(&strict)[..3], ["data", "~data", "node"], "{}", text(&strict));
    assert_eq!(order(&strict).last().map(String::as_str), Some("~flush"), "{}", text(&strict));
    assert!(!ahead(&strict).is_empty(), "{}", text(&strict));

    // Figure 5.2: nobody waits for the data before the node goes.
    let (_, oprw) = one(Mode::OprwPosix);
    let sent = |f: &Flow, name: &str| {
        let all = f.sent.iter().filter(|s| s.name == name);
        all.map(|s| (s.sent_ns, s.done_ns)).max().expect("sent")
    };
    let node_first = |f: &Flow| {
        let steps = order(f);
        let place = |name: &str| steps.iter().position(|s| s == name);
        steps[0] == "data" && place("node") < Some(place("~data").unwrap_or(usize::MAX))
    };
    assert!(node_first(&oprw), "{}", text(&oprw));
    assert_eq!(order(&oprw)[order(&oprw).len() - 2..], ["flush", "~flush"], "{}", text(&oprw));
    let (_, plp) = one(Mode::OprwNoBarrier);
    assert!(node_first(&plp), "{}", text(&plp));
    assert!(!order(&plp).contains(&"flush".to_owned()), "{}", text(&plp));
    for f in [&oprw, &plp] {
        assert!(sent(f, "node").0 < sent(f, "data").1, "under way together\n{}", text(f));
        // For this the check at recovery is there.
        assert!(!ahead(f).is_empty(), "{}", text(f));
    }
    assert!(oprw.total_ns < posix.total_ns && plp.total_ns < nobarrier.total_ns);
}

/// Figures 5.1, 5.3 and 5.4.
#[test]
fn what_lay_between_the_write_pointers_is_gone_after_a_cut_and_the_check_notices() {
    let (writes, look) = shortest(SEED).expect("some write can be cut apart");
    let (run, _) = recorded(Mode::Posix, writes);
    // (a) buffered: wp-zns has moved and wp-nand has not; (b) programmed: both are there.
    let late = |n: usize| run.looks[n].pointers.iter().filter(|p| p.nand < p.host).count();
    assert!(late(look) > 0, "the cut is in (a)");
    assert_eq!(late(run.looks.len() - 1), 0, "everything is programmed in the end");
    for pair in run.looks.windows(2) {
        assert!(pair[0].at_ns < pair[1].at_ns);
        for p in &pair[0].pointers {
            let next = pair[1].pointers.iter().find(|q| q.zone == p.zone).expect("not reset");
            assert!(p.nand <= next.nand && p.host <= next.host && next.nand <= next.host);
        }
    }
    // (c) the image that the cut leaves has its pointers at wp-nand.
    for p in &run.looks[look].pointers {
        let zone = &run.looks[look].zones[p.zone as usize];
        assert_eq!((zone.wp.0 - zone.start.0) / 8, p.nand);
    }
    let (stock, checked) = (
        run.recovered(look, false).expect("it recovers"),
        run.recovered(look, true).expect("it recovers"),
    );
    assert!(stock.broken.is_some() && stock.zones == 0 && stock.left_out.is_empty(), "{stock:?}");
    assert_eq!(checked.broken, None, "{checked:?}");
    assert_eq!(checked.nodes, stock.nodes);
    assert!(checked.zones > 0 && checked.addresses > 0 && !checked.left_out.is_empty());
    // Looking costs no time and changes nothing: the same run without it takes as long.
    let (again, _) = recorded(Mode::Posix, writes);
    assert_eq!(again.took_ns, run.took_ns);
}
