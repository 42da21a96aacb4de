//! A real kernel's file system on a modelled drive, and power cuts: what was lost, cycle by cycle.
//!
//! Picture:    [`Plan`] -> guest (User-Mode Linux in time travel) with `lab.c` in it, drive and
//!             control disk behind sockets here -> a line a cycle -> [`Report`].
//! Workload:   a file is filled; blocks of it are overwritten at random with an fsync after each;
//!             the power goes at a random request of that; unmount, thaw, mount, read.
//! Oracle:     each block holds its number and version. A block that is older than what an fsync
//!             had returned for before the cut is *lost*; one that is no version of its own is
//!             *garbage*.

mod kernel;
mod report;

use std::path::Path;

use wp_lab::machine::make_device;
use wp_lab::vtime::guest::compile;

use crate::drive::freeze::Loss;
use crate::drive::{Drive, Log};
use crate::vhost::{Ended, Guest, Machine};
pub use kernel::Kernel;
pub use report::{Cycle, Report};

/// The program in the guest.
const LAB_C: &str = include_str!("lab.c");
/// Identifier of every file system that is made.
const UUID: &str = "11111111-2222-3333-4444-555555555555";
/// Nanoseconds after 1970 at which a guest's time begins: the first of January 2026.
pub const DATE: u64 = 1_767_225_600 * 1_000_000_000;

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
    /// Blocks of 4 KiB of the file.
    pub blocks: u64,
    /// Overwrites with an fsync in a cycle.
    pub ops: u64,
}

/// File systems whose mkfs is known.
pub const FILE_SYSTEMS: [&str; 5] = ["ext4", "f2fs", "btrfs", "nilfs2", "xfs"];

impl Plan {
    /// The command that makes the file system. Errors: none that is known.
    fn mkfs_command(&self, zoned: bool) -> Result<String, String> {
        let fs = self.fs.as_str();
        let usual = match fs {
            "ext4" => format!(
                "-q -F -b 4096 -U {UUID} -E lazy_itable_init=0,lazy_journal_init=0,hash_seed={UUID}"
            ),
            "f2fs" if zoned => format!("-f -m -U {UUID}"),
            "f2fs" | "btrfs" => format!("-f -U {UUID}"),
            "nilfs2" => "-f".to_owned(),
            "xfs" => format!("-f -q -m uuid={UUID}"),
            _ => return Err(format!("no mkfs of {fs} is known; of {}", FILE_SYSTEMS.join(", "))),
        };
        Ok(format!("mkfs.{fs} {usual} {} /dev/vda > /run/mkfs.out 2>&1", self.mkfs))
    }

    /// The guest's script.
    fn script(&self, zoned: bool) -> Result<String, String> {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        Ok(format!(
            "cp /share/lab /run/lab; chmod +x /run/lab; uname -r > /share/version\n\
             /run/lab /dev/vda /dev/vdb {} {} {} {} {} {} {} > /share/cycles 2> /share/err\n\
             R=$?; [ $R = 0 ] || cat /run/mkfs.out >> /share/err; exit $R\n",
            quoted(&self.fs),
            quoted(&self.mount),
            quoted(&self.mkfs_command(zoned)?),
            self.cycles + 1,
            self.seed,
            self.blocks,
            self.ops,
        ))
    }
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
    trace: Option<Log>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Report, String> {
    let at = |e: std::io::Error| format!("{}: {e}", scratch.display());
    let (name, params) = &plan.device;
    let model = make_device(name, params).map_err(|e| e.to_string())?;
    let zoned = model.limits().zones.is_some();
    let script = plan.script(zoned)?;
    // What stands there from before would be seen by the guest.
    let share = scratch.join("share");
    if share.exists() {
        std::fs::remove_dir_all(&share).map_err(at)?;
    }
    std::fs::create_dir_all(&share).map_err(at)?;
    compile(LAB_C, &share.join("lab"))?;
    std::fs::write(share.join("run.sh"), script).map_err(at)?;
    let mut drive = Drive::new(name, model, plan.loss);
    if let Some(trace) = trace {
        drive.record(trace);
    }
    let mut machine = Machine::new();
    let [disk, control, calendar] = ["disk", "control", "calendar"].map(|s| scratch.join(s));
    machine.add(drive, &disk, 1).map_err(at)?;
    machine.add_control(&control).map_err(at)?;
    let mut guest = Guest::listen(&calendar, DATE).map_err(at)?;
    let mut running = kernel.boot(&share, &calendar, &[&disk, &control])?;
    let cycles = share.join("cycles");
    let mut asked = 0u64;
    let mut stopped = false;
    let mut stop = || {
        asked += 1;
        if asked.is_multiple_of(2048) {
            let done = std::fs::read(&cycles).unwrap_or_default();
            let done = done.iter().filter(|b| **b == b'\n').count() as u64;
            stopped |= progress(done);
        }
        stopped || running.has_ended()
    };
    let ended = machine.serve_guest(&mut guest, &mut stop)?;
    running.end();
    let mut drive = machine.drives.pop().ok_or("there is no drive")?;
    drive.end_record().map_err(at)?;
    let read = |file: &str| std::fs::read_to_string(share.join(file)).unwrap_or_default();
    let whole = ended == Ended::Gone && read("rc").trim() == "0";
    if !whole && !stopped {
        let console = read("console.txt");
        let last: Vec<&str> = console.lines().rev().take(5).collect();
        let said = last.into_iter().rev().collect::<Vec<_>>().join("\n");
        return Err(format!("the guest failed: {}\n{said}", read("err").trim()));
    }
    let mut report = Report::parse(&read("cycles"), plan.ops)?;
    report.kernel = read("version").trim().to_owned();
    report.virtual_ns = guest.now().0;
    report.stopped = stopped;
    Ok(report)
}
