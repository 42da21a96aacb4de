//! The zoned device against a naive model: random commands at random instants, contents, states,
//! and what power cuts leave.

use std::collections::BTreeMap;

use crate::common::World;
use proptest::prelude::*;
use wp_base::event::{Flags, Op, ZoneOp};
use wp_base::{Rng, Sector, Span, Zone, ZoneState};
use wp_block::{DeviceModel, Status, ZoneOrder};
use wp_device::zns::{Zns, ZnsConfig};
use wp_device::{Settings, find};
use wp_medium::{Medium, Slice};

/// Zones of 40 slots in 64, on 2 dies with units of 4 slots.
const SMALL: [(&str, u64); 12] = [
    ("zone_bytes", 64 * 4096),
    ("blocks_per_plane", 10),
    ("conventional_zones", 2),
    ("max_open_zones", 3),
    ("max_active_zones", 4),
    ("channels", 2),
    ("dies_per_channel", 1),
    ("planes", 1),
    ("page_bytes", 8192),
    ("pages_per_program", 2),
    ("pages_per_block", 10),
    ("buffer_bytes", 60 * 4096),
];
const ZONE: u64 = 64;
const CAPACITY: u64 = 40;
const ZONES: u64 = 10;

fn small(more: &[(&str, u64)]) -> Box<Zns> {
    let mut settings = Settings::of(find("zn540-4tb-noplp").expect("in the list").params);
    for (key, value) in SMALL.iter().chain(more) {
        settings.set(key, *value).expect("a key");
    }
    settings.set("max_request_sectors", 128).expect("a key");
    settings.set("append_max_sectors", 64).expect("a key");
    Box::new(Zns::new(ZnsConfig::from_settings(&settings).expect("a possible device")))
}

#[derive(Clone, Debug)]
enum Step {
    /// At the pointer of a zone, or `off` slots beside it.
    Write {
        zone: u64,
        slots: u64,
        off: u64,
        fua: bool,
    },
    Append {
        zone: u64,
        slots: u64,
    },
    Conventional {
        slot: u64,
        slots: u64,
        fua: bool,
    },
    Manage {
        op: ZoneOp,
        zone: u64,
    },
    Read {
        slot: u64,
        slots: u64,
    },
    Flush,
    Pass {
        ns: u64,
    },
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    let zone = || prop_oneof![3 => 2..5u64, 1 => 2..ZONES];
    prop_oneof![
        12 => (zone(), 1..9u64, 0..40u64, 0..8u8).prop_map(|(zone, slots, off, fua)| {
            Step::Write { zone, slots, off: off.saturating_sub(37), fua: fua == 0 }
        }),
        4 => (zone(), 1..9u64).prop_map(|(zone, slots)| Step::Append { zone, slots }),
        4 => (0..120u64, 1..6u64, 0..8u8)
            .prop_map(|(slot, slots, fua)| Step::Conventional { slot, slots, fua: fua == 0 }),
        4 => (0..6u8, zone()).prop_map(|(n, zone)| Step::Manage {
            op: [
                ZoneOp::Reset, ZoneOp::Reset, ZoneOp::Open, ZoneOp::Close, ZoneOp::Finish,
                ZoneOp::Report,
            ][n as usize],
            zone,
        }),
        1 => Just(Step::Manage { op: ZoneOp::ResetAll, zone: 2 }),
        4 => (0..ZONES * ZONE - 8, 1..8u64).prop_map(|(slot, slots)| Step::Read { slot, slots }),
        3 => Just(Step::Flush),
        8 => prop_oneof![0..30_000u64, 0..6_000_000u64].prop_map(|ns| Step::Pass { ns }),
        3 => Just(Step::Cut),
    ]
}

/// A zone as a naive reader of the command set would keep it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Naive {
    wp: u64,
    state: ZoneState,
    /// Order of its implicit opening.
    opened: u64,
}

#[derive(Clone, Debug)]
struct Flying {
    op: Op,
    at: u64,
    slots: u64,
    tag: u64,
    fua: bool,
    /// For a flush: how much of each zone and slot was complete. For a read: what was there, and
    /// zones that were reset meanwhile.
    zones: Vec<u64>,
    slots_known: Vec<usize>,
}

struct Model {
    w: World<Zns>,
    naive: Vec<Naive>,
    opens: u64,
    tags: u64,
    /// Tag of each slot of sequential zones; 0 is nothing.
    tag_of: Vec<u64>,
    /// Slots of each zone that have completed, and those that must survive.
    completed: Vec<u64>,
    sure: Vec<u64>,
    /// Versions of conventional slots, how many have completed and how many must survive.
    versions: Vec<Vec<u64>>,
    done: Vec<usize>,
    sure_version: Vec<usize>,
    flying: BTreeMap<u64, Flying>,
    plp: bool,
    order: ZoneOrder,
    rng: Rng,
    cuts: u64,
    partial: u64,
}

fn word(medium: &Medium, slot: u64) -> u64 {
    let mut bytes = [0; 8];
    medium.read_bytes(slot * 4096, &mut bytes);
    u64::from_le_bytes(bytes)
}

fn data(tag: u64, slots: u64) -> Vec<Slice> {
    (0..slots).map(|_| Slice::from_bytes(&tag.to_le_bytes().repeat(512))).collect()
}

impl Model {
    fn new(device: Box<Zns>, seed: u64) -> Model {
        let order = device.config().order;
        let plp = device.config().plp;
        let empty = Naive { wp: 0, state: ZoneState::Empty, opened: 0 };
        Model {
            w: World::new(device),
            naive: vec![empty; ZONES as usize],
            opens: 0,
            tags: 0,
            tag_of: vec![0; (ZONES * ZONE) as usize],
            completed: vec![0; ZONES as usize],
            sure: vec![0; ZONES as usize],
            versions: vec![vec![0]; 128],
            done: vec![0; 128],
            sure_version: vec![0; 128],
            flying: BTreeMap::new(),
            plp,
            order,
            rng: Rng::stream(seed, "zns"),
            cuts: 0,
            partial: 0,
        }
    }

    fn is_busy(&self, zone: u64) -> bool {
        let touches = |f: &&Flying| {
            matches!(f.op, Op::Write | Op::Zone(_)) && f.at / ZONE == zone && f.at >= 2 * ZONE
                || f.op == Op::Zone(ZoneOp::ResetAll)
        };
        self.flying.values().any(|f| touches(&f))
    }

    fn count(&self, f: fn(ZoneState) -> bool) -> usize {
        self.naive[2..].iter().filter(|z| f(z.state)).count()
    }

    /// What opening a zone that is in `state` gives, and does to others.
    fn open(&mut self, zone: u64, to: ZoneState) -> Result<(), Status> {
        let z = self.naive[zone as usize];
        match z.state {
            ZoneState::Empty | ZoneState::Closed => {
                if z.state == ZoneState::Empty && self.count(ZoneState::is_active) >= 4 {
                    return Err(Status::ZoneActiveResource);
                }
                if self.count(ZoneState::is_open) >= 3 {
                    let implicit = self.naive.iter_mut();
                    let implicit = implicit.filter(|z| z.state == ZoneState::ImplicitOpen);
                    let Some(first) = implicit.min_by_key(|z| z.opened) else {
                        return Err(Status::ZoneOpenResource);
                    };
                    first.state = ZoneState::Closed;
                }
            }
            ZoneState::ImplicitOpen | ZoneState::ExplicitOpen => {
                if to == ZoneState::ImplicitOpen {
                    return Ok(());
                }
            }
            _ => return Err(Status::Io),
        }
        self.opens += 1;
        let z = &mut self.naive[zone as usize];
        (z.state, z.opened) = (to, self.opens);
        Ok(())
    }

    fn write(&mut self, zone: u64, off: u64, slots: u64) -> Result<u64, Status> {
        let z = self.naive[zone as usize];
        if off > 0 || z.wp + slots > CAPACITY || z.state == ZoneState::Full {
            return Err(Status::Io);
        }
        self.open(zone, ZoneState::ImplicitOpen)?;
        let z = &mut self.naive[zone as usize];
        let at = zone * ZONE + z.wp;
        z.wp += slots;
        if z.wp == CAPACITY {
            z.state = ZoneState::Full;
        }
        Ok(at)
    }

    fn send(&mut self, op: Op, fua: bool, f: Flying, expected: Result<(), Status>) {
        let (sectors, data) = match op {
            Op::Write | Op::Zone(ZoneOp::Append) => (f.slots * 8, data(f.tag, f.slots)),
            Op::Read => (f.slots * 8, Vec::new()),
            _ => (0, Vec::new()),
        };
        let at = match op {
            Op::Zone(ZoneOp::Append) => f.at / ZONE * ZONE,
            _ => f.at,
        };
        let flags = if fua { Flags::FUA } else { Flags::NONE };
        let id = self.w.submit(op, flags, at * 8, sectors as u32, data);
        let refused = self.w.done.get(&id).map(|(_, d)| d.status).filter(Result::is_err);
        match expected {
            Err(status) => {
                assert_eq!(refused, Some(Err(status)), "{op:?} at slot {}", f.at);
                self.w.done.remove(&id);
            }
            Ok(()) => {
                assert_eq!(refused, None, "{op:?} at slot {}", f.at);
                self.flying.insert(id, f);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let mut f = Flying {
            op: Op::Write,
            at: 0,
            slots: 0,
            tag: 0,
            fua: false,
            zones: Vec::new(),
            slots_known: Vec::new(),
        };
        match *step {
            Step::Write { zone, slots, off, fua } if !self.is_busy(zone) => {
                self.tags += 1;
                let here = self.naive[zone as usize].wp;
                let expected = self.write(zone, off, slots).map(|_| ());
                (f.at, f.slots, f.tag, f.fua) = (zone * ZONE + here + off, slots, self.tags, fua);
                if expected.is_ok() {
                    self.mark(&f);
                }
                self.send(Op::Write, fua, f, expected);
            }
            Step::Append { zone, slots } => {
                if self.reset_flies(zone) {
                    return;
                }
                self.tags += 1;
                let here = self.naive[zone as usize].wp;
                let expected = self.write(zone, 0, slots).map(|_| ());
                f.op = Op::Zone(ZoneOp::Append);
                (f.at, f.slots, f.tag) = (zone * ZONE + here, slots, self.tags);
                if expected.is_ok() {
                    self.mark(&f);
                }
                self.send(f.op, false, f, expected);
            }
            Step::Conventional { slot, slots, fua } => {
                let meets = |o: &Flying| {
                    o.op != Op::Flush && o.at < slot + slots && slot < o.at + o.slots.max(1)
                };
                if self.flying.values().any(meets) {
                    return;
                }
                self.tags += 1;
                (f.at, f.slots, f.tag, f.fua) = (slot, slots, self.tags, fua);
                for s in slot..slot + slots {
                    self.versions[s as usize].push(self.tags);
                }
                self.send(Op::Write, fua, f, Ok(()));
            }
            Step::Manage { op, zone } => self.manage(op, zone, f),
            Step::Read { slot, slots } => {
                let busy = (slot / ZONE..=(slot + slots) / ZONE).any(|z| z >= 2 && self.is_busy(z));
                let meets =
                    |o: &Flying| o.op == Op::Write && o.at < slot + slots && slot < o.at + o.slots;
                if !busy && !self.flying.values().any(meets) {
                    (f.op, f.at, f.slots) = (Op::Read, slot, slots);
                    f.zones = (slot..slot + slots).map(|s| self.newest(s)).collect();
                    self.send(Op::Read, false, f, Ok(()));
                }
            }
            Step::Flush => {
                f.op = Op::Flush;
                (f.zones, f.slots_known) = (self.completed.clone(), self.done.clone());
                self.send(Op::Flush, false, f, Ok(()));
            }
            Step::Pass { ns } => {
                let to = self.w.now + Span(ns);
                while self.w.next_timer().is_some_and(|t| t <= to) {
                    self.w.step();
                    self.notice();
                }
                self.w.run_to(to);
            }
            Step::Cut => self.cut(),
            Step::Write { .. } => {}
        }
        self.notice();
        self.w.device.assert_valid();
        self.compare_states();
    }

    fn reset_flies(&self, zone: u64) -> bool {
        let manages = |f: &Flying| {
            matches!(f.op, Op::Zone(op) if op != ZoneOp::Append)
                && (f.at / ZONE == zone || f.op == Op::Zone(ZoneOp::ResetAll))
        };
        self.flying.values().any(manages)
    }

    fn mark(&mut self, f: &Flying) {
        (f.at..f.at + f.slots).for_each(|s| self.tag_of[s as usize] = f.tag);
    }

    fn manage(&mut self, op: ZoneOp, zone: u64, mut f: Flying) {
        let all = op == ZoneOp::ResetAll;
        if self.is_busy(zone) || (all && (2..ZONES).any(|z| self.is_busy(z))) {
            return;
        }
        (f.op, f.at) = (Op::Zone(op), if all { 0 } else { zone * ZONE });
        let state = self.naive[zone as usize].state;
        let expected = match op {
            ZoneOp::Open => self.open(zone, ZoneState::ExplicitOpen),
            ZoneOp::Close if state.is_active() => {
                self.naive[zone as usize].state = ZoneState::Closed;
                Ok(())
            }
            ZoneOp::Close => Err(Status::Io),
            ZoneOp::Finish => {
                let z = &mut self.naive[zone as usize];
                (z.wp, z.state) = (CAPACITY, ZoneState::Full);
                Ok(())
            }
            _ => Ok(()),
        };
        self.send(f.op, false, f, expected);
    }

    fn notice(&mut self) {
        for (id, (_, done)) in std::mem::take(&mut self.w.done) {
            let f = self.flying.remove(&id).expect("it was sent");
            assert_eq!(done.status, Ok(()));
            let zone = (f.at / ZONE) as usize;
            match f.op {
                Op::Write | Op::Zone(ZoneOp::Append) if f.at >= 2 * ZONE => {
                    if f.op != Op::Write {
                        assert_eq!(done.appended, Some(Sector(f.at * 8)));
                    }
                    let end = f.at + f.slots - zone as u64 * ZONE;
                    self.completed[zone] = self.completed[zone].max(end);
                    if f.fua || self.plp {
                        self.sure[zone] = self.sure[zone].max(end);
                    }
                }
                Op::Write => {
                    for s in f.at..f.at + f.slots {
                        let s = s as usize;
                        let version = self.versions[s].iter().position(|t| *t == f.tag);
                        self.done[s] = version.expect("it was sent");
                        if f.fua || self.plp {
                            self.sure_version[s] = self.done[s];
                        }
                    }
                }
                Op::Flush => {
                    for (z, covered) in f.zones.iter().enumerate() {
                        self.sure[z] = self.sure[z].max(*covered).min(self.completed[z]);
                    }
                    for (s, covered) in f.slots_known.iter().enumerate() {
                        self.sure_version[s] = self.sure_version[s].max(*covered);
                    }
                }
                Op::Zone(ZoneOp::Reset) => self.was_reset(zone),
                Op::Zone(ZoneOp::ResetAll) => (2..ZONES as usize).for_each(|z| self.was_reset(z)),
                Op::Zone(ZoneOp::Finish) => {
                    self.completed[zone] = CAPACITY;
                    self.sure[zone] = CAPACITY;
                }
                Op::Read => {
                    let got: Vec<u8> = Slice::concat(&done.data);
                    assert_eq!(got.len() as u64, f.slots * 4096);
                    for i in 0..f.slots {
                        let at = (i * 4096) as usize;
                        let word = u64::from_le_bytes(got[at..at + 8].try_into().expect("eight"));
                        // What was written meanwhile it may have read or not.
                        let want = [f.zones[i as usize], self.newest(f.at + i)];
                        let zone = (f.at + i) / ZONE;
                        let was_reset = f.slots_known.contains(&(zone as usize));
                        let reset = word == 0 && (was_reset || self.reset_flies(zone));
                        assert!(
                            want.contains(&word) || reset,
                            "slot {}: {word}, not {want:?}",
                            f.at + i
                        );
                    }
                }
                _ => {}
            }
        }
    }

    fn newest(&self, slot: u64) -> u64 {
        match self.versions.get(slot as usize) {
            Some(versions) => *versions.last().expect("one"),
            None => self.tag_of[slot as usize],
        }
    }

    fn was_reset(&mut self, zone: usize) {
        self.naive[zone] = Naive { wp: 0, state: ZoneState::Empty, opened: 0 };
        (self.completed[zone], self.sure[zone]) = (0, 0);
        let from = zone * ZONE as usize;
        self.tag_of[from..from + ZONE as usize].fill(0);
        // Reads under way may have seen it empty, whatever was written there since.
        for f in self.flying.values_mut().filter(|f| f.op == Op::Read) {
            f.slots_known.push(zone);
        }
        // Flushes under way promise nothing of it any more.
        for f in self.flying.values_mut().filter(|f| f.op == Op::Flush) {
            f.zones[zone] = 0;
        }
    }

    fn compare_states(&self) {
        for (i, z) in self.w.device.zones().iter().enumerate().skip(2) {
            let n = self.naive[i];
            assert_eq!((z.state, (z.wp.0 - z.start.0) / 8), (n.state, n.wp), "zone {i}");
        }
    }

    fn cut(&mut self) {
        self.cuts += 1;
        let view = self.w.device.crash_view(self.w.now);
        assert!(view.loss.is_sorted_by_key(|u| u.seq));
        let n = view.loss.len();
        assert!(!self.plp || view.loss.iter().all(|u| !u.acked), "PLP loses nothing acknowledged");
        self.check(&view.medium, &view.zones_of(|_| false), "nothing kept");
        self.check(&view.all_kept(), &view.zones_of(|_| true), "all kept");
        for _ in 0..6 {
            let mut kept: Vec<bool> = (0..n).map(|_| self.rng.below(4) > 0).collect();
            if !view.is_legal(|i| kept[i]) {
                assert_eq!(self.order, ZoneOrder::Prefix);
                // Make it one: nothing behind the first that is lost of each zone.
                let mut lost = std::collections::BTreeSet::new();
                for (unit, kept) in view.loss.iter().zip(&mut kept) {
                    let zone = unit.at.0 / (ZONE * 8);
                    *kept &= zone < 2 || !lost.contains(&zone);
                    if !*kept {
                        lost.insert(zone);
                    }
                }
                assert!(view.is_legal(|i| kept[i]));
            }
            self.partial += u64::from(kept.contains(&true) && kept.contains(&false));
            let mut image = view.medium.clone();
            for (unit, _) in view.loss.iter().zip(&kept).filter(|(_, k)| **k) {
                unit.apply(&mut image);
            }
            self.check(&image, &view.zones_of(|i| kept[i]), "some kept");
        }
    }

    /// Is this an image that keeps what was promised, with the pointers of it?
    fn check(&self, image: &Medium, zones: &[Zone], what: &str) {
        for (zone, z) in zones.iter().enumerate().take(ZONES as usize).skip(2) {
            let wp = (z.wp.0 - z.start.0) / 8;
            let reset_flies = self.reset_flies(zone as u64);
            let base = zone as u64 * ZONE;
            assert!(
                wp >= self.sure[zone] || reset_flies,
                "{what}: zone {zone} ends at {wp}, {} were promised",
                self.sure[zone]
            );
            assert!(!z.state.is_open() && (z.state == ZoneState::Empty) == (wp == 0), "{z:?}");
            for s in 0..ZONE {
                let found = word(image, base + s);
                let want = if s < wp { self.tag_of[(base + s) as usize] } else { 0 };
                let hole = self.order == ZoneOrder::Holes && s >= self.sure[zone] && found == 0;
                assert!(found == want || hole, "{what}: slot {s} of zone {zone}, pointer {wp}");
            }
        }
        for (s, versions) in self.versions.iter().enumerate() {
            let found = word(image, s as u64);
            let allowed = &versions[self.sure_version[s]..];
            assert!(allowed.contains(&found), "{what}: slot {s} has {found}, not {allowed:?}");
        }
    }
}

fn devices() -> Vec<(&'static str, Box<Zns>)> {
    vec![
        ("plain", small(&[])),
        ("holes", small(&[("dies_out_of_order", 1)])),
        ("PLP", small(&[("plp", 1)])),
        ("quick", small(&[("program_ns", 20_000), ("reset_ns", 1_000), ("reset_open_ns", 0)])),
        ("free flush", small(&[("internal_flush_ns", 900_000), ("internal_flush_free", 1)])),
        ("own flush", small(&[("internal_flush_ns", 900_000)])),
        ("serial", small(&[("serial_programming", 1)])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn it_is_what_the_command_set_says_and_keeps_what_it_promised(
        steps in proptest::collection::vec(step(), 1..160),
        seed in 0..1000u64,
    ) {
        for (_, device) in devices() {
            let mut model = Model::new(device, seed);
            for step in &steps {
                model.step(step);
            }
            model.w.drain();
            model.notice();
            prop_assert!(model.flying.is_empty(), "all complete");
            model.w.device.assert_valid();
            model.compare_states();
            // What is complete and flushed is there.
            model.step(&Step::Flush);
            model.w.drain();
            model.notice();
            model.cut();
            let counters = model.w.device.counters();
            prop_assert!(counters.len() > 10);
        }
    }
}

/// Which writes (one slot each, to zones 2, 3 and 4 in turn by `zones`) are durable at each instant
/// of a run that ends with a flush: the numbers of writes, in the order in which they came.
fn durable_sets(device: Box<Zns>, zones: &[u64]) -> Vec<Vec<usize>> {
    let mut w = World::new(device);
    let mut wp = BTreeMap::new();
    let mut places = Vec::new();
    let mut sets = Vec::new();
    let mut look = |w: &mut World<Zns>, places: &[(u64, u64)]| {
        let view = w.device.crash_view(w.now);
        let table = view.zones.expect("it has zones").table.clone();
        let is_there = |(zone, slot): (u64, u64)| {
            let z = &table[zone as usize];
            z.start.0 + slot * 8 < z.wp.0
        };
        sets.push((0..places.len()).filter(|i| is_there(places[*i])).collect::<Vec<_>>());
    };
    for (n, zone) in zones.iter().enumerate() {
        let slot = wp.entry(*zone).or_insert(0);
        let id = w.write((zone * ZONE + *slot) * 8, Slice::pattern(n as u64 + 1, 0, 4096));
        places.push((*zone, *slot));
        *slot += 1;
        while !w.done.contains_key(&id) {
            w.step();
            look(&mut w, &places[..n]);
        }
    }
    let flush = w.flush();
    while !w.done.contains_key(&flush) {
        w.step();
        look(&mut w, &places);
    }
    assert_eq!(sets.last().expect("looked at").len(), zones.len(), "flushed");
    sets
}

#[test]
fn serial_programming_keeps_the_order_of_arrival_and_dies_do_not() {
    let mut rng = Rng::stream(1, "zones");
    let zones: Vec<u64> = (0..60).map(|_| 2 + rng.below(3)).collect();
    let has_gap = |set: &Vec<usize>| set.iter().enumerate().any(|(i, n)| i != *n);
    let serial = durable_sets(small(&[("serial_programming", 1)]), &zones);
    assert!(serial.iter().any(|s| !s.is_empty() && s.len() < 60), "something in between");
    assert!(!serial.iter().any(has_gap));
    let beside = durable_sets(small(&[]), &zones);
    assert!(beside.iter().any(has_gap), "a later write is durable before an earlier one");
}

#[test]
fn the_free_flush_comes_at_fixed_times() {
    let period = 900_000;
    let free = [("internal_flush_ns", period), ("internal_flush_free", 1)];
    let mut w = World::new(small(&free));
    w.run_to(wp_base::Time(850_000));
    w.write(2 * ZONE * 8, Slice::pattern(1, 0, 4096));
    w.run_to(wp_base::Time(period - 1));
    assert_eq!(w.device.crash_view(w.now).loss.len(), 1);
    w.run_to(wp_base::Time(period));
    assert_eq!(w.device.crash_view(w.now).loss.len(), 0, "durable at a multiple of the period");
}
