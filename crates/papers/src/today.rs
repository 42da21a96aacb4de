//! The program of the recorded runs of Linux 6.18, on our file system in that era, beside them.
//!
//! The differences that we know and can explain are listed in
//! `papers/ext4-fsync/differences-6.18.toml`; one that is not listed, or is listed and gone, is a
//! finding.

use serde::{Deserialize, Serialize};
use wp_base::Sector;
use wp_base::event::{BlockAction, Class, Event, Op, Record, rwbs};
use wp_machine::classify::{Classifier, mark};
use wp_machine::profile::Profile;
use wp_machine::workload::fsync_create::{CASES, Moment, Plan, play};
use wp_machine::{Machine, MachineError, MachineSpec};
use wp_parity::reference::{
    CaseBios, Difference, Finding, ListedDifference, Phase, QueuedBio, TodayRun, What,
    check_differences, compare_bios, parse_differences, today_runs,
};
use wp_vfs::Options;

/// The list of known differences.
pub const DIFFERENCES_TOML: &str = include_str!("../../../papers/ext4-fsync/differences-6.18.toml");

/// The era of the recorded runs.
pub const ERA: &str = "6.18";

/// One part of a run beside the kernel's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TodayPair {
    /// `def_N100/alloc`.
    #[serde(rename = "run")]
    pub name: String,
    /// Ours; nothing where the run is not possible.
    pub ours: CaseBios,
    /// The kernel's.
    #[serde(rename = "kernel")]
    pub theirs: CaseBios,
    /// How they differ.
    pub differences: Vec<Difference>,
}

/// What the comparison found.
pub struct TodayComparison {
    /// Every part of every run, in the order of the recordings.
    pub pairs: Vec<TodayPair>,
    /// Differences that are known.
    pub listed: Vec<ListedDifference>,
    /// Where list and runs disagree.
    pub findings: Vec<Finding>,
}

/// The comparison as results hold it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "schema", rename = "writepath.blocks/1")]
pub struct Today {
    /// The kernel's version.
    pub kernel: String,
    /// Every part of every run, in the order of the recordings.
    pub runs: Vec<TodayPair>,
    /// How many differences are known.
    pub listed_differences: usize,
    /// Where list and runs disagree, in words.
    pub findings: Vec<String>,
}

impl TodayComparison {
    /// As results hold it.
    pub fn results(&self) -> Today {
        Today {
            kernel: ERA.to_owned(),
            runs: self.pairs.clone(),
            listed_differences: self.listed.len(),
            findings: self.findings.iter().map(ToString::to_string).collect(),
        }
    }
}

fn config(e: impl std::fmt::Display) -> MachineError {
    MachineError::Config(e.to_string())
}

/// The options of mke2fs and mount, in our words.
fn fs_options(run: &TodayRun) -> Result<String, MachineError> {
    let unknown = |what: &str| config(format!("{}: what is {what:?}?", run.run));
    // The recorded runs were on loop devices, which that kernel takes for rotating.
    let mut out =
        vec![format!("era={ERA}"), format!("hash_seed={}", run.hash_seed), "rotational".to_owned()];
    let mut words = run.mkfs.split_whitespace();
    while let Some(option) = words.next() {
        let value = words.next().ok_or_else(|| unknown(option))?;
        out.push(match option {
            "-O" => format!("features={}", value.replace(',', "+")),
            "-I" => format!("inode_size={value}"),
            "-J" => {
                let mb = value.strip_prefix("size=").ok_or_else(|| unknown(value))?;
                format!("journal_mb={mb}")
            }
            other => return Err(unknown(other)),
        });
    }
    for option in run.mount.split(',').filter(|o| !o.is_empty() && *o != "defaults") {
        out.push(if option == "barrier=0" { "nobarrier".to_owned() } else { option.to_owned() });
    }
    Ok(out.join(","))
}

/// Runs both parts of a recorded run. Errors: what this build cannot do, and what stalls.
pub fn run_ours(run: &TodayRun, seed: u64) -> Result<Vec<CaseBios>, MachineError> {
    let fs = wp_machine::registry::find(
        "file system",
        wp_machine::registry::FILE_SYSTEMS,
        |f| f.name,
        "ext4",
    )
    .map_err(config)?;
    let fs_options = Options::parse(&fs_options(run)?, fs.options).map_err(config)?;
    let spec = MachineSpec {
        seed,
        cpu: Profile::known("i7-4770").model(),
        // A loop device over a file: a volatile cache, no FUA.
        device: "sata-disk-nofua".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: "noop".to_owned(),
        start: Sector(0),
        sectors: Some(run.image_mib * 2048),
        fs,
        fs_options: fs_options.clone(),
        disk: "loop0".to_owned(),
        device_number: (7, 0),
        kernel: (6, 18),
    };
    let machine = Machine::new(spec, None)?;
    let vfs = machine.mount()?;
    machine.record(Class(Class::BLOCK.0 | Class::MARK.0));
    let case = |name: &str| {
        run.cases.get(name).ok_or_else(|| config(format!("{} has no part {name}", run.run)))
    };
    let (alloc, over) = (case(CASES[0])?, case(CASES[1])?);
    let plan = Plan {
        files: run.files,
        bytes: run.bytes,
        watch_ms: [alloc.watch_ms, over.watch_ms],
        syncs_ms: [alloc.syncs_ms.clone(), over.syncs_ms.clone()],
    };
    let v = vfs.clone();
    let played = machine.block_on("wl", async move { play(&v, &plan).await })?;
    played.map_err(|error| MachineError::Fs { during: "workload", error })?;
    let records = machine.rt.probe().take();
    machine.record(Class(0));
    machine.unmount(&vfs)?;
    let view = machine.view();
    let classes = Classifier::new(fs, &fs_options, &view, Sector(0))
        .map_err(|error| MachineError::Fs { during: "reading the image", error })?;
    (0..CASES.len()).map(|case| sum(&records, case, &classes)).collect()
}

/// The bios of one part.
fn sum(records: &[Record], case: usize, classes: &Classifier) -> Result<CaseBios, MachineError> {
    let find = |m: Moment| {
        mark(records, m.mark(case)).ok_or_else(|| config(format!("no mark {:?}", m.mark(case))))
    };
    let [write, fsync, back, sync, end] =
        [Moment::Write, Moment::Fsync, Moment::Return, Moment::Sync, Moment::End].map(find);
    let (write, fsync, back, sync, end) = (write?, fsync?, back?, sync?, end?);
    let zero = records[back].at.0 as i64;
    let mut bios = Vec::new();
    for (i, r) in records.iter().enumerate().take(end).skip(write) {
        let Event::Block { action: BlockAction::Queue, op, flags, at, sectors, .. } = &r.event
        else {
            continue;
        };
        if *op == Op::Read {
            continue;
        }
        let phase = match i {
            i if i < fsync => Phase::Write,
            i if i < back => Phase::Fsync,
            i if i < sync => Phase::After,
            _ => Phase::Sync,
        };
        let blocks = at.0 / 8..(at.0 + u64::from(*sectors)).div_ceil(8);
        bios.push(QueuedBio {
            ns: r.at.0 as i64 - zero,
            phase,
            rwbs: rwbs(*op, *flags),
            classes: if *sectors == 0 {
                Vec::new()
            } else {
                blocks.map(|b| class_name(&classes.block(b))).collect()
            },
        });
    }
    Ok(CaseBios::of(&bios))
}

/// Our class in the reference's words; the only directory that is written is the root.
fn class_name(class: &str) -> String {
    match class {
        "directory" => "root_dir".to_owned(),
        "superblock" => "super".to_owned(),
        c if c.starts_with("journal") => "journal".to_owned(),
        c if c.starts_with("data:") => "data".to_owned(),
        c => c.to_owned(),
    }
}

/// Runs the recorded runs whose name `wanted` accepts, and compares.
///
/// `progress(done, all, name)` is called before each; `false` stops, and the answer is `None`.
pub fn compare_today(
    seed: u64,
    wanted: &dyn Fn(&TodayRun) -> bool,
    progress: &mut dyn FnMut(usize, usize, &str) -> bool,
) -> Result<Option<TodayComparison>, MachineError> {
    let runs: Vec<TodayRun> = today_runs().map_err(config)?.into_iter().filter(wanted).collect();
    let listed = parse_differences(DIFFERENCES_TOML).map_err(config)?;
    let mut pairs = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        if !progress(i, runs.len(), &run.run) {
            return Ok(None);
        }
        let ours = run_ours(run, seed);
        for (n, case) in CASES.iter().enumerate() {
            let name = format!("{}/{case}", run.run);
            let theirs = run.cases.get(*case).map(|c| c.bios.clone()).unwrap_or_default();
            let (ours, differences) = match &ours {
                Ok(all) => (all[n].clone(), compare_bios(&name, run.files, &all[n], &theirs)),
                Err(e) => {
                    let not_run = Difference {
                        run: name.clone(),
                        phase: Phase::Write,
                        class: "all".to_owned(),
                        what: What::Run,
                        ours: e.to_string(),
                        theirs: "ran".to_owned(),
                    };
                    (CaseBios::default(), vec![not_run])
                }
            };
            pairs.push(TodayPair { name, ours, theirs, differences });
        }
    }
    let found: Vec<Difference> = pairs.iter().flat_map(|p| p.differences.clone()).collect();
    let ran: Vec<&str> = pairs.iter().map(|p| p.name.as_str()).collect();
    let findings = check_differences(&listed, &found, &ran);
    Ok(Some(TodayComparison { pairs, listed, findings }))
}
