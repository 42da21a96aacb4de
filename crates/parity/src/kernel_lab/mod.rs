//! A real kernel's file system on a modelled drive, and power cuts: what was lost, cycle by cycle.
//!
//! Picture:    [`Plan`] -> guest (User-Mode Linux in time travel) with `lab.c` in it, drive and
//!             control disk behind sockets here -> a line a cycle -> [`Report`].
//! Workload:   files are filled; blocks of them are overwritten at random with an fsync after
//!             each, a thread a file; the power goes at a random instant ([`CutBy`]) of that;
//!             unmount, thaw, mount, read.
//! Oracles:    1. each block holds its number and version. A block that is older than what an fsync
//!             had returned for before the cut is *lost*; one that is no version of its own is
//!             *garbage*;
//!             2. our own recovery of the same state ([`Outcome`]) brings back the same files.

mod beside;
mod compare;
pub mod fstests;
pub mod fsyncs;
mod kernel;
mod program;
mod report;
mod session;
pub mod setup;
mod states;
pub mod suite;
mod tree;
mod trouble;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use beside::Beside;
pub use beside::{Ours, Outcome};
pub use compare::Compared;
pub use kernel::Kernel;
pub use program::{ProgramError, ProgramPlan, Ran, run_program};
pub use report::{Cycle, Report};
use session::Share;
pub use states::{Mounted, Refused, StatesPlan, Verdict, mount_states};
pub use tree::{Tree, tree_of};
use wp_base::plain::Shown as _;
use wp_base::{SECTOR_BYTES, Sector};
use wp_machine::files::save;
use wp_machine::host::Output;
use wp_machine::make_device;
use wp_machine::profile::{PROFILES, Profile};
use wp_medium::Medium;
use wp_rt::CpuOp;
use wp_serve::drive::freeze::Loss;
use wp_serve::drive::{Drive, Log};

/// The program in the guest.
const LAB_C: &str = include_str!("lab.c");
/// Identifier of every file system that is made.
const UUID: &str = "11111111-2222-3333-4444-555555555555";
/// Nanoseconds after 1970 at which a guest's time begins: the first of January 2026.
pub const DATE: u64 = 1_767_225_600 * 1_000_000_000;

/// Of what a cut's instant is drawn, each of it alike.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CutBy {
    /// Submissions and answers of the drive: every state that requests make has its turn.
    #[default]
    Event,
    /// Virtual time, as somebody at the plug would: what takes long is cut more often.
    Time,
    /// Requests that change something; the power goes when the next one comes, which is lost. No
    /// cut falls between a write's answer and the flush behind it.
    Change,
}

impl CutBy {
    /// All of them.
    pub const ALL: [CutBy; 3] = [CutBy::Event, CutBy::Time, CutBy::Change];

    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            CutBy::Event => "event",
            CutBy::Time => "time",
            CutBy::Change => "change",
        }
    }

    /// By its name.
    pub fn find(name: &str) -> Option<CutBy> {
        CutBy::ALL.into_iter().find(|c| c.name() == name)
    }
}

/// Threads at most, each with a file of its own.
pub const MOST_JOBS: u64 = 64;

/// What is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// File system, as `mount -t` has it.
    pub fs: String,
    /// Options of its mount, joined by commas.
    pub mount: String,
    /// Arguments of its mkfs, beside the usual ones.
    pub mkfs: String,
    /// The device: preset and replaced parameters.
    pub device: (String, Vec<(String, u64)>),
    /// What a cut may take.
    pub loss: Loss,
    /// Power cuts.
    pub cycles: u64,
    /// Seed of the program, the cuts and the states.
    pub seed: u64,
    /// Of what a cut's instant is drawn.
    pub cut: CutBy,
    /// Threads, each with a file of its own; at most [`MOST_JOBS`].
    pub jobs: u64,
    /// Blocks of 4 KiB of a file.
    pub blocks: u64,
    /// Overwrites with an fsync of a thread in a cycle.
    pub ops: u64,
    /// Do they go past the cache (O_DIRECT)?
    pub direct: bool,
    /// Behind how many overwrites a thread calls sync(2), for a checkpoint or a commit in between;
    /// 0: never.
    pub sync: u64,
    /// What the guest's CPU costs at each entry into the kernel, to a drive and back from one.
    pub cpu: &'static Profile,
}

/// File systems whose mkfs is known.
pub const FILE_SYSTEMS: [&str; 5] = ["ext4", "f2fs", "btrfs", "nilfs2", "xfs"];

impl Plan {
    /// A file system as it is usually mounted, on a small drive, and a short look at it: whoever
    /// needs something else replaces it.
    pub fn new(fs: &str) -> Plan {
        Plan {
            fs: fs.to_owned(),
            mount: String::new(),
            mkfs: String::new(),
            device: ("ssd-128".to_owned(), vec![("capacity_bytes".to_owned(), 512 << 20)]),
            loss: Loss::Model,
            cycles: 1,
            seed: 1,
            cut: CutBy::Event,
            jobs: 1,
            blocks: 8,
            ops: 4,
            direct: false,
            sync: 0,
            cpu: &PROFILES[0],
        }
    }

    /// The guest's script.
    fn script(&self, zoned: bool) -> Result<String, String> {
        Ok(format!(
            "cp /share/lab /run/lab; chmod +x /run/lab; uname -r > /share/version\n\
             /run/lab /dev/vda /dev/vdb {} {} {} {} {} {} {} {} {} {} {} {} \
             > /share/cycles 2> /share/err\n\
             R=$?; dmesg > /share/messages\n\
             [ $R = 0 ] || cat /run/mkfs.out >> /share/err; exit $R\n",
            quoted(&self.fs),
            quoted(&self.mount),
            quoted(&mkfs_command(&self.fs, &self.mkfs, zoned)?),
            self.cycles + 1,
            self.seed,
            self.blocks,
            self.ops,
            self.cut.name(),
            self.jobs,
            u8::from(self.direct),
            self.sync,
            self.calls(),
        ))
    }

    /// CPU time of a write, of an fsync's beginning and of its end, in nanoseconds.
    fn calls(&self) -> String {
        let costs = self.cpu.model().profile;
        let entry = costs.get(CpuOp::Syscall);
        let write = entry + costs.get(CpuOp::PageWrite);
        let fsync = entry + costs.get(CpuOp::SyncStart);
        format!("{write} {fsync} {}", costs.get(CpuOp::SyncEnd))
    }
}

/// A word of the guest's shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The command that makes a file system, with further arguments. Errors: none that is known.
fn mkfs_command(fs: &str, arguments: &str, zoned: bool) -> Result<String, String> {
    let usual = match fs {
        "ext4" => format!(
            "-q -F -b 4096 -U {UUID} -E lazy_itable_init=0,lazy_journal_init=0,hash_seed={UUID}"
        ),
        "f2fs" if zoned => format!("-f -m -U {UUID}"),
        "f2fs" | "btrfs" => format!("-f -U {UUID}"),
        "nilfs2" => "-f".to_owned(),
        "xfs" => format!("-f -q -m uuid={UUID}"),
        _ => {
            return Err(format!(
                "{fs} is not supported (file systems: {})",
                FILE_SYSTEMS.join(", ")
            ));
        }
    };
    Ok(format!("mkfs.{fs} {usual} {arguments} /dev/vda > /run/mkfs.out 2>&1"))
}

/// States of which images are kept, at most.
const MOST_KEPT: usize = 4;

/// What thaws have left, in order, and what our recovery made of it, if it is one of ours.
type Left = Rc<RefCell<Vec<(Medium, Option<Ours>)>>>;

/// Has every thaw of the drive put down what it has left.
fn watch(drive: &mut Drive, plan: &Plan, version: PathBuf) -> Left {
    let left = Left::default();
    let (to, plan) = (left.clone(), plan.clone());
    let bytes = drive.limits().sectors * SECTOR_BYTES;
    let mut beside: Option<Option<Beside>> = None;
    drive.on_thaw(Box::new(move |medium, zones| {
        // The guest has said by now what it is.
        let beside = beside.get_or_insert_with(|| {
            let version = std::fs::read_to_string(&version).unwrap_or_default();
            Beside::new(&plan.fs, version.trim(), plan.jobs, plan.blocks)
        });
        let ours = beside.as_ref().map(|b| b.recover(medium, bytes, zones));
        to.borrow_mut().push((medium.clone(), ours));
    }));
    left
}

/// Puts beside each cycle what our recovery made of its state, and writes images of the first that
/// are not as they should be into `keep`: `SEED-CYCLE.img`.
fn compare(
    report: &mut Report,
    left: &Left,
    keep: Option<&Path>,
    plan: &Plan,
    bytes: u64,
) -> Result<(), String> {
    let left = left.borrow();
    let mut kept = 0;
    for (cycle, (medium, ours)) in report.cycles.iter_mut().zip(left.iter()) {
        cycle.ours.clone_from(ours);
        let Some(folder) = keep.filter(|_| kept < MOST_KEPT) else { continue };
        if !cycle.is_sound() || cycle.differs() {
            let path = folder.join(format!("{}-{}.img", plan.seed, cycle.cycle));
            save(medium, Sector(0), bytes, &path).map_err(|e| format!("{}: {e}", path.shown()))?;
            kept += 1;
        }
    }
    Ok(())
}

/// What is written down of a campaign besides its report.
#[derive(Default)]
pub struct Keep<'a> {
    /// Every request and answer of the drive.
    pub trace: Option<Log>,
    /// Folder for images of what the first four cuts have left that lost something, or of which our
    /// recovery makes something else.
    pub images: Option<&'a Path>,
    /// File for what the guest's kernel has said, if it comes to its end.
    pub messages: Option<Output>,
}

/// Runs a plan in a guest of `kernel`, with `scratch` for what they share; `progress` is told how
/// many cycles are done and says whether to stop. What was done until then is in the report.
///
/// Errors: a plan that cannot be; no C compiler; a guest that does not start or does not end; the
/// host's.
pub fn run(
    kernel: &Kernel,
    plan: &Plan,
    scratch: &Path,
    keep: Keep<'_>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Report, String> {
    let (name, params) = &plan.device;
    let model = make_device(name, params).map_err(|e| e.to_string())?;
    let script = plan.script(model.limits().zones.is_some())?;
    let share = Share::new(scratch)?;
    share.compile("lab", LAB_C)?;
    share.write("run.sh", script.as_bytes())?;
    let mut drive = Drive::new(name, model, plan.loss);
    if let Some(trace) = keep.trace {
        drive.record(trace);
    }
    let bytes = drive.limits().sectors * SECTOR_BYTES;
    let left = watch(&mut drive, plan, share.join("version"));
    let cycles = share.join("cycles");
    let mut asked = 0u64;
    let mut stop = || {
        asked += 1;
        asked.is_multiple_of(2048) && {
            let done = std::fs::read(&cycles).unwrap_or_default();
            progress(done.iter().filter(|b| **b == b'\n').count() as u64)
        }
    };
    let ended = session::serve(kernel, &share, drive, plan.cpu, &mut stop)?;
    // A guest that was stopped has not written them down.
    let said = share.join("messages");
    if let Some(file) = keep.messages.filter(|_| said.exists()) {
        let path = file.path().to_owned();
        let copy = |mut file: Output| {
            std::io::copy(&mut std::fs::File::open(said)?, &mut file)?;
            file.commit()
        };
        copy(file).map_err(|e| format!("{}: {e}", path.shown()))?;
    }
    if !share.is_whole() && !ended.stopped {
        return Err(share.failure());
    }
    let mut report = Report::parse(&share.read("cycles"), plan.ops)?;
    report.kernel = share.read("version").trim().to_owned();
    if !ended.drive.limits().volatile_cache {
        report.cycles.iter_mut().for_each(|c| c.early = None);
    }
    compare(&mut report, &left, keep.images, plan, bytes)?;
    report.virtual_ns = ended.virtual_ns;
    report.charged = ended.charged;
    report.stopped = ended.stopped;
    Ok(report)
}
