//! Crash states per CPU-second of one core: ext4 on devices of 64 MiB and of 16 GiB, F2FS on one of
//! 64 MiB and on one with zones, NILFS2 and btrfs on drives with a volatile cache. And how long one
//! program takes with thousands of unpersisted writes, on each file system.
//!
//! `cargo bench -p wp-campaign --bench crash [-- --json] [--programs N] [--turns N] [--only NAME]
//! [--rival SCRIPT]`. The rows are measured in turns, and the best of each is printed: a busy
//! machine takes time from some of the turns only.
//! The workload: programs of 24 random calls (`crash wild --seed 1 --calls 24`, with O_DIRECT and
//! fallocate) on the file system of 6.18, every rule of its profile, every recovered state checked
//! in full; F2FS so that none of its known holes is open, as what breaks no rule is looked at
//! longest. NILFS2 and btrfs explore programs of `crash calls-2` instead, whose crash points have
//! up to 22 unpersisted writes: nearly all of their states are known, and what is measured is how
//! fast that is found. `raw/s` counts all of it but the playing of the programs; `distinct/s` what
//! was recovered, listed, checked and judged, over the time of the same: states that no earlier one
//! answers for. SCRIPT is what the running kernel is timed with, in the same minute
//! (`kernel-crash-cycle.sh -f ext4 -s 64 -j`, as root).
//!
//! `-- --many [--only NAME]` measures that program instead, once: 300 direct writes of 256 KiB in
//! order, and one fsync (`--writes N`: so many), on a device of 256 MiB.

use std::cell::Cell;
use std::process::Command;

use wp_campaign::bugs::ZONES;
use wp_campaign::wild::Extras;
use wp_campaign::{Bench, Of, Source, Space, play_on};
use wp_crash::{Explorer, FsSubject, Outcome, Pages, Plan, Profile, Rule, Subject, Totals};
use wp_medium::Sound;
use wp_vfs::FsEntry;
use wp_workload::program::Program;

#[global_allocator]
static ALLOCATOR: wp_machine::memory::Allocator = wp_machine::memory::Allocator;

/// Programs that share what is known, as in a campaign.
const CHUNK: usize = 16;

/// Nanoseconds of CPU time of this thread, so that a busy machine matters little.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("this kernel has schedstat")
}

/// A subject whose recoveries are timed.
struct Timed<'a> {
    below: &'a FsSubject,
    ns: &'a Cell<u64>,
}

impl Subject for Timed<'_> {
    fn block_bytes(&self) -> u32 {
        self.below.block_bytes()
    }
    fn recover(&self, pages: &dyn Pages) -> Outcome {
        let begin = cpu_ns();
        let out = self.below.recover(pages);
        self.ns.set(self.ns.get() + cpu_ns() - begin);
        out
    }
}

/// A file system and what it is on.
struct Ground {
    name: &'static str,
    fs: &'static FsEntry,
    options: &'static str,
    device: &'static str,
    params: &'static [(&'static str, u64)],
    elevator: &'static str,
    /// The first program of `calls-2`, where those are explored.
    calls: Option<u64>,
}

const F2FS: &str = "era=6.18,mode=lfs,wait_first_node,wait_last_node,fsync_mode=strict_fixed";

static GROUNDS: [Ground; 6] = [
    Ground {
        name: "ext4 64M",
        fs: &wp_ext4::ENTRY,
        options: "era=6.18",
        device: "ssd-128",
        params: &[("capacity_bytes", 64 << 20)],
        elevator: "",
        calls: None,
    },
    Ground {
        name: "ext4 16G",
        fs: &wp_ext4::ENTRY,
        options: "era=6.18",
        device: "ssd-128",
        params: &[("capacity_bytes", 16 << 30)],
        elevator: "",
        calls: None,
    },
    Ground {
        name: "f2fs 64M",
        fs: &wp_f2fs::ENTRY,
        options: F2FS,
        device: "ssd-128",
        params: &[("capacity_bytes", 64 << 20)],
        elevator: "",
        calls: None,
    },
    // 24 zones of 16 MiB, of which 12 can be written: those of paper `f2fs-oprw`'s power failures.
    Ground {
        name: "f2fs zns",
        fs: &wp_f2fs::ENTRY,
        options: F2FS,
        device: ZONES.0,
        params: ZONES.1,
        elevator: "mq-deadline",
        calls: None,
    },
    Ground {
        name: "nilfs2 calls",
        fs: &wp_nilfs2::ENTRY,
        options: "sync_inodes,sync_nameless,flush_segments,await_flush",
        device: "fixed",
        params: &[("capacity_bytes", 256 << 20)],
        elevator: "",
        calls: Some(5776),
    },
    Ground {
        name: "btrfs calls",
        fs: &wp_btrfs::ENTRY,
        options: "fix=all,overgrown=replace",
        device: "fixed",
        params: &[("capacity_bytes", 128 << 20)],
        elevator: "",
        calls: Some(50_000),
    },
];

/// What one ground came to.
struct Row {
    name: &'static str,
    check: bool,
    totals: Totals,
    /// CPU time of all but the playing.
    explored_ns: u64,
    /// Time of recovery, list and check.
    recovered_ns: u64,
    played_ns: u64,
}

impl Row {
    fn raw(&self) -> f64 {
        self.totals.raw as f64 * 1e9 / self.explored_ns as f64
    }
    /// The less of both times.
    fn best(self, other: Row) -> Row {
        Row {
            explored_ns: self.explored_ns.min(other.explored_ns),
            recovered_ns: self.recovered_ns.min(other.recovered_ns),
            played_ns: self.played_ns.min(other.played_ns),
            ..self
        }
    }
    fn distinct(&self) -> f64 {
        self.totals.distinct as f64 * 1e9 / self.recovered_ns as f64
    }
}

fn measure(ground: &Ground, check: bool, programs: u64) -> Row {
    let bench = Bench {
        device: ground.device.to_owned(),
        device_params: ground.params.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        elevator: ground.elevator.to_owned(),
        stale: false,
        ..Bench::new(ground.fs, ground.options).expect("its options")
    };
    let (source, first) = match ground.calls {
        Some(first) => (Source::Sequences(Of::Further, 2), first),
        None => (Source::Wild { seed: 1, calls: 24, extras: Extras::DATA }, 0),
    };
    let image = bench.image().expect("an image");
    let mut row = Row {
        name: ground.name,
        check,
        totals: Totals::default(),
        explored_ns: 0,
        recovered_ns: 0,
        played_ns: 0,
    };
    let numbers: Vec<u64> = (first..first + programs).collect();
    for chunk in numbers.chunks(CHUNK) {
        let begin = cpu_ns();
        let plays: Vec<_> = chunk
            .iter()
            .map(|n| play_on(&bench, image.clone(), &source.program(*n)).expect("plays"))
            .collect();
        row.played_ns += cpu_ns() - begin;
        let subject = FsSubject {
            entry: bench.fs,
            options: bench.fs_options.clone(),
            block_bytes: 4096,
            check,
            keep_writes: false,
            sound: Sound::default(),
        };
        let ns = Cell::new(0);
        let timed = Timed { below: &subject, ns: &ns };
        let options = wp_crash::Options {
            plan: Plan::default(),
            seed: 1,
            profile: Profile::of(&ground.fs.promises),
            partition: plays[0].partition,
            keep: 1,
            second_cuts: 0,
            prune: true,
            recovery_in_order: true,
        };
        let begin = cpu_ns();
        let mut explorer = Explorer::new(&timed, options);
        let histories: Vec<_> = plays.iter().map(|p| Space::HONEST.history(p)).collect();
        explorer.expect(histories.iter());
        for (played, history) in plays.iter().zip(&histories) {
            explorer.explore(&played.tape, history, &played.ledger, &mut |_| true);
        }
        row.explored_ns += cpu_ns() - begin;
        row.recovered_ns += ns.get();
        let mut broken = explorer.totals.broken;
        if ground.fs.name == "f2fs" {
            // What fallocate adds to a file that is open with O_SYNC it does not sync; ext4 does.
            broken[Rule::LostSync as usize] = 0;
        }
        assert_eq!(broken.iter().sum::<u64>(), 0, "{:?}", explorer.failures);
        row.totals.add(&explorer.totals);
    }
    row
}

/// File systems that [`many`] is measured on.
static ALL: [(&FsEntry, &str); 4] = [
    (&wp_ext4::ENTRY, "era=6.18"),
    (&wp_f2fs::ENTRY, "era=6.18"),
    (&wp_btrfs::ENTRY, ""),
    (&wp_nilfs2::ENTRY, ""),
];

/// Explores `writes` direct writes of 256 KiB and an fsync, and prints what that took.
fn many(fs: &'static FsEntry, options: &str, writes: u64) {
    let mut text = "open 0 a rw,creat,direct\n".to_owned();
    for n in 0..writes {
        text.push_str(&format!("pwrite 0 262144 {} {}\n", n * 262_144, n + 1));
    }
    let program = Program::parse(&format!("{text}fsync 0\n")).expect("a program");
    let bench = Bench {
        device_params: vec![("capacity_bytes".to_owned(), 256 << 20)],
        ..Bench::new(fs, options).expect("its options")
    };
    let image = bench.image().expect("an image");
    let played = play_on(&bench, image, &program).expect("plays");
    let failed = played.dids.iter().filter(|did| did.error.is_some()).count();
    assert_eq!(failed, 0, "calls that failed");
    let subject = FsSubject {
        entry: bench.fs,
        options: bench.fs_options.clone(),
        block_bytes: 4096,
        check: true,
        keep_writes: false,
        sound: Sound::default(),
    };
    let begin = cpu_ns();
    let history = Space::HONEST.history(&played);
    let options = wp_crash::Options {
        plan: Plan::default(),
        seed: 1,
        profile: Profile::of(&fs.promises),
        partition: played.partition,
        keep: 1,
        second_cuts: 0,
        prune: true,
        recovery_in_order: true,
    };
    let mut explorer = Explorer::new(&subject, options);
    explorer.expect(std::iter::once(&history));
    explorer.explore(&played.tape, &history, &played.ledger, &mut |_| true);
    let (t, secs) = (explorer.totals, (cpu_ns() - begin) as f64 / 1e9);
    let (name, points, raw, distinct) = (fs.name, t.cuts, t.raw, t.distinct);
    println!("{name:<12}{points:>14}{raw:>10}{distinct:>10}{:>10}{secs:>8.1}", t.cuts_thinned);
}

/// The value behind `name` among the arguments.
fn argument(args: &[String], name: &str) -> Option<String> {
    args.iter().position(|a| a == name).and_then(|i| args.get(i + 1)).cloned()
}

fn main() {
    wp_machine::memory::keep_freed();
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let json = args.iter().any(|a| a == "--json");
    let programs =
        argument(&args, "--programs").map_or(32, |n| n.parse().expect("--programs: a number"));
    let turns: u32 =
        argument(&args, "--turns").map_or(3, |n| n.parse().expect("--turns: a number"));
    let only = argument(&args, "--only").unwrap_or_default();
    if args.iter().any(|a| a == "--many") {
        let writes = argument(&args, "--writes").map_or(300, |n| n.parse().expect("a number"));
        println!(
            "{:<12}{:>14}{:>10}{:>10}{:>10}{:>8}",
            "on", "crash points", "raw", "distinct", "thinned", "s"
        );
        for (fs, options) in ALL.iter().filter(|(fs, _)| fs.name.contains(&only)) {
            many(fs, options, writes);
        }
        return;
    }
    if !json {
        println!("best of {turns} turns");
        println!(
            "{:<12}{:<7}{:>10}{:>10}{:>12}{:>12}{:>10}",
            "on", "check", "raw", "distinct", "raw/s", "distinct/s", "play ms"
        );
    }
    for check in [true, false] {
        let grounds = GROUNDS.iter().filter(|g| g.name.contains(&only));
        let turn = || grounds.clone().map(|g| measure(g, check, programs)).collect::<Vec<_>>();
        let rows = (1..turns)
            .fold(turn(), |best, _| best.into_iter().zip(turn()).map(|(a, b)| a.best(b)).collect());
        for row in rows {
            let (raw, distinct) = (row.totals.raw, row.totals.distinct);
            let (check, play) =
                (if row.check { "full" } else { "none" }, row.played_ns / 1_000_000 / programs);
            let (rr, dr) = (row.raw(), row.distinct());
            if json {
                println!(
                    "{}",
                    serde_json::json!({
                        "on": row.name, "check": check, "raw": raw, "distinct": distinct,
                        "raw_per_s": rr.round(), "distinct_per_s": dr.round(), "play_ms": play,
                    })
                );
            } else {
                println!(
                    "{:<12}{check:<7}{raw:>10}{distinct:>10}{rr:>12.0}{dr:>12.0}{play:>10}",
                    row.name
                );
            }
        }
    }
    if let Some(script) = argument(&args, "--rival") {
        let run = Command::new("bash").args([&script, "-f", "ext4", "-s", "64", "-j"]).output();
        match run {
            Ok(out) if out.status.success() => {
                print!("running kernel: {}", String::from_utf8_lossy(&out.stdout));
            }
            Ok(out) => println!("{script}: {}", String::from_utf8_lossy(&out.stderr).trim()),
            Err(e) => println!("{script}: {e}"),
        }
    }
}
