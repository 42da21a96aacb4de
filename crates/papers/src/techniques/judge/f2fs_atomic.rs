//! Atomic writes of F2FS: what a power failure leaves of a commit, what a commit sends, and SQLite
//! with and without a journal.

use wp_base::event::{Flags, Op};
use wp_campaign::{Bench, Campaign, Source, play};
use wp_crash::{Entry, Profile, Rule, Totals};
use wp_machine::MachineError;
use wp_machine::spec::file_system;
use wp_workload::program::Program;

use super::Ask;
use super::beside::{Setup, params};
use super::sqlite::{self, Commit};
use crate::claims::Measured;
use crate::journal_conflict::profile;
use crate::vary::{BY_HALF, Range, Variation};

/// A drive without FUA and one with power-loss protection: the class of the matrix.
const DEVICE: &str = "850pro-256";
/// Whether the drive is protected against a loss of power.
const DRIVES: [(&str, u64); 2] = [("volatile", 0), ("plp", 1)];
/// What is committed: four blocks over four that are durable; the nap has all that the commit sent
/// arrive.
const FOUR: &str = "open 0 a rw,creat; pwrite 0 16384 0 1; sync; atomic_start 0; \
                    pwrite 0 4096 0 2; pwrite 0 4096 4096 3; pwrite 0 4096 8192 4; \
                    pwrite 0 4096 12288 5; atomic_commit 0; nap 100000";
/// One block over a durable one, and a call behind the commit.
const ONE: &str = "open 0 a rw,creat; pwrite 0 4096 0 1; sync; atomic_start 0; pwrite 0 4096 0 2; \
                   atomic_commit 0; nap 100000; pread 0 4096 0";

fn program(text: &str) -> Program {
    Program::parse(&text.replace("; ", "\n")).expect("text of our own")
}

/// F2FS of 6.12. The first node after a checkpoint is waited for on both sides, so that what R1
/// loses counts on neither.
fn bench(more: &str, plp: u64) -> Result<Bench, MachineError> {
    let text = format!("f2fs,era=6.12,wait_first_node{more}");
    let (fs, options) = file_system(&text).map_err(MachineError::Config)?;
    let mut bench = Bench::of(fs, options)?;
    DEVICE.clone_into(&mut bench.device);
    bench.device_params = params(&[("plp", plp), ("capacity_bytes", 64 << 20)]);
    Ok(bench)
}

/// All states that a power failure can leave, judged by the rule that a commit is durable too.
fn explored(ask: Ask, more: &str, plp: u64) -> Result<Totals, MachineError> {
    let bench = bench(more, plp)?;
    let own = Profile::of(&wp_f2fs::ENTRY.promises);
    let campaign = Campaign {
        seed: ask.seed,
        profile: Profile { commits_hold: true, ..own },
        ..Campaign::new(bench, Source::Text(program(FOUR)), (0, 1))
    };
    let found = wp_campaign::run(&campaign, 1, &|_| true);
    match found.unplayed() {
        Some((_, why)) => Err(MachineError::Config(why.to_owned())),
        None => Ok(found.totals),
    }
}

/// Writes of the commit, and the flags of each.
fn writes() -> Result<Vec<Flags>, MachineError> {
    let (fs, options) = file_system("f2fs,era=6.12").map_err(MachineError::Config)?;
    let played = play(&Bench::of(fs, options)?, &program(ONE))?;
    let commit = played.dids.len() as u32 - 2;
    let entries = played.tape.entries.iter().map(|(_, entry)| entry);
    let within = entries
        .skip_while(|e| !matches!(e, Entry::Begin(n) if *n == commit))
        .take_while(|e| !matches!(e, Entry::Begin(n) if *n > commit));
    let flags = within.filter_map(|e| match e {
        Entry::Submit { op: Op::Write, flags, .. } => Some(*flags),
        _ => None,
    });
    Ok(flags.collect())
}

fn setup(ask: Ask, varied: Option<&Variation>) -> Setup {
    let mut setup = Setup {
        fs: "f2fs,era=6.12".to_owned(),
        device: DEVICE,
        params: Vec::new(),
        elevator: "none".to_owned(),
        kernel: (6, 12),
        cpu: profile().model(),
        seed: ask.seed,
    };
    if let Some(varied) = varied {
        varied.apply(&mut setup.params, &mut setup.cpu);
    }
    setup
}

/// Inserts per second over those with a rollback journal, and FLUSHes of an insert of both.
fn ratio(ask: Ask, varied: Option<&Variation>) -> Result<(f64, f64, f64), MachineError> {
    let count = ask.pick(10, 100);
    let with = sqlite::run(&setup(ask, varied), count, Commit::Batch)?;
    let journal = sqlite::run(&setup(ask, varied), count, Commit::Syncs)?;
    Ok((with.per_second / journal.per_second, with.flushes, journal.flushes))
}

pub(super) fn measure(ask: Ask) -> Result<Vec<(&'static str, Measured)>, MachineError> {
    let broken = |t: &Totals, rule: Rule| t.broken[rule as usize];
    let (mut torn, mut states) = (0, 0);
    let (mut late, mut waited) = (Vec::new(), 0);
    for (_, plp) in DRIVES {
        let stock = explored(ask, "", plp)?;
        torn += broken(&stock, Rule::MixedVersions) + broken(&stock, Rule::Exposure);
        states += stock.raw;
        late.push(broken(&stock, Rule::LostSync));
        waited += broken(&explored(ask, ",wait_last_node", plp)?, Rule::LostSync);
    }
    let each: Vec<String> =
        DRIVES.iter().zip(&late).map(|((name, _), n)| format!("{name} {n}")).collect();
    let lower = late.iter().copied().min().unwrap_or(0);
    let sent = writes()?;
    let forced = sent.iter().filter(|f| f.has(Flags::FUA)).count();
    let (value, with, journal) = ratio(ask, None)?;
    let mut range = Range::new(value);
    for varied in Variation::of_all_cpu(BY_HALF) {
        range.widen(ratio(ask, Some(&varied))?.0);
    }
    Ok(vec![
        ("f2aw.torn", Measured::value(torn as f64).why(format!("of {states} states"))),
        ("f2aw.late", Measured::value(lower as f64).why(each.join(", "))),
        ("f2aw.late.wait", Measured::value(waited as f64)),
        (
            "f2aw.requests",
            Measured::value(sent.len() as f64).why(format!("{forced} with FUA, behind a FLUSH")),
        ),
        (
            "f2aw.sqlite",
            range.measured().why(format!("{with:.2} flushes per insert, journal {journal:.2}")),
        ),
    ])
}
