//! A program of the host in a guest, on a real kernel's file system on a modelled drive.
//!
//! Picture:    [`ProgramPlan`] -> guest with `program.c` in it: mkfs, mount, the command that sets
//!             up, sync, the program, a rest -> what the drive was sent ([`Ran::writes`], with its
//!             order), what the program has acknowledged in between.
//! Invariants: 1. everything is in virtual time and of no chance: the same plan sends the same;
//!             2. an acknowledgement is noted when its line is written, never before.
//! Left out:   preemption. The guest has one CPU whose work takes no time: data races of a program
//!             hide.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use wp_base::plain::Shown as _;
use wp_machine::make_device;
use wp_machine::profile::Profile;
use wp_medium::log_order::{BEGIN, END, is_reserved};
use wp_medium::write_log::{LogEntry, LogFlags};
use wp_serve::drive::freeze::Loss;
use wp_serve::drive::{Counts, Drive, Log};

use super::session::{self, Share};
use super::{Kernel, mkfs_command, quoted};

/// The program in the guest.
pub(super) const PROGRAM_C: &str = include_str!("program.c");
/// Directories that every host has, at one of which the file system is.
const PLACES: [&str; 3] = ["/mnt", "/media", "/srv"];
/// Variables of the environment that a program gets.
const KEPT: [&str; 3] = ["PATH", "HOME", "LANG"];

/// What is done.
#[derive(Clone, Debug)]
pub struct ProgramPlan {
    /// File system, as `mount -t` has it.
    pub fs: String,
    /// Options of its mount, joined by commas.
    pub mount: String,
    /// Arguments of its mkfs, beside the usual ones.
    pub mkfs: String,
    /// The device: preset and replaced parameters.
    pub device: (String, Vec<(String, u64)>),
    /// Shell command that runs on the new file system, before what is recorded.
    pub setup: Option<String>,
    /// Shell command of the program.
    pub run: String,
    /// Folders of the host that commands need, wherever they are; those above others first.
    pub folders: Vec<PathBuf>,
    /// Virtual seconds that the machine stays on when the program has ended: what it has left dirty
    /// is written back.
    pub rest_s: u64,
    /// What the guest's CPU costs at each entry into the kernel, to a drive and back from one.
    pub cpu: &'static Profile,
    /// Wall-clock time that the guest may take.
    pub limit: Duration,
}

/// What has come of it.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Version of the kernel.
    pub kernel: String,
    /// Exit status of the program.
    pub code: i32,
    /// What it has printed.
    pub output: String,
    /// Virtual nanoseconds after 0 at which it ended.
    pub ended_ns: u64,
    /// Lines that it has acknowledged, those of the set-up among them.
    pub acks: Vec<String>,
    /// What the drive was asked, mkfs and set-up included.
    pub counts: Counts,
    /// What it wrote, from the drive's first moment on; [`BEGIN`] is where the program begins.
    pub writes: Vec<LogEntry>,
    /// Bytes of a sector of the drive.
    pub sector_bytes: u32,
    /// Bytes of the drive.
    pub bytes: u64,
}

/// Why nothing has come of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProgramError {
    /// The guest, or what it needs; why.
    Guest(String),
    /// The command that sets up ended with this status, and has printed this.
    Setup(i32, String),
    /// The guest took more wall-clock time than it may, and has printed this.
    TooLong(Duration, String),
    /// It was interrupted.
    Interrupted,
}

impl From<String> for ProgramError {
    fn from(why: String) -> ProgramError {
        ProgramError::Guest(why)
    }
}

impl ProgramPlan {
    /// Where the file system is, for the program. Errors: the host has no such directory.
    pub fn place(&self) -> Result<&'static str, String> {
        place(&self.folders)
    }

    /// The guest's script. Errors: a file system that is not known.
    pub(super) fn script(&self, zoned: bool) -> Result<String, String> {
        Ok(format!(
            "cp /share/program /run/program; chmod +x /run/program; uname -r > /share/version\n\
             {}/run/program /dev/vda /dev/vdb {} {} {} {} {} {} {} {} 2> /share/err\n\
             R=$?; [ $R != 4 ] || cat /run/mkfs.out >> /share/err; exit $R\n",
            exports(),
            quoted(&self.fs),
            quoted(&self.mount),
            quoted(&mkfs_command(&self.fs, &self.mkfs, zoned)?),
            self.place()?,
            quoted(self.setup.as_deref().unwrap_or_default()),
            quoted(&self.run),
            self.rest_s,
            words(&self.folders),
        ))
    }
}

/// Where the file system is for commands that need these folders. Errors: the host has no such
/// directory.
pub(super) fn place(folders: &[PathBuf]) -> Result<&'static str, String> {
    places(folders)
        .next()
        .ok_or_else(|| format!("none of {} is a directory for the file system", PLACES.join(", ")))
}

/// All such directories.
pub(super) fn places(folders: &[PathBuf]) -> impl Iterator<Item = &'static str> {
    PLACES.into_iter().filter(|place| {
        Path::new(place).is_dir() && !folders.iter().any(|folder| folder.starts_with(place))
    })
}

/// Folders as words of the guest's shell.
pub(super) fn words(folders: &[PathBuf]) -> String {
    let words = folders.iter().map(|folder| quoted(&folder.shown().to_string()));
    words.collect::<Vec<_>>().join(" ")
}

/// Lines of the guest's shell: variables of the environment for commands of the host.
pub(super) fn exports() -> String {
    let kept = KEPT.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        Some(format!("export GUEST_{name}={}\n", quoted(&value)))
    });
    kept.collect()
}

/// Runs a plan in a guest of `kernel`, with `scratch` for what they share, and every request and
/// answer in `trace`; `progress` is told of virtual seconds and says whether to stop.
///
/// Errors: see [`ProgramError`].
pub fn run_program(
    kernel: &Kernel,
    plan: &ProgramPlan,
    scratch: &Path,
    trace: Option<Log>,
    progress: &mut dyn FnMut() -> bool,
) -> Result<Ran, ProgramError> {
    let (name, params) = &plan.device;
    let model = make_device(name, params).map_err(|e| e.to_string())?;
    let script = plan.script(model.limits().zones.is_some())?;
    let share = Share::new(scratch)?;
    share.compile_with_host("program", PROGRAM_C)?;
    share.write("run.sh", script.as_bytes())?;
    let mut drive = Drive::new(name, model, Loss::Model);
    let limits = *drive.limits();
    drive.keep_writes();
    if let Some(trace) = trace {
        drive.record(trace);
    }
    #[expect(clippy::disallowed_methods, reason = "a program that spins is ended by the host")]
    let start = Instant::now();
    let (mut asked, mut late, mut stopped) = (0u64, false, false);
    let mut stop = || {
        asked += 1;
        if asked.is_multiple_of(256) {
            stopped |= progress();
        }
        late |= start.elapsed() > plan.limit;
        stopped || late
    };
    let ended = session::serve(kernel, &share, drive, plan.cpu, &mut stop)?;
    if ended.stopped {
        return Err(match late {
            true => ProgramError::TooLong(plan.limit, share.read("run.out")),
            false => ProgramError::Interrupted,
        });
    }
    let number = |file: &str| share.read(file).trim().parse::<i64>().ok();
    if let Some(code) = number("setup-code").filter(|code| *code != 0) {
        return Err(ProgramError::Setup(code as i32, share.read("setup.out")));
    }
    let (Some(code), Some(ended_ns)) = (number("code"), number("ended")) else {
        return Err(share.failure().into());
    };
    let said = share.read("err");
    if !share.is_whole() || !said.trim().is_empty() {
        return Err(share.failure().into());
    }
    let writes = ended.drive.written().to_vec();
    let is_ack = |e: &&LogEntry| e.flags.has(LogFlags::MARK) && !is_reserved(&e.mark);
    Ok(Ran {
        kernel: share.read("version").trim().to_owned(),
        code: code as i32,
        output: share.read("run.out"),
        ended_ns: ended_ns as u64,
        acks: writes.iter().filter(is_ack).map(|e| e.mark.clone()).collect(),
        counts: ended.drive.counts(),
        sector_bytes: limits.logical_bytes,
        bytes: limits.sectors * wp_base::SECTOR_BYTES,
        writes,
    })
}

impl Ran {
    /// What the drive was sent between the beginning and the end of exploration.
    pub fn recorded(&self) -> &[LogEntry] {
        let at = |text: &str| self.writes.iter().position(|e| e.mark == text);
        let begin = at(BEGIN).unwrap_or(0);
        let end = at(END).unwrap_or(self.writes.len());
        self.writes.get(begin..end).unwrap_or_default()
    }
}
