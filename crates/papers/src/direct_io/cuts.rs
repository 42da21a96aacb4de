//! What a power failure leaves of direct writes over a file that is there.
//!
//! Picture:    seed -> program (fill, sync, then direct writes at random places, one every three
//!             seconds, with or without an fsync behind each) -> a run with a tape -> every state
//!             that a drive with a cache may be left with while they go on (with many unpersisted
//!             units a sample) -> recovery -> the file, block by block: whose write is there?
//! Counted:    states, each once however long it is possible; a write is acknowledged if it has
//!             returned by the end of that time. The pauses let journals, logs and commits that
//!             wait for a timer come by themselves.
//! Invariants: every state is `all`, `none`, `some` or `refused`; the other columns are of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use wp_base::rng::Rng;
use wp_campaign::{Bench, Space, play};
use wp_crash::{Explorer, FsSubject, Outcome, Plan as States, Profile, Visit};
use wp_machine::MachineError;
use wp_medium::Sound;
use wp_workload::program::{Call, Program, contents};

use super::run::System;

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Blocks of a write: more than one, so that it can be torn.
const WRITE_BLOCKS: u64 = 4;
/// Writes that fit the file.
const PLACES: u64 = 8;
/// Writes of a run.
pub const WRITES: u32 = 12;
/// Microseconds between two of them: the timers of journals and logs (5 s), of btrfs' commit (30 s)
/// and of the flusher (5 and 30 s) come between some.
const PAUSE_US: u64 = 3_000_000;
/// Bytes of the drive: NILFS2 with its usual segments takes none of 128 MiB.
const DRIVE: u64 = 256 << 20;
/// Calls before them: open, fill, sync.
const PREPARED: u32 = 3;

/// The systems that are cut: the paper's, and the one that it proposes.
pub const SYSTEMS: [System; 5] =
    [System::F2fs, System::Ext4, System::Btrfs, System::Nilfs2, System::F2fsLog];

/// What may be there after a cut, in states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// System.
    pub system: String,
    /// Is there an fsync behind each write?
    pub synced: bool,
    /// States of the drive while the writes went on.
    pub states: u64,
    /// Recoveries that could tell theirs from all before.
    pub recovered: u64,
    /// Instants whose states were only sampled.
    pub sampled: u64,
    /// All acknowledged writes are there, whole.
    pub all: u64,
    /// None of them is: the file is as before.
    pub none: u64,
    /// Some are.
    pub some: u64,
    /// It cannot be mounted, or is damaged.
    pub refused: u64,
    /// A write is there in part.
    pub torn: u64,
    /// A write is there, and an acknowledged one before it is not.
    pub out_of_order: u64,
    /// What an fsync had answered for is not there.
    pub lost_synced: u64,
    /// A block holds what was never written there.
    pub foreign: u64,
    /// Most acknowledged writes that are missing or torn in one state.
    pub most_lost: u64,
}

/// A write of the program.
#[derive(Clone, Copy, Debug)]
struct Write {
    /// First block.
    first: u64,
    /// Number of the call.
    call: u32,
    /// What it writes; higher than its predecessors'.
    seed: u32,
}

/// The writes of a seed, numbered as in [`program`].
fn writes(seed: u64, synced: bool) -> Vec<Write> {
    let mut rng = Rng::stream(seed, "cut direct writes");
    let calls = if synced { 2 } else { 1 };
    let write = |n| Write {
        first: rng.below(PLACES) * WRITE_BLOCKS,
        call: PREPARED + n * calls,
        seed: n + 1,
    };
    (0..WRITES).map(write).collect()
}

/// The program of a seed.
fn program(seed: u64, synced: bool) -> Program {
    let bytes = WRITE_BLOCKS * BLOCK;
    let mut text = format!("open 0 f rw,creat,direct\npwrite 0 {} 0 0\nsync\n", PLACES * bytes);
    for w in writes(seed, synced) {
        text.push_str(&format!(
            "nap {PAUSE_US}\npwrite 0 {bytes} {} {}\n",
            w.first * BLOCK,
            w.seed
        ));
        if synced {
            text.push_str("fsync 0\n");
        }
    }
    Program::parse(&text).expect("text of our own")
}

/// Which write every content of a block is of: by block and contents, the seed.
struct Known(BTreeMap<(u64, u128), u32>);

impl Known {
    fn of(writes: &[Write]) -> Known {
        let mut all = BTreeMap::new();
        let mut add = |first: u64, blocks: u64, seed: u32| {
            let data = contents(seed, first * BLOCK, (blocks * BLOCK) as u32);
            for n in 0..blocks {
                let id = data.sub((n * BLOCK) as u32, BLOCK as u32).id();
                all.insert((first + n, id), seed);
            }
        };
        add(0, PLACES * WRITE_BLOCKS, 0);
        writes.iter().for_each(|w| add(w.first, WRITE_BLOCKS, w.seed));
        Known(all)
    }

    /// The seed of each block of the recovered file; nothing of what was never written there.
    fn read(&self, outcome: &Outcome) -> Vec<Option<u32>> {
        let mut out = vec![None; (PLACES * WRITE_BLOCKS) as usize];
        let file = outcome.files.iter().find(|f| f.path == "f");
        for (block, id) in file.iter().flat_map(|f| &f.blocks) {
            if let Some(place) = out.get_mut(*block as usize) {
                *place = self.0.get(&(*block, *id)).copied();
            }
        }
        out
    }
}

/// What is there of a write, as far as no later one that had begun lies over it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    Whole,
    Part,
    Nothing,
}

impl Left {
    fn count(&mut self, known: &Known, writes: &[Write], visit: &Visit<'_>) {
        let (begun, ended) = visit.operations;
        // Not while the file is being made.
        if ended < PREPARED {
            return;
        }
        self.states += 1;
        if visit.outcome.refused.is_some() || !visit.outcome.faults.is_empty() {
            self.refused += 1;
            return;
        }
        let file = known.read(visit.outcome);
        self.foreign += u64::from(file.contains(&None));
        let begun: Vec<&Write> = writes.iter().take_while(|w| w.call < begun.max(ended)).collect();
        let mut there = Vec::new();
        for (n, w) in begun.iter().enumerate() {
            // Writes are at whole places: a later one covers all of an earlier one or nothing. One
            // that has not returned may be there or not.
            let later: BTreeSet<u32> =
                begun[n + 1..].iter().filter(|l| l.first == w.first).map(|l| l.seed).collect();
            let blocks = &file[w.first as usize..(w.first + WRITE_BLOCKS) as usize];
            let held = blocks.iter().flatten();
            let (own, over) = held.fold((0, 0), |(own, over), seed| {
                (own + u64::from(*seed == w.seed), over + u64::from(later.contains(seed)))
            });
            let found = match own + over {
                WRITE_BLOCKS => There::Whole,
                0 => There::Nothing,
                _ => There::Part,
            };
            there.push((**w, found, (1..WRITE_BLOCKS).contains(&own)));
        }
        let lost: Vec<&(Write, There, bool)> =
            there.iter().filter(|(w, t, _)| w.call < ended && *t != There::Whole).collect();
        let acknowledged = there.iter().filter(|(w, ..)| w.call < ended).count();
        let nothing = lost.iter().filter(|(_, t, _)| *t == There::Nothing).count();
        match () {
            () if lost.is_empty() => self.all += 1,
            () if nothing == acknowledged => self.none += 1,
            () => self.some += 1,
        }
        self.torn += u64::from(there.iter().any(|(_, _, is_torn)| *is_torn));
        let newest =
            there.iter().rev().find(|(_, t, _)| *t != There::Nothing).map(|(w, ..)| w.seed);
        self.out_of_order += u64::from(lost.iter().any(|(w, ..)| Some(w.seed) < newest));
        // The call behind a write is its fsync.
        let is_synced = |w: &Write| self.synced && w.call + 1 < ended;
        self.lost_synced += u64::from(lost.iter().any(|(w, ..)| is_synced(w)));
        self.most_lost = self.most_lost.max(lost.len() as u64);
    }
}

/// Cuts one run of a system. Errors: as the machine's.
pub fn cut(system: System, synced: bool, seed: u64) -> Result<Left, MachineError> {
    let (fs, text) = system.file_system();
    let bench = Bench {
        kernel: system.kernel(),
        device_params: vec![("capacity_bytes".to_owned(), DRIVE)],
        ..Bench::new(fs, &text)?
    };
    let played = play(&bench, &program(seed, synced))?;
    let writes = writes(seed, synced);
    for (n, did) in played.dids.iter().enumerate() {
        let is_write = matches!(did.call, Call::Pwrite { .. });
        let expected = n == 1 || writes.iter().any(|w| w.call == n as u32);
        if did.error.is_some() || is_write != expected {
            return Err(MachineError::Config(format!("call {n}, {}: not as planned", did.call)));
        }
    }
    let history = Space::HONEST.history(&played);
    let subject = FsSubject {
        entry: fs,
        options: bench.fs_options.clone(),
        block_bytes: BLOCK as u32,
        check: false,
        keep_writes: false,
        sound: Sound::default(),
    };
    let how = wp_crash::Options {
        plan: States { complete: 10, pairs: 32, samples: 64, pages: States::PAGES, most: u64::MAX },
        seed,
        profile: Profile::mounted(fs, &bench.fs_options),
        partition: played.partition,
        keep: 0,
        prune: true,
        recovery_in_order: true,
        second_cuts: 0,
    };
    let known = Known::of(&writes);
    let mut left = Left::new(system, synced);
    let mut explorer = Explorer::new(&subject, how);
    explorer.expect(std::iter::once(&history));
    explorer.watch(|visit| left.count(&known, &writes, visit));
    explorer.explore(&played.tape, &history, &played.ledger, &mut |_| true);
    let totals = explorer.totals;
    drop(explorer);
    (left.recovered, left.sampled) = (totals.distinct, totals.cuts_sampled);
    Ok(left)
}

impl Left {
    fn new(system: System, synced: bool) -> Left {
        Left {
            system: system.name().to_owned(),
            synced,
            states: 0,
            recovered: 0,
            sampled: 0,
            all: 0,
            none: 0,
            some: 0,
            refused: 0,
            torn: 0,
            out_of_order: 0,
            lost_synced: 0,
            foreign: 0,
            most_lost: 0,
        }
    }
}
