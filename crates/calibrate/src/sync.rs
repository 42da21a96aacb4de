//! Named drives beside public measurements of their syncs.
//!
//! Points:  `devices/sync/points.csv`: what a number of the preset was chosen by (`fitted`), and
//!          what none was (`held out`).
//! Model:   fio's loop on the whole stack: the bare block device, or a file of ext4 (6.12, HZ=1000)
//!          that was written before; CPU costs of the profile `CPU`, and a core for each job.
//! Regimes: [`Regime`]. A point counts in that of its load, its p99 in [`Regime::Tail`].
//! Error:   |model / measured - 1| of each value; averaged over a regime.

use serde::Serialize;
use wp_base::Sector;
use wp_machine::profile::Profile;
use wp_machine::{Machine, MachineError, MachineSpec, registry, spec};
use wp_rt::CpuModel;
use wp_vfs::Options;
use wp_workload::fio::JobResult;

use crate::bench;

/// The points that are kept with the sources.
const POINTS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../devices/sync/points.csv"));
/// The profile whose costs were measured on a host (bench `host_costs`).
const CPU: &str = "i7-3770";
/// Columns of a list of them.
const COLUMNS: &str = "device,stack,op,bs,jobs,sync,iops,mean_us,sync_us,p99_us,half,source";
/// Jobs of one load at most.
const JOBS_MAX: u32 = 256;
/// The job that is measured.
const LOAD: &str = "load";
/// Writes of a job.
const WRITES: u32 = 600;

/// What is measured of a drive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub enum Regime {
    /// Writes without a sync, one job.
    Write,
    /// A sync behind each write, one job.
    Sync,
    /// Syncs of several jobs.
    Parallel,
    /// Writes of several jobs, without a sync.
    Writes,
    /// 99th percentiles.
    Tail,
}

impl Regime {
    /// All, in order.
    pub const ALL: [Regime; 5] =
        [Regime::Write, Regime::Sync, Regime::Parallel, Regime::Writes, Regime::Tail];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Regime::Write => "QD1 write",
            Regime::Sync => "QD1 sync",
            Regime::Parallel => "parallel sync",
            Regime::Writes => "parallel write",
            Regime::Tail => "tail p99",
        }
    }
}

/// What follows each write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    /// Nothing.
    None,
    /// `fdatasync`.
    Fdatasync,
    /// `fsync`.
    Fsync,
}

/// Values of a load; times in microseconds.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Values {
    /// Writes a second.
    pub iops: Option<f64>,
    /// Mean latency of a write.
    pub mean_us: Option<f64>,
    /// Mean latency of a sync.
    pub sync_us: Option<f64>,
    /// 99th percentile of the sync, or of the write where there is none.
    pub p99_us: Option<f64>,
}

impl Values {
    /// All but the tail.
    fn means(&self) -> [Option<f64>; 3] {
        [self.iops, self.mean_us, self.sync_us]
    }
}

/// A measured point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Point {
    /// The preset.
    pub device: String,
    /// On a file of ext4, not on the block device?
    pub is_on_ext4: bool,
    /// At random places?
    pub random: bool,
    /// Bytes of a write.
    pub bytes: u32,
    /// Jobs, each with one write at a time.
    pub jobs: u32,
    /// What follows a write.
    pub sync: Sync,
    /// What was measured.
    pub measured: Values,
    /// Was a number of the preset chosen by it?
    pub fitted: bool,
    /// Where it was published.
    pub source: String,
}

impl Point {
    /// Where its means belong.
    pub fn regime(&self) -> Regime {
        match (self.sync, self.jobs) {
            (Sync::None, 1) => Regime::Write,
            (Sync::None, _) => Regime::Writes,
            (_, 1) => Regime::Sync,
            _ => Regime::Parallel,
        }
    }

    /// What it is: `ext4 randwrite 16k jobs 8 fdatasync`.
    pub fn name(&self) -> String {
        let stack = if self.is_on_ext4 { "ext4" } else { "raw" };
        let op = if self.random { "randwrite" } else { "write" };
        let size = match self.bytes {
            b if b.is_multiple_of(1 << 20) => format!("{}m", b >> 20),
            b => format!("{}k", b >> 10),
        };
        let jobs = if self.jobs > 1 { format!(" jobs {}", self.jobs) } else { String::new() };
        let sync = match self.sync {
            Sync::None => "",
            Sync::Fdatasync => " fdatasync",
            Sync::Fsync => " fsync",
        };
        format!("{stack} {op} {size}{jobs}{sync}")
    }
}

/// A point with what the model says of it.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// What was measured.
    pub point: Point,
    /// The same of the model.
    pub model: Values,
}

impl Judged {
    /// Error of its means, and of its tail.
    pub fn errors(&self) -> (Option<f64>, Option<f64>) {
        let off = |m: Option<f64>, r: Option<f64>| Some((m? / r? - 1.0).abs());
        let pairs = self.model.means().into_iter().zip(self.point.measured.means());
        let means: Vec<f64> = pairs.filter_map(|(m, r)| off(m, r)).collect();
        let mean = (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64);
        (mean, off(self.model.p99_us, self.point.measured.p99_us))
    }
}

/// Mean error of a regime over points of a half; `None`: there are none.
pub fn error(judged: &[Judged], regime: Regime, fitted: bool) -> Option<(usize, f64)> {
    let of = judged.iter().filter(|j| j.point.fitted == fitted);
    let errors: Vec<f64> = match regime {
        Regime::Tail => of.filter_map(|j| j.errors().1).collect(),
        _ => of.filter(|j| j.point.regime() == regime).filter_map(|j| j.errors().0).collect(),
    };
    (!errors.is_empty()).then(|| (errors.len(), errors.iter().sum::<f64>() / errors.len() as f64))
}

/// The points that are kept with the sources.
///
/// Panics if the list that was compiled in is none; a test reads it.
pub fn points() -> Vec<Point> {
    parse(POINTS).expect("a list that a test has read")
}

/// Reads points. Errors: `LINE:COLUMN: WHAT`.
pub fn parse(text: &str) -> Result<Vec<Point>, String> {
    let mut lines = (1..).zip(text.lines()).filter(|(_, l)| !l.trim().is_empty());
    match lines.next() {
        Some((_, COLUMNS)) => {}
        Some((n, _)) => return Err(format!("{n}:1: expected the columns {COLUMNS}")),
        None => return Err(format!("1:1: empty: expected the columns {COLUMNS}")),
    }
    lines.map(|(n, line)| point(line).map_err(|(at, what)| format!("{n}:{at}: {what}"))).collect()
}

/// Reads a line. Errors: the column of the text, and what is wrong there.
fn point(line: &str) -> Result<Point, (usize, String)> {
    let fields: Vec<&str> = line.splitn(12, ',').map(str::trim).collect();
    let [device, stack, op, bs, jobs, sync, iops, mean, sync_us, p99, half, source] = fields[..]
    else {
        return Err((1, format!("{} fields, expected 12", fields.len())));
    };
    let at = |n: usize| 1 + fields[..n].iter().map(|f| f.len() + 1).sum::<usize>();
    let choice = |n: usize, text: &str, all: &[&str]| {
        let found = all.iter().position(|a| *a == text);
        found.ok_or_else(|| (at(n), format!("`{text}`: expected {}", all.join(" or "))))
    };
    let number = |n: usize, text: &str| match text {
        "" => Ok(None),
        _ => match text.parse::<f64>() {
            Ok(v) if v.is_finite() && v > 0.0 => Ok(Some(v)),
            _ => Err((at(n), format!("`{text}` is not a number above 0"))),
        },
    };
    let bytes = spec::size(bs).map_err(|e| (at(3), e))?;
    let bytes = u32::try_from(bytes).ok().filter(|b| b.is_multiple_of(4096) && *b > 0);
    let bytes = bytes.ok_or_else(|| (at(3), format!("`{bs}` is not a multiple of 4 KiB")))?;
    let jobs = jobs.parse::<u32>().ok().filter(|j| (1..=JOBS_MAX).contains(j));
    let measured = Values {
        iops: number(6, iops)?,
        mean_us: number(7, mean)?,
        sync_us: number(8, sync_us)?,
        p99_us: number(9, p99)?,
    };
    if measured == Values::default() {
        return Err((at(6), "a point needs iops, mean_us, sync_us or p99_us".to_owned()));
    }
    Ok(Point {
        device: device.to_owned(),
        is_on_ext4: choice(1, stack, &["raw", "ext4"])? == 1,
        random: choice(2, op, &["write", "randwrite"])? == 1,
        bytes,
        jobs: jobs.ok_or_else(|| (at(4), format!("jobs: a number from 1 to {JOBS_MAX}")))?,
        sync: [Sync::None, Sync::Fdatasync, Sync::Fsync]
            [choice(5, sync, &["none", "fdatasync", "fsync"])?],
        measured,
        fitted: choice(10, half, &["held out", "fitted"])? == 1,
        source: source.to_owned(),
    })
}

/// Runs the points of device `name`, some of its numbers replaced.
///
/// Errors: a device that cannot be made; what the stack answers.
pub fn compare(
    points: &[Point],
    name: &str,
    replaced: &[(String, u64)],
) -> Result<Vec<Judged>, MachineError> {
    let cpu = Profile::find(CPU).map_err(MachineError::Config)?;
    let of = points.iter().filter(|p| p.device == name);
    of.map(|p| Ok(Judged { point: p.clone(), model: run(p, replaced, cpu)? })).collect()
}

/// What the stack does with a load.
fn run(p: &Point, replaced: &[(String, u64)], cpu: &Profile) -> Result<Values, MachineError> {
    let (fs, fs_options) = match p.is_on_ext4 {
        true => spec::file_system("ext4,era=6.12,hz=1000").map_err(MachineError::Config)?,
        false => (registry::NONE, Options::default()),
    };
    let machine = Machine::new(
        MachineSpec {
            seed: 1,
            cpu: CpuModel { cores: cpu.model().cores.max(p.jobs), ..cpu.model() },
            device: p.device.clone(),
            device_params: replaced.to_vec(),
            more: Vec::new(),
            elevator: String::new(),
            start: Sector(0),
            sectors: None,
            fs,
            fs_options,
            disk: "sdb".to_owned(),
            device_number: (8, 16),
            kernel: (6, 12),
        },
        None,
    )?;
    let results = bench::fio(&machine, "sync.fio", &jobs(p))?;
    let load: Vec<&JobResult> = results.iter().filter(|r| r.job.name == LOAD).collect();
    if load.len() != p.jobs as usize {
        return Err(MachineError::Config(format!("{}: fio ran {} jobs", p.name(), load.len())));
    }
    Ok(values(&load, p.sync))
}

/// The job file: the file is written first, so that the load writes in place.
fn jobs(p: &Point) -> String {
    let place = if p.is_on_ext4 { "filename=/f" } else { "filename=/dev/sdb" };
    let rw = if p.random { "randwrite" } else { "write" };
    let sync = match p.sync {
        Sync::None => "",
        Sync::Fdatasync => "fdatasync=1",
        Sync::Fsync => "fsync=1",
    };
    // Each job writes its share of the file; at least four writes fit in it.
    let share = (u64::from(p.bytes) * 4).max(4 << 20);
    let writes = u64::from(WRITES).min((256 << 20) / u64::from(p.bytes)).max(64);
    format!(
        "[global]\n{place}\ndirect=1\nioengine=psync\n\n\
         [fill]\nrw=write\nbs=1m\nsize={all}\nend_fsync=1\n\n\
         [{LOAD}]\nstonewall\nrw={rw}\nnorandommap=1\nbs={bytes}\nsize={share}\n\
         io_size={total}\noffset_increment={share}\nnumjobs={jobs}\ngroup_reporting\n{sync}\n",
        all = share * u64::from(p.jobs),
        bytes = p.bytes,
        total = writes * u64::from(p.bytes),
        jobs = p.jobs,
    )
}

/// Of all jobs: rates are added, means and tails averaged.
fn values(jobs: &[&JobResult], sync: Sync) -> Values {
    let mean = |of: &dyn Fn(&JobResult) -> Option<f64>| {
        let all: Vec<f64> = jobs.iter().filter_map(|r| of(r)).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let us = |ns: f64| (ns > 0.0).then_some(ns / 1e3);
    let rate = |r: &&JobResult| {
        let d = &r.directions[1];
        d.ios as f64 * 1e9 / d.runtime_ns.max(1) as f64
    };
    Values {
        iops: Some(jobs.iter().map(rate).sum()),
        mean_us: mean(&|r| us(r.directions[1].lat.mean())),
        sync_us: mean(&|r| us(r.sync.mean())),
        p99_us: mean(&|r| {
            let tail = if sync == Sync::None { &r.directions[1].lat } else { &r.sync };
            us(tail.histogram.percentile(99_000_000)? as f64)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_of_the_list_is_of_a_preset_and_each_drive_has_a_fitted_one() {
        let points = points();
        for p in &points {
            assert!(wp_device::find(&p.device).is_some(), "{}", p.device);
            assert!(!p.source.is_empty());
            assert!(points.iter().any(|q| q.device == p.device && q.fitted), "{}", p.device);
        }
    }

    #[test]
    fn a_wrong_line_is_named_with_its_place() {
        let line = |text: &str| format!("{COLUMNS}\n{text}\n");
        let why = |text: &str| parse(&line(text)).expect_err("wrong");
        assert!(why("a,raw,write,4k,1,none,1,,,,fitted").starts_with("2:1: 11 fields"));
        assert!(why("a,xfs,write,4k,1,none,1,,,,fitted,x").starts_with("2:3: `xfs`"));
        assert!(why("a,raw,write,1k,1,none,1,,,,fitted,x").starts_with("2:13:"));
        assert!(why("a,raw,write,4k,0,none,1,,,,fitted,x").starts_with("2:16: jobs"));
        assert!(why("a,raw,write,4k,1,none,,,,,fitted,x").contains("a point needs"));
        assert!(parse("").is_err() && parse("op,bs\n").is_err());
    }
}
