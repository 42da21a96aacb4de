//! What a command line of `kernel-lab` asks for, read once. What is wrong in it is found here.

use std::path::PathBuf;
use std::process::ExitCode;

use wp_machine::make_device;
use wp_machine::profile::Profile;
use wp_machine::spec::device;
use wp_parity::kernel_lab::suite::{Row, SUITES, Suite as Table};
use wp_parity::kernel_lab::{CutBy, FILE_SYSTEMS, MOST_JOBS, Plan};
use wp_serve::drive::freeze::Loss;

use super::args::Args;
use crate::output::{Exit, Out};

/// What is wrong in a command line.
pub(super) struct Wrong {
    code: &'static str,
    message: String,
    help: String,
}

impl Wrong {
    fn new(code: &'static str, message: String, help: &str) -> Wrong {
        Wrong { code, message, help: help.to_owned() }
    }

    /// Tells it.
    pub(super) fn told(&self, out: &Out) -> ExitCode {
        out.fail(Exit::Usage, self.code, &self.message, &self.help)
    }
}

/// What is asked for.
pub(super) enum Asked {
    /// A guest is checked or made.
    Setup(Setup),
    /// Power failures in one setting.
    Campaign(Guest, Box<Campaign>),
    /// A table of campaigns.
    Suite(Guest, Suite),
}

/// The guest that runs.
pub(super) struct Guest {
    pub kernel: Option<PathBuf>,
    pub root: Option<PathBuf>,
    pub memory_mib: u32,
}

/// What becomes of a guest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Check,
    Take,
    Build,
}

/// `--setup`.
pub(super) struct Setup {
    pub step: Step,
    pub kernel: Option<PathBuf>,
    pub root: Option<PathBuf>,
    /// The kernel's source.
    pub source: Option<PathBuf>,
    /// The folder that a guest is made in.
    pub to: Option<PathBuf>,
}

/// Power failures in one setting.
pub(super) struct Campaign {
    pub plan: Plan,
    /// The device, as the user wrote it.
    pub device: String,
    /// The file for requests and completions.
    pub trace: Option<PathBuf>,
    /// The folder for images of failed states.
    pub keep: Option<PathBuf>,
    /// The file for the guest's log.
    pub messages: Option<PathBuf>,
    /// Is the program also run on our own file system?
    pub beside: bool,
    /// Is every power failure printed?
    pub all: bool,
}

/// A table of campaigns.
pub(super) struct Suite {
    pub table: &'static Table,
    /// A campaign for each row.
    pub campaigns: Vec<Campaign>,
}

impl Asked {
    /// Errors: what is wrong in the arguments.
    pub(super) fn new(a: &Args) -> Result<Asked, Wrong> {
        let (kernel, root) = (a.kernel.clone(), a.root.clone());
        if let Some(what) = &a.setup {
            let step = match what.as_str() {
                "check" => Step::Check,
                "take" => Step::Take,
                "build" => Step::Build,
                other => {
                    let message = format!("--setup {other}: use check, take or build");
                    return Err(Wrong::new("setup", message, "--setup check"));
                }
            };
            let (source, to) = (a.source.clone(), a.to.clone());
            return Ok(Asked::Setup(Setup { step, kernel, root, source, to }));
        }
        let guest = Guest { kernel, root, memory_mib: a.memory };
        match &a.suite {
            Some(name) => Ok(Asked::Suite(guest, suite(a, name)?)),
            None => {
                let row = (&*a.fs, &*a.mount, &*a.device, a.jobs);
                Ok(Asked::Campaign(guest, Box::new(campaign(a, row, a.keep.clone())?)))
            }
        }
    }
}

fn suite(a: &Args, name: &str) -> Result<Suite, Wrong> {
    let Some(table) = SUITES.iter().find(|s| s.name == name) else {
        let known: Vec<&str> = SUITES.iter().map(|s| s.name).collect();
        let message = format!("--suite {name}: unknown suite");
        return Err(Wrong::new("suite", message, &format!("suites: {}", known.join(", "))));
    };
    let of = |row: &Row| {
        let keep = a.keep.as_ref().map(|k| k.join(row.name().replace(' ', "-")));
        campaign(a, (row.fs, row.mount, row.device, row.jobs), keep)
    };
    Ok(Suite { table, campaigns: table.rows.iter().map(of).collect::<Result<_, _>>()? })
}

/// A campaign on a file system with mount options, a device and a number of threads.
fn campaign(
    a: &Args,
    (fs, mount, drive, jobs): (&str, &str, &str, u64),
    keep: Option<PathBuf>,
) -> Result<Campaign, Wrong> {
    let Some(loss) = Loss::find(&a.loss) else {
        let message = format!("--loss {}: use model or contract", a.loss);
        return Err(Wrong::new("loss", message, "--loss model"));
    };
    if !FILE_SYSTEMS.contains(&fs) {
        let help = format!("file systems: {}", FILE_SYSTEMS.join(", "));
        return Err(Wrong::new("fs", format!("--fs {fs}: not supported"), &help));
    }
    let Some(cut) = CutBy::find(&a.cut) else {
        let message = format!("--cut {}: use event, time or change", a.cut);
        return Err(Wrong::new("cut", message, "--cut event"));
    };
    for (what, n, most) in [
        ("cycles", a.cycles, 1_000_000),
        ("jobs", jobs, MOST_JOBS),
        ("blocks", a.blocks, 1 << 18),
        ("ops", a.ops, 1 << 20),
    ] {
        if !(1..=most).contains(&n) {
            let message = format!("--{what} {n}: must be from 1 to {most}");
            return Err(Wrong::new(what, message, ""));
        }
    }
    let wrong = |e: String| Wrong::new("device", e, "writepath list devices");
    let device = device(drive).map_err(wrong)?;
    make_device(&device.0, &device.1).map_err(|e| wrong(e.to_string()))?;
    let plan = Plan {
        fs: fs.to_owned(),
        mount: mount.to_owned(),
        mkfs: a.mkfs.clone(),
        device,
        loss,
        cycles: a.cycles,
        seed: a.seed,
        cut,
        jobs,
        blocks: a.blocks,
        ops: a.ops,
        direct: a.direct,
        sync: a.sync,
        cpu: Profile::find(&a.cpu).map_err(|e| Wrong::new("cpu", e, "writepath list cpus"))?,
    };
    Ok(Campaign {
        plan,
        device: drive.to_owned(),
        trace: a.trace.clone(),
        keep,
        messages: a.messages.clone(),
        beside: a.beside,
        all: a.all,
    })
}
