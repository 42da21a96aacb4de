//! Paper `ext4-fsync`: what fsync makes the block layer, jbd2 and the disk do, in three eras of
//! ext4.
//!
//! Nothing here is a number of the paper: runs are made, events and image bytes are counted, and
//! the claims (fixed in `papers/claims.toml`) are judged.

use std::collections::BTreeMap;

use serde::Serialize;
use wp_base::Sector;
use wp_base::event::{Class, Record};
use wp_medium::{MediumView, View};
use wp_rt::{CpuModel, CpuOp};
use wp_vfs::Options;

use crate::claims::{Book, Claims, Judged, Measured};
use crate::classify::{Classifier, mark};
use crate::machine::{Machine, MachineError, MachineSpec};
use crate::reference::{Filed, Issuer, Phase, RunSummary, TraceLine, summarise};
use crate::workload::fsync_last::{self, MARK_FSYNC, MARK_RETURN};

/// The paper's slug.
pub const SLUG: &str = "ext4-fsync";
/// Its eras.
pub const ERAS: [&str; 3] = ["3.4", "3.8", "4.6"];
/// The three kinds of write. The paper's non-allocating case is `extend`; see mechanisms.md DIFF 1.
pub const CASES: [&str; 3] = ["alloc", "extend", "over"];
/// Numbers of files that this build can do. 1000 needs hash-tree directories.
pub const FILES: [u32; 3] = [1, 10, 100];
/// First sector of the paper's partition.
pub const PARTITION_START: Sector = Sector(187_035_648);
/// Its length: 29 GiB.
pub const PARTITION_SECTORS: u64 = 29 * 1024 * 1024 * 2;

/// What to run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Kernel era.
    pub era: String,
    /// `alloc`, `extend`, `over`.
    pub case: String,
    /// Files.
    pub files: u32,
    /// Elevator.
    pub elevator: String,
    /// Device preset.
    pub device: String,
    /// Delayed allocation off?
    pub nodelalloc: bool,
    /// Replaced device parameters.
    pub device_params: Vec<(String, u64)>,
    /// CPUs and their costs.
    pub cpu: CpuModel,
    /// Seed.
    pub seed: u64,
    /// Seconds watched after the fsync.
    pub watch: u64,
    /// Bytes of each file afterwards.
    pub bytes: u32,
    /// `extend`: bytes that are there before.
    pub first: u32,
}

impl RunPlan {
    /// The paper's PC.
    pub fn paper(era: &str, case: &str, files: u32, seed: u64) -> RunPlan {
        RunPlan {
            era: era.to_owned(),
            case: case.to_owned(),
            files,
            elevator: "cfq".to_owned(),
            device: "ssd-128".to_owned(),
            nodelalloc: false,
            device_params: Vec::new(),
            cpu: profile("i7-4770").model(),
            seed,
            watch: 76,
            bytes: 3072,
            first: 1024,
        }
    }

    /// The runs of figures 10 and 11: writes of 2 KB, nothing watched afterwards.
    pub fn figure_10(era: &str, case: &str, files: u32, seed: u64) -> RunPlan {
        let bytes = if case == "extend" { 4096 } else { 2048 };
        RunPlan { bytes, first: 2048, watch: 3, ..RunPlan::paper(era, case, files, seed) }
    }

    /// A short name for progress and results.
    pub fn name(&self) -> String {
        format!("{}-{}-n{}", self.era, self.case, self.files)
    }
}

/// A CPU profile that exists.
pub fn profile(name: &str) -> &'static crate::profile::Profile {
    crate::profile::PROFILES.iter().find(|p| p.name == name).expect("a profile of our own table")
}

/// What a run left.
pub struct RunOutcome {
    /// The plan.
    pub plan: RunPlan,
    /// Every event of the run's traced part.
    pub records: Vec<Record>,
    /// Block and journal events with the classes of their blocks.
    pub lines: Vec<TraceLine>,
    /// Summary in the references' terms.
    pub summary: RunSummary,
    /// Duration of the fsync.
    pub fsync_ns: u64,
    /// Per file: is its data on the medium when fsync returns?
    pub data_on_disk: Vec<bool>,
    /// Per file: is the inode-table block that holds its inode in the journal when fsync returns?
    pub table_logged: Vec<bool>,
    /// Per file: does a logged copy of its inode have this write's size?
    pub size_logged: Vec<bool>,
    /// The partition after a clean unmount.
    pub image: MediumView,
}

fn config(e: impl std::fmt::Display) -> MachineError {
    MachineError::Config(e.to_string())
}

/// Runs one case on a fresh file system.
pub fn run(plan: &RunPlan) -> Result<RunOutcome, MachineError> {
    let fs =
        crate::registry::find("file system", crate::registry::FILE_SYSTEMS, |f| f.name, "ext4")
            .map_err(config)?;
    let mut text = format!("era={}", plan.era);
    if plan.nodelalloc {
        text.push_str(",nodelalloc");
    }
    let fs_options = Options::parse(&text, fs.options).map_err(config)?;
    let version = wp_ext4::era::Version::parse(&plan.era)
        .ok_or_else(|| config(format!("`{}` is not a kernel version", plan.era)))?;
    let spec = MachineSpec {
        seed: plan.seed,
        cpu: plan.cpu.clone(),
        device: plan.device.clone(),
        device_params: plan.device_params.clone(),
        elevator: plan.elevator.clone(),
        start: PARTITION_START,
        sectors: Some(PARTITION_SECTORS),
        fs,
        fs_options: fs_options.clone(),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (version.0, version.1),
    };
    let machine = Machine::new(spec, None)?;
    let vfs = machine.mount()?;
    machine.record(Class(Class::BLOCK.0 | Class::JBD2.0 | Class::SYSCALL.0 | Class::MARK.0));
    let workload = Options::parse(
        &format!(
            "n={},case={},watch={},bytes={},first={}",
            plan.files, plan.case, plan.watch, plan.bytes, plan.first
        ),
        fsync_last::ENTRY.options,
    )
    .map_err(config)?;
    let v = vfs.clone();
    let report =
        machine.block_on("w2", async move { (fsync_last::ENTRY.run)(&v, &workload).await })?;
    let report = report.map_err(|error| MachineError::Fs { during: "workload", error })?;
    let records = machine.rt.probe().take();
    machine.record(Class(0));
    machine.unmount(&vfs)?;
    let view = machine.view();
    finish(plan, &machine, records, view, &fs_options, report.numbers)
}

fn finish(
    plan: &RunPlan,
    machine: &Machine,
    records: Vec<Record>,
    view: MediumView,
    options: &Options,
    numbers: Vec<(String, u64)>,
) -> Result<RunOutcome, MachineError> {
    let fs = machine.spec().fs;
    let wrong = |error| MachineError::Fs { during: "reading the image", error };
    let classifier = Classifier::new(fs, options, &view, PARTITION_START).map_err(wrong)?;
    let zero = mark(&records, MARK_FSYNC).ok_or_else(|| config("the trace has no fsync"))?;
    let end = mark(&records, MARK_RETURN).ok_or_else(|| config("the trace has no end of fsync"))?;
    let from = mark(&records, fsync_last::MARK_WRITE).unwrap_or(0);
    let lines = classifier.lines(&records[from..], zero - from);
    let fsync_ns = records[end].at.since(records[zero].at).0;
    let filed = Filed::count(&lines, fsync_ns as i64);
    let window = (plan.watch as i64 - 2) * 1_000_000_000;
    let summary = summarise(&lines, fsync_ns as i64, plan.files, window, filed).map_err(config)?;
    debug_assert!(numbers.iter().any(|(k, v)| k == "fsync_ns" && *v == fsync_ns));
    let state = OnDisk::at_return(&lines, fsync_ns, plan, &view, fs, options).map_err(wrong)?;
    Ok(RunOutcome {
        plan: plan.clone(),
        records,
        lines,
        summary,
        fsync_ns,
        data_on_disk: state.data,
        table_logged: state.table,
        size_logged: state.size,
        image: view,
    })
}

/// Figure 9: what of each file is on disk when fsync returns.
struct OnDisk {
    data: Vec<bool>,
    table: Vec<bool>,
    size: Vec<bool>,
}

impl OnDisk {
    /// Data: a request that holds the file's block completed before the return. Metadata: from the
    /// log blocks that were written before the return, read from the image (the log does not wrap
    /// in this run).
    fn at_return(
        lines: &[TraceLine],
        fsync_ns: u64,
        plan: &RunPlan,
        view: &dyn View,
        fs: &wp_vfs::FsEntry,
        options: &Options,
    ) -> wp_base::FsResult<OnDisk> {
        let before = |l: &&TraceLine| l.action == 'C' && l.ns_from_fsync_start <= fsync_ns as i64;
        let done: Vec<&TraceLine> = lines.iter().filter(before).filter(|l| l.sectors > 0).collect();
        let data = (0..plan.files)
            .map(|i| {
                let name = format!("data:f_{i}");
                done.iter().any(|l| l.class.split('+').any(|c| c == name))
            })
            .collect();
        let listing = (fs.inspect)(view, options, false)?;
        let inos: BTreeMap<&str, u64> =
            listing.files.iter().map(|f| (f.path.as_str(), f.ino)).collect();
        let logged: Vec<(u64, u32)> = done
            .iter()
            .filter(|l| l.class.starts_with("journal"))
            .filter_map(|l| l.sector.map(|s| (s - PARTITION_START.0, l.sectors)))
            .collect();
        let (mut table, mut size) = (Vec::new(), Vec::new());
        for i in 0..plan.files {
            let ino = inos.get(format!("f_{i}").as_str()).copied().unwrap_or(0) as u32;
            let copies = wp_ext4::evidence::logged_inodes(view, &logged, ino)?;
            table.push(!copies.is_empty());
            size.push(copies.iter().any(|s| *s == u64::from(plan.bytes)));
        }
        Ok(OnDisk { data, table, size })
    }
}

/// A block of figure 11 or of the traces, for the report.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Era.
    pub era: String,
    /// Case.
    pub case: String,
    /// Files.
    pub files: u32,
    /// Data blocks that the fsync wrote to the data area.
    pub data_blocks: u32,
    /// Journal blocks with descriptors, without the commit record.
    pub journal_blocks: u32,
    /// Files whose data is on disk at return.
    pub data_files: u32,
    /// Files whose inode-table block is in the journal at return.
    pub table_files: u32,
    /// Files whose logged inode has this write's size.
    pub size_files: u32,
    /// Duration of the fsync.
    pub fsync_ns: u64,
}

/// A run of figures 10 and 11.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Era.
    pub era: String,
    /// Case.
    pub case: String,
    /// Files.
    pub files: u32,
    /// Data blocks that the fsync wrote to the data area (figure 11).
    pub data_blocks: u32,
    /// Duration of the fsync (figure 10).
    pub fsync_ns: u64,
}

/// Everything that `reproduce ext4-fsync` found.
pub struct Reproduction {
    /// One row a run of the traces and figure 9 (3 KB).
    pub rows: Vec<Row>,
    /// Figures 10 and 11 (2 KB).
    pub points: Vec<Point>,
    /// Judged claims.
    pub claims: Vec<Judged>,
    /// The runs behind `rows`.
    pub runs: Vec<RunOutcome>,
    /// Variations of assumed parameters behind the intervals.
    pub variations: usize,
    /// Those of them that no device can have.
    pub impossible: Vec<String>,
}

/// Runs everything and judges. `progress(done, all, name)` is called before each run; `false`
/// stops.
///
/// With `quick`, no runs of 100 files and no intervals.
pub fn reproduce(
    seed: u64,
    quick: bool,
    progress: &mut dyn FnMut(usize, usize, &str) -> bool,
) -> Result<Option<Reproduction>, MachineError> {
    let files: &[u32] = if quick { &FILES[..2] } else { &FILES };
    let each = |f: fn(&str, &str, u32, u64) -> RunPlan| -> Vec<RunPlan> {
        let mut plans = Vec::new();
        for era in ERAS {
            for case in CASES {
                plans.extend(files.iter().map(|n| f(era, case, *n, seed)));
            }
        }
        plans
    };
    let (traces, figures) = (each(RunPlan::paper), each(RunPlan::figure_10));
    let varied = if quick { Vec::new() } else { variations() };
    let all = traces.len() + figures.len() + varied.len();
    let mut runs = Vec::new();
    for plan in &traces {
        if !progress(runs.len(), all, &plan.name()) {
            return Ok(None);
        }
        runs.push(run(plan)?);
    }
    let mut points = Vec::new();
    for plan in &figures {
        if !progress(traces.len() + points.len(), all, &format!("{} 2 KB", plan.name())) {
            return Ok(None);
        }
        points.push(point(&run(plan)?));
    }
    let mut latency = Latency::measure(seed, &|p| p)?;
    let mut impossible = Vec::new();
    for (i, v) in varied.iter().enumerate() {
        if !progress(traces.len() + figures.len() + i, all, &v.name) {
            return Ok(None);
        }
        match Latency::measure(seed, &|p| (v.change)(p)) {
            Ok(l) => latency.widen(&l),
            // Half of a flash array does not hold its capacity: that device cannot be.
            Err(MachineError::Config(_)) => impossible.push(v.name.clone()),
            Err(e) => return Err(e),
        }
    }
    let rows: Vec<Row> = runs.iter().map(row).collect();
    let claims = judge(&runs, &points, &latency, quick)?;
    Ok(Some(Reproduction { rows, points, claims, runs, variations: varied.len(), impossible }))
}

fn point(r: &RunOutcome) -> Point {
    let row = row(r);
    let Row { era, case, files, data_blocks, fsync_ns, .. } = row;
    Point { era, case, files, data_blocks, fsync_ns }
}

/// A change of one assumed parameter.
struct Variation {
    name: String,
    change: Box<dyn Fn(RunPlan) -> RunPlan>,
}

/// Every assumed parameter of device and CPU profile, halved and half as much again.
fn variations() -> Vec<Variation> {
    let mut out = Vec::new();
    let paper = RunPlan::paper(ERAS[0], CASES[0], 1, 0);
    let device = wp_device::find(&paper.device).map_or(&[][..], |d| d.params);
    for p in device.iter().filter(|p| p.source.starts_with("assumed") && p.unit != "switch") {
        for (num, den) in [(1, 2), (3, 2)] {
            let (key, value) = (p.name.to_owned(), p.value * num / den);
            out.push(Variation {
                name: format!("{key} x{num}/{den}"),
                change: Box::new(move |mut plan| {
                    plan.device_params.push((key.clone(), value));
                    plan
                }),
            });
        }
    }
    for op in CpuOp::ALL.iter().copied() {
        for (num, den) in [(1, 2), (3, 2)] {
            out.push(Variation {
                name: format!("cpu {} x{num}/{den}", op.name()),
                change: Box::new(move |mut plan| {
                    let ns = plan.cpu.profile.get(op);
                    plan.cpu.profile.set(op, ns * num / den);
                    plan
                }),
            });
        }
    }
    out
}

/// The latencies that claims are about: value, and the range over the variations.
struct Latency {
    /// 3.4 extend, N=10 over N=1, less one.
    growth: Range,
    /// 3.4 over 3.8, N=10, first dispatch to dispatch of the commit record.
    ratio: Range,
}

#[derive(Clone, Copy)]
struct Range {
    value: f64,
    low: f64,
    high: f64,
}

impl Range {
    fn new(value: f64) -> Range {
        Range { value, low: value, high: value }
    }
    fn widen(&mut self, other: f64) {
        self.low = self.low.min(other);
        self.high = self.high.max(other);
    }
    fn measured(&self) -> Measured {
        Measured::value(self.value).interval(self.low, self.high)
    }
}

impl Latency {
    fn measure(seed: u64, change: &dyn Fn(RunPlan) -> RunPlan) -> Result<Latency, MachineError> {
        let figure = |n| {
            Ok::<_, MachineError>(
                run(&change(RunPlan::figure_10("3.4", "extend", n, seed)))?.fsync_ns,
            )
        };
        let span = |era: &str| -> Result<f64, MachineError> {
            let plan = RunPlan { watch: 3, ..RunPlan::paper(era, "extend", 10, seed) };
            dispatch_span(&run(&change(plan))?.lines)
                .ok_or_else(|| config("no commit record in the trace"))
        };
        Ok(Latency {
            growth: Range::new(figure(10)? as f64 / figure(1)? as f64 - 1.0),
            ratio: Range::new(span("3.4")? / span("3.8")?),
        })
    }

    fn widen(&mut self, other: &Latency) {
        self.growth.widen(other.growth.value);
        self.ratio.widen(other.ratio.value);
    }
}

fn row(r: &RunOutcome) -> Row {
    let count = |v: &[bool]| v.iter().filter(|b| **b).count() as u32;
    let blocks = |class: &str| r.summary.class(Phase::Fsync, class).map_or(0, |c| c.blocks());
    Row {
        era: r.plan.era.clone(),
        case: r.plan.case.clone(),
        files: r.plan.files,
        data_blocks: blocks("data_last") + blocks("data_others"),
        journal_blocks: blocks("journal"),
        data_files: count(&r.data_on_disk),
        table_files: count(&r.table_logged),
        size_files: count(&r.size_logged),
        fsync_ns: r.fsync_ns,
    }
}

const SECTORS: f64 = 8.0;

struct Judge<'a> {
    runs: &'a [RunOutcome],
    book: Book<'a>,
}

impl Judge<'_> {
    fn run(&self, era: &str, case: &str, n: u32) -> Option<&RunOutcome> {
        self.runs.iter().find(|r| r.plan.era == era && r.plan.case == case && r.plan.files == n)
    }

    /// Sectors of a class that an issuer dispatched in a phase of the ten-file run.
    fn sectors(
        &self,
        era: &str,
        case: &str,
        phase: Phase,
        class: &str,
        issuer: Issuer,
    ) -> Option<f64> {
        let r = self.run(era, case, 10)?;
        Some(f64::from(r.summary.blocks(phase, class, &issuer)) * SECTORS)
    }

    fn all(&self, era: &str, case: &str, phase: Phase, classes: &[&str]) -> Option<f64> {
        let r = self.run(era, case, 10)?;
        let blocks: u32 =
            classes.iter().map(|c| r.summary.class(phase, c).map_or(0, |s| s.blocks())).sum();
        Some(f64::from(blocks) * SECTORS)
    }

    fn first_after(&self, era: &str, case: &str, class: &str) -> Option<f64> {
        let m = self.run(era, case, 10)?.summary.class(Phase::After, class)?.moments.first()?;
        Some(m.first_ns as f64 / 1e9)
    }

    fn emit(&mut self, id: &str, ours: Option<f64>, why: &str) -> Result<(), MachineError> {
        let m = match ours {
            Some(v) => Measured::value(v),
            None => Measured::not_modelled(why),
        };
        self.book.emit(id, m).map(|_| ()).map_err(config)
    }
}

const HTREE: &str =
    "N=1000 fills its directory beyond one block; hash-tree directories are not built yet";
const LATENCY: &str = "device and CPU are class models with assumed costs: the paper's PC takes some 60 us for \
    each single-block write that jbd2 sends, ours far less; no parameter was fitted to it";
const CRASH: &str = "crash exploration is not built yet";

fn judge(
    runs: &[RunOutcome],
    points: &[Point],
    latency: &Latency,
    quick: bool,
) -> Result<Vec<Judged>, MachineError> {
    let claims = Claims::fixed();
    let book = Book::open(&claims, SLUG).map_err(config)?;
    let mut j = Judge { runs, book };
    const NOT_RUN: &str = "the run was left out (--quick)";
    for era in ERAS {
        traces(&mut j, era)?;
        for case in ["alloc", "extend"] {
            let files =
                j.run(era, case, 10).map(|r| r.data_on_disk.iter().filter(|b| **b).count() as f64);
            j.emit(&format!("fig9.{era}.{case}.data"), files, NOT_RUN)?;
            for n in FILES {
                let p = points.iter().find(|p| p.era == era && p.case == case && p.files == n);
                let blocks = p.map(|p| f64::from(p.data_blocks));
                j.emit(&format!("fig11.{era}.{case}.n{n}"), blocks, NOT_RUN)?;
            }
            j.emit(&format!("fig11.{era}.{case}.n1000"), None, HTREE)?;
        }
        j.emit(&format!("fig10.{era}.alloc.grows"), None, HTREE)?;
        j.emit(&format!("fig10.{era}.alloc.metadata_1000_over_100"), None, HTREE)?;
        for id in [
            "ordered.{}.exposure",
            "sqlite.{}.one_journal",
            "sqlite.{}.many_journals",
            "size_ahead.{}",
        ] {
            j.emit(&id.replace("{}", era), None, CRASH)?;
        }
    }
    let early = j.run("3.4", "extend", 10).map(|r| incomplete_before_commit(&r.lines) as f64);
    j.emit("trace.3.4.extend.ordered_before_commit", early, NOT_RUN)?;
    j.emit("trace.commit_issuer", Some(f64::from(u8::from(commits_by_completion(runs)))), NOT_RUN)?;
    j.emit("trace.layout", layout(runs), NOT_RUN)?;
    j.emit("fig10.3.4.extend.max_growth", None, HTREE)?;
    for (id, range) in
        [("fig10.3.4.extend.min_growth", latency.growth), ("fig10.n10.3.4_over_3.8", latency.ratio)]
    {
        let mut measured = range.measured();
        if quick {
            measured =
                Measured::not_modelled("without intervals (--quick) a latency is not judged");
        } else if claims
            .of(SLUG)
            .any(|c| c.id == id && !(c.band[0]..=c.band[1]).contains(&range.value))
        {
            measured = measured.why(LATENCY);
        }
        j.book.emit(id, measured).map_err(config)?;
    }
    j.emit("fig10.alloc.step", None, HTREE)?;
    j.book.close().map_err(config)
}

fn traces(j: &mut Judge<'_>, era: &str) -> Result<(), MachineError> {
    use Phase::{After, Fsync};
    let home = ["inode_table", "gdt", "block_bitmap", "inode_bitmap", "superblock", "directory"];
    for case in ["alloc", "extend"] {
        let id = |what: &str| format!("trace.{era}.{case}.{what}");
        let data = j.sectors(era, case, Fsync, "data_last", Issuer::Fsync);
        j.emit(&id("fsync_data"), data, "")?;
        let journal = j.all(era, case, Fsync, &["journal"]);
        j.emit(&id("journal"), journal, "")?;
        let commit = j.all(era, case, Fsync, &["journal_commit"]);
        j.emit(&id("commit"), commit, "")?;
        let checkpoint = j.all(era, case, After, &home);
        j.emit(&id("checkpoint"), checkpoint, "")?;
        if case == "alloc" {
            let late = j.all(era, case, After, &["data_others"]);
            j.emit(&id("flusher_data"), late, "")?;
            let at = j.first_after(era, case, "data_others");
            j.emit(&id("flusher_at"), at, "no data after the fsync")?;
            let second = j.all(era, case, After, &["journal"]);
            j.emit(&id("second_journal"), second, "")?;
        } else {
            let own = j.sectors(era, case, Fsync, "data_others", Issuer::Jbd2);
            j.emit(&id("jbd2_data"), own, "")?;
            if era != "3.4" {
                let late = j.all(era, case, After, &["data_others"]);
                j.emit(&id("flusher_data"), late, "")?;
            }
        }
    }
    Ok(())
}

/// Requests with ordered data that were dispatched in the fsync and not complete when the commit
/// record was.
fn incomplete_before_commit(lines: &[TraceLine]) -> usize {
    let Some(commit) = lines.iter().position(|l| l.action == 'D' && l.class == "journal_commit")
    else {
        return 0;
    };
    let mut open: Vec<u64> = Vec::new();
    for l in &lines[..commit] {
        let Some(s) = l.sector.filter(|_| l.class.starts_with("data:")) else { continue };
        match l.action {
            'D' => open.push(s),
            'C' => open.retain(|o| *o != s),
            _ => {}
        }
    }
    open.len()
}

/// Is every commit record dispatched in completion context?
fn commits_by_completion(runs: &[RunOutcome]) -> bool {
    let mut seen = 0;
    for l in runs
        .iter()
        .flat_map(|r| &r.lines)
        .filter(|l| l.action == 'D' && l.class == "journal_commit")
    {
        seen += 1;
        if l.comm != "swapper" {
            return false;
        }
    }
    seen > 0
}

/// First dispatch to dispatch of the commit record, in the fsync.
fn dispatch_span(lines: &[TraceLine]) -> Option<f64> {
    let first = lines.iter().find(|l| l.action == 'D' && l.ns_from_fsync_start >= 0)?;
    let commit = lines.iter().find(|l| l.action == 'D' && l.class == "journal_commit")?;
    Some((commit.ns_from_fsync_start - first.ns_from_fsync_start) as f64)
}

/// How many of GDT, group-1 bitmap, inode table and journal lie where the paper's disk has them.
fn layout(runs: &[RunOutcome]) -> Option<f64> {
    let image = &runs.first()?.image;
    let at = wp_ext4::evidence::landmarks(image).ok()?;
    // The paper's sectors, relative to the partition, in blocks of 4 KiB.
    let sector = |s: u64| (s - PARTITION_START.0) / 8;
    let paper = [sector(187_035_656), sector(187_043_856), sector(187_044_104), 3_702_784];
    let ours = [at.gdt, at.block_bitmap_1, at.inode_table, at.journal];
    Some(paper.iter().zip(&ours).filter(|(a, b)| a == b).count() as f64)
}
