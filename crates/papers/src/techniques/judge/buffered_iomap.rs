//! ext4's `buffered_iomap`: what a commit waits for, what a power failure shows of files that grow,
//! and when a length is durable.

use wp_base::{FsResult, SECTOR_BYTES, Sector, Span};
use wp_campaign::mutate::step;
use wp_campaign::wild::Extras;
use wp_campaign::{Bench, Campaign, Source, play};
use wp_crash::{Contract, History, Profile, Rule, Totals};
use wp_machine::MachineError;
use wp_machine::spec::file_system;
use wp_medium::{MediumView, Overlay, Slice};
use wp_vfs::{OpenFlags, Reserve, Vfs};
use wp_workload::program::Program;

use super::beside::{Setup, params};
use super::{Ask, Observed};
use crate::claims::Measured;
use crate::journal_conflict::profile;

/// The two ways through the cache.
const IOMAP: &str = "ext4,era=next,buffered_iomap";
const HEADS: &str = "ext4,era=next";
/// What keeps a length back, and without which it runs ahead.
const PENDING: &str = "ext4/iomap/grow-pending";

/// A file whose last block has bytes behind its end on the drive: they were cut off, and the drive
/// need not know. Behind that block is another file's.
const CUT: &str = "open 0 a rw,creat; pwrite 0 4096 0 1; fsync 0; open 2 c rw,creat; \
                   pwrite 2 4096 0 9; fsync 2; ftruncate 0 100; ";
/// How it grows.
const GROWTH: [(&str, &str); 4] = [
    ("ftruncate", "ftruncate 0 12288; "),
    ("write behind the end", "pwrite 0 4096 8192 2; "),
    ("fallocate", "fallocate 0 extend 0 12288; "),
    ("append", "pwrite 0 12188 100 2; "),
];
/// Another file's commit, in the middle of all and after writeback.
const COMMITS: &str = "nap 1000; open 1 b rw,creat; fsync 1; nap 40000000; fsync 1";

/// Blocks of a removed file are taken by one that grows, and by one whose holes are filled.
const REUSED: &str = "open 0 a rw,creat; pwrite 0 65536 0 1; fsync 0; unlink a; close 0; sync; \
                      open 0 c rw,creat; ftruncate 0 32768; fsync 0; open 1 d rw,creat; \
                      pwrite 1 6000 0 2; pwrite 0 4096 8192 3; nap 1000; open 2 e rw,creat; \
                      fsync 2; pwrite 1 6000 6000 4; pwrite 0 100 20000 5; nap 6000000; fsync 2; \
                      nap 40000000; fsync 2";

fn program(text: &str) -> Program {
    Program::parse(&text.replace("; ", "\n")).expect("text of our own")
}

fn bench(fs: &str) -> Result<Bench, MachineError> {
    let (fs, options) = file_system(fs).map_err(MachineError::Config)?;
    Bench::of(fs, options)
}

/// All that a power failure can leave of these programs.
fn explored(
    ask: Ask,
    bench: Bench,
    profile: Profile,
    source: Source,
    count: u64,
) -> Result<Totals, MachineError> {
    let campaign = Campaign {
        seed: ask.seed,
        profile,
        check: true,
        ..Campaign::new(bench, source, (0, count))
    };
    let found = wp_campaign::run(&campaign, 1, &|_| true);
    match found.unplayed() {
        Some((_, why)) => Err(MachineError::Config(why.to_owned())),
        None => Ok(found.totals),
    }
}

/// A length is never ahead of what is below it.
const STRICT: Profile =
    Profile { size_with_data: true, tail_with_data: true, cut_stays_cut: true, ..Profile::EXT4 };

/// What is found of one growth.
#[derive(Clone, Copy, Default)]
struct Ahead {
    /// Recovered states.
    states: u64,
    /// Those with a length ahead of its data.
    ahead: u64,
    /// Those that show bytes that were cut off.
    cut: u64,
}

/// States of a growth with a length ahead, flusher early and late, every write of data late once;
/// `left_out`: without the wait of the pending bit.
fn grown(ask: Ask, fs: &str, growth: &str, left_out: bool) -> Result<Ahead, MachineError> {
    let mut sum = Ahead::default();
    for eager in ["", ",dirty_background_bytes=4096"] {
        for late in 0..ask.pick(2, 4) {
            let slow = match late {
                0 => String::new(),
                n => format!("slow write data {} 1 50000; ", n - 1),
            };
            let text = format!("{CUT}{slow}{growth}{COMMITS}");
            for (profile, of) in [(STRICT, 0), (CUT_ALONE, 1)] {
                let mut bench = bench(&format!("{fs}{eager}"))?;
                if left_out {
                    bench.without = Some(step(PENDING).map_err(MachineError::Config)?);
                }
                let found = explored(ask, bench, profile, Source::Text(program(&text)), 1)?;
                let broken = |rule: Rule| found.broken[rule as usize];
                let ahead = broken(Rule::SizeAhead) + broken(Rule::TailAhead);
                match of {
                    0 => (sum.states, sum.ahead) = (sum.states + found.raw, sum.ahead + ahead),
                    _ => sum.cut += ahead,
                }
            }
        }
    }
    Ok(sum)
}

/// Only what a cut took away must not come back.
const CUT_ALONE: Profile = Profile { cut_stays_cut: true, ..Profile::EXT4 };

/// All growths together, and each in words.
fn all_grown(ask: Ask, fs: &str, left_out: bool) -> Result<(Ahead, String), MachineError> {
    let mut sum = Ahead::default();
    let mut words = Vec::new();
    for (name, growth) in GROWTH {
        let one = grown(ask, fs, growth, left_out)?;
        sum.states += one.states;
        sum.ahead += one.ahead;
        sum.cut += one.cut;
        words.push(format!("{name} {} ({} cut bytes)", one.ahead, one.cut));
    }
    Ok((sum, words.join(", ")))
}

/// States with an exposure, and all states.
fn stale(ask: Ask, fs: &str) -> Result<(u64, u64), MachineError> {
    let wild = Source::Wild { seed: ask.seed, calls: 40, extras: Extras::DATA };
    let own = Source::Text(program(REUSED));
    let random = explored(ask, bench(fs)?, Profile::EXT4, wild, ask.pick(4, 100))?;
    let made = explored(ask, bench(fs)?, Profile::EXT4, own, 1)?;
    let of = |t: &Totals| t.broken[Rule::Exposure as usize];
    Ok((of(&random) + of(&made), random.raw + made.raw))
}

/// Appends, holes that are filled, cuts and growth, each beside an fsync of another file.
async fn writes(v: Vfs, rounds: u64) -> FsResult<()> {
    let other = v.open("other", OpenFlags::CREATE, 0o644).await?;
    let bytes = |seed: u64, n: u32| [Slice::pattern(seed, 0, n)];
    for round in 0..rounds {
        let fd = v.open(&format!("f{round}"), OpenFlags::CREATE, 0o644).await?;
        v.pwrite(fd, 0, &bytes(round, 4096)).await?;
        v.fsync(fd).await?;
        v.pwrite(fd, 4096, &bytes(round, 6000)).await?;
        v.fsync(other).await?;
        v.ftruncate(fd, 100).await?;
        v.fsync(other).await?;
        v.ftruncate(fd, 9000).await?;
        v.fsync(other).await?;
        v.pwrite(fd, 20_000, &bytes(round, 4096)).await?;
        v.fallocate(fd, Reserve::Space { keep_size: false }, 0, 40_960).await?;
        v.pwrite(fd, 12_288, &bytes(round, 4096)).await?;
        v.fsync(other).await?;
        v.rt().sleep(Span::secs(36)).await;
        v.pwrite(other, 0, &bytes(round, 4096)).await?;
        v.fsync(other).await?;
    }
    v.sync().await
}

/// Commits' waits for ordered data, and commits.
fn waits(ask: Ask, fs: &str) -> Result<(f64, f64), MachineError> {
    let setup = Setup {
        fs: format!("{fs},noinit_itable"),
        device: "850pro-256",
        params: params(&[]),
        elevator: String::new(),
        kernel: (6, 18),
        cpu: profile().model(),
        seed: ask.seed,
    };
    let machine = setup.machine()?;
    let vfs = machine.mount()?;
    let v = vfs.clone();
    let rounds = ask.pick(3, 20);
    machine
        .block_on("writes", async move { writes(v, rounds).await })?
        .map_err(|error| MachineError::Fs { during: "workload", error })?;
    let of = |name: &str| {
        let all = vfs.fs().counters();
        all.into_iter().find(|(n, _)| *n == name).map_or(0.0, |(_, n)| n as f64)
    };
    Ok((of("ordered_waits"), of("commits")))
}

/// Bytes of a file that a synced one grows to.
const GROWN: u64 = 200;

/// Seconds from a write that grows a synced file within its block until the new length is durable:
/// no power failure can leave the old one.
fn persists(fs: &str) -> Result<f64, MachineError> {
    let text = "open 0 a rw,creat; pwrite 0 100 0 1; fsync 0; pwrite 0 100 100 2; nap 60000000";
    let bench = bench(fs)?;
    let played = play(&bench, &program(text))?;
    let history = History::permitted(&played.tape, &Contract::HONEST);
    let time = |pos: usize| played.tape.entries.get(pos).map(|(time, _)| *time);
    let begun = played
        .tape
        .entries
        .iter()
        .find_map(|(time, entry)| matches!(entry, wp_crash::Entry::Begin(3)).then_some(*time));
    let (start, sectors) = played.partition;
    for frame in &history.frames {
        let view = MediumView {
            medium: frame.base.clone(),
            start: Sector(start),
            bytes: sectors * SECTOR_BYTES,
        };
        let overlay = Overlay::new(&view);
        let survey = (bench.fs.survey)(&overlay, &bench.fs_options)
            .map_err(|error| MachineError::Fs { during: "recovery", error })?;
        let is_long = survey.files.iter().any(|f| f.path == "a" && f.size == GROWN);
        if let (true, Some(begun), Some(now)) = (is_long, begun, time(frame.pos)) {
            return Ok(now.since(begun).0 as f64 / 1e9);
        }
    }
    Err(MachineError::Config("the length is never durable".to_owned()))
}

pub(super) fn measure(ask: Ask) -> Result<Vec<(&'static str, Measured)>, MachineError> {
    let (own, own_commits) = waits(ask, IOMAP)?;
    let (heads, heads_commits) = waits(ask, HEADS)?;
    let (exposed, states) = stale(ask, IOMAP)?;
    let (kept, kept_words) = all_grown(ask, IOMAP, false)?;
    let (without, without_words) = all_grown(ask, IOMAP, true)?;
    let (late, early) = (persists(IOMAP)?, persists(HEADS)?);
    Ok(vec![
        (
            "biomap.1m",
            Measured::not_modelled("an input: CPU time on a RAM disk, and no folio is modelled"),
        ),
        (
            "biomap.waits",
            Measured::value(own).null(0.0).why(format!(
                "{own_commits} commits; buffer heads wait {heads} times in {heads_commits}"
            )),
        ),
        ("biomap.stale", Measured::value(exposed as f64).why(format!("in {states} states"))),
        (
            "biomap.size",
            Measured::value(kept.ahead as f64).why(format!(
                "in {} states: {kept_words}; without the wait {} in {}: {without_words}",
                kept.states, without.ahead, without.states
            )),
        ),
        (
            "biomap.persist",
            Measured::value(late).null(30.0).why(format!("buffer heads: {early:.1} s")),
        ),
    ])
}

/// What a power failure leaves of each growth, beside the claims: buffer heads, iomap, and iomap
/// with N60 and N61 fixed.
pub(super) fn observe(ask: Ask) -> Result<Vec<Observed>, MachineError> {
    let fixed = format!("{IOMAP},iomap_fix=all");
    let mut all = Vec::new();
    for (name, growth) in GROWTH {
        for (way, fs) in [("buffer heads", HEADS), ("iomap", IOMAP), ("iomap, fixed", &fixed)] {
            let one = grown(ask, fs, growth, false)?;
            all.push(Observed {
                id: format!("{way}: {name}"),
                value: Some(one.cut as f64),
                unit: "states".to_owned(),
                why: format!("with cut bytes; {} ahead of data, of {}", one.ahead, one.states),
            });
        }
    }
    Ok(all)
}
