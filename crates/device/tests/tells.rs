//! What devices tell of their inside: true of the times that they give, and without consequences.

use std::collections::BTreeMap;

use crate::common::{World, small};
use wp_base::event::{DeviceWork, Op, Work};
use wp_base::{Rng, Time};
use wp_block::DeviceModel;
use wp_device::ssd::Ssd;
use wp_medium::Slice;

/// A random program with everything in it, on a device that is small enough to collect garbage.
/// Returns the operations, and when each was submitted.
fn play(w: &mut World<Ssd>, seed: u64) -> BTreeMap<u64, (Op, Time)> {
    let mut rng = Rng::stream(seed, "tells");
    let mut all = BTreeMap::new();
    let mut flying = Vec::new();
    for i in 0..4_000 {
        let slots = 1 + rng.below(6);
        let at = rng.below(990) * 8 + if rng.below(10) == 0 { 1 } else { 0 };
        let submitted = w.now;
        let data = || Slice::pattern(i + 1, at * 512, slots as u32 * 4096);
        let (op, id) = match rng.below(20) {
            0 => (Op::Flush, w.flush()),
            1 => (Op::Write, w.write_fua(at, data())),
            2 => (Op::Discard, w.discard(at, slots as u32 * 8)),
            3..6 => (Op::Read, w.read(at, slots as u32 * 8)),
            _ => (Op::Write, w.write(at, data())),
        };
        all.insert(id, (op, submitted));
        flying.push(id);
        if flying.len() == 16 {
            w.wait(flying.remove(0));
        }
    }
    flying.into_iter().for_each(|id| drop(w.wait(id)));
    w.drain();
    all
}

#[test]
fn listening_changes_neither_times_nor_contents() {
    let (mut deaf, mut heard) = (small(&[]), small(&[]));
    heard.listen();
    play(&mut deaf, 1);
    play(&mut heard, 1);
    assert_eq!(deaf.log, heard.log);
    assert_eq!(deaf.device.counters(), heard.device.counters());
    assert!(deaf.works.is_empty() && heard.works.len() > 10_000);
}

#[test]
fn what_is_told_adds_up_with_what_the_device_did() {
    for seed in 0..4 {
        let mut w = small(&[]);
        w.listen();
        let all = play(&mut w, seed);
        let ends: BTreeMap<u64, Time> = w.log.iter().map(|(at, id)| (*id, *at)).collect();
        let mut by_die: BTreeMap<u32, Vec<(Time, Time)>> = BTreeMap::new();
        let mut seen: BTreeMap<(Work, bool), u64> = BTreeMap::new();
        for work in &w.works {
            *seen.entry((work.what, work.gc)).or_default() += 1;
            assert!(work.ready <= work.from && work.from <= work.to, "{work:?}");
            if let Some(die) = work.die {
                assert_eq!(die.channel, die.die % w.device.config().geometry.channels);
                assert!(work.to.since(work.from).0 >= work.bus.0 + work.cells.0, "{work:?}");
                by_die.entry(die.die).or_default().push((work.from, work.to));
            }
            for id in &work.commands {
                let (op, submitted) = all[id];
                assert!(work.ready >= submitted || work.what == Work::Program, "{work:?}");
                let awaited = work.what != Work::Read || op == Op::Read;
                assert!(work.to <= ends[id] || !awaited, "{work:?} of {op:?}");
            }
        }
        // A die does one thing at a time.
        for (die, mut spans) in by_die {
            spans.sort();
            assert!(spans.windows(2).all(|p| p[0].1 <= p[1].0), "die {die}");
        }
        let count = |what, gc| seen.get(&(what, gc)).copied().unwrap_or(0);
        let programs = count(Work::Program, false) + count(Work::Program, true);
        assert_eq!(programs, w.count("units_programmed"));
        assert_eq!(count(Work::Decode, false), all.len() as u64);
        let dies = u64::from(w.device.config().geometry.dies);
        assert_eq!(count(Work::Erase, true) % dies, 0);
        for kind in [(Work::Read, true), (Work::Read, false), (Work::BufferHit, false)] {
            assert!(count(kind.0, kind.1) > 0, "{kind:?}: {seen:?}");
        }
        for wait in [Work::AwaitBuffer, Work::AwaitErased] {
            assert!(count(wait, false) > 0, "{wait:?}: {seen:?}");
        }
        let waited = |w: &&DeviceWork| matches!(w.what, Work::AwaitBuffer | Work::AwaitErased);
        for wait in w.works.iter().filter(waited) {
            let freed = if wait.what == Work::AwaitBuffer { Work::Program } else { Work::Erase };
            let by = w.works.iter().any(|b| b.what == freed && b.to == wait.to);
            assert!(by, "{wait:?} ends with nothing that could have ended it");
        }
        // A flush ends its overhead after the last program that it waited for, or after its own
        // decoding.
        for (id, _) in all.iter().filter(|(_, (op, _))| *op == Op::Flush) {
            let its = w.works.iter().filter(|w| w.commands.contains(id));
            let last = its.map(|w| w.to).max().expect("it was decoded");
            assert_eq!(ends[id], last + w.device.config().flush_overhead);
        }
    }
}
