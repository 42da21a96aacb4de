//! Table 6.2: power failures at random instants of a program that writes over a file, and what
//! recovery makes of each.
//!
//! Picture:    seed -> program (fill, sync, then writes of 4 to 256 KiB at random places, fsync
//!             after each) -> a run with a tape -> instants drawn evenly over the overwriting ->
//!             what the modelled drive holds then, write pointers and all -> recovery -> the file
//!             is read.
//! Oracle:     the paper's: a block that holds nothing of what was ever written there is a failure.
//!             (Its old and new contents are the same pattern; ours tell versions apart, so that
//!             two other oracles can look at the same state: one version of the file, and
//!             everything whose fsync had returned.)
//! Not given:  by the paper: sizes of file and writes, die count, buffer, period of the internal
//!             flush. The drive's are those of the fitted preset; the surface varies them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use wp_base::rng::Rng;
use wp_campaign::{Bench, Played, play_on};
use wp_crash::{Case, Explorer, FsSubject, History, Kept, Outcome, Profile, Rule, Violation};
use wp_machine::MachineError;
use wp_machine::parallel::each;
use wp_medium::{Medium, Sound};
use wp_report::document::nullable;
use wp_vfs::Options;
use wp_workload::program::{Call, Program};

use super::machine::{self, Mode};

/// Blocks of the file.
const FILE_BLOCKS: u64 = 256;
/// Most blocks of a write: sizes as in figure 6.1, and more than a program unit. With smaller ones
/// each fsync begins one unit in either log, the dies that the two are on keep their distance for
/// ever, and a run fails always or never.
const WRITE_BLOCKS: u64 = 64;
/// Writes of a run.
const WRITES: u32 = 32;
/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Seeds that a worker takes at a time.
const CHUNK: u64 = 8;

/// The drive of a campaign.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Drive {
    /// Survives power failures.
    pub plp: bool,
    /// Programs in the order of arrival, one unit at a time.
    pub serial: bool,
    /// Channels, and dies of each.
    pub dies: (u64, u64),
    /// Bytes of the write buffer.
    pub buffer_bytes: u64,
    /// Period of the free internal flush in nanoseconds; 0: none.
    pub period_ns: u64,
}

impl Drive {
    /// The preset's: 8 channels of 4 dies, 5 MiB, no internal flush, no PLP.
    pub const PRESET: Drive =
        Drive { plp: false, serial: false, dies: (8, 4), buffer_bytes: 5 << 20, period_ns: 0 };

    /// Replaced parameters of the preset: small zones, so that a run is short; as many conventional
    /// ones as the tables take, so that all logs are on sequential ones.
    fn params(&self) -> Vec<(String, u64)> {
        let dies = self.dies.0 * self.dies.1;
        // A zone is a flash block of each plane of every die: 12 MiB, whatever the dies.
        let pages = 12 * 32 / dies;
        [
            ("zone_bytes", 16 << 20),
            ("blocks_per_plane", 24),
            ("conventional_zones", 2),
            ("channels", self.dies.0),
            ("dies_per_channel", self.dies.1),
            ("pages_per_block", pages),
            ("buffer_bytes", self.buffer_bytes),
            ("internal_flush_ns", self.period_ns),
            ("internal_flush_free", u64::from(self.period_ns > 0)),
            ("serial_programming", u64::from(self.serial)),
            ("plp", u64::from(self.plp)),
        ]
        .map(|(k, v)| (k.to_owned(), v))
        .to_vec()
    }
}

/// A campaign.
#[derive(Clone, Copy, Debug)]
pub struct CutPlan {
    /// Mode of F2FS.
    pub mode: Mode,
    /// Drive.
    pub drive: Drive,
    /// First seed, and how many.
    pub seeds: (u64, u64),
    /// Instants of each.
    pub cuts: u64,
}

/// What came of a campaign, in cuts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CutCounts {
    /// Runs.
    pub runs: u64,
    /// Cuts.
    pub cuts: u64,
    /// States that the drive was left in: cuts between the same two changes of it leave one.
    pub states: u64,
    /// Those of them that a recovery could tell from all before, and so were recovered.
    pub recovered: u64,
    /// The paper's failures.
    pub failed: u64,
    /// The file is of no single version.
    pub mixed: u64,
    /// Something is missing whose fsync had returned.
    pub lost_sync: u64,
    /// Recovery refuses, or finds damage.
    pub refused: u64,
    /// Cuts at which OPRW left nodes out.
    pub left_out: u64,
    /// Nodes that it left out there: for their own data, and for an earlier node of their inode.
    pub nodes_left_out: [u64; 2],
    /// Cuts at which it left nodes out and something acknowledged is missing.
    pub left_out_acknowledged: u64,
    /// Failures of each run, in order of seeds.
    #[serde(skip)]
    pub by_run: Vec<u64>,
    /// The first failure, for people.
    #[serde(deserialize_with = "nullable")]
    pub example: Option<String>,
}

impl CutCounts {
    /// Failures by cuts.
    pub fn rate(&self) -> f64 {
        self.failed as f64 / (self.cuts.max(1)) as f64
    }

    /// 95 % interval of the rate over the seeds: a bootstrap that draws whole runs, since instants
    /// of one run are no independent trials. Without a failure: the rule of three, over runs too.
    pub fn interval(&self) -> [f64; 2] {
        const DRAWS: usize = 1000;
        let runs = self.by_run.len() as u64;
        if self.failed == 0 || runs == 0 {
            return [0.0, (3.0 / runs.max(1) as f64).min(1.0)];
        }
        let per_run = self.cuts as f64 / runs as f64;
        let mut rng = Rng::stream(runs, "bootstrap");
        let mut rates: Vec<f64> = (0..DRAWS)
            .map(|_| {
                let sum: u64 = (0..runs).map(|_| self.by_run[rng.below(runs) as usize]).sum();
                sum as f64 / (per_run * runs as f64)
            })
            .collect();
        rates.sort_by(f64::total_cmp);
        [rates[DRAWS / 40], rates[DRAWS - 1 - DRAWS / 40]]
    }

    fn add(&mut self, other: CutCounts) {
        self.runs += other.runs;
        self.cuts += other.cuts;
        self.states += other.states;
        self.recovered += other.recovered;
        self.failed += other.failed;
        self.mixed += other.mixed;
        self.lost_sync += other.lost_sync;
        self.refused += other.refused;
        self.left_out += other.left_out;
        for (a, b) in self.nodes_left_out.iter_mut().zip(other.nodes_left_out) {
            *a += b;
        }
        self.left_out_acknowledged += other.left_out_acknowledged;
        self.by_run.extend(other.by_run);
        self.example = self.example.take().or(other.example);
    }
}

/// A write of the program.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub bytes: u32,
    /// What it writes; its number too.
    pub seed: u32,
}

/// The write that fills the file, and `n` writes over it.
pub(super) fn writes(seed: u64, n: u32) -> Vec<Write> {
    let mut rng = Rng::stream(seed, "table 6.2");
    let mut all = vec![Write { at: 0, bytes: (FILE_BLOCKS * BLOCK) as u32, seed: 0 }];
    all.extend((1..=n).map(|n| {
        let blocks = 1 + rng.below(WRITE_BLOCKS);
        let at = rng.below(FILE_BLOCKS - blocks + 1) * BLOCK;
        Write { at, bytes: (blocks * BLOCK) as u32, seed: n }
    }));
    all
}

/// The program of a seed.
pub fn program(seed: u64) -> Program {
    let mut text = "open 0 pattern rw,creat\n".to_owned();
    for w in writes(seed, WRITES) {
        text.push_str(&format!("pwrite 0 {} {} {}\nfsync 0\n", w.bytes, w.at, w.seed));
        if w.seed == 0 {
            text.push_str("sync\n");
        }
    }
    Program::parse(&text).expect("text of our own")
}

/// Calls before the overwriting.
const FILL: u32 = 4;

/// The machine of a campaign. Errors: as [`Bench::new`].
pub fn bench(mode: Mode, drive: Drive) -> Result<Bench, MachineError> {
    Ok(Bench {
        device: "zn540-4tb-noplp".to_owned(),
        device_params: drive.params(),
        elevator: "mq-deadline".to_owned(),
        settle_s: 0,
        stale: false,
        model: true,
        cpu: machine::profile().model(),
        ..Bench::new(&wp_f2fs::ENTRY, &machine::fs_options(mode))?
    })
}

/// Runs a campaign with `workers` threads. The result does not depend on their number. `go_on` is
/// called before each seed with the number of seeds done; if it says no, the result covers fewer
/// runs than the plan has.
///
/// Errors: a machine that cannot be, and programs that cannot be played.
pub fn cut(
    plan: &CutPlan,
    workers: usize,
    go_on: &(dyn Fn(u64) -> bool + Sync),
) -> Result<CutCounts, MachineError> {
    let chunks = plan.seeds.1.div_ceil(CHUNK) as usize;
    let seeds_done = AtomicU64::new(0);
    let go = || go_on(seeds_done.load(Ordering::SeqCst));
    let no_place = || None;
    let done = each(workers, chunks, no_place, |place: &mut Option<Place>, n| {
        if !go() {
            return None;
        }
        let first = plan.seeds.0 + n as u64 * CHUNK;
        let end = (first + CHUNK).min(plan.seeds.0 + plan.seeds.1);
        let one_more = || {
            seeds_done.fetch_add(1, Ordering::SeqCst);
            go()
        };
        Some(chunk(plan, place, first..end, &one_more))
    });
    let mut all = CutCounts::default();
    for out in done.into_iter().flatten() {
        all.add(out?);
    }
    Ok(all)
}

/// Where the programs of a campaign are played, and the new file system that they begin with.
struct Place {
    bench: Bench,
    image: Medium,
}

/// Runs the seeds of `seeds`, up to the one after which `go_on` says no. The first seed of a worker
/// creates `place`.
fn chunk(
    plan: &CutPlan,
    place: &mut Option<Place>,
    seeds: Range<u64>,
    go_on: &dyn Fn() -> bool,
) -> Result<CutCounts, MachineError> {
    let place = match place {
        Some(place) => place,
        None => {
            let bench = bench(plan.mode, plan.drive)?;
            let image = bench.image()?;
            place.insert(Place { bench, image })
        }
    };
    let mut all = CutCounts::default();
    for seed in seeds {
        let played = play_on(&place.bench, place.image.clone(), &program(seed))?;
        all.add(cut_run(&place.bench.fs_options, &played, seed, plan.cuts));
        if !go_on() {
            break;
        }
    }
    Ok(all)
}

/// What the paper's oracle knows: the contents that each block of the file ever had.
struct Pattern(Vec<BTreeSet<u128>>);

impl Pattern {
    fn of(played: &Played) -> Pattern {
        let mut blocks = vec![BTreeSet::new(); FILE_BLOCKS as usize];
        for did in &played.dids {
            let Call::Pwrite { len, at, data, .. } = &did.call else { continue };
            for i in 0..u64::from(*len) / BLOCK {
                let part = ((i * BLOCK) as u32, ((i + 1) * BLOCK) as u32);
                let [block] = &data.part(*at, *len, part)[..] else { continue };
                let id = block.id();
                blocks[(at / BLOCK + i) as usize].insert(id);
            }
        }
        Pattern(blocks)
    }

    /// The first block that holds something else, in words.
    fn broken(&self, outcome: &Outcome) -> Option<Violation> {
        let wrong = |block: u64, seen: &str| Violation {
            rule: Rule::Application,
            path: "pattern".to_owned(),
            offset: Some(block * BLOCK),
            expected: "data that was written there once".to_owned(),
            seen: seen.to_owned(),
        };
        let Some(file) = outcome.files.iter().find(|f| f.path == "pattern") else {
            return Some(wrong(0, "no file"));
        };
        let held: BTreeMap<u64, u128> = file.blocks.iter().copied().collect();
        (0..FILE_BLOCKS).zip(&self.0).find_map(|(block, known)| match held.get(&block) {
            None => Some(wrong(block, "a hole")),
            Some(id) if !known.contains(id) => Some(wrong(block, "another pattern")),
            Some(_) => None,
        })
    }
}

/// Cuts one run at random instants.
fn cut_run(options: &Options, played: &Played, seed: u64, cuts: u64) -> CutCounts {
    let entries = &played.tape.entries;
    let begins = entries.iter().position(|(_, e)| matches!(e, wp_crash::Entry::Begin(FILL)));
    let from = begins.map_or(0, |i| entries[i].0.0);
    let to = entries.last().map_or(from, |(at, _)| at.0).max(from + 1);
    // What the drive itself is left with: none of the unpersisted units.
    let history = History::certain(&played.tape);
    let at_of = |frame: &wp_crash::Frame| entries.get(frame.pos).map_or(0, |(at, _)| at.0);
    let mut frames: BTreeMap<usize, u64> = BTreeMap::new();
    let mut rng = Rng::stream(seed, "instants");
    for _ in 0..cuts {
        let instant = from + rng.below(to - from);
        let after = history.frames.partition_point(|f| at_of(f) <= instant);
        *frames.entry(after.saturating_sub(1)).or_default() += 1;
    }
    let subject = FsSubject {
        entry: &wp_f2fs::ENTRY,
        options: options.clone(),
        block_bytes: BLOCK as u32,
        check: false,
        keep_writes: false,
        sound: Sound::default(),
    };
    let how = wp_crash::Options {
        plan: wp_crash::Plan::default(),
        seed,
        profile: Profile { fsync_keeps_names: true, one_version: true, ..Profile::POSIX },
        partition: played.partition,
        keep: 0,
        prune: true,
        recovery_in_order: true,
        second_cuts: 0,
    };
    let pattern = Pattern::of(played);
    let left_out = std::cell::Cell::new([0u64; 2]);
    let mut explorer = Explorer::new(&subject, how);
    explorer.expect(std::iter::once(&history));
    explorer.check_with(false, |visit| pattern.broken(visit.outcome));
    explorer.watch(|visit| {
        let count = |name| {
            let found = visit.outcome.counts.iter().find(|(n, _)| *n == name);
            found.map_or(0, |(_, v)| *v)
        };
        left_out.set([count("nodes_unwritten"), count("nodes_later")]);
    });
    let mut case = Case::new(&played.tape, &history, &played.ledger);
    let states = frames.len() as u64;
    let mut out = CutCounts { runs: 1, cuts, states, ..CutCounts::default() };
    for (frame, n) in frames {
        let none = Kept::none(0);
        explorer.visit(&mut case, frame, &mut std::iter::once(none), &mut |_, look| {
            let has = |rules: &[Rule]| {
                u64::from(look.violations.news.iter().any(|v| rules.contains(&v.rule)))
            };
            let failed = has(&[Rule::Application]);
            let lost = has(&[Rule::LostSync]);
            out.failed += n * failed;
            out.mixed += n * has(&[Rule::MixedVersions]);
            out.lost_sync += n * lost;
            out.refused += n * has(&[Rule::Recoverable, Rule::Metadata]);
            let [own, later] = left_out.get();
            let any = u64::from(own + later > 0);
            out.left_out += n * any;
            out.nodes_left_out[0] += n * own;
            out.nodes_left_out[1] += n * later;
            out.left_out_acknowledged += n * any * lost;
            if failed > 0 && out.example.is_none() {
                let v = look.violations.news.iter().find(|v| v.rule == Rule::Application);
                let place = v.and_then(|v| v.offset).unwrap_or(0);
                let at = at_of(&history.frames[frame]);
                out.example = Some(format!(
                    "seed {seed}, power failure at {at} ns: byte {place} of the file holds {}",
                    v.map_or("", |v| v.seen.as_str())
                ));
            }
            true
        });
    }
    out.recovered = explorer.totals.distinct;
    out.by_run.push(out.failed);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_over_runs() {
        let same =
            CutCounts { cuts: 1000, failed: 30, by_run: vec![3; 10], ..CutCounts::default() };
        assert_eq!(same.interval(), [0.03, 0.03], "runs that agree leave no doubt");
        let one = CutCounts { by_run: [vec![30], vec![0; 9]].concat(), ..same };
        let [low, high] = one.interval();
        assert!(low == 0.0 && high > 0.06, "{low} {high}");
        let none = CutCounts { cuts: 1000, by_run: vec![0; 10], ..CutCounts::default() };
        assert_eq!(none.interval(), [0.0, 0.3], "ten runs say little, however often each is cut");
    }

    #[test]
    fn a_program_fills_the_file_and_writes_over_it() {
        let program = program(3);
        let writes = |p: &Program| {
            let calls = p.0.iter().filter_map(|s| match s {
                wp_workload::program::Step::Call(_, call) => Some(call.clone()),
                _ => None,
            });
            calls.collect::<Vec<Call>>()
        };
        let calls = writes(&program);
        assert_eq!(calls.len() as u32, FILL + 2 * WRITES);
        let sizes: Vec<u32> = calls[FILL as usize..]
            .iter()
            .filter_map(|c| match c {
                Call::Pwrite { len, at, .. } => {
                    assert!(at + u64::from(*len) <= FILE_BLOCKS * BLOCK);
                    Some(*len)
                }
                _ => None,
            })
            .collect();
        assert!(sizes.iter().all(|n| *n <= 262_144) && sizes.iter().any(|n| *n != sizes[0]));
        assert_ne!(writes(&super::program(4)), calls);
    }
}
