//! What a device may show, sector by sector: a naive model that knows only the contract.
//!
//! Each sector has its versions in the order in which they were submitted. A version is *sure* once
//! it was completed before a flush that has completed (or was FUA, or the device has PLP). After a
//! power cut a sector must show its last sure version or any later one.

use std::collections::BTreeMap;

use wp_base::event::{Flags, Op};
use wp_base::{Rng, Sector};
use wp_block::{DeviceModel, LossWhy};
use wp_medium::{Medium, Slice, pattern_word};

use crate::common::World;

#[derive(Clone, Debug)]
pub enum Step {
    /// `barrier` only where the device knows it.
    Write {
        at: u64,
        sectors: u64,
        fua: bool,
        barrier: bool,
    },
    Discard {
        at: u64,
        sectors: u64,
    },
    Read {
        at: u64,
        sectors: u64,
    },
    Flush,
    Pass {
        ns: u64,
    },
    Cut,
}

struct Flying {
    op: Op,
    sure: bool,
    at: u64,
    sectors: u64,
    tag: u64,
    /// For a flush: sectors' versions that it covers, as the last completed tag.
    covers: Vec<u64>,
}

pub struct Oracle {
    pub world: World<dyn DeviceModel>,
    plp: bool,
    /// Versions of each sector: tags, 0 for zeroes. The first is what it was made with.
    versions: Vec<Vec<u64>>,
    /// Index of the last sure version of each sector, and of the last completed.
    sure: Vec<usize>,
    completed: Vec<usize>,
    flying: BTreeMap<u64, Flying>,
    next_tag: u64,
    rng: Rng,
    /// May a discarded sector show what it held?
    pub old_after_trim: bool,
    pub cuts: u64,
    pub losses: u64,
    /// Reads of discarded sectors that told what they had held.
    pub old_reads: u64,
}

impl Oracle {
    pub fn new(device: Box<dyn DeviceModel>, seed: u64) -> Oracle {
        let limits = *device.limits();
        let n = limits.sectors as usize;
        Oracle {
            world: World::new(device),
            plp: !limits.volatile_cache,
            versions: vec![vec![0]; n],
            sure: vec![0; n],
            completed: vec![0; n],
            flying: BTreeMap::new(),
            next_tag: 1,
            rng: Rng::stream(seed, "oracle"),
            old_after_trim: false,
            cuts: 0,
            losses: 0,
            old_reads: 0,
        }
    }

    fn is_free(&self, at: u64, sectors: u64) -> bool {
        let changes = |f: &&Flying| matches!(f.op, Op::Write | Op::Discard | Op::Read);
        self.flying.values().filter(changes).all(|f| f.at + f.sectors <= at || at + sectors <= f.at)
    }

    pub fn step(&mut self, step: &Step) {
        let n = self.versions.len() as u64;
        let limits = *self.world.device.limits();
        match *step {
            // Requests that overlap in flight have no order, and nobody sends them.
            Step::Write { at, sectors, .. }
            | Step::Discard { at, sectors }
            | Step::Read { at, sectors }
                if at + sectors > n || !self.is_free(at, sectors) => {}
            Step::Write { at, sectors, fua, barrier } => {
                let tag = self.next_tag;
                let sure = fua && limits.fua;
                let mut flags = if sure { Flags::FUA } else { Flags::NONE };
                if barrier && limits.barrier_writes {
                    flags |= Flags::ORDERED | Flags::BARRIER;
                }
                // In two pieces, as a merged request is.
                let half = sectors / 2;
                let data = vec![
                    Slice::pattern(tag, at * 512, half as u32 * 512),
                    Slice::pattern(tag, (at + half) * 512, (sectors - half) as u32 * 512),
                ];
                let sent = self.world.try_submit(Op::Write, flags, at, sectors as u32, data);
                self.sent(sent, Op::Write, at, sectors, sure || self.plp);
            }
            Step::Discard { at, sectors } => {
                // What does not cover the granularity would be ignored.
                let unit = u64::from(limits.discard_granularity_sectors);
                let (at, end) = (at.next_multiple_of(unit), (at + sectors) / unit * unit);
                if end > at {
                    let sent = self.world.try_submit(
                        Op::Discard,
                        Flags::NONE,
                        at,
                        (end - at) as u32,
                        Vec::new(),
                    );
                    self.sent(sent, Op::Discard, at, end - at, self.plp);
                }
            }
            Step::Read { at, sectors } => {
                let sent =
                    self.world.try_submit(Op::Read, Flags::NONE, at, sectors as u32, Vec::new());
                self.sent(sent, Op::Read, at, sectors, false);
            }
            Step::Flush => {
                let sent = self.world.try_submit(Op::Flush, Flags::NONE, 0, 0, Vec::new());
                self.sent(sent, Op::Flush, 0, 0, false);
            }
            Step::Pass { ns } => {
                let to = self.world.now + wp_base::Span(ns);
                while self.world.next_timer().is_some_and(|t| t <= to) {
                    self.world.step();
                    self.notice();
                }
                self.world.run_to(to);
            }
            Step::Cut => self.check_cut(),
        }
        self.notice();
    }

    fn sent(&mut self, id: Option<u64>, op: Op, at: u64, sectors: u64, sure: bool) {
        let Some(id) = id else { return };
        let tag = if op == Op::Write { self.next_tag } else { 0 };
        if matches!(op, Op::Write | Op::Discard) {
            self.next_tag += u64::from(op == Op::Write);
            (at..at + sectors).for_each(|s| self.versions[s as usize].push(tag));
        }
        let covers = if op == Op::Flush {
            self.completed.iter().map(|i| *i as u64).collect()
        } else {
            Vec::new()
        };
        self.flying.insert(id, Flying { op, sure, at, sectors, tag, covers });
    }

    /// Takes in what has completed.
    fn notice(&mut self) {
        for (id, (_, done)) in std::mem::take(&mut self.world.done) {
            let f = self.flying.remove(&id).expect("it was sent");
            assert_eq!(done.status, Ok(()), "{:?} at {}", f.op, f.at);
            let range = f.at as usize..(f.at + f.sectors) as usize;
            match f.op {
                Op::Write | Op::Discard => {
                    for s in range {
                        // Nothing that overlaps was in flight, so it is the last.
                        assert_eq!(self.versions[s].last(), Some(&f.tag));
                        self.completed[s] = self.versions[s].len() - 1;
                        if f.sure {
                            self.sure[s] = self.completed[s];
                        }
                    }
                }
                Op::Flush => {
                    for (s, covered) in f.covers.into_iter().enumerate() {
                        self.sure[s] = self.sure[s].max(covered as usize);
                    }
                }
                Op::Zone(_) => panic!("none is sent"),
                Op::Read => {
                    let got: Vec<u8> = Slice::concat(&done.data);
                    assert_eq!(got.len(), f.sectors as usize * 512);
                    for (i, s) in range.enumerate() {
                        let word = u64::from_le_bytes(
                            got[i * 512..i * 512 + 8].try_into().expect("eight"),
                        );
                        let newest = self.versions[s].len() - 1;
                        let want = word_of(self.versions[s][newest], s as u64);
                        if word != want && self.held_before(s, newest) == Some(word) {
                            self.old_reads += 1;
                            continue;
                        }
                        assert_eq!(word, want, "read of sector {s}");
                    }
                }
            }
        }
    }

    /// Every image that a cut now can leave must keep what is sure; and all that is acknowledged
    /// must be readable.
    fn check_cut(&mut self) {
        self.cuts += 1;
        let now = self.world.now;
        // Of a fork: it must be cut as the device itself would be.
        let view = self.world.device.fork().crash_view(now);
        self.losses += view.loss.len() as u64;
        for pair in view.loss.windows(2) {
            assert!(pair[0].seq <= pair[1].seq, "loss units are in order");
        }
        for unit in &view.loss {
            let flying = self.flying.values().any(|f| {
                matches!(f.op, Op::Write | Op::Discard) && f.at < unit.at.0 + unit.sectors() && {
                    unit.at.0 < f.at + f.sectors
                }
            });
            if !unit.acked {
                assert!(
                    flying,
                    "an unacknowledged unit of a request that is not in flight: {unit:?}"
                );
            }
            assert!(!(unit.acked && unit.why == LossWhy::InTransfer));
            assert!(!(self.plp && unit.acked), "PLP loses nothing that is acknowledged");
        }
        self.check_image(&view.medium, "nothing kept", false);
        self.check_image(&view.all_kept(), "all kept", true);
        for _ in 0..3 {
            let mut image = view.medium.clone();
            let keep = 1 + self.rng.below(3);
            view.loss.iter().filter(|_| self.rng.below(4) < keep).for_each(|u| u.apply(&mut image));
            self.check_image(&image, "some kept", false);
        }
        let medium = self.world.device.medium();
        for s in 0..self.versions.len() {
            let word = word_at(&medium, s as u64);
            let readable = [self.completed[s], self.versions[s].len() - 1];
            let shown = |v: &usize| {
                word == word_of(self.versions[s][*v], s as u64)
                    || self.held_before(s, *v) == Some(word)
            };
            assert!(readable.iter().any(shown), "a reader sees an old version of sector {s}");
        }
    }

    fn check_image(&self, image: &Medium, what: &str, newest: bool) {
        for s in 0..self.versions.len() {
            let word = word_at(image, s as u64);
            let from = if newest { self.versions[s].len() - 1 } else { self.sure[s] };
            let allowed = &self.versions[s][from..];
            assert!(
                allowed.iter().any(|t| word == word_of(*t, s as u64))
                    || self.held_before(s, from) == Some(word),
                "{what}: sector {s} shows none of versions {allowed:?} but {:?}",
                self.versions[s].iter().position(|t| word == word_of(*t, s as u64))
            );
        }
    }

    /// What sector `s` held before version `v`, if that is a discard and it may still show it.
    fn held_before(&self, s: usize, v: usize) -> Option<u64> {
        let written = self.versions[s][..=v].iter().rposition(|tag| *tag != 0)?;
        let shows = self.old_after_trim && self.versions[s][v] == 0;
        shows.then(|| word_of(self.versions[s][written], s as u64))
    }

    /// Lets everything finish; flushes; then nothing may be left to lose.
    pub fn finish(&mut self) {
        self.step(&Step::Pass { ns: 1_000_000_000 });
        assert!(self.flying.is_empty(), "requests that never complete");
        self.step(&Step::Cut);
        self.step(&Step::Flush);
        self.step(&Step::Pass { ns: 1_000_000_000 });
        self.step(&Step::Cut);
        let view = self.world.device.crash_view(self.world.now);
        assert!(view.loss.is_empty(), "{} units after a flush", view.loss.len());
        self.check_image(&view.medium, "after a flush", true);
    }
}

fn word_of(tag: u64, sector: u64) -> u64 {
    if tag == 0 { 0 } else { pattern_word(tag, sector * 64) }
}

fn word_at(medium: &Medium, sector: u64) -> u64 {
    let mut word = [0; 8];
    medium.read_bytes(Sector(sector).bytes(), &mut word);
    u64::from_le_bytes(word)
}
