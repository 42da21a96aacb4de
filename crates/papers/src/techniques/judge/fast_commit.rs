//! Fast commits of ext4: what a commit writes, what is gained, and what is lost.

use wp_campaign::bugs;
use wp_campaign::{Bench, Campaign};
use wp_machine::MachineError;
use wp_machine::spec::file_system;

use super::Ask;
use super::beside::{Setup, params};
use super::files::{Made, Work, run};
use crate::claims::Measured;
use crate::journal_conflict::profile;
use crate::vary::{BY_HALF, Range, Variation};

/// A SATA drive; what the papers' was is not known.
pub(super) const DEVICE: &str = "850pro-256";
/// No timer commits.
pub(super) const NO_TIMER: &str = ",commit=3600";

pub(super) fn setup(ask: Ask, options: &str, varied: Option<&Variation>) -> Setup {
    let mut setup = Setup {
        fs: format!("ext4,era=6.12,noinit_itable{options}"),
        device: DEVICE,
        params: params(&[]),
        elevator: String::new(),
        kernel: (6, 12),
        cpu: profile().model(),
        seed: ask.seed,
    };
    if let Some(varied) = varied {
        varied.apply(&mut setup.params, &mut setup.cpu);
    }
    setup
}

/// The load with fast commits, and without.
fn both(
    ask: Ask,
    work: Work,
    (tasks, count): (u64, u64),
    varied: Option<&Variation>,
) -> Result<[Made; 2], MachineError> {
    let fast = run(&setup(ask, ",fast_commit", varied), work, tasks, count)?;
    Ok([fast, run(&setup(ask, "", varied), work, tasks, count)?])
}

fn gain([fast, full]: &[Made; 2]) -> f64 {
    fast.per_second / full.per_second
}

/// Blocks of the log that full commits wrote, each.
pub(super) fn blocks_of_a_commit(full: &Made) -> f64 {
    let blocks = full.counter("blocks_logged") + full.counter("control_blocks");
    blocks / full.counter("commits").max(1.0)
}

/// One-block fast commits until a full one comes: the first number of syncs that has one. mke2fs
/// makes the area a 64th of the journal: 256 blocks on a file system of 2 to 16 GiB.
fn area(ask: Ask) -> Result<f64, MachineError> {
    let options = format!(",fast_commit{NO_TIMER}");
    for syncs in 250..=264 {
        let mut small = setup(ask, &options, None);
        (small.device, small.params) = ("fixed", params(&[("capacity_bytes", 8 << 30)]));
        let made = run(&small, Work::Append, 1, syncs)?;
        if made.counter("commits") > 0.0 {
            return Ok(made.counter("fast_commits"));
        }
    }
    Ok(f64::INFINITY)
}

/// Crash states of a bug's first programs that break its rule.
fn broken(
    ask: Ask,
    fs: &str,
    id: &str,
    device: (&str, &[(&str, u64)]),
) -> Result<u64, MachineError> {
    let bug = bugs::find(id).expect("a bug of our own table");
    let (fs, options) = file_system(fs).map_err(MachineError::Config)?;
    let mut bench = Bench::of(fs, options)?;
    device.0.clone_into(&mut bench.device);
    bench.device_params = params(device.1);
    let (own, rule) = bugs::affected(bug)?;
    let count = own.programs.1.min(ask.pick(2, 8));
    let campaign = Campaign { bench, programs: (0, count), stop_at: Vec::new(), ..own };
    let found = wp_campaign::run(&campaign, 2, &|_| true);
    if let Some((n, why)) = found.unplayed() {
        return Err(MachineError::Config(format!("{id}, program {n}: {why}")));
    }
    Ok(found.totals.broken[rule as usize])
}

pub(super) type Claims = Vec<(&'static str, Measured)>;

/// What a commit writes, and what that gains.
fn gains(ask: Ask) -> Result<Claims, MachineError> {
    let appends = both(ask, Work::Append, (1, ask.pick(60, 200)), None)?;
    let marks = both(ask, Work::Mark, (8, ask.pick(16, 1024)), None)?;
    let mails = both(ask, Work::Mail, (16, ask.pick(24, 400)), None)?;
    let mut marked = Range::new(gain(&marks));
    for varied in Variation::of_all_cpu(BY_HALF) {
        let short = (8, ask.pick(16, 128));
        marked.widen(gain(&both(ask, Work::Mark, short, Some(&varied))?));
    }
    let null = marks[1].counter("flushes") / marks[0].counter("flushes").max(1.0);
    let [mail, mail_full] = &mails;
    let log = 4096.0
        * (mail_full.counter("blocks_logged")
            + mail_full.counter("control_blocks")
            + mail_full.counter("superblock_writes"));
    let all = 512.0 * mail_full.counter("written_sectors");
    let commits = |m: &Made| m.counter("fast_commits").max(1.0);
    let best = [("appends", &appends), ("fs_mark", &marks), ("mail", &mails)]
        .map(|(name, pair)| (name, 100.0 * (gain(pair) - 1.0)));
    let most = best.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("three");
    Ok(vec![
        (
            "fc.append.blocks",
            Measured::value(appends[0].counter("fast_blocks") / commits(&appends[0]))
                .why(format!("{} fast commits", appends[0].counter("fast_commits"))),
        ),
        ("fc.full.blocks", Measured::value(blocks_of_a_commit(&appends[1]))),
        (
            "fc.fsmark",
            marked.measured().null(null).why(format!(
                "{:.0} and {:.0} files/s; the null predictor is the ratio of FLUSHes",
                marks[0].per_second, marks[1].per_second
            )),
        ),
        (
            "fc.share",
            Measured::value(mail.counter("fast_single") / commits(mail)).why(format!(
                "{} fast commits; {} calls became a full commit",
                mail.counter("fast_commits"),
                mail.counter("fast_ineligible") + mail.counter("fast_failed")
            )),
        ),
        (
            "fc.noflush",
            Measured::value(
                mail.counter("fast_without_flush") / mail.counter("fast_single").max(1.0),
            )
            .inconsistent("no kernel has the selective flush that the paper counts"),
        ),
        ("fc.jbdshare", Measured::value(log / all.max(1.0))),
        ("fc.max", Measured::value(most.1).why(format!("best at {}", most.0))),
    ])
}

/// What one task's syncs cost another.
fn company(ask: Ask) -> Result<Claims, MachineError> {
    let count = ask.pick(40, 200);
    let slowed = |options: &str| -> Result<f64, MachineError> {
        let alone = run(&setup(ask, options, None), Work::Append, 1, count)?;
        let among = run(&setup(ask, options, None), Work::AppendBesideMark, 9, count)?;
        Ok(alone.per_second / among.per_second)
    };
    let (full, fast) = (slowed("")?, slowed(",fast_commit")?);
    let waits = |era: &str| -> Result<f64, MachineError> {
        let mut setup = setup(ask, ",fast_commit", None);
        setup.fs = setup.fs.replace("6.12", era);
        let made = run(&setup, Work::Mark, 8, ask.pick(16, 128))?;
        Ok(made.counter("barrier_wait_ns") / made.counter("fast_commits").max(1.0))
    };
    let (old, new) = (waits("6.12")?, waits("6.16")?);
    Ok(vec![
        (
            "fc.interfere",
            Measured::value(full / fast)
                .why(format!("{full:.2} times with full commits, {fast:.2} with fast")),
        ),
        (
            "fc.window",
            Measured::answer(new < old).why(format!("{new:.0} ns in 6.16, {old:.0} ns in 6.12")),
        ),
    ])
}

/// What power failures take.
fn losses(ask: Ask) -> Result<Claims, MachineError> {
    let volatile = ("fixed", &[("capacity_bytes", 64 << 20)][..]);
    let safe = ("fixed", &[("capacity_bytes", 64 << 20), ("cache_bytes", 0), ("fua", 0)][..]);
    let lost = |era: &str, id: &str, device| {
        broken(ask, &format!("ext4,era={era},fast_commit"), id, device)
    };
    let h1 =
        [lost("6.12", "H1", volatile)?, lost("6.12", "H1", safe)?, lost("5.10.0", "H1", volatile)?];
    let a36 = [lost("5.10", "A36", volatile)?, lost("5.17", "A36", volatile)?];
    Ok(vec![
        (
            "fc.bbolt",
            Measured::answer(a36[0] > 0 && a36[1] == 0)
                .why(format!("{} states in 5.10, {} in 5.17", a36[0], a36[1])),
        ),
        (
            "fc.h1",
            Measured::answer(h1[0] > 0 && h1[1] == 0 && h1[2] == 0).why(format!(
                "{} states; {} with power-loss protection; {} with the flags of 5.10.0",
                h1[0], h1[1], h1[2]
            )),
        ),
    ])
}

pub(super) fn measure(ask: Ask) -> Result<Claims, MachineError> {
    let mut all = gains(ask)?;
    all.push(("fc.area", Measured::value(area(ask)?)));
    all.extend(company(ask)?);
    all.extend(losses(ask)?);
    Ok(all)
}
