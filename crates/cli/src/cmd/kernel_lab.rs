//! `kernel-lab`: a real kernel's file system on a modelled drive, and power cuts.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::json;
use wp_lab::spec::device;
use wp_serve::drive::Log;
use wp_serve::drive::freeze::Loss;
use wp_serve::kernel_lab::{FILE_SYSTEMS, Kernel, Plan, Report, run as lab};

use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// File system of the guest's kernel: ext4, f2fs, btrfs, nilfs2 or xfs.
    #[arg(long, default_value = "ext4")]
    fs: String,
    /// Options of its mount, joined by commas.
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    mount: String,
    /// Further arguments of its mkfs.
    #[arg(long, value_name = "ARGUMENTS", default_value = "", allow_hyphen_values = true)]
    mkfs: String,
    /// The drive: a preset of `list devices`, with parameters.
    #[arg(long, value_name = "PRESET", default_value = "ssd-128,capacity_bytes=536870912")]
    device: String,
    /// What a power cut may take: what the model has not made durable, or all that neither a flush
    /// nor a forced write has covered.
    #[arg(long, value_name = "model|contract", default_value = "model")]
    loss: String,
    /// Power cuts.
    #[arg(long, default_value_t = 100)]
    cycles: u64,
    /// Seed of the program, the cuts and what they leave.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Blocks of 4 KiB of the file.
    #[arg(long, default_value_t = 64)]
    blocks: u64,
    /// Overwrites with an fsync in a cycle.
    #[arg(long, default_value_t = 16)]
    ops: u64,
    /// The kernel, built for User-Mode Linux with time travel; that of $GUEST or
    /// ~/.cache/kernel-guest if left out.
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// The guest's root directory; as the kernel if left out.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Memory of the guest in MiB.
    #[arg(long, value_name = "N", default_value_t = 512)]
    memory: u32,
    /// Write down every request and answer of the drive, as blkparse prints them.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print every cycle.
    #[arg(long)]
    all: bool,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    match campaign(a, out) {
        Ok(code) | Err(code) => code,
    }
}

fn campaign(a: &Args, out: &Out) -> Result<ExitCode, ExitCode> {
    let plan = plan(a, out)?;
    let kernel = Kernel::find(a.kernel.as_deref(), a.root.as_deref()).map_err(|e| {
        out.fail(Exit::Unsupported, "guest", &e, "--kernel FILE --root DIR, or GUEST=DIR")
    })?;
    let kernel = Kernel { memory_mib: a.memory, ..kernel };
    let scratch = std::env::temp_dir().join(format!("writepath-kernel-lab-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|e| out.host_error(&scratch, &e))?;
    let trace = match &a.trace {
        Some(path) => {
            let file = std::fs::File::create(path).map_err(|e| out.host_error(path, &e))?;
            Some(Log::new(Box::new(file)))
        }
        None => None,
    };
    let stop = super::serve::interrupt(out);
    let mut told = 0;
    let mut progress = |done: u64| {
        if done >= told + 10 {
            told = done;
            out.note(&format!("{done} of {} power cuts", plan.cycles));
        }
        stop.load(Ordering::Relaxed)
    };
    let done = lab(&kernel, &plan, &scratch, trace, &mut progress);
    // The report is what is kept.
    drop(std::fs::remove_dir_all(&scratch));
    let report = done.map_err(|e| out.fail(Exit::Simulated, "guest", &e, ""))?;
    Ok(print(a, &report, out))
}

fn plan(a: &Args, out: &Out) -> Result<Plan, ExitCode> {
    let wrong = |code: &str, message: &str, help: &str| out.fail(Exit::Usage, code, message, help);
    let Some(loss) = Loss::find(&a.loss) else {
        let message = format!("--loss {}: there are model and contract", a.loss);
        return Err(wrong("loss", &message, "--loss model"));
    };
    if !FILE_SYSTEMS.contains(&a.fs.as_str()) {
        let message = format!("--fs {}: no mkfs of it is known", a.fs);
        return Err(wrong("fs", &message, &format!("one of {}", FILE_SYSTEMS.join(", "))));
    }
    for (what, n, most) in
        [("cycles", a.cycles, 1_000_000), ("blocks", a.blocks, 1 << 18), ("ops", a.ops, 1 << 20)]
    {
        if !(1..=most).contains(&n) {
            let message = format!("--{what} {n}: from 1 to {most}");
            return Err(wrong(what, &message, ""));
        }
    }
    let device = device(&a.device).map_err(|e| wrong("device", &e, "writepath list devices"))?;
    Ok(Plan {
        fs: a.fs.clone(),
        mount: a.mount.clone(),
        mkfs: a.mkfs.clone(),
        device,
        loss,
        cycles: a.cycles,
        seed: a.seed,
        blocks: a.blocks,
        ops: a.ops,
    })
}

fn print(a: &Args, report: &Report, out: &Out) -> ExitCode {
    let mount = if a.mount.is_empty() { String::new() } else { format!(",{}", a.mount) };
    let mut text = format!(
        "Linux {} {}{mount} on {}, loss by {}, seed {}\n",
        report.kernel, a.fs, a.device, a.loss, a.seed
    );
    text.push_str(&report.table());
    for c in report.cycles.iter().filter(|c| a.all || !c.is_sound()) {
        text.push_str(&format!(
            "cut {}: {} changes in, {} of {} units kept, {} zones back; mount {}, lost {}, \
             garbage {}, unreadable {}\n",
            c.cycle,
            c.changes,
            c.kept,
            c.in_doubt,
            c.zones_back,
            c.mount_error,
            c.lost,
            c.garbage,
            c.unreadable
        ));
    }
    let document = json!({
        "schema": "writepath.kernel-lab/1",
        "fs": a.fs, "mount": a.mount, "device": a.device, "loss": a.loss, "seed": a.seed,
        "fsync_mean_ns": report.fsync_mean_ns(),
        "lost": report.count(|c| c.lost > 0),
        "garbage": report.count(|c| c.garbage > 0),
        "unreadable": report.count(|c| c.unreadable > 0),
        "mount_failed": report.count(|c| c.mount_error > 0),
        "report": report,
    });
    let exit = match (report.stopped, report.is_sound()) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Ok,
        (false, false) => Exit::No,
    };
    out.answer(exit, &document, &text)
}
