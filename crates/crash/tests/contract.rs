//! What a contract permits, against a brute-force reading of its words.

use std::collections::BTreeSet;

use wp_base::event::{Flags, Op};
use wp_base::rng::Rng;
use wp_base::{Sector, Time};
use wp_crash::{Contract, Entry, History, Kept, Plan, Tape, Untorn, of_frame, of_instant};
use wp_medium::{Medium, Slice};

/// Sectors of a block.
const BLOCK: u64 = 8;

fn submit(id: u64, op: Op, flags: Flags, block: u64, tag: u64) -> Entry {
    let data = if op == Op::Write { vec![Slice::pattern(tag, 0, 4096)] } else { Vec::new() };
    let sectors = if op == Op::Flush { 0 } else { BLOCK as u32 };
    Entry::Submit { id, op, flags, at: Sector(block * BLOCK), sectors, data }
}

fn tape(entries: Vec<Entry>) -> Tape {
    Tape::of(entries.into_iter().enumerate().map(|(i, e)| (Time(i as u64), e)).collect())
}

/// What stands in the first blocks of an image: tags by block, 0 for nothing.
fn image(medium: &Medium, tags: u64) -> Vec<u64> {
    let known: Vec<(u64, u128)> =
        (1..=tags).map(|t| (t, Slice::pattern(t, 0, 4096).id())).collect();
    (0..4)
        .map(|b| {
            let id = medium.read(Sector(b * BLOCK), BLOCK as u32)[0].id();
            known.iter().find(|(_, i)| *i == id).map_or(0, |(t, _)| *t)
        })
        .collect()
}

/// Images that the explorer would visit.
fn visited(history: &History, tags: u64) -> BTreeSet<Vec<u64>> {
    let mut out = BTreeSet::new();
    for (n, frame) in history.frames.iter().enumerate() {
        of_frame(history, n, &Plan::default(), 1, &mut |kept: &Kept| {
            let mut medium = frame.base.clone();
            for (i, u) in frame.live.iter().enumerate() {
                if kept.has(i) {
                    history.units[*u as usize].apply(&mut medium);
                }
            }
            out.insert(image(&medium, tags));
            true
        });
    }
    out
}

/// The same from the words: after each entry, what is not durable may be missing, in any choice.
fn by_the_words(tape: &Tape, volatile: bool) -> BTreeSet<Vec<u64>> {
    let mut out = BTreeSet::new();
    for end in 0..=tape.entries.len() {
        let seen = &tape.entries[..end];
        let completed = |id: u64| {
            seen.iter().position(|e| matches!(e.1, Entry::Complete { id: i, ok: true } if i == id))
        };
        let mut writes: Vec<(u64, u64, bool)> = Vec::new();
        for (_, e) in seen {
            let Entry::Submit { id, op: Op::Write, flags, at, data, .. } = e else { continue };
            let done = completed(*id);
            let flushed = seen.iter().enumerate().any(|(sent, (_, f))| {
                let Entry::Submit { id, op: Op::Flush, .. } = f else { return false };
                done.is_some_and(|d| d < sent) && completed(*id).is_some()
            });
            let durable = done.is_some() && (!volatile || flags.has(Flags::FUA)) || flushed;
            let wp_medium::Content::Pattern(tag) = data[0].content() else { unreachable!() };
            writes.push((at.0 / BLOCK, *tag, durable));
        }
        let open: Vec<usize> = (0..writes.len()).filter(|i| !writes[*i].2).collect();
        for mask in 0..1u32 << open.len() {
            let kept = |i: usize| match open.iter().position(|o| *o == i) {
                Some(bit) => mask >> bit & 1 == 1,
                None => true,
            };
            let mut blocks = vec![0; 4];
            for (i, (block, tag, durable)) in writes.iter().enumerate() {
                // Something durable and newer at the same place covers it.
                let covered = writes[i + 1..].iter().any(|(b, _, d)| b == block && *d);
                if kept(i) && (*durable || !covered) {
                    blocks[*block as usize] = *tag;
                }
            }
            out.insert(blocks);
        }
    }
    out
}

/// Random traffic: writes, some with FUA, flushes, completions in any order. Writes to one block do
/// not overtake each other, as no file system lets them.
fn traffic(seed: u64) -> (Tape, u64) {
    let mut rng = Rng::stream(seed, "traffic");
    let (mut entries, mut flying, mut tag) = (Vec::new(), Vec::<(u64, Option<u64>)>::new(), 0);
    for id in 0..24 {
        match rng.below(5) {
            0 => {
                entries.push(submit(id, Op::Flush, Flags::NONE, 0, 0));
                flying.push((id, None));
            }
            1 | 2 if tag < 9 => {
                let block = rng.below(4);
                if flying.iter().any(|f| f.1 == Some(block)) {
                    continue;
                }
                tag += 1;
                let fua = if rng.below(4) == 0 { Flags::FUA } else { Flags::NONE };
                entries.push(submit(id, Op::Write, fua, block, tag));
                flying.push((id, Some(block)));
            }
            _ if !flying.is_empty() => {
                let n = rng.below(flying.len() as u64) as usize;
                let (id, _) = flying.remove(n);
                entries.push(Entry::Complete { id, ok: true });
            }
            _ => {}
        }
    }
    (tape(entries), tag)
}

#[test]
fn every_state_of_the_contract_is_visited_and_no_other() {
    for seed in 0..400 {
        let (tape, tags) = traffic(seed);
        for volatile in [true, false] {
            let contract = Contract { volatile, ..Contract::HONEST };
            let history = History::permitted(&tape, &contract);
            assert_eq!(
                visited(&history, tags),
                by_the_words(&tape, volatile),
                "seed {seed}, volatile {volatile}: {:?}",
                tape.entries
            );
        }
    }
}

#[test]
fn a_state_lasts_until_something_it_lacks_is_durable() {
    let t = tape(vec![
        submit(1, Op::Write, Flags::NONE, 0, 1),
        Entry::Complete { id: 1, ok: true },
        submit(2, Op::Flush, Flags::NONE, 0, 0),
        submit(3, Op::Write, Flags::NONE, 1, 2),
        Entry::Complete { id: 2, ok: true },
        Entry::Complete { id: 3, ok: true },
    ]);
    let h = History::permitted(&t, &Contract::HONEST);
    let first = h.frames.iter().position(|f| f.new == 1).expect("a frame with the first write");
    // Without it: until the flush completes. With it: to the end, as the second is never flushed.
    assert_eq!(h.until(first, |_| false), 4);
    assert_eq!(h.until(first, |_| true), t.entries.len());
    let lying = Contract { lying_flush: true, ..Contract::HONEST };
    let h = History::permitted(&t, &lying);
    assert_eq!(h.until(first, |_| false), t.entries.len());
}

#[test]
fn a_block_is_torn_below_the_atomic_unit_only() {
    let t = tape(vec![submit(1, Op::Write, Flags::NONE, 0, 1)]);
    let units = |atomic| {
        let contract = Contract { atomic, ..Contract::HONEST };
        History::permitted(&t, &contract).units.len()
    };
    assert_eq!((units(512), units(4096), units(1 << 16)), (8, 1, 1));
}

/// A write of 16 KiB at block `at`.
fn long(id: u64, at: u64) -> Entry {
    let data = (0..4).map(|n| Slice::pattern(id, n * 4096, 4096)).collect();
    let flags = Flags::NONE;
    Entry::Submit { id, op: Op::Write, flags, at: Sector(8 * at), sectors: 32, data }
}

#[test]
fn a_write_that_the_drive_keeps_whole_is_one_unit_whatever_the_atomic_unit() {
    let units = |bytes, boundary, at, atomic| {
        let mut t = tape(vec![long(1, at)]);
        t.untorn.push(Untorn { device: 0, bytes, boundary });
        History::permitted(&t, &Contract { atomic, ..Contract::HONEST }).units.len()
    };
    let page = 16 << 10;
    for atomic in [512, 4096] {
        assert_eq!(units(page, 0, 0, atomic), 1);
        assert_eq!(units(page, page, 4, atomic), 1);
    }
    // Across the boundary, or too long: as if the drive had promised nothing.
    assert_eq!((units(page, page, 2, 4096), units(page, page, 2, 512)), (4, 32));
    assert_eq!((units(8192, 0, 0, 4096), units(8192, 0, 0, 512)), (4, 32));
    // Another device's promise.
    let mut t = tape(vec![long(1, 0)]);
    t.untorn.push(Untorn { device: 1, bytes: page, boundary: 0 });
    assert_eq!(History::permitted(&t, &Contract::HONEST).units.len(), 4);
}

#[test]
fn what_fua_covers_in_part_leaves_the_rest_in_doubt() {
    let two = |tag| vec![Slice::pattern(tag, 0, 4096), Slice::pattern(tag, 4096, 4096)];
    let t = tape(vec![
        Entry::Submit {
            id: 1,
            op: Op::Write,
            flags: Flags::NONE,
            at: Sector(0),
            sectors: 16,
            data: two(1),
        },
        Entry::Complete { id: 1, ok: true },
        submit(2, Op::Write, Flags::FUA, 1, 2),
        Entry::Complete { id: 2, ok: true },
    ]);
    // As one unit of 8 KiB, of which the second half is covered.
    let h = History::permitted(&t, &Contract { atomic: 8192, ..Contract::HONEST });
    let last = h.frames.last().expect("frames");
    assert_eq!(last.live.len(), 1);
    let mut kept = last.base.clone();
    h.units[last.live[0] as usize].apply(&mut kept);
    assert_eq!(kept.read(Sector(8), 8)[0].id(), Slice::pattern(2, 0, 4096).id());
    assert_eq!(kept.read(Sector(0), 8)[0].id(), Slice::pattern(1, 0, 4096).id());
}

/// The words of a device with barrier writes: whatever is there presupposes all that was received
/// in epochs before it; what is durable makes durable what it presupposes.
fn by_the_words_of_epochs(tape: &Tape) -> BTreeSet<Vec<u64>> {
    let mut out = BTreeSet::new();
    for end in 0..=tape.entries.len() {
        let seen: Vec<&Entry> = tape.entries[..end].iter().map(|(_, e)| e).collect();
        let completed = |id: u64| {
            seen.iter().position(|e| matches!(e, Entry::Complete { id: i, ok: true } if *i == id))
        };
        // (block, tag, epoch, durable).
        let mut writes: Vec<(u64, u64, u32, bool)> = Vec::new();
        let mut epoch = 0;
        for e in &seen {
            let Entry::Submit { id, op: Op::Write, flags, at, data, .. } = e else { continue };
            let done = completed(*id);
            let flushed = seen.iter().enumerate().any(|(sent, f)| {
                let Entry::Submit { id, op: Op::Flush, .. } = f else { return false };
                done.is_some_and(|d| d < sent) && completed(*id).is_some()
            });
            let durable = done.is_some() && flags.has(Flags::FUA) || flushed;
            let wp_medium::Content::Pattern(tag) = data[0].content() else { unreachable!() };
            writes.push((at.0 / BLOCK, *tag, epoch, durable));
            epoch += u32::from(flags.has(Flags::BARRIER));
        }
        let due = writes.iter().filter(|w| w.3).map(|w| w.2).max();
        for mask in 0..1u32 << writes.len() {
            let kept = |i: usize| mask >> i & 1 == 1;
            let last = (0..writes.len()).filter(|i| kept(*i)).map(|i| writes[i].2).max();
            let legal = writes.iter().enumerate().all(|(i, w)| {
                let must = w.3 || due.is_some_and(|d| w.2 < d) || last.is_some_and(|l| w.2 < l);
                kept(i) || !must
            });
            if legal {
                let mut blocks = vec![0; 4];
                let shown = writes.iter().enumerate().filter(|(i, _)| kept(*i));
                shown.for_each(|(_, w)| blocks[w.0 as usize] = w.1);
                out.insert(blocks);
            }
        }
    }
    out
}

#[test]
fn barrier_writes_bind_where_the_device_honours_them() {
    let mut bound = 0;
    for seed in 0..300 {
        let (mut tape, tags) = traffic(seed);
        let mut rng = Rng::stream(seed, "barriers");
        for (_, entry) in &mut tape.entries {
            if let Entry::Submit { op: Op::Write, flags, .. } = entry
                && rng.below(3) == 0
            {
                *flags |= Flags::ORDERED | Flags::BARRIER;
            }
        }
        let free = visited(&History::permitted(&tape, &Contract::HONEST), tags);
        assert_eq!(free, by_the_words(&tape, true), "seed {seed}: flags that mean nothing");
        tape.ordered = vec![0];
        let ordered = visited(&History::permitted(&tape, &Contract::HONEST), tags);
        assert_eq!(ordered, by_the_words_of_epochs(&tape), "seed {seed}: {:?}", tape.entries);
        assert!(ordered.is_subset(&free));
        bound += free.len() - ordered.len();
        let lost = Contract { lost_barriers: true, ..Contract::HONEST };
        assert_eq!(visited(&History::permitted(&tape, &lost), tags), free, "seed {seed}");
    }
    assert!(bound > 1_000, "{bound} images are not possible with barriers");
}

/// With more unpersisted than is visited whole, what is looked at is legal, and nothing is left out
/// that is so few.
#[test]
fn samples_of_many_epochs_are_legal() {
    let mut entries = Vec::new();
    for id in 0..60 {
        let flags = if id % 4 == 3 { Flags::ORDERED | Flags::BARRIER } else { Flags::ORDERED };
        entries.push(submit(id, Op::Write, flags, id, id + 1));
        entries.push(Entry::Complete { id, ok: true });
    }
    let mut tape = tape(entries);
    tape.ordered = vec![0];
    let history = History::permitted(&tape, &Contract::HONEST);
    let (mut states, frames) = (0, history.frames.len());
    for number in 0..frames {
        of_frame(&history, number, &Plan::default(), 1, &mut |kept: &Kept| {
            assert!(history.permits(number, kept));
            states += 1;
            true
        });
    }
    // Each write adds what it can be together with others of its epoch, 1 + 2 + 4 + 8 in each of
    // the 15 epochs; and there is the beginning.
    assert_eq!((frames, states), (61, 1 + 15 * 15));
}

#[test]
fn an_instant_may_leave_what_earlier_frames_had_too() {
    let mut entries = Vec::new();
    for id in 0..4 {
        entries.push(submit(id, Op::Write, Flags::NONE, id, id + 1));
        entries.push(Entry::Complete { id, ok: true });
    }
    let history = History::permitted(&tape(entries), &Contract::HONEST);
    let last = history.frames.len() - 1;
    for plan in [Plan::default(), Plan { complete: 0, ..Plan::default() }] {
        let (mut added, mut all) = (BTreeSet::new(), BTreeSet::new());
        of_frame(&history, last, &plan, 1, &mut |kept: &Kept| added.insert(kept.clone()));
        of_instant(&history, last, &plan, 1, &mut |kept: &Kept| all.insert(kept.clone()));
        let n = history.frames[last].live.len();
        assert_eq!(n, 4);
        assert!(added.iter().all(|k| all.contains(k)) && all.len() > added.len());
        // Without the last write it is a state of the frame before, and of this instant.
        let mut without = Kept::all(n);
        without.set(n - 1, false);
        assert!(all.contains(&without) && !added.contains(&without), "{plan:?}");
        assert!(all.contains(&Kept::none(n)) && all.contains(&Kept::all(n)), "{plan:?}");
        if plan.complete > 0 {
            assert_eq!((added.len(), all.len()), (8, 16));
        }
    }
}

#[test]
fn a_limit_of_states_leaves_some_of_each_kind_and_all_of_few() {
    let mut entries = Vec::new();
    for id in 0..40 {
        entries.push(submit(id, Op::Write, Flags::NONE, id, id + 1));
        entries.push(Entry::Complete { id, ok: true });
    }
    let history = History::permitted(&tape(entries), &Contract::HONEST);
    let last = history.frames.len() - 1;
    let n = history.frames[last].live.len();
    let states = |number: usize, most: u64, seed: u64, all: bool| {
        let plan = Plan { most, ..Plan::default() };
        let mut seen = Vec::new();
        let mut each = |kept: &Kept| {
            seen.push(kept.clone());
            true
        };
        let visited = match all {
            true => of_instant(&history, number, &plan, seed, &mut each),
            false => of_frame(&history, number, &plan, seed, &mut each),
        };
        assert_eq!(visited.states, seen.len() as u64);
        let set: BTreeSet<&Kept> = seen.iter().collect();
        assert_eq!(set.len(), seen.len());
        assert!(
            seen.len() as u64 <= most && wp_crash::most_of_frame(&history, number, &plan) <= most
        );
        (seen, visited.complete)
    };
    for all in [false, true] {
        let (seen, complete) = states(last, 12, 1, all);
        assert!(seen.len() == 12 && !complete && seen[0] == Kept::all(n));
        // What only an earlier frame adds is not of this one.
        assert!(all || seen.iter().all(|k| k.has(n - 1)));
        assert!(seen.iter().skip(1).any(|k| k.count() as usize == n - 1));
        assert!(seen.iter().any(|k| (k.count() as usize) < n - 2));
        assert_eq!(states(last, 12, 1, all).0, seen);
        assert_ne!(states(last, 12, 2, all).0, seen);
        assert_eq!(states(last, 1, 1, all).0, [Kept::all(n)]);
    }
    // A frame that has no more than that is explored in full.
    let (few, complete) = states(4, 100, 1, false);
    assert!(complete);
    assert_eq!(few, states(4, u64::MAX, 1, false).0);
}

#[test]
fn a_stretch_of_a_log_has_the_states_of_its_frames() {
    for seed in 0..200 {
        let mut rng = Rng::stream(seed, "a log");
        let (mut entries, mut marks) = (Vec::new(), 0);
        for id in 0..14 {
            let (op, flags) = match rng.below(8) {
                0 => (Op::Flush, Flags::NONE),
                1 => (Op::Write, Flags::FUA),
                2 => {
                    entries.extend([Entry::Begin(marks), Entry::End(marks)]);
                    marks += 1;
                    continue;
                }
                _ => (Op::Write, Flags::NONE),
            };
            entries.push(submit(id, op, flags, rng.below(4), id + 1));
            entries.push(Entry::Complete { id, ok: true });
        }
        let tape = tape(entries);
        let each = History::permitted(&tape, &Contract::HONEST);
        let joined = each.clone().in_stretches(&tape);
        assert!(joined.frames.len() <= each.frames.len());
        assert_eq!(visited(&joined, 14), visited(&each, 14), "seed {seed}: {tape:?}");
        for (number, frame) in joined.frames.iter().enumerate() {
            let live = |n: &u32| joined.units[*n as usize].gone > number as u32;
            assert!(frame.live.iter().all(live), "seed {seed}, frame {number}");
        }
        // It lasts as long: of each state the last moment at which it can be there is the same.
        let ends = |history: &History| {
            let last = |n: usize| history.until(n, |_| false);
            (0..history.frames.len()).map(last).collect::<BTreeSet<usize>>()
        };
        assert!(ends(&joined).is_subset(&ends(&each)), "seed {seed}");
    }
}
