//! Crash states per CPU-second of one core, on devices of 64 MiB and of 16 GiB.
//!
//! `cargo bench -p wp-lab --bench crash [-- --json] [--programs N] [--rival SCRIPT]`.
//! The workload: programs of 24 random calls (`crash wild --seed 1 --calls 24`, with O_DIRECT and
//! fallocate) on ext4 of 6.18 on `ssd-128`, every rule of ext4's profile, every recovered state
//! checked in full. `raw/s` counts all of it but the playing of the programs; `distinct/s` what
//! was recovered, listed, checked and judged, over the time of the same: states that no earlier one
//! answers for. SCRIPT is what the running kernel is timed with, in the same minute
//! (`kernel-crash-cycle.sh -f ext4 -s 64 -j`, as root).

use std::cell::Cell;
use std::process::Command;

use wp_crash::{Explorer, FsSubject, Outcome, Pages, Plan, Profile, Subject, Totals};
use wp_lab::crash::wild::Extras;
use wp_lab::crash::{Bench, Source, Space, play_on};
use wp_lab::registry;
use wp_medium::Sound;

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

/// What one size came to.
struct Row {
    size: &'static str,
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
    fn distinct(&self) -> f64 {
        self.totals.distinct as f64 * 1e9 / self.recovered_ns as f64
    }
}

fn measure(size: (&'static str, u64), check: bool, programs: u64) -> Row {
    let bench = Bench {
        device: "ssd-128".to_owned(),
        device_params: vec![("capacity_bytes".to_owned(), size.1)],
        stale: false,
        ..Bench::new(registry::FILE_SYSTEMS[0], "era=6.18").expect("options of ext4")
    };
    let source = Source::Wild { seed: 1, calls: 24, extras: Extras::DATA };
    let image = bench.image().expect("an image");
    let mut row = Row {
        size: size.0,
        check,
        totals: Totals::default(),
        explored_ns: 0,
        recovered_ns: 0,
        played_ns: 0,
    };
    let numbers: Vec<u64> = (0..programs).collect();
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
            profile: Profile::EXT4,
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
        assert_eq!(explorer.totals.broken.iter().sum::<u64>(), 0, "{:?}", explorer.failures);
        row.totals.add(&explorer.totals);
    }
    row
}

/// The value behind `name` among the arguments.
fn argument(args: &[String], name: &str) -> Option<String> {
    args.iter().position(|a| a == name).and_then(|i| args.get(i + 1)).cloned()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let json = args.iter().any(|a| a == "--json");
    let programs =
        argument(&args, "--programs").map_or(32, |n| n.parse().expect("--programs: a number"));
    if !json {
        println!(
            "{:<8}{:<7}{:>10}{:>10}{:>12}{:>12}{:>10}",
            "device", "check", "raw", "distinct", "raw/s", "distinct/s", "play ms"
        );
    }
    for check in [true, false] {
        for size in [("64M", 64 << 20), ("16G", 16 << 30)] {
            let row = measure(size, check, programs);
            let (raw, distinct) = (row.totals.raw, row.totals.distinct);
            let (check, play) =
                (if row.check { "full" } else { "none" }, row.played_ns / 1_000_000 / programs);
            let (rr, dr) = (row.raw(), row.distinct());
            if json {
                println!(
                    "{}",
                    serde_json::json!({
                        "device": row.size, "check": check, "raw": raw, "distinct": distinct,
                        "raw_per_s": rr.round(), "distinct_per_s": dr.round(), "play_ms": play,
                    })
                );
            } else {
                println!(
                    "{:<8}{check:<7}{raw:>10}{distinct:>10}{rr:>12.0}{dr:>12.0}{play:>10}",
                    row.size
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
