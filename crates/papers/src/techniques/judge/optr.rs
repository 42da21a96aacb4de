//! OPTR: SQLite on ext4 on a drive that keeps all writes in order, and what that drive leaves after
//! a power failure.

use wp_base::event::Op;
use wp_base::{FsResult, Sector};
use wp_campaign::programs::direct;
use wp_campaign::{Bench, play};
use wp_crash::{Entry, Tape};
use wp_machine::MachineError;
use wp_machine::spec::file_system;
use wp_medium::{Medium, Slice};
use wp_vfs::OpenFlags;

use super::Ask;
use super::beside::{Setup, params};
use super::sqlite::{self, Commit};
use crate::claims::Measured;
use crate::journal_conflict::profile;
use crate::vary::{BY_HALF, Range, Variation};

/// A SATA drive without FUA; what the paper's was is not known.
const DEVICE: &str = "850pro-256";

fn setup(ask: Ask, optr: bool, options: &str, varied: Option<&Variation>) -> Setup {
    let mut setup = Setup {
        fs: format!("ext4,era=4.6,noinit_itable{options}"),
        device: DEVICE,
        params: params(if optr { &[("optr", 1)] } else { &[] }),
        elevator: "noop".to_owned(),
        kernel: (4, 6),
        cpu: profile().model(),
        seed: ask.seed,
    };
    if let Some(varied) = varied {
        varied.apply(&mut setup.params, &mut setup.cpu);
    }
    setup
}

/// Inserts per second over stock, FLUSHes of an insert, and those of stock.
fn ratio(
    ask: Ask,
    options: &str,
    commit: Commit,
    varied: Option<&Variation>,
) -> Result<(f64, f64, f64), MachineError> {
    let count = ask.pick(10, 100);
    let with = sqlite::run(&setup(ask, true, options, varied), count, commit)?;
    let stock = sqlite::run(&setup(ask, false, "", varied), count, Commit::Syncs)?;
    Ok((with.per_second / stock.per_second, with.flushes, stock.flushes))
}

/// The ratio with its interval; the null predictor is that of the FLUSHes.
fn judged(ask: Ask, options: &str, commit: Commit) -> Result<Measured, MachineError> {
    let (value, with, stock) = ratio(ask, options, commit, None)?;
    let mut range = Range::new(value);
    for varied in Variation::of_all_cpu(BY_HALF) {
        range.widen(ratio(ask, options, commit, Some(&varied))?.0);
    }
    let measured = range.measured().why(format!("{with:.2} flushes per insert, stock {stock:.2}"));
    Ok(if with > 0.0 { measured.null(stock / with) } else { measured })
}

/// FLUSHes of an fsync that commits: appends, each with its fsync.
fn flushes(ask: Ask, optr: bool) -> Result<f64, MachineError> {
    const COUNT: u64 = 50;
    let failed = |error| MachineError::Fs { during: "workload", error };
    let machine = setup(ask, optr, if optr { ",optr" } else { "" }, None).machine()?;
    let vfs = machine.mount()?;
    let sent = || {
        let all = machine.queue.with_device(|d| d.counters());
        all.iter().find(|(name, _)| *name == "flushes").map_or(0, |c| c.1)
    };
    let v = vfs.clone();
    let made = async move {
        let fd = v.open("log", OpenFlags::CREATE, 0o644).await?;
        v.fsync(fd).await?;
        FsResult::Ok(fd)
    };
    let fd = machine.block_on("prepare", made)?.map_err(failed)?;
    let (before, v) = (sent(), vfs.clone());
    let appends = async move {
        for n in 0..COUNT {
            v.pwrite(fd, n * 4096, &[Slice::pattern(n, n * 4096, 4096)]).await?;
            v.fsync(fd).await?;
        }
        FsResult::Ok(())
    };
    machine.block_on("appends", appends)?.map_err(failed)?;
    let sent = sent() - before;
    machine.unmount(&vfs)?;
    Ok(sent as f64 / COUNT as f64)
}

/// States that the drive could be left with at its events, and those of them that are no prefix of
/// the writes as it received them, each whole.
pub(super) fn prefixes(tape: &Tape) -> (u64, u64) {
    let writes: Vec<(usize, Sector, &[Slice])> = (0..)
        .zip(&tape.entries)
        .filter_map(|(pos, (_, e))| match e {
            Entry::Submit { op: Op::Write, at, data, .. } => Some((pos, *at, &data[..])),
            _ => None,
        })
        .collect();
    let lay = |medium: &mut Medium, at: Sector, data: &[Slice]| {
        let mut at = at;
        for slice in data {
            medium.write(at, slice);
            at = at.advance(u64::from(slice.len()) / wp_base::SECTOR_BYTES);
        }
    };
    let is_same = |a: &Medium, b: &Medium| {
        writes.iter().all(|(_, at, data)| {
            let bytes: u64 = data.iter().map(|s| u64::from(s.len())).sum();
            let sectors = (bytes / wp_base::SECTOR_BYTES) as u32;
            let of = |m: &Medium| m.read(*at, sectors).iter().flat_map(Slice::to_vec).collect();
            let (a, b): (Vec<u8>, Vec<u8>) = (of(a), of(b));
            a == b
        })
    };
    let (mut states, mut wrong) = (0, 0);
    for (pos, (_, entry)) in tape.entries.iter().enumerate() {
        let Entry::Model(view) = entry else { continue };
        let received = writes.iter().filter(|w| w.0 < pos).count();
        let safe = received.saturating_sub(view.loss.len());
        let mut right = tape.base.clone();
        writes[..safe].iter().for_each(|(_, at, data)| lay(&mut right, *at, data));
        let mut left = view.medium.clone();
        for kept in 0..=view.loss.len() {
            states += 1;
            wrong += u64::from(!is_same(&left, &right));
            if let Some(unit) = view.loss.get(kept) {
                unit.apply(&mut left);
                let (_, at, data) = writes[safe + kept];
                lay(&mut right, at, data);
            }
        }
    }
    (states, wrong)
}

/// The tape of a program on the drive, with what its model could be left with.
pub(super) fn taped(seed: u64) -> Result<Tape, MachineError> {
    let (fs, options) = file_system("ext4,era=4.6,optr").map_err(MachineError::Config)?;
    let mut bench = Bench::of(fs, options)?;
    DEVICE.clone_into(&mut bench.device);
    bench.device_params = params(&[("optr", 1), ("capacity_bytes", 64 << 20)]);
    bench.model = true;
    Ok(play(&bench, &direct::database(seed))?.tape)
}

pub(super) fn measure(ask: Ask) -> Result<Vec<(&'static str, Measured)>, MachineError> {
    let (mut states, mut wrong) = (0, 0);
    for seed in 0..ask.pick(2, 16) {
        let (all, bad) = prefixes(&taped(seed)?);
        states += all;
        wrong += bad;
    }
    let (stock, with) = (flushes(ask, false)?, flushes(ask, true)?);
    Ok(vec![
        ("optr.ext4", judged(ask, ",optr", Commit::Syncs)?),
        ("optr.both", judged(ask, ",optr", Commit::Orders)?),
        ("optr.nobarrier", judged(ask, ",optr,ordering_only", Commit::Syncs)?),
        ("optr.prefix", Measured::value(wrong as f64).why(format!("of {states} states"))),
        ("optr.flushes", Measured::value(with).why(format!("stock: {stock}"))),
    ])
}
