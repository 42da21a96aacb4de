//! `recover`.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use serde_json::json;
use wp_base::{SECTOR_BYTES, Sector, Zone, plain, zone_report};
use wp_lab::recover::{InPlace, Output, Stopped, publish, write};
use wp_vfs::{Inspection, RecoveryPlan};

use crate::images::{Images, recovery_options};
use crate::output::{Exit, Out};

/// What to do about a recovery that ended early.
const AGAIN: &str = "the image can still be recovered: run the same command again";
/// What to do about a name that is taken.
const NEW_NAME: &str = "name a new file: nothing is written over";

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Image file; of a file system on several devices all of them, in its order.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    /// Write the recovered image to this new file and leave the original alone; once for each
    /// image.
    #[arg(long)]
    to: Vec<PathBuf>,
    /// Kernel version whose recovery rules apply [default: newest one modelled].
    #[arg(long)]
    era: Option<String>,
    /// The zones of the (last) device after the crash, as `blkzone report` printed them.
    #[arg(long, value_name = "REPORT")]
    zones: Option<PathBuf>,
    /// Order-preserving recovery (F2FS on zones): leaves out nodes whose data was not written,
    /// which Linux would take with whatever stands there.
    #[arg(long, requires = "zones")]
    oprw: bool,
    /// Write the zones as they are with the recovered image to this new file: resets, finishes and
    /// write pointers that the device must have.
    #[arg(long, value_name = "FILE", requires = "zones")]
    zones_to: Option<PathBuf>,
}

/// What recovery makes of an image.
struct Recovered {
    fs: &'static str,
    plan: RecoveryPlan,
    /// What was left out, and why.
    inspection: Inspection,
}

/// Runs the verb. Exit 1 if the recovered image is damaged.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    recover(a, out).unwrap_or_else(|e| e)
}

fn recover(a: &Args, out: &Out) -> Result<ExitCode, ExitCode> {
    if !a.to.is_empty() && a.to.len() != a.images.len() {
        let message = format!("--to: {} files for {} images", a.to.len(), a.images.len());
        return Err(out.fail(Exit::Usage, "to", &message, "give it once for each image"));
    }
    // Whatever cannot be written ends it before any work.
    let copies =
        a.to.iter().map(|to| output(Output::new(to), to, out)).collect::<Result<_, _>>()?;
    if let Some(file) = &a.zones_to {
        drop(output(Output::new(file), file, out)?);
    }
    let in_place = if a.to.is_empty() { open_in_place(&a.images, out)? } else { Vec::new() };
    let images = Images::open(&a.images, a.zones.as_deref(), out)?;
    let done = in_memory(a, &images, out)?;
    let stop = out.interrupt();
    if a.to.is_empty() {
        write_in_place(a, in_place, &images, &done.plan, &stop, out)?;
    } else {
        write_copies(a, copies, &images, &done.plan, &stop, out)?;
    }
    Ok(answer(if a.to.is_empty() { &a.images } else { &a.to }, &done, out))
}

/// Recovers without writing anything. Errors: told to the user.
fn in_memory(a: &Args, images: &Images, out: &Out) -> Result<Recovered, ExitCode> {
    let done = images.with(out, |view, fs| {
        let mut options = recovery_options(fs, a.era.as_deref(), out)?;
        if a.oprw {
            let set = options.set("oprw", "true", fs.options);
            let help = "see `writepath list fs` for the options of a file system";
            set.map_err(|e| out.fail(Exit::Usage, "oprw", &e.to_string(), help))?;
        }
        let plan = (fs.recover)(view, &options);
        let done = plan.and_then(|plan| {
            let inspection = (fs.inspect)(view, &options, false)?;
            Ok(Recovered { fs: fs.name, plan, inspection })
        });
        Ok::<_, ExitCode>(done)
    })??;
    done.map_err(|e| out.fs_error(&images.name(), &e))
}

fn output(made: io::Result<Output>, path: &Path, out: &Out) -> Result<Output, ExitCode> {
    made.map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            let message = format!("{} exists", path.display());
            out.fail(Exit::Usage, "exists", &message, NEW_NAME)
        }
        _ => out.host_error(path, &e),
    })
}

fn open_in_place(paths: &[PathBuf], out: &Out) -> Result<Vec<InPlace>, ExitCode> {
    let open = |path: &PathBuf| {
        InPlace::open(path).map_err(|e| {
            let message = format!("{}: cannot be recovered in place: {e}", path.display());
            let help = "nothing was written; --to NEW writes the recovered image to a new file";
            out.fail(Exit::HostIo, "host-io", &message, help)
        })
    };
    paths.iter().map(open).collect()
}

fn write_in_place(
    a: &Args,
    mut devices: Vec<InPlace>,
    images: &Images,
    plan: &RecoveryPlan,
    stop: &AtomicBool,
    out: &Out,
) -> Result<(), ExitCode> {
    let lengths = images.lengths();
    let failed = |device: usize, e: &io::Error, help: &str| {
        let name = devices.get(device).map_or(Path::new(""), InPlace::path);
        out.fail(Exit::HostIo, "host-io", &format!("{}: {e}", name.display()), help)
    };
    InPlace::reserve(&devices, &lengths, plan)
        .map_err(|(device, e)| failed(device, &e, "nothing was written; free some space first"))?;
    // Before the image: of one that is recovered nobody can tell them any more.
    let zones = zones_output(a, images, plan, out)?;
    publish(zones.into_iter().collect()).map_err(|(path, e)| out.host_error(&path, &e))?;
    let done = write(&mut devices, &lengths, plan, stop);
    if let (Err(_), Some(file)) = (&done, &a.zones_to) {
        drop(std::fs::remove_file(file));
    }
    match done {
        Ok(()) => Ok(()),
        Err(Stopped::Failed { device, error }) => {
            let name = devices.get(device).map_or(Path::new(""), InPlace::path);
            let message = format!("{}: {error}", name.display());
            Err(out.fail(Exit::HostIo, "host-io", &message, AGAIN))
        }
        Err(Stopped::Interrupted) => Err(interrupted(&images.name(), AGAIN, out)),
    }
}

fn write_copies(
    a: &Args,
    mut copies: Vec<Output>,
    images: &Images,
    plan: &RecoveryPlan,
    stop: &AtomicBool,
    out: &Out,
) -> Result<(), ExitCode> {
    let lengths = images.lengths();
    let ended = |path: &Path, e: &io::Error| match e.kind() {
        io::ErrorKind::Interrupted => interrupted(&images.name(), "no file was made", out),
        io::ErrorKind::AlreadyExists => {
            out.fail(Exit::Usage, "exists", &format!("{} exists", path.display()), NEW_NAME)
        }
        _ => out.host_error(path, e),
    };
    for ((copy, from), bytes) in copies.iter_mut().zip(&a.images).zip(&lengths) {
        copy.copy_from(from, *bytes, stop).map_err(|e| ended(copy.path(), &e))?;
    }
    write(&mut copies, &lengths, plan, stop).map_err(|stopped| match stopped {
        Stopped::Failed { device, error } => {
            ended(copies.get(device).map_or(Path::new(""), Output::path), &error)
        }
        Stopped::Interrupted => ended(Path::new(""), &io::ErrorKind::Interrupted.into()),
    })?;
    copies.extend(zones_output(a, images, plan, out)?);
    publish(copies).map_err(|(path, e)| ended(&path, &e))
}

/// The file of `--zones-to`, not yet under its name: addressed from the last device's start again.
fn zones_output(
    a: &Args,
    images: &Images,
    plan: &RecoveryPlan,
    out: &Out,
) -> Result<Option<Output>, ExitCode> {
    let Some(file) = &a.zones_to else { return Ok(None) };
    let first = plan.zones.first().map_or(0, |z| z.start.0);
    let bytes = images.lengths().last().copied().unwrap_or(0);
    let zones = Zone::within(&plan.zones, Sector(first), bytes / SECTOR_BYTES);
    output(Output::text(file, &zone_report::text(&zones)), file, out).map(Some)
}

fn interrupted(image: &str, help: &str, out: &Out) -> ExitCode {
    out.fail(Exit::Interrupted, "interrupted", &format!("{image}: interrupted"), help)
}

fn answer(targets: &[PathBuf], done: &Recovered, out: &Out) -> ExitCode {
    let (pages, found) = (done.plan.pages(), &done.inspection);
    let doc = json!({
        "schema": "writepath.recover/1", "image": targets[0], "images": targets, "fs": done.fs,
        "pages_written": pages, "left_out": found.left_out, "findings": found.findings,
    });
    let target: Vec<String> = targets.iter().map(|p| p.display().to_string()).collect();
    let mut text = format!("{}: {pages} pages written", plain::name(&target.join(" + ")));
    let exit = match found.findings.len() {
        0 => Exit::Ok,
        n => {
            write!(text, "; still damaged, {n} findings").expect("a string takes it");
            Exit::No
        }
    };
    text.push('\n');
    for line in &found.left_out {
        writeln!(text, "  left out: {}", plain::name(line)).expect("a string takes it");
    }
    for line in &found.findings {
        writeln!(text, "  finding: {}", plain::name(line)).expect("a string takes it");
    }
    out.answer(exit, &doc, &text)
}
