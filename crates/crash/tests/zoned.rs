//! Zones in crash states, against a brute-force reading of the contract's words.

use std::collections::BTreeSet;
use std::rc::Rc;

use wp_base::event::{Flags, Op, ZoneOp};
use wp_base::rng::Rng;
use wp_base::{Sector, Time, ZoneLimits, ZoneState};
use wp_block::ZoneOrder;
use wp_crash::{Contract, Entry, History, Plan, Tape, TapeZones, of_frame};
use wp_medium::{Medium, Slice};

const LIMITS: ZoneLimits = ZoneLimits {
    zone_sectors: 64,
    capacity_sectors: 48,
    zones: 3,
    conventional: 1,
    max_open: 2,
    max_active: 2,
    append_max_sectors: 64,
};

fn tape(entries: Vec<Entry>) -> Tape {
    let mut tape =
        Tape::of(entries.into_iter().enumerate().map(|(i, e)| (Time(i as u64), e)).collect());
    tape.zones = Some(TapeZones { limits: LIMITS, table: Rc::new(LIMITS.fresh()) });
    tape
}

fn submit(id: u64, op: Op, flags: Flags, block: u64, tag: u64) -> Entry {
    let data = if op.writes() { vec![Slice::pattern(tag, 0, 4096)] } else { Vec::new() };
    let sectors = if op.writes() { 8 } else { 0 };
    Entry::Submit { id, op, flags, at: Sector(block * 8), sectors, data }
}

/// Tags of the 24 blocks, and the write pointers of zones 1 and 2 in blocks.
type Image = (Vec<u64>, [u64; 2]);

fn image(medium: &Medium, tags: u64, wps: [u64; 2]) -> Image {
    let known: Vec<(u64, u128)> =
        (1..=tags).map(|t| (t, Slice::pattern(t, 0, 4096).id())).collect();
    let tag = |b: u64| {
        let id = medium.read(Sector(b * 8), 8)[0].id();
        known.iter().find(|(_, i)| *i == id).map_or(0, |(t, _)| *t)
    };
    ((0..24).map(tag).collect(), wps)
}

fn visited(history: &History, tags: u64) -> BTreeSet<Image> {
    let mut out = BTreeSet::new();
    for (n, frame) in history.frames.iter().enumerate() {
        of_frame(history, n, &Plan::default(), 1, &mut |kept: &wp_crash::Kept| {
            let live = || (0..frame.live.len()).filter(|i| kept.has(*i));
            let mut medium = frame.base.clone();
            for i in live() {
                history.units[frame.live[i] as usize].apply(&mut medium);
            }
            let zones = history.zones_of(n, kept);
            let wp = |z: usize| (zones[z].wp.0 - zones[z].start.0) / 8;
            out.insert(image(&medium, tags, [wp(1), wp(2)]));
            true
        });
    }
    out
}

/// What has been sent of one zone (or a conventional block): number in the tape.
#[derive(Clone, Copy, Debug)]
enum Did {
    Wrote { block: u64, tag: u64 },
    Reset,
    Finished,
}

/// After each entry: of each zone the durable part, and of the rest what the order allows.
fn by_the_words(tape: &Tape, order: ZoneOrder, tags: u64) -> BTreeSet<Image> {
    let mut out = BTreeSet::new();
    for end in 0..=tape.entries.len() {
        let seen = &tape.entries[..end];
        let completed = |id: u64| {
            seen.iter().position(|e| matches!(e.1, Entry::Complete { id: i, ok: true } if i == id))
        };
        // (zone, what, must it be there?) in order.
        let mut sent: Vec<(u64, Did, bool)> = Vec::new();
        for (_, entry) in seen {
            let Entry::Submit { id, op, flags, at, data, .. } = entry else { continue };
            let done = completed(*id);
            let flushed = done.is_some_and(|done| {
                seen.iter().enumerate().any(|(pos, e)| match &e.1 {
                    Entry::Submit { id, op: Op::Flush, .. } => {
                        pos > done && completed(*id).is_some()
                    }
                    _ => false,
                })
            });
            let block = at.0 / 8;
            let zone = block / 8;
            match op {
                Op::Write => {
                    let tag = (1..=tags).find(|t| Slice::pattern(*t, 0, 4096).id() == data[0].id());
                    let did = Did::Wrote { block, tag: tag.expect("one of ours") };
                    let sure = flushed || (done.is_some() && flags.has(Flags::FUA));
                    sent.push((zone, did, sure));
                }
                Op::Zone(ZoneOp::Reset) => sent.push((zone, Did::Reset, done.is_some())),
                Op::Zone(ZoneOp::Finish) => sent.push((zone, Did::Finished, done.is_some())),
                _ => {}
            }
        }
        let n = sent.len();
        assert!(n <= 12);
        'choice: for mask in 0..1u32 << n {
            let kept = |i: usize| mask >> i & 1 == 1;
            for i in 0..n {
                let (zone, did, sure) = sent[i];
                let later = |f: fn(&Did) -> bool| {
                    (i + 1..n).any(|j| sent[j].0 == zone && sent[j].2 && f(&sent[j].1))
                };
                // Nothing of before a durable reset matters, and a finish makes sure of what is
                // before it.
                if later(|d| matches!(d, Did::Reset)) {
                    if !kept(i) {
                        continue 'choice;
                    }
                    continue;
                }
                let overwritten = zone == 0
                    && (i + 1..n).any(|j| match (sent[j], did) {
                        ((0, Did::Wrote { block: b, .. }, true), Did::Wrote { block, .. }) => {
                            b == block
                        }
                        _ => false,
                    });
                let finished = later(|d| matches!(d, Did::Finished));
                let prefix = order == ZoneOrder::Prefix && zone > 0;
                let bound = prefix && (i + 1..n).any(|j| sent[j].0 == zone && kept(j));
                if (sure || finished || bound || overwritten) && !kept(i) {
                    continue 'choice;
                }
            }
            let mut blocks = vec![0; 24];
            let mut wps = [0u64; 2];
            for (i, (zone, did, _)) in sent.iter().enumerate().filter(|(i, _)| kept(*i)) {
                match did {
                    Did::Wrote { block, tag } => {
                        // A durable and newer one at the same place covers it.
                        let newer = sent[i + 1..].iter().any(|(_, d, sure)| {
                            *sure && matches!(d, Did::Wrote { block: b, .. } if b == block)
                        });
                        if !newer || *zone > 0 {
                            blocks[*block as usize] = *tag;
                        }
                        if *zone > 0 {
                            let wp = &mut wps[*zone as usize - 1];
                            *wp = (*wp).max(block % 8 + 1);
                        }
                    }
                    Did::Reset => {
                        blocks[*zone as usize * 8..*zone as usize * 8 + 8].fill(0);
                        wps[*zone as usize - 1] = 0;
                    }
                    Did::Finished => wps[*zone as usize - 1] = 6,
                }
            }
            out.insert((blocks, wps));
        }
    }
    out
}

/// Random traffic: one write at a time in a zone, at its pointer.
fn traffic(seed: u64) -> (Tape, u64) {
    let mut rng = Rng::stream(seed, "zones");
    let (mut entries, mut flying, mut tag) = (Vec::new(), Vec::<(u64, u64)>::new(), 0);
    let mut wps = [0u64; 3];
    for id in 0..26 {
        let zone = rng.below(3);
        let free = !flying.iter().any(|f| f.1 == zone);
        match rng.below(8) {
            0 => {
                entries.push(submit(id, Op::Flush, Flags::NONE, 0, 0));
                flying.push((id, 9));
            }
            1..=3 if tag < 9 && free && wps[zone as usize] < 6 => {
                tag += 1;
                let fua = if rng.below(5) == 0 { Flags::FUA } else { Flags::NONE };
                let block = match zone {
                    0 => rng.below(2),
                    _ => zone * 8 + wps[zone as usize],
                };
                wps[zone as usize] += u64::from(zone > 0);
                entries.push(submit(id, Op::Write, fua, block, tag));
                flying.push((id, zone));
            }
            4 if zone > 0 && free && wps[zone as usize] > 0 => {
                let op = if rng.below(3) == 0 { ZoneOp::Finish } else { ZoneOp::Reset };
                wps[zone as usize] = if op == ZoneOp::Reset { 0 } else { 6 };
                entries.push(submit(id, Op::Zone(op), Flags::NONE, zone * 8, 0));
                flying.push((id, zone));
            }
            _ if !flying.is_empty() => {
                let n = rng.below(flying.len() as u64) as usize;
                entries.push(Entry::Complete { id: flying.remove(n).0, ok: true });
            }
            _ => {}
        }
    }
    (tape(entries), tag)
}

#[test]
fn every_state_of_the_zones_is_visited_and_no_other_in_both_spaces() {
    let (mut states, mut holes) = (0, 0);
    for seed in 0..120 {
        let (tape, tags) = traffic(seed);
        for order in [ZoneOrder::Prefix, ZoneOrder::Holes] {
            let contract = Contract { zone_order: order, ..Contract::HONEST };
            let history = History::permitted(&tape, &contract);
            let found = visited(&history, tags);
            let words = by_the_words(&tape, order, tags);
            assert_eq!(found, words, "seed {seed}, {order:?}: {:?}", tape.entries);
            states += found.len();
            let is_hole =
                |i: &&Image| (0..2).any(|z| (0..i.1[z]).any(|b| i.0[8 + z * 8 + b as usize] == 0));
            let with_holes = found.iter().filter(is_hole).count();
            holes += if order == ZoneOrder::Holes { with_holes } else { 0 };
        }
    }
    assert!(states > 4_000 && holes > 200, "{states} states, {holes} with a hole or padding");
}

#[test]
fn recovery_reads_write_pointers_and_they_tell_states_apart() {
    use wp_crash::{Explorer, Ledger, Options, Outcome, Pages, Profile, Subject};

    /// A recovery that looks at nothing but the report.
    struct Pointers;
    impl Subject for Pointers {
        fn block_bytes(&self) -> u32 {
            4096
        }
        fn recover(&self, pages: &dyn Pages) -> Outcome {
            let zones = pages.zones();
            assert_eq!(zones.len(), 3);
            let wps: Vec<u64> = zones.iter().map(|z| z.wp.0 - z.start.0).collect();
            assert!(zones.iter().all(|z| z.state != ZoneState::ImplicitOpen));
            Outcome { did: format!("{wps:?}"), ..Outcome::default() }
        }
    }
    let w = |id, block| submit(id, Op::Write, Flags::NONE, block, id);
    let done = |id| Entry::Complete { id, ok: true };
    let tape = tape(vec![w(1, 8), done(1), w(2, 9), done(2), w(3, 16), done(3)]);
    let history = History::permitted(&tape, &Contract::HONEST);
    let options = Options {
        plan: Plan::default(),
        seed: 1,
        partition: (0, 3 * 64 * 512),
        profile: Profile::POSIX,
        keep: 1,
        prune: true,
        recovery_in_order: true,
        second_cuts: 0,
    };
    let mut explorer = Explorer::new(&Pointers, options);
    assert!(explorer.explore(&tape, &history, &Ledger::new(&[], 4096), &mut |_| true));
    // 0, 1 or 2 blocks of one zone, and 0 or 1 of the other.
    assert_eq!((explorer.totals.raw, explorer.totals.distinct), (6, 6));
}
