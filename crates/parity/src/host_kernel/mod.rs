//! Agreement with the kernel of this host on crash states: what a power failure leaves of generated
//! programs is recovered by us and by it, and every file compared.
//!
//! Picture:    program and mode -> [`play()`] -> explorer -> some of the states that our recovery
//!             can tell apart -> [`HostKernel`] -> [`difference`] -> [`Agreement`].
//! Invariants: 1. a state goes by the rules of the host's kernel on both sides: the era of the mode
//!                says how the image was written, and no more;
//!             2. which states are taken depends on seed and program only, not on workers; an
//!                image that another program left as well is taken once;
//!             3. no state that was taken is left out of the numbers.

mod compare;
mod kernel;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wp_base::SECTOR_BYTES;
use wp_base::rng::Rng;
use wp_campaign::reservoir::{Reservoir, Taken};
use wp_campaign::{Bench, Cut, Extras, Of, Played, Source, Space, play};
use wp_crash::{Explorer, FsSubject, History, Plan, Profile};
use wp_machine::registry;
use wp_medium::{Medium, MediumView, Overlay, Sound};
use wp_vfs::Options;

pub use self::compare::{MOUNTED_FROM, difference};
pub use self::kernel::{Found, HostKernel, Spent, Theirs, release};

/// How an image is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mode {
    /// Kernel version of our file system.
    pub era: &'static str,
    /// What is said of the mode in tables.
    pub name: &'static str,
    /// Bytes of a block.
    pub block: u32,
    /// Are free blocks full of what the drive held before? If not, it was trimmed.
    pub is_used: bool,
}

const ERAS: [&str; 5] = ["3.4", "3.8", "4.6", "5.10", "6.18"];
/// Name, our mount options, the kernel's.
const MODES: [(&str, &str, &str); 5] = [
    ("ordered", "", ""),
    ("writeback", ",data=writeback", "data=writeback"),
    ("journal", ",data=journal", "data=journal"),
    ("nodelalloc", ",nodelalloc", "nodelalloc"),
    ("nobarrier", ",nobarrier", "nobarrier"),
];
const BLOCKS: [u32; 2] = [4096, 1024];
/// Capacity of the device.
const BYTES: u64 = 64 << 20;
/// A program is not explored further once it has this number of states that recovery can tell
/// apart.
const ENOUGH: u64 = 1500;

impl Mode {
    /// That of program `n`: they take turns.
    pub fn of(n: u64) -> Mode {
        let all = (ERAS.len() * MODES.len()) as u64;
        let (i, block) = ((n % all) as usize, (n / all) % BLOCKS.len() as u64);
        Mode {
            era: ERAS[i % ERAS.len()],
            name: MODES[i / ERAS.len()].0,
            block: BLOCKS[block as usize],
            // Images that are full take the longest to write.
            is_used: n / all % 4 == 1,
        }
    }

    fn options(&self) -> (&'static str, &'static str) {
        MODES.iter().find(|m| m.0 == self.name).map_or(("", ""), |m| (m.1, m.2))
    }

    /// The file system as `--fs` has it.
    pub fn fs(&self, era: &str) -> String {
        format!("ext4,era={era},block_size={}{}", self.block, self.options().0)
    }

    fn bench(&self) -> Result<Bench, String> {
        let fresh = Bench::of(registry::FILE_SYSTEMS[0], self.parsed(self.era)?);
        let fresh = fresh.map_err(|e| e.to_string())?;
        Ok(Bench {
            device_params: vec![("capacity_bytes".to_owned(), BYTES)],
            stale: self.is_used,
            ..fresh
        })
    }

    fn parsed(&self, era: &str) -> Result<Options, String> {
        let text = self.fs(era);
        let (_, rest) = text.split_once(',').unwrap_or((&text, ""));
        Options::parse(rest, registry::FILE_SYSTEMS[0].options).map_err(|e| e.to_string())
    }
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Distinct states to reach.
    pub states: u64,
    /// Seed of programs and of choices.
    pub seed: u64,
    /// The first program.
    pub first: u64,
    /// How many programs at most.
    pub programs: u64,
    /// Calls of a random program, about.
    pub calls: u32,
    /// Programs have every call.
    pub all_calls: bool,
    /// States taken of a program at most.
    pub each: usize,
    /// One state in this number is checked by e2fsck and by us; 0: none.
    pub fsck: u64,
    /// Where images lie: a file system in memory, best.
    pub dir: PathBuf,
}

/// A state on which the two do not agree.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Different {
    /// Number of the program.
    pub program: u64,
    /// Frame, and its unpersisted units that are lost.
    pub frame: usize,
    /// See `frame`.
    pub lost: Vec<usize>,
    /// How it was written.
    pub mode: Mode,
    /// The first thing that is not the same, in words.
    pub what: String,
    /// Arguments of `writepath crash show` that show the state.
    pub replay: String,
}

/// Numbers of a mode.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Programs played.
    pub programs: u64,
    /// States, no two of which our recovery takes for the same.
    pub states: u64,
    /// Of these: refused by both sides.
    pub refused: u64,
    /// Of these: with files that both sides cannot read, or with an orphan that both leave.
    pub faulty: u64,
    /// Both sides the same.
    pub equal: u64,
    /// Not the same.
    pub different: u64,
    /// States that our recovery cannot tell from one before, mounted as well.
    pub again: u64,
    /// Of these: the kernel finds what it found, or we found, in the one before.
    pub again_equal: u64,
    /// Checked by e2fsck after the kernel's unmount, and by us after our recovery.
    pub checked: u64,
    /// Of these: without fault on both sides.
    pub clean: u64,
    /// Of these: with faults on both sides.
    pub both_unclean: u64,
}

impl Counts {
    /// Adds another's.
    pub fn add(&mut self, o: &Counts) {
        self.programs += o.programs;
        self.states += o.states;
        self.refused += o.refused;
        self.faulty += o.faulty;
        self.equal += o.equal;
        self.different += o.different;
        self.again += o.again;
        self.again_equal += o.again_equal;
        self.checked += o.checked;
        self.clean += o.clean;
        self.both_unclean += o.both_unclean;
    }
}

/// Its outcome.
#[derive(Clone, Default, Debug)]
pub struct Agreement {
    /// The kernel: `6.18.44-…`.
    pub release: String,
    /// By era and name of the mode.
    pub modes: BTreeMap<(&'static str, &'static str), Counts>,
    /// Every difference, in order.
    pub different: Vec<Different>,
    /// Programs that were not played, and why.
    pub not_played: Vec<(u64, String)>,
    /// States that were not mounted: another program left the same image.
    pub repeated: u64,
    /// What the kernel's side took.
    pub spent: Spent,
    /// Recoveries that we did, among which the states were chosen.
    pub recoveries: u64,
    /// What they took, with everything that the explorer does besides.
    pub explored: Duration,
}

impl Agreement {
    /// All modes together.
    pub fn total(&self) -> Counts {
        let mut sum = Counts::default();
        self.modes.values().for_each(|c| sum.add(c));
        sum
    }

    fn add(&mut self, o: Agreement) {
        for (mode, counts) in &o.modes {
            self.modes.entry(*mode).or_default().add(counts);
        }
        self.different.extend(o.different);
        self.not_played.extend(o.not_played);
        self.repeated += o.repeated;
        self.recoveries += o.recoveries;
        self.explored += o.explored;
    }
}

/// Takes states and compares, with `workers` threads and a loop device each; `go_on` is asked after
/// each program.
///
/// Errors: why this host cannot do it, in words.
pub fn agree(
    ask: &Ask,
    workers: usize,
    go_on: &(dyn Fn(&Counts) -> bool + Sync),
) -> Result<Agreement, String> {
    let (release, major, minor) = release()?;
    let era = format!("{major}.{minor}");
    let next = AtomicU64::new(ask.first);
    let stop = AtomicBool::new(false);
    let seen = Mutex::new(BTreeSet::new());
    let sum = Mutex::new(Agreement { release, ..Agreement::default() });
    let work = |n: usize| -> Result<(), String> {
        let mut kernel = HostKernel::new(&ask.dir.join(n.to_string()), BYTES)?;
        while !stop.load(Ordering::SeqCst) {
            let number = next.fetch_add(1, Ordering::SeqCst);
            if number >= ask.first.saturating_add(ask.programs) {
                break;
            }
            let mut one = One { ask, era: &era, number, seen: &seen, out: Agreement::default() };
            let done = one.run(&mut kernel);
            let mut sum = sum.lock().unwrap_or_else(|e| e.into_inner());
            sum.add(one.out);
            done?;
            let total = sum.total();
            if total.states >= ask.states || !go_on(&total) {
                stop.store(true, Ordering::SeqCst);
            }
        }
        let mut sum = sum.lock().unwrap_or_else(|e| e.into_inner());
        sum.spent.add(&kernel.spent);
        Ok(())
    };
    let done: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let work = &work;
        let stop = &stop;
        let threads: Vec<_> = (0..workers.max(1))
            .map(|n| {
                scope.spawn(move || {
                    let done = work(n);
                    stop.fetch_or(done.is_err(), Ordering::SeqCst);
                    done
                })
            })
            .collect();
        let died = |_| Err("a worker died".to_owned());
        threads.into_iter().map(|t| t.join().unwrap_or_else(died)).collect()
    });
    done.into_iter().collect::<Result<(), String>>()?;
    let mut out = sum.into_inner().unwrap_or_else(|e| e.into_inner());
    out.different.sort();
    out.not_played.sort();
    Ok(out)
}

/// One program.
struct One<'a> {
    ask: &'a Ask,
    /// The host's.
    era: &'a str,
    number: u64,
    /// Images that were mounted.
    seen: &'a Mutex<BTreeSet<Vec<u8>>>,
    out: Agreement,
}

impl One<'_> {
    /// Two of three are random, of some lengths; the third is a sequence of two operations.
    fn source(&self) -> (Source, u64) {
        let mut rng = Rng::stream(self.ask.seed ^ (self.number << 20), "agreement");
        let of = if self.ask.all_calls { Of::Further } else { Of::Ace };
        let sequences = Source::Sequences(of, 2);
        match (self.number / 25 % 3, sequences.count()) {
            (2, Some(count)) => (sequences, rng.below(count)),
            _ => {
                let (seed, calls) = (self.ask.seed + self.number, self.ask.calls);
                let extras = Extras { calls: self.ask.all_calls, ..Extras::ALL };
                (Source::Wild { seed, calls, extras }, 0)
            }
        }
    }

    fn run(&mut self, kernel: &mut HostKernel) -> Result<(), String> {
        let mode = Mode::of(self.number);
        let bench = mode.bench()?;
        let (source, index) = self.source();
        let played = match play(&bench, &source.program(index)) {
            Ok(played) => played,
            Err(e) => {
                self.out.not_played.push((self.number, e.to_string()));
                return Ok(());
            }
        };
        let (fresh, again, history) = self.explore(&mode, &bench, &played)?;
        let counts = self.out.modes.entry((mode.era, mode.name)).or_default();
        counts.programs += 1;
        let programs = match source {
            Source::Wild { seed, calls, .. } => {
                let name = if self.ask.all_calls { "wild-calls" } else { "wild" };
                format!("{name} --seed {seed} --calls {calls} --first 0")
            }
            _ if self.ask.all_calls => format!("calls-2 --first {index}"),
            _ => format!("seq-2 --first {index}"),
        };
        let start = played.partition.0;
        for (i, state) in fresh.iter().chain(&again).enumerate() {
            let lost = state.lost(&history);
            let fs = (bench.fs, &bench.fs_options);
            let (history, frame) = (&history, state.frame);
            let medium = Cut { fs, played: &played, history, frame, lost: &lost }.medium();
            if i < fresh.len() && !self.is_new(&mode, history, &medium) {
                self.out.repeated += 1;
                continue;
            }
            let (ours, block) = (&state.outcome, mode.block);
            let theirs = kernel.recover(&medium, mode.options().1, block)?;
            let mut what = difference(ours, &theirs, block);
            let counts = self.out.modes.entry((mode.era, mode.name)).or_default();
            if i >= fresh.len() {
                counts.again += 1;
                counts.again_equal += u64::from(what.is_none());
            } else {
                counts.states += 1;
                counts.equal += u64::from(what.is_none());
                counts.different += u64::from(what.is_some());
                counts.refused += u64::from(what.is_none() && ours.refused.is_some());
                counts.faulty += u64::from(what.is_none() && !ours.faults.is_empty());
                let mut rng = Rng::stream(self.ask.seed ^ self.number << 20, "e2fsck");
                let turn = (i as u64 + rng.below(self.ask.fsck.max(1))) % self.ask.fsck.max(1);
                let mounted = ours.refused.is_none() && matches!(theirs, Theirs::Files(_));
                if self.ask.fsck > 0 && turn == 0 && mounted {
                    let said = kernel.e2fsck()?;
                    let fault = our_check(&mode, self.era, &medium, start)?;
                    counts.checked += 1;
                    counts.clean += u64::from(said.is_none() && fault.is_none());
                    counts.both_unclean += u64::from(said.is_some() && fault.is_some());
                    what = what.or(match (said, fault) {
                        (Some(s), None) => Some(format!("only e2fsck reports an error: {s}")),
                        (None, Some(f)) => {
                            Some(format!("only Writepath's check reports an error: {f}"))
                        }
                        _ => None,
                    });
                }
            }
            if let Some(what) = what {
                let units: Vec<String> = lost.iter().map(usize::to_string).collect();
                let replay = format!(
                    "{programs} {frame}{}{} --fs {}{}",
                    if lost.is_empty() { "" } else { ":" },
                    units.join(","),
                    mode.fs(mode.era),
                    if mode.is_used { "" } else { " --trimmed" },
                );
                let program = self.number;
                self.out.different.push(Different { program, frame, lost, mode, what, replay });
            }
        }
        Ok(())
    }

    /// The states that are taken: some that recovery tells apart, few that it does not.
    fn explore(
        &mut self,
        mode: &Mode,
        bench: &Bench,
        played: &Played,
    ) -> Result<(Vec<Taken>, Vec<Taken>, History), String> {
        let subject = FsSubject {
            entry: bench.fs,
            options: mode.parsed(self.era)?,
            block_bytes: mode.block,
            check: false,
            keep_writes: false,
            sound: Sound::default(),
        };
        let options = wp_crash::Options {
            plan: Plan { complete: 6, pairs: 12, samples: 16, pages: Plan::PAGES, most: u64::MAX },
            seed: self.ask.seed,
            profile: Profile::POSIX,
            partition: played.partition,
            keep: 0,
            second_cuts: 0,
            prune: true,
            recovery_in_order: true,
        };
        let reservoir =
            |most, name| Reservoir::new(most, self.ask.seed ^ (self.number << 20), name);
        let mut fresh = reservoir(self.ask.each, "fresh states");
        let mut again = reservoir(self.ask.each.div_ceil(20), "states again");
        #[expect(clippy::disallowed_methods, reason = "what is measured is the host")]
        let start = Instant::now();
        let history = Space::HONEST.history(played);
        let mut explorer = Explorer::new(&subject, options);
        explorer.expect(std::iter::once(&history));
        explorer.watch(|v| if v.is_new { fresh.offer(v) } else { again.offer(v) });
        explorer.explore(&played.tape, &history, &played.ledger, &mut |t| t.distinct < ENOUGH);
        self.out.recoveries += explorer.totals.distinct;
        self.out.explored += start.elapsed();
        drop(explorer);
        Ok((fresh.take(), again.take(), history))
    }

    /// Notes an image; was there none like it of another program? What a mode's programs begin with
    /// is the same, so what differs from it tells all.
    fn is_new(&self, mode: &Mode, history: &History, medium: &Medium) -> bool {
        let mut key = format!("{mode:?}").into_bytes();
        let Some(first) = history.frames.first() else { return true };
        first.base.diff(medium, &mut |at, sectors| {
            key.extend(at.0.to_le_bytes());
            for slice in medium.read(at, sectors) {
                key.extend(slice.id().to_le_bytes());
            }
        });
        let key = wp_machine::results::sha256(&key).into_bytes();
        self.seen.lock().unwrap_or_else(|e| e.into_inner()).insert(key)
    }
}

/// The first fault that our check finds in what our recovery leaves.
fn our_check(
    mode: &Mode,
    era: &str,
    medium: &Medium,
    start: u64,
) -> Result<Option<String>, String> {
    let start = wp_base::Sector(start / SECTOR_BYTES);
    let view = MediumView { medium: medium.clone(), start, bytes: BYTES };
    let options = mode.parsed(era)?;
    let (fs, overlay) = (registry::FILE_SYSTEMS[0], Overlay::new(&view));
    let mounted = (fs.survey)(&overlay, &options);
    let checked = mounted.and_then(|_| (fs.check)(&overlay, &options, false, &Sound::default()));
    let checked = match checked {
        Ok(checked) => checked,
        Err(e) => return Ok(Some(e.to_string())),
    };
    let first = checked.faults.iter().find(|f| f.severity == "error");
    Ok(first.map(|f| format!("{} {}: {}, not {}", f.kind, f.place, f.found, f.expected)))
}

/// Why this host cannot do it: tried on an image of ours.
pub fn cannot(dir: &Path) -> Option<String> {
    let tried = || -> Result<(), String> {
        let mode = Mode::of(0);
        let fs = registry::FILE_SYSTEMS[0];
        let medium = (fs.mkfs)(&mode.parsed(mode.era)?, BYTES).map_err(|e| e.to_string())?;
        match HostKernel::new(dir, BYTES)?.recover(&medium, "", mode.block)? {
            Theirs::Files(_) => Ok(()),
            Theirs::Refused(why) => Err(format!("mount of a new file system: {why}")),
        }
    };
    tried().err()
}
