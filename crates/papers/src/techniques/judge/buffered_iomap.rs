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
        for late in 0..4 {
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

/// A file, as it certainly is from some time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Certain {
    /// Since when, nanoseconds from the program's beginning.
    since: u64,
    /// Its length; `None`: there is no such file.
    size: Option<u64>,
    /// Bytes of it that have a place and were written.
    written: u64,
}

/// What file `a` certainly is while a program runs that calls no sync at its end: with everything
/// that is not durable lost.
fn certain(fs: &str, text: &str) -> Result<Vec<Certain>, MachineError> {
    let bench = bench(fs)?;
    let played = play(&bench, &program(text))?;
    let history = History::permitted(&played.tape, &Contract::HONEST);
    let time = |pos: usize| played.tape.entries.get(pos).map(|(time, _)| *time);
    let begun = time(0).unwrap_or_default();
    let (start, sectors) = played.partition;
    let mut all: Vec<Certain> = Vec::new();
    for frame in &history.frames {
        let (medium, bytes) = (frame.base.clone(), sectors * SECTOR_BYTES);
        let view = MediumView { medium, start: Sector(start), bytes };
        let overlay = Overlay::new(&view);
        let survey = (bench.fs.survey)(&overlay, &bench.fs_options)
            .map_err(|error| MachineError::Fs { during: "recovery", error })?;
        let file = survey.files.iter().find(|f| f.path == "a");
        let written = file.map_or(0, |f| f.map.iter().map(|run| run.bytes).sum());
        let since = time(frame.pos).map_or(0, |now| now.since(begun).0);
        all.push(Certain { since, size: file.map(|f| f.size), written });
    }
    Ok(all)
}

/// Seconds from a write that grows a synced file within its block until the new length is durable:
/// no power failure can leave the old one. What comes before the write takes no time.
fn persists(fs: &str) -> Result<f64, MachineError> {
    let text = "open 0 a rw,creat; pwrite 0 100 0 1; fsync 0; pwrite 0 100 100 2; nap 60000000";
    let all = certain(fs, text)?;
    let long = all.iter().find(|c| c.size == Some(GROWN));
    let never = || MachineError::Config("the length is never durable".to_owned());
    Ok(long.ok_or_else(never)?.since as f64 / 1e9)
}

/// An older file of the name.
macro_rules! older {
    ($rest:literal) => {
        concat!("open 9 a rw,creat; pwrite 9 4096 0 9; fsync 9; close 9; nap 10000; ", $rest)
    };
}

/// Programs without a sync behind what they do, and options of the mount. Late: a drive that is
/// busy begins each write of data 9 s later.
const UNSYNCED: &[(&str, &str, &str)] = &[
    ("new file", "", "open 0 a rw,creat; pwrite 0 8192 0 1; close 0"),
    ("new file, nodelalloc", ",nodelalloc", "open 0 a rw,creat; pwrite 0 8192 0 1; close 0"),
    (
        "append in its block",
        "",
        older!("open 0 a rw; ftruncate 0 100; fsync 0; pwrite 0 100 100 1"),
    ),
    ("append of blocks", "", older!("open 0 a rw; pwrite 0 8192 4096 1; close 0")),
    ("renamed, new name", "", "open 0 t rw,creat; pwrite 0 8192 0 1; close 0; rename t a"),
    ("renamed over", "", older!("open 0 t rw,creat; pwrite 0 8192 0 1; close 0; rename t a")),
    (
        "renamed over, late",
        "",
        older!(
            "slow write data 0 9 9000000; open 0 t rw,creat; pwrite 0 8192 0 1; close 0; rename t a"
        ),
    ),
    ("rewritten", "", older!("open 0 a rw,trunc; pwrite 0 8192 0 1; close 0")),
    (
        "rewritten, late",
        "",
        older!("slow write data 0 9 9000000; open 0 a rw,trunc; pwrite 0 8192 0 1; close 0"),
    ),
    ("ftruncate over a tail", "", older!("open 0 a rw; ftruncate 0 100; ftruncate 0 8192")),
    (
        "fallocate over a tail",
        "",
        older!("open 0 a rw; ftruncate 0 100; fallocate 0 extend 0 8192"),
    ),
];

/// What is certain some seconds after each, in words: its length, and how much of it is data.
fn after(all: &[Certain], seconds: u64) -> (Option<u64>, String) {
    let last = all.iter().rev().find(|c| c.since <= seconds * 1_000_000_000);
    let Some(Certain { size: Some(size), written, .. }) = last else {
        return (None, "no file".to_owned());
    };
    (Some(*size), format!("{size} bytes, {} of data", size.min(written)))
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
            Measured::value(own).why(format!(
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

/// Beside the claims: what is certain after calls without a sync, with buffer heads and with iomap;
/// and what a power failure leaves of each growth, with these two and with N60 and N61 fixed.
pub(super) fn observe(ask: Ask) -> Result<Vec<Observed>, MachineError> {
    let fixed = format!("{IOMAP},iomap_fix=all");
    let mut all = Vec::new();
    for (name, more, text) in UNSYNCED {
        for (way, fs) in [("buffer heads", HEADS), ("iomap", IOMAP)] {
            let known = certain(&format!("{fs}{more}"), &format!("{text}; nap 60000000"))?;
            let (size, now) = after(&known, 7);
            all.push(Observed {
                id: format!("{way}, 7 s: {name}"),
                value: size.map(|n| n as f64),
                unit: "bytes".to_owned(),
                why: format!("certain: {now}; after 50 s {}", after(&known, 50).1),
            });
        }
    }
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
